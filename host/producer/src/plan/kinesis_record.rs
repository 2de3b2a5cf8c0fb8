use bytes::Bytes;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, Aggregator};
use shardmill_record::{HashKey, UserRecord};

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

// === impl KinesisRecord ===

impl KinesisRecord {
    /// The first of these records, or with `aggregate_max_bytes` as many as fit together. `None` if there are none, or
    /// if a request has no room for it that has `room`, and room for more has to be made.
    pub(super) fn of<'a>(
        mut records: impl Iterator<Item = &'a UserRecord>,
        aggregate_max_bytes: Option<usize>,
        room: usize,
    ) -> Option<Self> {
        let first = records.next()?;
        let Some(second) = aggregate_max_bytes.and_then(|_| records.next()) else { return Self::alone(first, room) };
        let most = aggregate_max_bytes.unwrap_or_default();
        let mut aggregator = Aggregator::with_capacity(most.min(ROOM));
        for record in [first, second].into_iter().chain(records) {
            if !aggregator.push_within(record, most) {
                break;
            }
        }
        if aggregator.len() < 2 {
            return Self::alone(first, room);
        }
        if AGGREGATE_PARTITION_KEY.len() + aggregator.size() > room {
            return None;
        }
        let count = aggregator.len();
        let (data, first_hash_key) = aggregator.finish()?;
        let partition_key = AGGREGATE_PARTITION_KEY.to_owned();
        Some(Self { partition_key, explicit_hash_key: Some(first_hash_key), data, count })
    }

    fn alone(record: &UserRecord, room: usize) -> Option<Self> {
        let kinesis_record = Self {
            partition_key: record.partition_key.clone(),
            explicit_hash_key: record.explicit_hash_key,
            data: record.data.clone(),
            count: 1,
        };
        (kinesis_record.bytes() <= room).then_some(kinesis_record)
    }

    /// Its size in a request.
    pub(crate) fn bytes(&self) -> usize {
        self.partition_key.len() + self.data.len()
    }
}
