//! From what a decoder found in an answer of GetRecords to a page and what is known with it. The rules on what an
//! answer must be like are here, so that they are the same whichever decoder reads it.

use std::cmp::Ordering;

use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::types;
use aws_smithy_types::DateTime;
use bytes::BytesMut;
use shardmill_record::{
    HashKeyRange, InvalidHashKey, InvalidRecord, KinesisRecord, Page, ShardId, Span, compare_digits,
};

use crate::{ChildShard, ReadFrom};

/// What an answer of GetRecords holds.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The records, in order, each behind the last one that was read.
    pub page: Page,
    /// Partition keys and payloads together, in bytes, as the service counts them.
    pub bytes: u64,
    /// Where to go on; `None` at the closed shard's end.
    pub next_iterator: Option<String>,
    /// How far the page is behind the shard's tip, in milliseconds.
    pub millis_behind: Option<u64>,
    /// The shards that take over at the shard's end, where the service names them.
    pub children: Option<Vec<ChildShard>>,
}

/// A record as a decoder found it, in spans of the answer's buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FoundRecord {
    pub(super) sequence_number: Option<Span>,
    pub(super) partition_key: Option<Span>,
    pub(super) data: Span,
    /// In milliseconds since 1970; 0 where the answer does not tell, or tells a time that is none.
    pub(super) arrival: u64,
}

/// A child as a decoder found it. Texts that are not there are empty.
#[derive(Debug, Default)]
pub(super) struct FoundChild {
    pub(super) id: String,
    pub(super) parents: Vec<String>,
    /// First and last hash key.
    pub(super) range: Option<(String, String)>,
}

/// A text that has to be UTF-8, and is not.
#[derive(Debug)]
pub(super) struct NotUtf8(pub(super) Span);

/// Takes in what a decoder finds, field by field. Of a field that comes twice the last one counts, as it does with
/// the SDK; so what is wrong with records or children is told at the end, and not if others took their place.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    from: &'a ReadFrom,
    has_records: bool,
    records: Vec<KinesisRecord>,
    bytes: u64,
    refused_record: Option<String>,
    children: Option<Vec<ChildShard>>,
    refused_child: Option<String>,
    next_iterator: Option<String>,
    millis_behind: Option<i64>,
}

// === impl Answer ===

impl<'a> Answer<'a> {
    /// An answer to a read from here. Records have to be in order and to belong behind it: whatever else they are,
    /// they are not the next ones of this shard.
    pub(super) fn new(from: &'a ReadFrom) -> Self {
        Self {
            from,
            has_records: false,
            records: Vec::new(),
            bytes: 0,
            refused_record: None,
            children: None,
            refused_child: None,
            next_iterator: None,
            millis_behind: None,
        }
    }

    pub(super) fn next_iterator(&mut self, iterator: String) {
        self.next_iterator = Some(iterator);
    }

    pub(super) fn millis_behind(&mut self, behind: i64) {
        self.millis_behind = Some(behind);
    }

    /// The list of records begins.
    pub(super) fn begin_records(&mut self) {
        self.has_records = true;
        self.records.clear();
        self.bytes = 0;
        self.refused_record = None;
    }

    /// Makes room for so many records more.
    pub(super) fn expect_records(&mut self, count: usize) {
        self.records.reserve(count);
    }

    /// The next record, while its bytes are at hand.
    #[inline]
    pub(super) fn record(&mut self, buffer: &[u8], found: &FoundRecord) -> Result<(), NotUtf8> {
        let sequence_number = found.sequence_number.unwrap_or_default();
        let Some(partition_key) = found.partition_key else {
            let number = utf8(buffer, sequence_number)?;
            self.refuse_record(format!("record {number:.116} has no partition key"));
            return Ok(());
        };
        match KinesisRecord::check(buffer, sequence_number, partition_key, found.data, found.arrival) {
            Ok(record) => {
                let number = record.sequence_number().of(buffer);
                let before = self.records.last().map(|last| last.sequence_number().of(buffer));
                match misplaced(self.from, before, number) {
                    Some(reason) => self.refuse_record(reason),
                    // Once one is refused, none is kept: the answer will not be used.
                    None if self.refused_record.is_some() => {}
                    None => {
                        self.bytes += u64::from(partition_key.length) + u64::from(found.data.length);
                        self.records.push(record);
                    }
                }
                Ok(())
            }
            Err(InvalidRecord::PartitionKey { .. }) => Err(NotUtf8(partition_key)),
            Err(InvalidRecord::SequenceNumber(error)) => {
                utf8(buffer, sequence_number)?;
                utf8(buffer, partition_key)?;
                self.refuse_record(error.to_string());
                Ok(())
            }
        }
    }

    /// The list of children begins.
    pub(super) fn begin_children(&mut self) {
        self.children = Some(Vec::new());
        self.refused_child = None;
    }

    /// The next child.
    pub(super) fn child(&mut self, found: &FoundChild) {
        match child(found) {
            Ok(child) => self.children.get_or_insert_default().push(child),
            Err(reason) => {
                self.refused_child.get_or_insert(reason);
            }
        }
    }

    /// The error says what is wrong with the answer.
    pub(super) fn finish(self, buffer: BytesMut) -> Result<Decoded, String> {
        if let Some(reason) = self.refused_record.or(self.refused_child) {
            return Err(reason);
        }
        // The SDK takes an empty body for an empty answer, which would be the shard's end: what was not read of it
        // would be lost.
        if !self.has_records {
            return Err("there are no `Records` in it, not even an empty list".into());
        }
        // An answer without records keeps no buffer.
        let page = if self.records.is_empty() { Page::default() } else { Page::from_parts(buffer, self.records) };
        Ok(Decoded {
            page,
            bytes: self.bytes,
            next_iterator: self.next_iterator.filter(|iterator| !iterator.is_empty()),
            millis_behind: self.millis_behind.and_then(|behind| u64::try_from(behind).ok()),
            children: self.children.filter(|children| !children.is_empty()),
        })
    }

