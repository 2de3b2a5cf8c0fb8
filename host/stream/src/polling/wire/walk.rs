//! The walk through an answer of GetRecords, the same in each format.

use shardmill_record::Span;

use super::Malformed;
use crate::polling::decode::{self, Answer, FoundChild, FoundRecord};

/// The most records of one answer (AWS limit); so many are made room for at once, and more are taken as they come.
const RECORDS: usize = 10_000;

/// A format's reader: stands somewhere in the answer and moves forward only. Texts and payloads are put right in
/// their own places, which only become shorter, and named by their spans.
pub(super) trait Source {
    /// Where it stands in a map or a list.
    type Items;

    /// The whole answer.
    fn body(&self) -> &[u8];

    /// Where it stands, in bytes from the beginning.
    fn position(&self) -> usize;

    /// Whether nothing but what means nothing follows.
    fn is_at_end(&mut self) -> bool;

    /// What it says instead of what is expected here.
    fn expected(&self, expected: &str) -> Malformed;

    /// The beginning of a map.
    fn map(&mut self) -> Result<Self::Items, Malformed>;

    /// The beginning of a list.
    fn list(&mut self) -> Result<Self::Items, Malformed>;

    /// Goes to the next element of the map or list; `false` behind its end.
    fn item(&mut self, items: &mut Self::Items) -> Result<bool, Malformed>;

    /// A field's name, up to its value; `None` for a name that is not known.
    fn field<F: Copy>(&mut self, known: &[(&str, F)]) -> Result<Option<F>, Malformed>;

    /// The same for the fields of a record, which make most of an answer.
    fn record_field(&mut self) -> Result<Option<RecordField>, Malformed>;

    /// Whether there is a null, which is passed.
    fn null(&mut self) -> bool;

    /// A text. Whether it is UTF-8 is not looked at.
    fn text(&mut self) -> Result<Span, Malformed>;

    /// A payload.
    fn data(&mut self) -> Result<Span, Malformed>;

    /// A time of arrival, in milliseconds since 1970.
    fn time(&mut self) -> Result<u64, Malformed>;

    /// A whole number.
    fn integer(&mut self) -> Result<i64, Malformed>;

    /// Passes a value that lies in `depth` containers.
    fn skip(&mut self, depth: u32) -> Result<(), Malformed>;
}

