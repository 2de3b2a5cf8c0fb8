//! From the SDK's types to a page. The only place that knows them: a decoder that works on the response body in
//! place can take it over.

use std::cmp::Ordering;

use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::types;
use shardmill_record::{Page, PageBuilder, ShardId, compare_digits};

use crate::service::hash_key_range;
use crate::{ChildShard, ReadFrom};

/// What an answer of GetRecords holds.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) page: Page,
    /// Partition keys and payloads.
    pub(super) bytes: u64,
    pub(super) next_iterator: Option<String>,
    pub(super) millis_behind: Option<u64>,
    pub(super) children: Option<Vec<ChildShard>>,
}

/// The error says what is wrong with the answer. Records have to be in order and to belong behind `from`: whatever
/// else they are, they are not the next ones of this shard.
pub(super) fn decode(answer: GetRecordsOutput, from: &ReadFrom) -> Result<Decoded, String> {
    let mut builder = PageBuilder::default();
    let mut bytes = 0;
    for record in answer.records {
        bytes += push(&mut builder, &record)?;
    }
    let page = builder.build();
    check_order(&page, from)?;
    let children = answer.child_shards.filter(|children| !children.is_empty());
    Ok(Decoded {
        page,
        bytes,
        next_iterator: answer.next_shard_iterator.filter(|iterator| !iterator.is_empty()),
        millis_behind: answer.millis_behind_latest.and_then(|behind| u64::try_from(behind).ok()),
        children: children.map(|children| children.iter().map(child).collect()).transpose()?,
    })
}

fn push(builder: &mut PageBuilder, record: &types::Record) -> Result<u64, String> {
    let sequence_number = record.sequence_number();
    let partition_key =
        record.partition_key().ok_or_else(|| format!("record {sequence_number:.116} has no partition key"))?;
    let data = record.data().as_ref();
    let arrival = record.approximate_arrival_timestamp().and_then(|time| time.to_millis().ok());
    let arrival = arrival.and_then(|time| u64::try_from(time).ok()).unwrap_or(0);
    builder.push(sequence_number, partition_key, data, arrival).map_err(|error| error.to_string())?;
    Ok((partition_key.len() + data.len()) as u64)
}

fn check_order(page: &Page, from: &ReadFrom) -> Result<(), String> {
    if page.is_empty() {
        return Ok(());
    }
    let first = page.sequence_number_digits(0);
    let in_place = match from {
        ReadFrom::TrimHorizon | ReadFrom::AtTimestamp(_) => true,
        ReadFrom::At(number) => number.cmp_digits(first.as_bytes()) != Ordering::Greater,
        ReadFrom::After(number) => number.cmp_digits(first.as_bytes()) == Ordering::Less,
    };
    if !in_place {
        return Err(format!("its first record is {first}, though it was asked for what begins with {from}"));
    }
    for index in 1..page.len() {
        let [left, right] = [page.sequence_number_digits(index - 1), page.sequence_number_digits(index)];
        if compare_digits(left.as_bytes(), right.as_bytes()) != Ordering::Less {
            return Err(format!("record {right} comes after record {left}, out of order"));
        }
    }
    Ok(())
}

fn child(child: &types::ChildShard) -> Result<ChildShard, String> {
    let id = |text: &str| ShardId::parse(text).map_err(|error| error.to_string());
    let missing = || format!("child {:.128} has no HashKeyRange", child.shard_id());
    Ok(ChildShard {
        id: id(child.shard_id())?,
        parents: child.parent_shards().iter().map(|parent| id(parent)).collect::<Result<_, _>>()?,
        range: hash_key_range(child.hash_key_range().ok_or_else(missing)?)?,
    })
}

#[cfg(test)]
mod tests {
    use aws_smithy_types::{Blob, DateTime};
    use shardmill_record::SequenceNumber;

    use super::*;

    fn record(sequence_number: &str) -> types::Record {
        types::Record::builder()
            .sequence_number(sequence_number)
            .partition_key("key")
            .data(Blob::new(b"payload"))
            .approximate_arrival_timestamp(DateTime::from_millis(1_782_864_000_123))
            .build()
            .unwrap()
    }

    fn answer(sequence_numbers: &[&str]) -> GetRecordsOutput {
        let records = sequence_numbers.iter().copied().map(record).collect();
        GetRecordsOutput::builder().set_records(Some(records)).next_shard_iterator("next").build().unwrap()
    }

    fn number(text: &str) -> SequenceNumber {
        SequenceNumber::parse(text).unwrap()
    }

    #[test]
    fn records_keep_all_their_parts_as_the_service_wrote_them() {
        let decoded = decode(answer(&["0099", "100"]), &ReadFrom::At(number("99"))).unwrap();
        let page = &decoded.page;
        assert_eq!((page.len(), decoded.bytes, decoded.next_iterator.as_deref()), (2, 20, Some("next")));
        assert_eq!(
            (page.sequence_number_digits(0), page.partition_key(0), page.data(0)),
            ("0099", "key", &b"payload"[..])
        );
        assert_eq!(page.approximate_arrival(1), 1_782_864_000_123);
    }

    #[test]
    fn records_that_are_not_the_next_ones_are_refused() {
        let refused = |numbers: &[&str], from| decode(answer(numbers), &from).unwrap_err();
        assert!(refused(&["99"], ReadFrom::After(number("99"))).contains("after record 99"));
        assert!(refused(&["99"], ReadFrom::At(number("100"))).contains("begins with record 100"));
        assert!(refused(&["100", "99"], ReadFrom::TrimHorizon).contains("out of order"));
        assert!(refused(&["100", "100"], ReadFrom::AtTimestamp(5)).contains("out of order"));
        assert!(refused(&["100", "0099"], ReadFrom::AtTimestamp(5)).contains("out of order"));
        assert!(refused(&["1", "-2"], ReadFrom::TrimHorizon).contains("not a sequence number"));
    }

    #[test]
    fn children_are_told_when_the_service_tells_them() {
        let range = types::HashKeyRange::builder().starting_hash_key("0").ending_hash_key("9").build().unwrap();
        let child = types::ChildShard::builder()
            .shard_id("shardId-000000000002")
            .parent_shards("shardId-000000000000")
            .hash_key_range(range)
            .build()
            .unwrap();
        let last = GetRecordsOutput::builder().set_records(Some(vec![])).child_shards(child).build().unwrap();
        let decoded = decode(last, &ReadFrom::TrimHorizon).unwrap();
        let children = decoded.children.unwrap();
        assert_eq!((decoded.next_iterator, children.len()), (None, 1));
        assert_eq!(children[0].parents, [ShardId::parse("shardId-000000000000").unwrap()]);
        assert_eq!(decode(answer(&[]), &ReadFrom::TrimHorizon).unwrap().children, None);
    }
}
