use std::sync::Arc;

use crate::{HashKey, Position, SequenceNumber};

/// How many spans of the arena belong to a record: sequence number, partition key, explicit hash key, data.
const SPANS: usize = 4;

/// User records of one shard, in order, in columns over one arena, laid out as the columnar contract hands them over.
/// Cheap to clone: clones share the columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch(Arc<Columns>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Columns {
    arena: Vec<u8>,
    lengths: Vec<u32>,
    starts: Vec<u32>,
    sub_sequence_numbers: Vec<u64>,
    approximate_arrivals: Vec<u64>,
    through: Option<Position>,
}

/// Fills a batch; see [`crate::Unpacker::fill`].
#[derive(Debug, Default)]
pub struct BatchBuilder {
    columns: Columns,
}

/// A record as it goes into a batch: texts as the bytes they are, so that nobody looks at each of them again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord<'a> {
    /// UTF-8.
    pub(crate) sequence_number: &'a [u8],
    pub(crate) sub_sequence_number: u64,
    /// UTF-8.
    pub(crate) partition_key: &'a [u8],
    /// UTF-8; empty for none.
    pub(crate) explicit_hash_key: &'a [u8],
    pub(crate) approximate_arrival: u64,
    pub(crate) data: &'a [u8],
}

/// One user record of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Decimal digits, as the service wrote them.
    pub sequence_number: &'a str,
    /// The place in its aggregate, 0 for a record that came alone.
    pub sub_sequence_number: u64,
    /// The partition key.
    pub partition_key: &'a str,
    /// The explicit hash key in decimal. Known of records that came in an aggregate only: the API tells no other.
    pub explicit_hash_key: Option<&'a str>,
    /// When the service took the record in, in milliseconds since 1970.
    pub approximate_arrival: u64,
    /// The payload.
    pub data: &'a [u8],
}

// === impl Batch ===

impl Batch {
    /// How many records there are.
    pub fn len(&self) -> usize {
        self.0.sub_sequence_numbers.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All texts and payloads, one after another: for each record sequence number, partition key, explicit hash key, data.
    pub fn arena(&self) -> &[u8] {
        &self.0.arena
    }

    /// Four lengths in bytes for each record, in the arena's order.
    pub fn lengths(&self) -> &[u32] {
        &self.0.lengths
    }

    /// One sub-sequence number for each record.
    pub fn sub_sequence_numbers(&self) -> &[u64] {
        &self.0.sub_sequence_numbers
    }

    /// One time of arrival for each record, in milliseconds since 1970.
    pub fn approximate_arrivals(&self) -> &[u64] {
        &self.0.approximate_arrivals
    }

    /// The bytes that the batch keeps in memory.
    pub fn memory(&self) -> usize {
        self.0.arena.len() + self.len() * (SPANS * 4 + 4 + 16)
    }

    /// One record.
    ///
    /// # Panics
    /// If there is none at this index.
    pub fn record(&self, index: usize) -> Record<'_> {
        let [sequence_number, partition_key, explicit_hash_key, data] = self.spans(index);
        Record {
            sequence_number: text(sequence_number),
            sub_sequence_number: self.0.sub_sequence_numbers[index],
            partition_key: text(partition_key),
            explicit_hash_key: (!explicit_hash_key.is_empty()).then(|| text(explicit_hash_key)),
            approximate_arrival: self.0.approximate_arrivals[index],
            data,
        }
    }