#[derive(Debug, Clone, Copy)]
enum RootField {
    Records,
    NextShardIterator,
    MillisBehindLatest,
    ChildShards,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum RecordField {
    SequenceNumber,
    ApproximateArrivalTimestamp,
    Data,
    PartitionKey,
    EncryptionType,
}

#[derive(Debug, Clone, Copy)]
enum ChildField {
    ShardId,
    ParentShards,
    HashKeyRange,
}

#[derive(Debug, Clone, Copy)]
enum RangeField {
    StartingHashKey,
    EndingHashKey,
}

const ROOT: [(&str, RootField); 4] = [
    ("Records", RootField::Records),
    ("NextShardIterator", RootField::NextShardIterator),
    ("MillisBehindLatest", RootField::MillisBehindLatest),
    ("ChildShards", RootField::ChildShards),
];

pub(super) const RECORD: [(&str, RecordField); 5] = [
    ("SequenceNumber", RecordField::SequenceNumber),
    ("ApproximateArrivalTimestamp", RecordField::ApproximateArrivalTimestamp),
    ("Data", RecordField::Data),
    ("PartitionKey", RecordField::PartitionKey),
    ("EncryptionType", RecordField::EncryptionType),
];

const CHILD: [(&str, ChildField); 3] = [
    ("ShardId", ChildField::ShardId),
    ("ParentShards", ChildField::ParentShards),
    ("HashKeyRange", ChildField::HashKeyRange),
];

const RANGE: [(&str, RangeField); 2] =
    [("StartingHashKey", RangeField::StartingHashKey), ("EndingHashKey", RangeField::EndingHashKey)];

/// Reads the whole of an answer. An empty one is one without fields.
pub(super) fn read<S: Source>(source: &mut S, answer: &mut Answer<'_>) -> Result<(), Malformed> {
    if source.is_at_end() {
        return Ok(());
    }
    root(source, answer)?;
    if source.is_at_end() { Ok(()) } else { Err(source.expected("the answer's end")) }
}

fn root<S: Source>(source: &mut S, answer: &mut Answer<'_>) -> Result<(), Malformed> {
    let mut fields = source.map()?;
    while source.item(&mut fields)? {
        let field = source.field(&ROOT)?;
        if source.null() {
            continue;
        }
        match field {
            None => source.skip(1)?,
            Some(RootField::Records) => records(source, answer)?,
            Some(RootField::NextShardIterator) => answer.next_iterator(owned_text(source)?),
            Some(RootField::MillisBehindLatest) => answer.millis_behind(source.integer()?),
            Some(RootField::ChildShards) => children(source, answer)?,
        }
    }
    Ok(())
}

fn records<S: Source>(source: &mut S, answer: &mut Answer<'_>) -> Result<(), Malformed> {
    let mut items = source.list()?;
    answer.begin_records();
    let mut first = true;
    while source.item(&mut items)? {
        let start = source.position();
        record(source, answer)?;
        if std::mem::take(&mut first) {
            // The others are most likely about as long.
            let length = source.position() - start;
            let remaining = source.body().len() - source.position();
            answer.expect_records((remaining / length.max(1) + 1).min(RECORDS));
        }
    }
    Ok(())
}

fn record<S: Source>(source: &mut S, answer: &mut Answer<'_>) -> Result<(), Malformed> {
    let mut fields = source.map()?;
    let mut found = FoundRecord::default();
    while source.item(&mut fields)? {
        let field = source.record_field()?;
        if source.null() {
            continue;
        }
        match field {
            None => source.skip(3)?,
            Some(RecordField::SequenceNumber) => {
                let text = source.text()?;
                replace(source, &mut found.sequence_number, text)?;
            }
            Some(RecordField::ApproximateArrivalTimestamp) => found.arrival = source.time()?,
            Some(RecordField::Data) => found.data = source.data()?,
            Some(RecordField::PartitionKey) => {
                let text = source.text()?;
                replace(source, &mut found.partition_key, text)?;
            }
            Some(RecordField::EncryptionType) => {
                let text = source.text()?;
                utf8(source, text)?;
            }
        }
    }
    answer.record(source.body(), &found)?;
    Ok(())
}

/// The texts of a record are looked at when it is complete, all of them at hand; one that is replaced is looked at
/// now.
#[inline]
fn replace<S: Source>(source: &S, field: &mut Option<Span>, text: Span) -> Result<(), Malformed> {
    match field.replace(text) {
        None => Ok(()),
        Some(replaced) => utf8(source, replaced).map(|_| ()),
    }
}

fn children<S: Source>(source: &mut S, answer: &mut Answer<'_>) -> Result<(), Malformed> {
    let mut items = source.list()?;
    answer.begin_children();
    while source.item(&mut items)? {
        answer.child(&child(source)?);
    }
    Ok(())
}

fn child<S: Source>(source: &mut S) -> Result<FoundChild, Malformed> {
    let mut fields = source.map()?;
    let mut found = FoundChild::default();
    while source.item(&mut fields)? {
        let field = source.field(&CHILD)?;
        if source.null() {
            continue;
        }
        match field {
            None => source.skip(3)?,
            Some(ChildField::ShardId) => found.id = owned_text(source)?,
            Some(ChildField::ParentShards) => {
                let mut items = source.list()?;
                found.parents.clear();
                while source.item(&mut items)? {
                    found.parents.push(owned_text(source)?);
                }
            }
            Some(ChildField::HashKeyRange) => found.range = Some(range(source)?),
        }
    }
    Ok(found)
}

fn range<S: Source>(source: &mut S) -> Result<(String, String), Malformed> {
    let mut fields = source.map()?;
    let (mut start, mut end) = (String::new(), String::new());
    while source.item(&mut fields)? {
        let field = source.field(&RANGE)?;
        if source.null() {
            continue;
        }
        match field {
            None => source.skip(4)?,
            Some(RangeField::StartingHashKey) => start = owned_text(source)?,
            Some(RangeField::EndingHashKey) => end = owned_text(source)?,
        }
    }
    Ok((start, end))
}

/// The field of this name.
pub(super) fn known<F: Copy>(fields: &[(&str, F)], name: &str) -> Option<F> {
    fields.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
}

fn utf8<S: Source>(source: &S, text: Span) -> Result<&str, Malformed> {
    Ok(decode::utf8(source.body(), text)?)
}

fn owned_text<S: Source>(source: &mut S) -> Result<String, Malformed> {
    let text = source.text()?;
    Ok(utf8(source, text)?.to_owned())
}
