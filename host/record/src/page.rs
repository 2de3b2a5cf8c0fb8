use bytes::Bytes;

use crate::InvalidSequenceNumber;
use crate::sequence_number::{SequenceNumber, is_number};

/// A stretch of a buffer: of a page, or of an aggregate's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where it begins, in bytes.
    pub start: u32,
    /// How long it is, in bytes.
    pub length: u32,
}

/// One Kinesis record of a page, as spans of the page's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KinesisRecord {
    /// Decimal digits, as the service wrote them.
    pub sequence_number: Span,
    /// UTF-8.
    pub partition_key: Span,
    /// The payload, base64 already undone; perhaps a KPL aggregate.
    pub data: Span,
    /// When the service took the record in, in milliseconds since 1970.
    pub approximate_arrival: u64,
}

/// What one read of a shard brought: Kinesis records in order, over one buffer. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Page {
    buffer: Bytes,
    records: std::sync::Arc<[KinesisRecord]>,
}

/// Builds a page by copying; a decoder that works in place uses [`Page::from_parts`].
#[derive(Debug, Default)]
pub struct PageBuilder {
    buffer: Vec<u8>,
    records: Vec<KinesisRecord>,
}

// === impl Span ===

impl Span {
    pub(crate) fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start as usize..][..self.length as usize]
    }
}

// === impl Page ===

impl Page {
    /// A page over a buffer that somebody else decoded.
    ///
    /// # Panics
    /// If a span lies outside the buffer, a sequence number is not 1 to 116 digits, or a partition key is not UTF-8:
    /// the decoder is wrong then, not its input.
    pub fn from_parts(buffer: Bytes, records: Vec<KinesisRecord>) -> Self {
        for record in &records {
            assert!(is_number(record.sequence_number.of(&buffer)), "a sequence number in digits");
            assert!(std::str::from_utf8(record.partition_key.of(&buffer)).is_ok(), "a partition key in UTF-8");
            let _in_bounds = record.data.of(&buffer);
        }
        Self { buffer, records: records.into() }
    }

    /// How many Kinesis records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The bytes that the page keeps in memory.
    pub fn memory(&self) -> usize {
        self.buffer.len() + self.records.len() * size_of::<KinesisRecord>()
    }

    /// The sequence number of a record, as digits.
    pub fn sequence_number_digits(&self, index: usize) -> &str {
        self.text(self.records[index].sequence_number)
    }

    /// The sequence number of a record.
    pub(crate) fn sequence_number(&self, index: usize) -> SequenceNumber {
        SequenceNumber::parse(self.sequence_number_digits(index)).expect("checked when the page was made")
    }

    /// The partition key of a record.
    pub fn partition_key(&self, index: usize) -> &str {
        self.text(self.records[index].partition_key)
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

    fn text(&self, span: Span) -> &str {
        std::str::from_utf8(span.of(&self.buffer)).expect("checked when the page was made")
    }
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
        Page { buffer: self.buffer.into(), records: self.records.into() }
    }

    fn append(&mut self, bytes: &[u8]) -> Span {
        let offset = |length: usize| u32::try_from(length).expect("a page is far below 4 GiB");
        let span = Span { start: offset(self.buffer.len()), length: offset(bytes.len()) };
        self.buffer.extend_from_slice(bytes);
        span
    }
}
