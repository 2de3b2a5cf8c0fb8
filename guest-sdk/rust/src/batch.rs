//! A batch of records, read where the host put it.

use std::str::{self, Utf8Error};
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use crate::{Outcome, Position};

/// The columns of a batch are at odds with each other: the host's fault, not a record's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Lengths, sub-sequence numbers and arrival times are for different numbers of records.
    #[error("{lengths} lengths, {sub_sequence_numbers} sub-sequence numbers and {arrivals} times do not make a batch")]
    Columns {
        /// Should be 4 a record.
        lengths: usize,
        /// Should be 1 a record.
        sub_sequence_numbers: usize,
        /// Should be 1 a record.
        arrivals: usize,
    },
    /// The lengths do not add up to the arena's.
    #[error("the lengths of the batch's records do not add up to its {arena} bytes")]
    Lengths {
        /// The arena's length in bytes.
        arena: usize,
    },
    /// A sequence number, partition key or explicit hash key is not text.
    #[error("a key or the sequence number of record {index} of the batch is not UTF-8")]
    Text {
        /// The record's place in the batch, from 0.
        index: usize,
    },
}

/// A record's data is not what [`Record::json`] was asked to make of it. No further attempt can help.
#[derive(Debug, thiserror::Error)]
#[error("the data is not as expected: {0}")]
pub struct DataError(#[from] serde_json::Error);

/// Records of one shard, in order.
///
/// Iterate over it by reference; [`Batch::outcome`] begins the answer.
#[derive(Debug)]
pub struct Batch<'a> {
    arena: &'a [u8],
    /// Four lengths for each record, in the arena's order.
    lengths: &'a [[u32; 4]],
    sub_sequence_numbers: &'a [u64],
    approximate_arrivals: &'a [u64],
    /// Where in the arena each record begins.
    starts: Vec<usize>,
}

/// One record of a [`Batch`]: a few references, so it is passed on by value.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    index: u32,
    /// UTF-8, as the batch has made sure; likewise the keys.
    sequence_number: &'a [u8],
    partition_key: &'a [u8],
    /// Empty where there is none.
    explicit_hash_key: &'a [u8],
    data: &'a [u8],
    sub_sequence_number: u64,
    approximate_arrival: u64,
}

/// The iterator over a batch's records, in order.
#[derive(Clone, Debug)]
pub struct Iter<'b, 'a> {
    batch: &'b Batch<'a>,
    next: usize,
}

// === impl Batch ===

impl<'a> Batch<'a> {
    /// A view over the columns, as the interface `columnar` describes them.
    ///
    /// # Errors
    /// If the columns are at odds, which is checked here once for all.
    pub fn try_new(
        arena: &'a [u8],
        lengths: &'a [u32],
        sub_sequence_numbers: &'a [u64],
        approximate_arrivals: &'a [u64],
    ) -> Result<Batch<'a>, Error> {
        let (records, rest) = lengths.as_chunks::<4>();
        let count = records.len();
        if !rest.is_empty() || sub_sequence_numbers.len() != count || approximate_arrivals.len() != count {
            return Err(Error::Columns {
                lengths: lengths.len(),
                sub_sequence_numbers: sub_sequence_numbers.len(),
                arrivals: approximate_arrivals.len(),
            });
        }
        let mut starts = Vec::with_capacity(count);
        let mut rest = arena;
        for (index, &[sequence_number, partition_key, explicit_hash_key, data]) in records.iter().enumerate() {
            starts.push(arena.len() - rest.len());
            let too_long = || Error::Lengths { arena: arena.len() };
            // The three texts are neighbours: one pass, and each border has to fall between two characters.
            let first = sequence_number as usize;
            let second = first.checked_add(partition_key as usize).ok_or_else(too_long)?;
            let end = second.checked_add(explicit_hash_key as usize).ok_or_else(too_long)?;
            let (texts, after) = rest.split_at_checked(end).ok_or_else(too_long)?;
            // Nearly all are ASCII, where every place is a border, and which is quicker to find out.
            if !is_ascii(texts) {
                let texts = str::from_utf8(texts).map_err(|_| Error::Text { index })?;
                if !texts.is_char_boundary(first) || !texts.is_char_boundary(second) {
                    return Err(Error::Text { index });
                }
            }
            (_, rest) = after.split_at_checked(data as usize).ok_or_else(too_long)?;
        }
        if !rest.is_empty() {
            return Err(Error::Lengths { arena: arena.len() });
        }
        Ok(Batch { arena, lengths: records, sub_sequence_numbers, approximate_arrivals, starts })
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The record at a place of the batch, from 0.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Record<'a>> {
        let start = *self.starts.get(index)?;
        let [sequence_number, partition_key, explicit_hash_key, data] = *self.lengths.get(index)?;
        let (sequence_number, rest) = self.arena.get(start..)?.split_at_checked(sequence_number as usize)?;
        let (partition_key, rest) = rest.split_at_checked(partition_key as usize)?;
        let (explicit_hash_key, rest) = rest.split_at_checked(explicit_hash_key as usize)?;
        Some(Record {
            index: u32::try_from(index).ok()?,
            sequence_number,
            partition_key,
            explicit_hash_key,
            data: rest.get(..data as usize)?,
            sub_sequence_number: *self.sub_sequence_numbers.get(index)?,
            approximate_arrival: *self.approximate_arrivals.get(index)?,
        })
    }

    /// The records, in order.
    pub fn iter(&self) -> Iter<'_, 'a> {
        Iter { batch: self, next: 0 }
    }

    /// An outcome in which every record of this batch is done, to be changed where it is otherwise.
    pub fn outcome(&self) -> Outcome {
        Outcome::new(self.len())
    }
}

