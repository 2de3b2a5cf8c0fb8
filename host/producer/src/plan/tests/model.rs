//! The service as the plan meets it: open shards, what each shard that ever was holds, user record by user record.

use std::sync::Arc;

use bytes::Bytes;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, decode};
use shardmill_record::{HashKey, HashKeyRange, SequenceNumber, ShardId, UserRecord};

use crate::answer::Stored;
use crate::plan::KinesisRecord;
use crate::shard_map::{OpenShard, ShardMap};

pub(crate) struct Service {
    pub(crate) open: Vec<OpenShard>,
    next_shard: usize,
    pub(crate) kept: Vec<Kept>,
    writes: u64,
}

/// A user record in a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) shard: OpenShard,
    pub(crate) sequence_number: SequenceNumber,
    pub(crate) sub_sequence_number: u64,
    pub(crate) record: UserRecord,
}

pub(crate) fn unpack(kinesis_record: &KinesisRecord) -> Vec<UserRecord> {
    let Ok(aggregate) = decode(&kinesis_record.data) else {
        let KinesisRecord { partition_key, explicit_hash_key, data, .. } = kinesis_record.clone();
        return vec![UserRecord { partition_key, explicit_hash_key, data }];
    };
    assert_eq!(kinesis_record.partition_key, AGGREGATE_PARTITION_KEY);
    let records = aggregate.records(&kinesis_record.data).map(|sub| UserRecord {
        partition_key: sub.partition_key.to_owned(),
        explicit_hash_key: sub.explicit_hash_key,
        data: Bytes::copy_from_slice(sub.data),
    });
    records.collect()
}

// === impl Service ===

impl Service {
    pub(crate) fn new(shards: usize) -> Self {
        let mut service = Self { open: Vec::new(), next_shard: 0, kept: Vec::new(), writes: 0 };
        let step = u128::MAX / shards as u128;
        for index in 0..shards as u128 {
            let end = if index + 1 == shards as u128 { u128::MAX } else { (index + 1) * step - 1 };
            service.add(HashKeyRange { start: HashKey::new(index * step), end: HashKey::new(end) });
        }
        service
    }

    fn add(&mut self, range: HashKeyRange) {
        let id = ShardId::parse(&format!("shardId-{:012}", self.next_shard)).unwrap();
        self.next_shard += 1;
        self.open.push(OpenShard { id, range });
        self.open.sort_by_key(|shard| shard.range.start);
    }

    /// An open shard, by its place on the ring, becomes two.
    pub(crate) fn split(&mut self, index: usize) {
        let HashKeyRange { start, end } = self.open.remove(index).range;
        let middle = start.get() + (end.get() - start.get()) / 2;
        self.add(HashKeyRange { start, end: HashKey::new(middle) });
        self.add(HashKeyRange { start: HashKey::new(middle + 1), end });
    }

    /// An open shard and the next one become one.
    pub(crate) fn merge(&mut self, index: usize) {
        let start = self.open.remove(index).range.start;
        let end = self.open.remove(index).range.end;
        self.add(HashKeyRange { start, end });
    }

    pub(crate) fn map(&self) -> Arc<ShardMap> {
        Arc::new(ShardMap::new(self.open.clone()))
    }

    pub(crate) fn put(&mut self, kinesis_record: &KinesisRecord) -> Stored {
        let key = kinesis_record.explicit_hash_key;
        let key = key.unwrap_or_else(|| HashKey::of_partition_key(&kinesis_record.partition_key));
        let shard = self.open.iter().find(|shard| shard.range.contains(key)).unwrap().clone();
        self.writes += 1;
        let sequence_number = SequenceNumber::parse(&self.writes.to_string()).unwrap();
        let records = unpack(kinesis_record);
        assert_eq!(records.len(), kinesis_record.count);
        self.kept.extend(records.into_iter().enumerate().map(|(index, record)| Kept {
            shard: shard.clone(),
            sequence_number: sequence_number.clone(),
            sub_sequence_number: index as u64,
            record,
        }));
        Stored { shard: shard.id, sequence_number }
    }
}
