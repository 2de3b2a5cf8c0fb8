use bytes::Bytes;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, Aggregator};
use shardmill_record::{HashKey, UserRecord};
use tokio::time::Instant;

/// One Kinesis record of a request.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Which of the plan's lanes it comes from.
    pub(super) lane: usize,
    /// The user records inside, by their place in the input.
    pub(super) records: Vec<usize>,
    /// Its partition key.
    pub(crate) partition_key: String,
    /// Its explicit hash key.
    pub(crate) explicit_hash_key: Option<HashKey>,
    /// Its payload.
    pub(crate) data: Bytes,
}

/// One call of PutRecords.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// When it was made.
    pub(super) made: Instant,
    /// Its Kinesis records.
    pub(crate) entries: Vec<Entry>,
    /// The size of its partition keys and payloads.
    pub(crate) bytes: usize,
}

// === impl Entry ===

impl Entry {
    /// The first of these records, as it is.
    pub(super) fn alone(lane: usize, index: usize, record: &UserRecord) -> Self {
        Self {
            lane,
            records: vec![index],
            partition_key: record.partition_key.clone(),
            explicit_hash_key: record.explicit_hash_key,
            data: record.data.clone(),
        }
    }

    /// As many of these records as fit together into one aggregate; `None` if it would hold fewer than two.
    pub(super) fn aggregate<'a>(
        lane: usize,
        records: impl Iterator<Item = (usize, &'a UserRecord)>,
        max_bytes: usize,
    ) -> Option<Self> {
        let mut aggregator = Aggregator::default();
        let mut inside = Vec::new();
        for (index, record) in records {
            if aggregator.size_with(record) > max_bytes {
                break;
            }
            aggregator.push(record);
            inside.push(index);
        }
        if inside.len() < 2 {
            return None;
        }
        let (data, first_hash_key) = aggregator.finish()?;
        let partition_key = AGGREGATE_PARTITION_KEY.to_owned();
        Some(Self { lane, records: inside, partition_key, explicit_hash_key: Some(first_hash_key), data })
    }

    /// How many user records are inside.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Its size in a request.
    pub(crate) fn bytes(&self) -> usize {
        self.partition_key.len() + self.data.len()
    }
}

// === impl Request ===

impl Request {
    pub(crate) fn new(now: Instant) -> Self {
        Self { made: now, entries: Vec::new(), bytes: 0 }
    }

    /// Whether there was room.
    pub(super) fn take(&mut self, entry: Entry, max_entries: usize, max_bytes: usize) -> bool {
        if self.entries.len() >= max_entries || self.bytes + entry.bytes() > max_bytes {
            return false;
        }
        self.bytes += entry.bytes();
        self.entries.push(entry);
        true
    }
}
