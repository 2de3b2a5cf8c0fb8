//! Records as they are: put by the test byte for byte, and read back as the service keeps them.

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, ShardIteratorType};
use shardmill_record::{BatchBuilder, BatchLimits, HashKeyRange, OutOfRange, PageBuilder, Unpacker};

use crate::Services;

/// What one request may hold.
const MAX_ENTRIES: usize = 500;
const MAX_BYTES: usize = 5 << 20;

/// A record to be put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// The partition key.
    pub key: String,
    /// In place of the key's MD5.
    pub hash_key: Option<String>,
    /// The payload.
    pub data: Vec<u8>,
}

// === impl Raw ===

impl Raw {
    /// A record whose key decides where it goes.
    pub fn new(key: impl Into<String>, data: impl Into<Vec<u8>>) -> Raw {
        Raw { key: key.into(), hash_key: None, data: data.into() }
    }
}

/// Puts records in this order; the sequence number of each.
pub async fn put(services: &Services, stream: &str, records: &[Raw]) -> Vec<String> {
    let mut numbers = Vec::with_capacity(records.len());
    let mut rest = records;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |record: &&Raw| {
            bytes += record.key.len() + record.data.len();
            bytes <= MAX_BYTES
        };
        let count = rest.iter().take(MAX_ENTRIES).take_while(fits).count().max(1);
        let (now, later) = rest.split_at(count);
        let put = services.kinesis.put_records().stream_name(stream);
        let answer = put.set_records(Some(now.iter().map(entry).collect())).send().await.expect("records are taken");
        assert_eq!(answer.failed_record_count(), Some(0), "{answer:?}");
        numbers.extend(answer.records().iter().map(|entry| entry.sequence_number().expect("a number").to_owned()));
        rest = later;
    }
    numbers
}

/// The Kinesis records of a stream, shard by shard, as they are: key and payload.
pub async fn kinesis_records(services: &Services, stream: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for shard in services.shards(stream).await {
        let iterator = services.kinesis.get_shard_iterator().stream_name(stream).shard_id(shard.shard_id());
        let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
        let mut next = iterator.expect("an iterator").shard_iterator;
        while let Some(iterator) = next {
            let read = services.kinesis.get_records().shard_iterator(iterator).send().await.expect("records");
            let is_tip = read.records.is_empty() && read.millis_behind_latest == Some(0);
            found.extend(read.records.into_iter().map(|record| {
                let key = record.partition_key.expect("a key");
                (key, record.data.into_inner())
            }));
            next = read.next_shard_iterator.filter(|_| !is_tip);
        }
    }
    found
}

/// The user records of a stream, shard by shard: key and payload.
pub async fn user_records(services: &Services, stream: &str) -> Vec<(String, Vec<u8>)> {
    let mut page = PageBuilder::default();
    for ((key, data), number) in kinesis_records(services, stream).await.iter().zip(1..) {
        page.push(&u64::to_string(&number), key, data, 0).expect("a number");
    }
    let mut unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
    unpacker.push(page.build());
    let mut batch = BatchBuilder::default();
    unpacker.fill(&mut batch, &BatchLimits { records: usize::MAX, bytes: usize::MAX });
    batch.build().iter().map(|record| (record.partition_key.to_owned(), record.data.to_vec())).collect()
}

fn entry(record: &Raw) -> PutRecordsRequestEntry {
    let entry = PutRecordsRequestEntry::builder().data(Blob::new(record.data.as_slice())).partition_key(&record.key);
    entry.set_explicit_hash_key(record.hash_key.clone()).build().expect("data and a key are all that is required")
}
