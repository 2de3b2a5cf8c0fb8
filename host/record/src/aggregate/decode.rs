use md5::{Digest, Md5};

use super::{CHECKSUM_LENGTH, FRAME_LENGTH, MAGIC, tag};
use crate::{HashKey, Span};

/// An aggregate that has been checked whole: every index, length and partition key in it is good.
///
/// Keeps no more than eight bytes for each byte of the payload, whatever is in it, and borrows nothing, so that it can be
/// kept beside the page it came from. Records are read out of the same payload again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregate {
    partition_keys: Vec<Span>,
    explicit_hash_keys: Vec<Span>,
    records: Vec<Entry>,
}

/// One user record of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubRecord<'a> {
    /// Which of the aggregate's partition keys it has: below [`Aggregate::partition_key_count`].
    pub partition_key_index: usize,
    /// The partition key.
    pub partition_key: &'a str,
    /// In place of the partition key's MD5. A text that is no hash key counts as none.
    pub explicit_hash_key: Option<HashKey>,
    /// The payload.
    pub data: &'a [u8],
}

/// Why a payload is to be taken as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAggregate {
    /// The ordinary case: some other payload.
    #[error("it does not begin with the aggregate's magic bytes")]
    NoMagic,
    /// It begins like an aggregate and is not one, or not a whole one.
    #[error("its checksum does not fit")]
    Checksum,
    /// The checksum fits a message that breaks the format.
    #[error("its message is malformed: {0}")]
    Malformed(&'static str),
}

/// A record of the message, not yet looked up in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    partition_key_index: u32,
    /// [`NO_INDEX`] if there is none: an absent index is not index 0.
    explicit_hash_key_index: u32,
    data: Span,
}

const NO_INDEX: u32 = u32::MAX;

/// Whether a payload begins like an aggregate.
pub fn is_framed(payload: &[u8]) -> bool {
    payload.len() >= FRAME_LENGTH && payload.starts_with(&MAGIC)
}

/// Takes an aggregate apart, all of it or nothing: an error means that the payload is to be delivered unchanged.
pub fn decode(payload: &[u8]) -> Result<Aggregate, NotAnAggregate> {
    if !is_framed(payload) {
        return Err(NotAnAggregate::NoMagic);
    }
    let end = payload.len() - CHECKSUM_LENGTH;
    if Md5::digest(&payload[MAGIC.len()..end])[..] != payload[end..] {
        return Err(NotAnAggregate::Checksum);
    }
    if u32::try_from(payload.len()).is_err() {
        return Err(NotAnAggregate::Malformed("it is larger than 4 GiB"));
    }
    let mut aggregate = Aggregate { partition_keys: Vec::new(), explicit_hash_keys: Vec::new(), records: Vec::new() };
    let mut position = MAGIC.len();
    loop {
        position = aggregate.read_usual(payload, position, end)?;
        let mut reader = Reader { payload, position, end };
        let Some(field) = reader.field()? else { break };
        position = reader.position;
        aggregate.read_field(payload, &field)?;
    }
    // Not before the end: the tables may stand after the records that use them.
    let (keys, hash_keys) = (aggregate.partition_keys.len(), aggregate.explicit_hash_keys.len());
    if !aggregate.records.iter().all(|entry| entry.is_inside(keys, hash_keys)) {
        return Err(NotAnAggregate::Malformed("an index points outside its table"));
    }
    Ok(aggregate)
}

// === impl Aggregate ===

impl Aggregate {
    /// How many user records there are; none is possible.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no user record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The bytes that this keeps in memory besides its payload.
    pub fn memory(&self) -> usize {
        (self.partition_keys.capacity() + self.explicit_hash_keys.capacity()) * size_of::<Span>()
            + self.records.capacity() * size_of::<Entry>()
    }

    /// How many partition keys there are, used or not.
    pub fn partition_key_count(&self) -> usize {
        self.partition_keys.len()
    }