    /// All records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        (0..self.len()).map(|index| self.record(index))
    }

    /// Where a record stands.
    ///
    /// # Panics
    /// If there is none at this index, or somebody built the batch with a sequence number that is none.
    pub fn position(&self, index: usize) -> Position {
        let digits = text(self.spans(index)[0]);
        let sequence_number = SequenceNumber::parse(digits).expect("checked when the page was made");
        Position::new(sequence_number, self.0.sub_sequence_numbers[index])
    }

    /// The position up to which everything of the shard is in this batch or an earlier one, records that were left
    /// out on purpose included: where the checkpoint goes when every record is done.
    pub fn through(&self) -> Option<&Position> {
        self.0.through.as_ref()
    }

    /// The records at these indexes, in this order, for another attempt.
    ///
    /// # Panics
    /// If there is none at an index.
    pub fn select(&self, indexes: impl IntoIterator<Item = usize>) -> Batch {
        let mut builder = BatchBuilder::default();
        for index in indexes {
            builder.push(self.record(index));
        }
        builder.columns.through = self.0.through.clone();
        builder.build()
    }

    /// The same records, without what they hold: where each stands, and when it arrived.
    #[must_use]
    pub fn without_contents(&self) -> Batch {
        let mut builder = BatchBuilder::default();
        for record in self.iter() {
            builder.push(Record { partition_key: "", explicit_hash_key: None, data: &[], ..record });
        }
        builder.columns.through.clone_from(&self.0.through);
        builder.build()
    }

    fn spans(&self, index: usize) -> [&[u8]; SPANS] {
        let mut rest = &self.0.arena[self.0.starts[index] as usize..];
        let lengths = &self.0.lengths[index * SPANS..][..SPANS];
        std::array::from_fn(|span| {
            let (head, tail) = rest.split_at(lengths[span] as usize);
            rest = tail;
            head
        })
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the builder takes texts only")
}

// === impl BatchBuilder ===

impl BatchBuilder {
    /// How many records are inside.
    pub fn len(&self) -> usize {
        self.columns.sub_sequence_numbers.len()
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.columns.sub_sequence_numbers.is_empty()
    }

    /// The size of all texts and payloads inside, in bytes.
    pub fn bytes(&self) -> usize {
        self.columns.arena.len()
    }

    /// Copies a record in.
    ///
    /// # Panics
    /// If the batch would have 4 GiB or more.
    pub fn push(&mut self, record: Record<'_>) {
        self.push_raw(&RawRecord {
            sequence_number: record.sequence_number.as_bytes(),
            sub_sequence_number: record.sub_sequence_number,
            partition_key: record.partition_key.as_bytes(),
            explicit_hash_key: record.explicit_hash_key.unwrap_or("").as_bytes(),
            approximate_arrival: record.approximate_arrival,
            data: record.data,
        });
    }

    pub(crate) fn push_raw(&mut self, record: &RawRecord<'_>) {
        let columns = &mut self.columns;
        let spans = record.spans();
        columns.starts.push(length(columns.arena.len()));
        columns.lengths.extend(spans.map(|bytes| length(bytes.len())));
        for bytes in spans {
            columns.arena.extend_from_slice(bytes);
        }
        columns.sub_sequence_numbers.push(record.sub_sequence_number);
        columns.approximate_arrivals.push(record.approximate_arrival);
    }

    /// Makes room for so many more records with so many bytes of texts and payloads together, so that nothing is
    /// moved while they come in.
    pub(crate) fn reserve(&mut self, records: usize, bytes: usize) {
        let columns = &mut self.columns;
        columns.arena.reserve(bytes);
        columns.lengths.reserve(records * SPANS);
        columns.starts.reserve(records);
        columns.sub_sequence_numbers.reserve(records);
        columns.approximate_arrivals.reserve(records);
    }

    /// Says that everything up to this position is inside or left out on purpose.
    pub fn set_through(&mut self, position: Position) {
        self.columns.through = Some(position);
    }

    /// The finished batch.
    pub fn build(self) -> Batch {
        Batch(Arc::new(self.columns))
    }
}

// === impl RawRecord ===

impl<'a> RawRecord<'a> {
    /// The bytes that it takes of a batch.
    pub(crate) fn size(&self) -> usize {
        self.spans().iter().map(|bytes| bytes.len()).sum()
    }

    fn spans(&self) -> [&'a [u8]; SPANS] {
        [self.sequence_number, self.partition_key, self.explicit_hash_key, self.data]
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a batch is far below 4 GiB")
}

/// An explicit hash key as text without an allocation.
pub(crate) struct HashKeyText {
    digits: [u8; 39],
    start: usize,
}

impl HashKeyText {
    pub(crate) fn new(key: HashKey) -> Self {
        let mut text = Self { digits: [b'0'; 39], start: 39 };
        let mut number = key.get();
        loop {
            text.start -= 1;
            text.digits[text.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return text;
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}
