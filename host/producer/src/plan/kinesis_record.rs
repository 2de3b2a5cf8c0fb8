use bytes::Bytes;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, Aggregator, is_framed};
use shardmill_record::{HashKey, UserRecord};

use crate::InvalidRecord;

/// For what there is memory in an aggregate from the start.
const ROOM: usize = 64 << 10;

/// One Kinesis record of a request.
#[derive(Debug, Clone)]
pub(crate) struct KinesisRecord {
    pub(crate) partition_key: String,
    pub(crate) explicit_hash_key: Option<HashKey>,
    pub(crate) data: Bytes,
    /// How many user records are inside.
    pub(crate) count: usize,
}

/// What user records become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// Each goes as it is: readers need not know of aggregates.
    AsItIs,
    /// Readers take aggregates apart, and it is not known whether these records belong together.
    OneByOne,
    /// As many go together as fit into so many bytes.
    Together(usize),
}

/// Whether a record can go where readers take aggregates apart and a Kinesis record may have so many bytes.
pub(super) fn check_packed(record: &UserRecord, allowed: usize) -> Result<(), InvalidRecord> {
    if !is_framed(&record.data) {
        return Ok(());
    }
    let bytes = AGGREGATE_PARTITION_KEY.len() + Aggregator::default().size_with(record);
    if bytes > allowed { Err(InvalidRecord::AggregateTooLarge { bytes, allowed }) } else { Ok(()) }
}

// === impl KinesisRecord ===

impl KinesisRecord {
    /// The first of these records, or as many as go together. `None` if there are none, or if a request has no room for it
    /// that has `room`, and room for more has to be made.
    pub(super) fn of<'a>(
        mut records: impl Iterator<Item = &'a UserRecord>,
        packing: Packing,
        room: usize,
    ) -> Option<Self> {
        let first = records.next()?;
        let Packing::Together(most) = packing else { return Self::alone(first, packing, room) };
        let Some(second) = records.next() else { return Self::alone(first, packing, room) };
        let mut aggregator = Aggregator::with_capacity(most.min(ROOM));
        for record in [first, second].into_iter().chain(records) {
            if !aggregator.push_within(record, most) {
                break;
            }
        }
        if aggregator.len() < 2 { Self::alone(first, packing, room) } else { Self::aggregate(aggregator, room) }
    }

    /// As it is; but where readers take aggregates apart, data that look like one need a frame around them, or a reader
    /// would meet what is inside in place of the record.
    fn alone(record: &UserRecord, packing: Packing, room: usize) -> Option<Self> {
        if packing != Packing::AsItIs && is_framed(&record.data) {
            let mut aggregator = Aggregator::default();
            aggregator.push(record);
            return Self::aggregate(aggregator, room);
        }
        let kinesis_record = Self {
            partition_key: record.partition_key.clone(),
            explicit_hash_key: record.explicit_hash_key,
            data: record.data.clone(),
            count: 1,
        };
        (kinesis_record.bytes() <= room).then_some(kinesis_record)
    }

    fn aggregate(aggregator: Aggregator, room: usize) -> Option<Self> {
        if AGGREGATE_PARTITION_KEY.len() + aggregator.size() > room {
            return None;
        }
        let count = aggregator.len();
        let (data, first_hash_key) = aggregator.finish()?;
        let partition_key = AGGREGATE_PARTITION_KEY.to_owned();
        Some(Self { partition_key, explicit_hash_key: Some(first_hash_key), data, count })
    }

    /// Its size in a request.
    pub(crate) fn bytes(&self) -> usize {
        self.partition_key.len() + self.data.len()
    }
}