    /// One user record, out of the payload that this aggregate was decoded from; `None` past the last.
    ///
    /// # Panics
    /// Perhaps, if the payload is another one.
    #[inline]
    pub fn record<'a>(&self, payload: &'a [u8], index: usize) -> Option<SubRecord<'a>> {
        let entry = self.records.get(index)?;
        let partition_key_index = entry.partition_key_index as usize;
        let partition_key = self.partition_keys[partition_key_index];
        let explicit_hash_key = self.explicit_hash_keys.get(entry.explicit_hash_key_index as usize);
        Some(SubRecord {
            partition_key_index,
            partition_key: text(payload, partition_key).expect("checked when it was decoded"),
            explicit_hash_key: explicit_hash_key.and_then(|span| text(payload, *span)?.parse().ok()),
            data: entry.data.of(payload),
        })
    }

    /// Reads fields as all writers that are known write them: a tag of this message, and a length of one or two bytes.
    /// Where the first one begins that is anything else, right or wrong.
    #[inline]
    fn read_usual(&mut self, payload: &[u8], mut position: usize, end: usize) -> Result<usize, NotAnAggregate> {
        while position + 3 <= end {
            let (tag, first, second) = (payload[position], payload[position + 1], payload[position + 2]);
            let (start, length) = match (first < 0x80, second < 0x80) {
                (true, _) => (position + 2, usize::from(first)),
                (false, true) => (position + 3, usize::from(first & 0x7F) | usize::from(second) << 7),
                (false, false) => break,
            };
            let next = start + length;
            if next > end {
                break;
            }
            // The payload is below 4 GiB.
            let span = Span { start: start as u32, length: length as u32 };
            match u64::from(tag) {
                tag::RECORD => {
                    if self.records.is_empty() {
                        // Most aggregates hold records of one size. What is reserved is less than twice the payload.
                        self.records.reserve((end - position) / (length + 2).max(9));
                    }
                    self.records.push(Entry::read(payload, span)?);
                }
                tag::PARTITION_KEY => self.read_partition_key(payload, span)?,
                tag::EXPLICIT_HASH_KEY => self.explicit_hash_keys.push(span),
                _ => break,
            }
            position = next;
        }
        Ok(position)
    }

    fn read_field(&mut self, payload: &[u8], field: &Field) -> Result<(), NotAnAggregate> {
        match (field.tag, &field.value) {
            (tag::PARTITION_KEY, Value::Bytes(span)) => self.read_partition_key(payload, *span)?,
            (tag::EXPLICIT_HASH_KEY, Value::Bytes(span)) => self.explicit_hash_keys.push(*span),
            (tag::RECORD, Value::Bytes(span)) => self.records.push(Entry::read(payload, *span)?),
            _unknown => {}
        }
        Ok(())
    }

    #[inline]
    fn read_partition_key(&mut self, payload: &[u8], span: Span) -> Result<(), NotAnAggregate> {
        if !span.of(payload).is_ascii() && text(payload, span).is_none() {
            return Err(NotAnAggregate::Malformed("a partition key is not UTF-8"));
        }
        self.partition_keys.push(span);
        Ok(())
    }

    /// All user records in order; see [`record`](Self::record).
    pub fn records<'a>(&self, payload: &'a [u8]) -> impl Iterator<Item = SubRecord<'a>> {
        (0..self.len()).map_while(move |index| self.record(payload, index))
    }
}

// === impl Entry ===

impl Entry {
    #[inline]
    fn read(payload: &[u8], span: Span) -> Result<Self, NotAnAggregate> {
        match Self::read_usual(span.of(payload), span.start) {
            Some(entry) => Ok(entry),
            None => Self::read_any(payload, span),
        }
    }

    /// A record as all writers that are known write it: the fields that it must have, each once and in their order. `None`
    /// for others, right or wrong.
    #[inline]
    fn read_usual(record: &[u8], start: u32) -> Option<Self> {
        let (partition_key_index, mut at) = usual_varint(record, 0, tag::PARTITION_KEY_INDEX)?;
        let mut explicit_hash_key_index = NO_INDEX;
        if let Some((index, next)) = usual_varint(record, at, tag::EXPLICIT_HASH_KEY_INDEX) {
            (explicit_hash_key_index, at) = (index, next);
        }
        let (length, at) = usual_varint(record, at, tag::DATA)?;
        let is_whole = record.len() - at == length as usize;
        // The record lies within a payload below 4 GiB.
        let data = Span { start: start + at as u32, length };
        is_whole.then_some(Self { partition_key_index, explicit_hash_key_index, data })
    }

