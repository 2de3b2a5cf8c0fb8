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
    let mut listing = Listing::default();
    let mut tokens = HashSet::new();
    loop {
        listing.take_page(&page)?;
        let Some(token) = page.next_token().map(str::to_owned) else { break };
        // A page that was there before ends the listing too.
        if !tokens.insert(token.clone()) {
            break;
        }
        let next = client.list_shards().next_token(token).send().await;
        page = next.map_err(|error| Failure::of_call(&error))?;
    }
    let open = listing.open();
    if open.is_empty() {
        return Err(Failure::invalid_answer("the stream has no open shard".to_owned()));
    }
    Ok(ShardMap::new(open))
}

/// What pages have brought.
#[derive(Debug, Default)]
struct Listing {
    seen: HashSet<ShardId>,
    open: Vec<OpenShard>,
    parents: HashSet<String>,
}

// === impl Listing ===

impl Listing {
    fn take_page(&mut self, page: &ListShardsOutput) -> Result<(), Failure> {
        for shard in page.shards() {
            let id = ShardId::parse(shard.shard_id()).map_err(|error| Failure::invalid_answer(error.to_string()))?;
            self.parents.extend(shard.parent_shard_id().map(str::to_owned));
            self.parents.extend(shard.adjacent_parent_shard_id().map(str::to_owned));
            if self.seen.insert(id.clone()) && is_open(shard) {
                self.open.push(OpenShard { range: range(shard)?, id });
            }
        }
        Ok(())
    }

    /// The open shards. One whose child is listed was closed between two pages.
    fn open(self) -> Vec<OpenShard> {
        let Self { open, parents, .. } = self;
        open.into_iter().filter(|shard| !parents.contains(shard.id.as_str())).collect()
    }
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

/// What a Kinesis record of every stream may have, in KiB (API reference: MaxRecordSizeInKiB is 1,024 to 10,240).
const LOWEST_RECORD_KIB: usize = 1024;

/// How large a Kinesis record of this stream may be, partition key included; `None` if the service does not say. One that
/// stands in for Kinesis may say 0 for that: taken at its word, no record could be sent.
pub(crate) async fn max_record_bytes(client: &Client, stream: &str) -> Result<Option<usize>, Failure> {
    let describe = client.describe_stream_summary();
    let describe = if StreamArn::is_meant(stream) { describe.stream_arn(stream) } else { describe.stream_name(stream) };
    let answer = describe.send().await.map_err(|error| Failure::of_call(&error).of_describing())?;
    let kib = answer.stream_description_summary().and_then(|summary| summary.max_record_size_in_kib());
    let kib = kib.and_then(|kib| usize::try_from(kib).ok()).filter(|kib| *kib >= LOWEST_RECORD_KIB);
    Ok(kib.map(|kib| kib * 1024))
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
        let mut listing = Listing::default();
        for shards in [vec![first.clone(), second.clone()], vec![second.clone(), third], vec![first, second]] {
            listing.take_page(&page(shards)).unwrap();
        }
        let ids: Vec<_> = listing.open().into_iter().map(|shard| shard.id.to_string()).collect();
        assert_eq!(ids, ["shardId-000000000001", "shardId-000000000002"]);
        let broken = page(vec![shard("shardId-000000000003", ("0", "x"), None)]);
        assert!(Listing::default().take_page(&broken).is_err());
    }

    #[test]
    fn a_shard_that_is_split_between_two_pages_is_not_open() {
        let parent = shard("shardId-000000000000", ("0", "9"), None);
        let child = |id: &str, keys| {
            let mut child = shard(id, keys, None);
            child.parent_shard_id = Some("shardId-000000000000".to_owned());
            child
        };
        let children = vec![child("shardId-000000000001", ("0", "4")), child("shardId-000000000002", ("5", "9"))];
        let page = |shards| ListShardsOutput::builder().set_shards(Some(shards)).build();
        let mut listing = Listing::default();
        listing.take_page(&page(vec![parent])).unwrap();
        listing.take_page(&page(children)).unwrap();
        let ids: Vec<_> = listing.open().into_iter().map(|shard| shard.id.to_string()).collect();
        assert_eq!(ids, ["shardId-000000000001", "shardId-000000000002"]);
    }
}
