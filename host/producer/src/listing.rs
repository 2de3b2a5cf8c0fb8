//! Asks which shards a stream has.

use std::collections::HashSet;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::operation::list_shards::ListShardsOutput;
use aws_sdk_kinesis::types::{Shard, ShardFilter, ShardFilterType};
use shardmill_record::{HashKeyRange, ShardId, StreamArn};

use crate::answer::Failure;
use crate::shard_map::{OpenShard, ShardMap};

/// The open shards of a stream, given by its name or ARN.
pub(crate) async fn list_shards(client: &Client, stream: &str) -> Result<ShardMap, Failure> {
    let at_latest = ShardFilter::builder().r#type(ShardFilterType::AtLatest).build();
    let first = client.list_shards();
    let first = if StreamArn::is_meant(stream) { first.stream_arn(stream) } else { first.stream_name(stream) };
    let filter = at_latest.map_err(|error| Failure::invalid_answer(error.to_string()))?;
    let mut page = first.shard_filter(filter).send().await.map_err(|error| Failure::of_call(&error))?;
    let mut seen = HashSet::new();
    let mut open = Vec::new();
    // A page that brings nothing new ends the listing too, whatever its token says.
    while let (true, Some(token)) = (take_page(&page, &mut seen, &mut open)?, page.next_token()) {
        let next = client.list_shards().next_token(token).send().await;
        page = next.map_err(|error| Failure::of_call(&error))?;
    }
    if open.is_empty() {
        return Err(Failure::invalid_answer("the stream has no open shard".to_owned()));
    }
    Ok(ShardMap::new(open))
}

/// Whether there was a shard that had not been seen.
fn take_page(page: &ListShardsOutput, seen: &mut HashSet<ShardId>, open: &mut Vec<OpenShard>) -> Result<bool, Failure> {
    let mut new = false;
    for shard in page.shards() {
        let id = ShardId::parse(shard.shard_id()).map_err(|error| Failure::invalid_answer(error.to_string()))?;
        if seen.insert(id.clone()) {
            new = true;
            if is_open(shard) {
                open.push(OpenShard { range: range(shard)?, id });
            }
        }
    }
    Ok(new)
}

fn is_open(shard: &Shard) -> bool {
    shard.sequence_number_range().is_none_or(|range| range.ending_sequence_number().is_none())
}

fn range(shard: &Shard) -> Result<HashKeyRange, Failure> {
    let invalid = |reason: String| Failure::invalid_answer(format!("shard {}: {reason}", shard.shard_id()));
    let Some(range) = shard.hash_key_range() else {
        return Err(invalid("it has no hash key range".to_owned()));
    };
    let key = |text: &str| text.parse().map_err(|error: shardmill_record::InvalidHashKey| invalid(error.to_string()));
    Ok(HashKeyRange { start: key(range.starting_hash_key())?, end: key(range.ending_hash_key())? })
}

/// How large a Kinesis record of this stream may be, partition key included; `None` if the service does not say.
pub(crate) async fn max_record_bytes(client: &Client, stream: &str) -> Result<Option<usize>, Failure> {
    let describe = client.describe_stream_summary();
    let describe = if StreamArn::is_meant(stream) { describe.stream_arn(stream) } else { describe.stream_name(stream) };
    let answer = describe.send().await.map_err(|error| Failure::of_call(&error))?;
    let kib = answer.stream_description_summary().and_then(|summary| summary.max_record_size_in_kib());
    Ok(kib.and_then(|kib| usize::try_from(kib).ok()).map(|kib| kib * 1024))
}

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::types::{HashKeyRange as Keys, SequenceNumberRange};

    use super::*;

    fn shard(id: &str, keys: (&str, &str), ending: Option<&str>) -> Shard {
        let keys = Keys::builder().starting_hash_key(keys.0).ending_hash_key(keys.1).build().unwrap();
        let numbers = SequenceNumberRange::builder().starting_sequence_number("1");
        let numbers = numbers.set_ending_sequence_number(ending.map(str::to_owned)).build().unwrap();
        Shard::builder().shard_id(id).hash_key_range(keys).sequence_number_range(numbers).build().unwrap()
    }

    #[test]
    fn closed_shards_and_shards_of_an_earlier_page_are_passed_over() {
        let page = |shards| ListShardsOutput::builder().set_shards(Some(shards)).build();
        let first = shard("shardId-000000000000", ("0", "9"), Some("5"));
        let second = shard("shardId-000000000001", ("0", "4"), None);
        let third = shard("shardId-000000000002", ("5", "9"), None);
        let (mut seen, mut open) = (HashSet::new(), Vec::new());
        assert_eq!(take_page(&page(vec![first.clone(), second.clone()]), &mut seen, &mut open), Ok(true));
        assert_eq!(take_page(&page(vec![second.clone(), third]), &mut seen, &mut open), Ok(true));
        assert_eq!(take_page(&page(vec![first, second]), &mut seen, &mut open), Ok(false));
        let ids: Vec<_> = open.iter().map(|shard| shard.id.as_str()).collect();
        assert_eq!(ids, ["shardId-000000000001", "shardId-000000000002"]);
        let broken = page(vec![shard("shardId-000000000003", ("0", "x"), None)]);
        assert!(take_page(&broken, &mut seen, &mut open).is_err());
    }
}
