use crate::{HashKey, Position, SequenceNumber};

/// How many spans of the arena belong to a record: sequence number, partition key, explicit hash key, data.
const SPANS: usize = 4;

/// User records of one shard, in order, in columns over one arena, laid out as the columnar contract hands them over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
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
    batch: Batch,
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
        self.sub_sequence_numbers.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All texts and payloads, one after another: for each record sequence number, partition key, explicit hash key, data.
    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// Four lengths in bytes for each record, in the arena's order.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// One sub-sequence number for each record.
    pub fn sub_sequence_numbers(&self) -> &[u64] {
        &self.sub_sequence_numbers
    }

    /// One time of arrival for each record, in milliseconds since 1970.
    pub fn approximate_arrivals(&self) -> &[u64] {
        &self.approximate_arrivals
    }

    /// The bytes that the batch keeps in memory.
    pub fn memory(&self) -> usize {
        self.arena.len() + self.len() * (SPANS * 4 + 4 + 16)
    }

    /// One record.
    ///
    /// # Panics
    /// If there is none at this index.
    pub fn record(&self, index: usize) -> Record<'_> {
        let [sequence_number, partition_key, explicit_hash_key, data] = self.spans(index);
        Record {
            sequence_number: text(sequence_number),
            sub_sequence_number: self.sub_sequence_numbers[index],
            partition_key: text(partition_key),
            explicit_hash_key: (!explicit_hash_key.is_empty()).then(|| text(explicit_hash_key)),
            approximate_arrival: self.approximate_arrivals[index],
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
        Position::new(sequence_number, self.sub_sequence_numbers[index])
    }

    /// The position up to which everything of the shard is in this batch or an earlier one, records that were left
    /// out on purpose included: where the checkpoint goes when every record is done.
    pub fn through(&self) -> Option<&Position> {
        self.through.as_ref()
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
        builder.batch.through = self.through.clone();
        builder.batch
    }

    /// The same records, without what they hold: where each stands, and when it arrived.
    #[must_use]
    pub fn without_contents(&self) -> Batch {
        let mut builder = BatchBuilder::default();
        for record in self.iter() {
            builder.push(Record { partition_key: "", explicit_hash_key: None, data: &[], ..record });
        }
        builder.batch.through = self.through.clone();
        builder.batch
    }

    fn spans(&self, index: usize) -> [&[u8]; SPANS] {
        let mut rest = &self.arena[self.starts[index] as usize..];
        let lengths = &self.lengths[index * SPANS..][..SPANS];
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
        self.batch.len()
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// The size of all texts and payloads inside, in bytes.
    pub fn bytes(&self) -> usize {
        self.batch.arena.len()
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
        let batch = &mut self.batch;
        let spans = record.spans();
        batch.starts.push(length(batch.arena.len()));
        batch.lengths.extend(spans.map(|bytes| length(bytes.len())));
        for bytes in spans {
            batch.arena.extend_from_slice(bytes);
        }
        batch.sub_sequence_numbers.push(record.sub_sequence_number);
        batch.approximate_arrivals.push(record.approximate_arrival);
    }

    /// Makes room for so many more records with so many bytes of texts and payloads together, so that nothing is
    /// moved while they come in.
    pub(crate) fn reserve(&mut self, records: usize, bytes: usize) {
        let batch = &mut self.batch;
        batch.arena.reserve(bytes);
        batch.lengths.reserve(records * SPANS);
        batch.starts.reserve(records);
        batch.sub_sequence_numbers.reserve(records);
        batch.approximate_arrivals.reserve(records);
    }

    /// Says that everything up to this position is inside or left out on purpose.
    pub fn set_through(&mut self, position: Position) {
        self.batch.through = Some(position);
    }

    /// The finished batch.
    pub fn build(self) -> Batch {
        self.batch
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