    #[cold]
    fn refuse_record(&mut self, reason: String) {
        self.refused_record.get_or_insert(reason);
    }
}

/// Why a record is not the next one behind the record before it, or behind where the read began.
fn misplaced(from: &ReadFrom, before: Option<&[u8]>, number: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy;
    let Some(before) = before else {
        let in_place = match from {
            ReadFrom::TrimHorizon | ReadFrom::AtTimestamp(_) => true,
            ReadFrom::At(from) => from.cmp_digits(number) != Ordering::Greater,
            ReadFrom::After(from) => from.cmp_digits(number) == Ordering::Less,
        };
        let reason = || {
            let first = text(number);
            format!("its first record is {first}, though it was asked for what begins with {from}")
        };
        return (!in_place).then(reason);
    };
    let order = compare_digits(before, number);
    let reason = || format!("record {} comes after record {}, out of order", text(number), text(before));
    (order != Ordering::Less).then(reason)
}

fn child(found: &FoundChild) -> Result<ChildShard, String> {
    let id = |text: &str| ShardId::parse(text).map_err(|error| error.to_string());
    let key = |text: &str| text.parse().map_err(|error: InvalidHashKey| error.to_string());
    let (start, end) = found.range.as_ref().ok_or_else(|| format!("child {:.128} has no HashKeyRange", found.id))?;
    Ok(ChildShard {
        id: id(&found.id)?,
        parents: found.parents.iter().map(|parent| id(parent)).collect::<Result<_, _>>()?,
        range: HashKeyRange { start: key(start)?, end: key(end)? },
    })
}

pub(super) fn utf8(buffer: &[u8], span: Span) -> Result<&str, NotUtf8> {
    std::str::from_utf8(span.of(buffer)).map_err(|_| NotUtf8(span))
}

/// A time of arrival as records keep it.
pub(super) fn arrival(time: DateTime) -> u64 {
    time.to_millis().ok().and_then(|time| u64::try_from(time).ok()).unwrap_or(0)
}

/// Copies what the SDK decoded.
pub(crate) fn from_sdk(answer: GetRecordsOutput, from: &ReadFrom) -> Result<Decoded, String> {
    let size = |record: &types::Record| {
        record.sequence_number().len() + record.partition_key().map_or(0, str::len) + record.data().as_ref().len()
    };
    let mut buffer = BytesMut::with_capacity(answer.records().iter().map(size).sum());
    if u32::try_from(buffer.capacity()).is_err() {
        return Err(too_large(buffer.capacity()));
    }
    let mut append = |bytes: &[u8]| {
        let span = Span { start: buffer.len() as u32, length: bytes.len() as u32 };
        buffer.extend_from_slice(bytes);
        span
    };
    let found: Vec<_> = answer
        .records()
        .iter()
        .map(|record| FoundRecord {
            sequence_number: Some(append(record.sequence_number().as_bytes())),
            partition_key: record.partition_key().map(|key| append(key.as_bytes())),
            data: append(record.data().as_ref()),
            arrival: record.approximate_arrival_timestamp().map_or(0, |time| arrival(*time)),
        })
        .collect();

    let mut decoded = Answer::new(from);
    decoded.begin_records();
    decoded.expect_records(found.len());
    for record in &found {
        decoded.record(&buffer, record).expect("the SDK's texts are UTF-8");
    }
    if let Some(iterator) = answer.next_shard_iterator {
        decoded.next_iterator(iterator);
    }
    if let Some(behind) = answer.millis_behind_latest {
        decoded.millis_behind(behind);
    }
    for child in answer.child_shards.into_iter().flatten() {
        decoded.child(&FoundChild {
            id: child.shard_id,
            parents: child.parent_shards,
            range: child.hash_key_range.map(|range| (range.starting_hash_key, range.ending_hash_key)),
        });
    }
    decoded.finish(buffer)
}

/// Why an answer of this size is not decoded: a page's spans have 32 bits.
pub(super) fn too_large(bytes: usize) -> String {
    format!("it has {bytes} bytes, and an answer of 4 GiB or more cannot be right")
}

#[cfg(test)]
mod tests {
    use aws_smithy_types::Blob;
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
    fn records_keep_all_their_parts() {
        let decoded = from_sdk(answer(&["0099", "100"]), &ReadFrom::At(number("99"))).unwrap();
        let page = &decoded.page;
        assert_eq!((page.len(), decoded.bytes, decoded.next_iterator.as_deref()), (2, 20, Some("next")));
        assert_eq!(
            (page.sequence_number_digits(0), page.partition_key(0), page.data(0)),
            ("0099", "key", &b"payload"[..])
        );
        assert_eq!(page.approximate_arrival(1), 1_782_864_000_123);
        assert_eq!(page.memory(), 4 + 3 + 20 + 2 * size_of::<KinesisRecord>(), "the buffer has no spare room");
    }

    #[test]
    fn records_that_are_not_the_next_ones_are_refused() {
        let refused = |numbers: &[&str], from| from_sdk(answer(numbers), &from).unwrap_err();
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
        let decoded = from_sdk(last, &ReadFrom::TrimHorizon).unwrap();
        let children = decoded.children.unwrap();
        assert_eq!((decoded.next_iterator, children.len()), (None, 1));
        assert_eq!(children[0].parents, [ShardId::parse("shardId-000000000000").unwrap()]);
        assert_eq!(from_sdk(answer(&[]), &ReadFrom::TrimHorizon).unwrap().children, None);
    }
}
