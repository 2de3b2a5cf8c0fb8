use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::InvalidSequenceNumber;
use crate::sequence_number::{SequenceNumber, is_number};

/// A stretch of a buffer: of a page, or of an aggregate's payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins, in bytes.
    pub start: u32,
    /// How long it is, in bytes.
    pub length: u32,
}

/// One Kinesis record of a page, as spans of the page's buffer: its sequence number is one and
/// its partition key is UTF-8. That was seen when it was made, while a decoder had the bytes at hand; a page does not
/// look at them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KinesisRecord {
    sequence_number: Span,
    partition_key: Span,
    data: Span,
    approximate_arrival: u64,
}

/// Why a record cannot be in a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    /// The sequence number is none.
    #[error(transparent)]
    SequenceNumber(#[from] InvalidSequenceNumber),
    /// The partition key is no text.
    #[error("the partition key of record {sequence_number} is not UTF-8")]
    PartitionKey {
        /// The record's sequence number.
        sequence_number: String,
    },
}

/// What one read of a shard brought: Kinesis records in order, over one buffer. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Page {
    buffer: Bytes,
    /// The size of the allocation behind the buffer.
    kept: usize,
    /// Texts and payloads of all records together.
    content: usize,
    records: Arc<[KinesisRecord]>,
}

/// Builds a page by copying; a decoder that works in place uses [`Page::from_parts`].
#[derive(Debug, Default)]
pub struct PageBuilder {
    buffer: BytesMut,
    records: Vec<KinesisRecord>,
}

// === impl Span ===

impl Span {
    /// The bytes of a buffer that this span names.
    ///
    /// # Panics
    /// If it lies outside the buffer.
    pub fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start as usize..][..self.length as usize]
    }

    fn end(self) -> u64 {
        u64::from(self.start) + u64::from(self.length)
    }
}

// === impl KinesisRecord ===

impl KinesisRecord {
    /// Looks at the record's texts once. `approximate_arrival` is
    /// when the service took the record in, in milliseconds since 1970; the data are the payload, base64 already
    /// undone, perhaps a KPL aggregate.
    ///
    /// # Panics
    /// If a span lies outside the buffer.
    pub fn check(
        buffer: &[u8],
        sequence_number: Span,
        partition_key: Span,
        data: Span,
        approximate_arrival: u64,
    ) -> Result<Self, InvalidRecord> {
        let text = sequence_number.of(buffer);
        if !is_number(text) {
            return Err(InvalidSequenceNumber::new(text).into());
        }
        if std::str::from_utf8(partition_key.of(buffer)).is_err() {
            let sequence_number = String::from_utf8_lossy(text).into_owned();
            return Err(InvalidRecord::PartitionKey { sequence_number });
        }
        assert!(data.end() <= buffer.len() as u64, "the data lie within the buffer");
        Ok(Self { sequence_number, partition_key, data, approximate_arrival })
    }

    /// The sequence number, in digits.
    pub fn sequence_number(&self) -> Span {
        self.sequence_number
    }

    fn end(&self) -> u64 {
        self.sequence_number.end().max(self.partition_key.end()).max(self.data.end())
    }

    fn content(&self) -> usize {
        [self.sequence_number, self.partition_key, self.data].iter().map(|span| span.length as usize).sum()
    }
}

// === impl Page ===

impl Page {
    /// A page over a buffer that somebody else decoded. The records must have been made from this buffer, and their
    /// bytes must not have changed since.
    ///
    /// # Panics
    /// If a record lies outside the buffer: the decoder is wrong then, not its input.
    pub fn from_parts(buffer: BytesMut, records: Vec<KinesisRecord>) -> Self {
        let mut content = 0;
        for record in &records {
            assert!(record.end() <= buffer.len() as u64, "a record lies within the page's buffer");
            debug_assert!(is_number(record.sequence_number.of(&buffer)), "made from other bytes");
            debug_assert!(std::str::from_utf8(record.partition_key.of(&buffer)).is_ok(), "made from other bytes");
            content += record.content();
        }
        let kept = buffer.capacity();
        Self { buffer: buffer.freeze(), kept, content, records: records.into() }
    }

    /// How many Kinesis records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The bytes that the page keeps in memory: the whole buffer, whatever part of it the records take.
    pub fn memory(&self) -> usize {
        self.kept + self.records.len() * size_of::<KinesisRecord>()
    }

    /// Texts and payloads of all records together, in bytes.
    pub fn content(&self) -> usize {
        self.content
    }

    /// The sequence number of a record, as digits.
    pub fn sequence_number_digits(&self, index: usize) -> &str {
        text(self.sequence_number_bytes(index))
    }

    /// The sequence number of a record, as digits.
    pub(crate) fn sequence_number_bytes(&self, index: usize) -> &[u8] {
        self.records[index].sequence_number.of(&self.buffer)
    }

    /// The sequence number of a record.
    pub(crate) fn sequence_number(&self, index: usize) -> SequenceNumber {
        SequenceNumber::parse(self.sequence_number_digits(index)).expect("checked when the record was made")
    }

    /// The partition key of a record.
    pub fn partition_key(&self, index: usize) -> &str {
        text(self.partition_key_bytes(index))
    }

    /// The partition key of a record, in UTF-8.
    pub(crate) fn partition_key_bytes(&self, index: usize) -> &[u8] {
        self.records[index].partition_key.of(&self.buffer)
    }

    /// The payload of a record.
    pub fn data(&self, index: usize) -> &[u8] {
        self.records[index].data.of(&self.buffer)
    }

    /// When the service took a record in, in milliseconds since 1970.
    pub fn approximate_arrival(&self, index: usize) -> u64 {
        self.records[index].approximate_arrival
    }

    /// The last record's sequence number: where the next read goes on after an iterator was lost.
    pub fn last_sequence_number(&self) -> Option<SequenceNumber> {
        Some(self.sequence_number(self.len().checked_sub(1)?))
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("checked when the record was made")
}

// === impl PageBuilder ===

impl PageBuilder {
    /// Copies one record in.
    pub fn push(
        &mut self,
        sequence_number: &str,
        partition_key: &str,
        data: &[u8],
        approximate_arrival: u64,
    ) -> Result<(), InvalidSequenceNumber> {
        let sequence_number = SequenceNumber::parse(sequence_number)?;
        let record = KinesisRecord {
            sequence_number: self.append(sequence_number.as_str().as_bytes()),
            partition_key: self.append(partition_key.as_bytes()),
            data: self.append(data),
            approximate_arrival,
        };
        self.records.push(record);
        Ok(())
    }

    /// The finished page.
    pub fn build(self) -> Page {
        Page::from_parts(self.buffer, self.records)
    }

    fn append(&mut self, bytes: &[u8]) -> Span {
        let offset = |length: usize| u32::try_from(length).expect("a page is far below 4 GiB");
        let span = Span { start: offset(self.buffer.len()), length: offset(bytes.len()) };
        self.buffer.extend_from_slice(bytes);
        span
    }
}