    #[cold]
    fn read_any(payload: &[u8], span: Span) -> Result<Self, NotAnAggregate> {
        let position = span.start as usize;
        let mut reader = Reader { payload, position, end: position + span.length as usize };
        let (mut partition_key_index, mut explicit_hash_key_index, mut data) = (None, NO_INDEX, None);
        while let Some(field) = reader.field()? {
            match (field.tag, field.value) {
                (tag::PARTITION_KEY_INDEX, Value::Number(number)) => partition_key_index = Some(index(number)?),
                (tag::EXPLICIT_HASH_KEY_INDEX, Value::Number(number)) => explicit_hash_key_index = index(number)?,
                (tag::DATA, Value::Bytes(span)) => data = Some(span),
                _tags_and_unknown => {}
            }
        }
        Ok(Self {
            partition_key_index: partition_key_index
                .ok_or(NotAnAggregate::Malformed("a record has no partition key"))?,
            explicit_hash_key_index,
            data: data.ok_or(NotAnAggregate::Malformed("a record has no data"))?,
        })
    }

    fn is_inside(&self, partition_keys: usize, explicit_hash_keys: usize) -> bool {
        let hash_key = self.explicit_hash_key_index;
        (self.partition_key_index as usize) < partition_keys
            && (hash_key == NO_INDEX || (hash_key as usize) < explicit_hash_keys)
    }
}

/// A number below 2^21 that follows this tag, and where it ends.
#[inline]
fn usual_varint(bytes: &[u8], at: usize, tag: u64) -> Option<(u32, usize)> {
    if u64::from(*bytes.get(at)?) != tag {
        return None;
    }
    let first = u32::from(*bytes.get(at + 1)?);
    if first < 0x80 {
        return Some((first, at + 2));
    }
    let second = u32::from(*bytes.get(at + 2)?);
    let low = (first & 0x7F) | (second & 0x7F) << 7;
    if second < 0x80 {
        return Some((low, at + 3));
    }
    let third = u32::from(*bytes.get(at + 3)?);
    (third < 0x80).then_some((low | third << 14, at + 4))
}

/// An index that some table of a payload below 4 GiB could have.
fn index(number: u64) -> Result<u32, NotAnAggregate> {
    match u32::try_from(number) {
        Ok(index) if index != NO_INDEX => Ok(index),
        _ => Err(NotAnAggregate::Malformed("an index points outside its table")),
    }
}

struct Field {
    tag: u64,
    value: Value,
}

enum Value {
    Number(u64),
    Bytes(Span),
    Fixed,
}

/// Reads protobuf fields of `payload[position..end]`; `position` never passes `end`.
struct Reader<'a> {
    payload: &'a [u8],
    position: usize,
    end: usize,
}

impl Reader<'_> {
    #[inline]
    fn field(&mut self) -> Result<Option<Field>, NotAnAggregate> {
        if self.position == self.end {
            return Ok(None);
        }
        let tag = self.varint()?;
        if tag >> 3 == 0 {
            return Err(NotAnAggregate::Malformed("field number 0"));
        }
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.skip(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.skip(length)?)
            }
            5 => self.skip(4).map(|_| Value::Fixed)?,
            _groups_and_unassigned => return Err(NotAnAggregate::Malformed("an unknown wire type")),
        };
        Ok(Some(Field { tag, value }))
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, NotAnAggregate> {
        // Most numbers are small.
        match self.payload[..self.end].get(self.position) {
            Some(byte) if *byte < 0x80 => {
                self.position += 1;
                Ok((*byte).into())
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, NotAnAggregate> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.payload[..self.end]
                .get(self.position)
                .ok_or(NotAnAggregate::Malformed("it ends within a number"))?;
            self.position += 1;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(NotAnAggregate::Malformed("a number of more than 64 bits"))
    }

    #[inline]
    fn skip(&mut self, length: u64) -> Result<Span, NotAnAggregate> {
        if length > (self.end - self.position) as u64 {
            return Err(NotAnAggregate::Malformed("a field is longer than what is left"));
        }
        // Both fit: the payload is below 4 GiB.
        let span = Span { start: self.position as u32, length: length as u32 };
        self.position += length as usize;
        Ok(span)
    }
}

fn text(payload: &[u8], span: Span) -> Option<&str> {
    std::str::from_utf8(span.of(payload)).ok()
}