impl<'b, 'a> IntoIterator for &'b Batch<'a> {
    type Item = Record<'a>;
    type IntoIter = Iter<'b, 'a>;

    fn into_iter(self) -> Iter<'b, 'a> {
        self.iter()
    }
}

// === impl Iter ===

impl<'a> Iterator for Iter<'_, 'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let record = self.batch.get(self.next)?;
        self.next += 1;
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.batch.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Iter<'_, '_> {}

// === impl Record ===

impl<'a> Record<'a> {
    /// The record's place in its batch, from 0.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    pub(crate) fn index_in_columns(&self) -> u32 {
        self.index
    }

    /// Decimal text, shared by all records of one KPL aggregate. Longer than 128 bits can hold: compare as
    /// numbers, never as text.
    pub fn sequence_number(&self) -> &'a str {
        text(self.sequence_number)
    }

    /// The place in a KPL aggregate, counted from 0; 0 for a record that came alone.
    pub fn sub_sequence_number(&self) -> u64 {
        self.sub_sequence_number
    }

    /// Where the record stands in its shard.
    pub fn position(&self) -> Position {
        Position { sequence_number: self.sequence_number().to_owned(), sub_sequence_number: self.sub_sequence_number }
    }

    /// 1 to 256 Unicode characters.
    pub fn partition_key(&self) -> &'a str {
        text(self.partition_key)
    }

    /// The hash key that the record was put with instead of its partition key's MD5, if any: decimal, below 2^128.
    pub fn explicit_hash_key(&self) -> Option<&'a str> {
        (!self.explicit_hash_key.is_empty()).then(|| text(self.explicit_hash_key))
    }

    /// When the service took the record in, as it tells.
    pub fn approximate_arrival(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_millis(self.approximate_arrival))
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// When the service took the record in, in milliseconds since 1970-01-01T00:00:00Z.
    pub fn approximate_arrival_millis(&self) -> u64 {
        self.approximate_arrival
    }

    /// The payload.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The payload as text.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&self) -> Result<&'a str, Utf8Error> {
        str::from_utf8(self.data)
    }

    /// The payload read as JSON. Texts without escapes can be borrowed from it (`&str`, `Cow<str>` with
    /// `#[serde(borrow)]`).
    ///
    /// # Errors
    /// If it is not JSON, or not such a `T`.
    pub fn json<T: Deserialize<'a>>(&self) -> Result<T, DataError> {
        Ok(serde_json::from_slice(self.data)?)
    }
}

impl From<Record<'_>> for Position {
    fn from(record: Record<'_>) -> Position {
        record.position()
    }
}

/// Text that the batch has checked when it was made; without `unsafe` it has to be looked at again.
fn text(checked: &[u8]) -> &str {
    str::from_utf8(checked).unwrap_or_default()
}

/// As the standard library's, but eight bytes at a time on wasm32 too, where that one takes four.
fn is_ascii(text: &[u8]) -> bool {
    const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
    let (words, rest) = text.as_chunks::<8>();
    let words = words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word));
    let rest = rest.iter().fold(0, |all, byte| all | byte);
    words & HIGH_BITS == 0 && rest < 0x80
}
