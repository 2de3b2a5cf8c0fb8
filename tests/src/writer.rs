//! Puts numbered records into a stream, as a KPL would and as an SDK would.

use std::collections::BTreeSet;
use std::ops::Range;

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, Aggregator};
use shardmill_record::{HashKey, UserRecord};

use crate::Services;
use crate::services::hash_key_range;

/// Records of one request.
const AT_ONCE: usize = 300;
/// How records of a shard that come one after another are put together.
#[derive(Debug, Clone, Copy)]
struct Runs {
    /// Of so many …
    length: usize,
    /// … so many come alone, and the others in one aggregate.
    alone: usize,
}

const MIXED: Runs = Runs { length: 15, alone: 10 };
/// As many as a request brings.
const AGGREGATES_ALONE: Runs = Runs { length: AT_ONCE, alone: 0 };

/// Numbers records from 0, over so many keys, in the order of their numbers.
#[derive(Debug)]
pub struct Writer<'a> {
    services: &'a Services,
    stream: &'a str,
    keys: u64,
    runs: Option<Runs>,
    padding: usize,
    /// Of so many records the last one is this poison.
    poison: Option<(u64, &'static str)>,
    next: u64,
}

// === impl Writer ===

impl<'a> Writer<'a> {
    /// Writes records that come alone.
    pub fn new(services: &'a Services, stream: &'a str, keys: u64) -> Writer<'a> {
        Writer { services, stream, keys, runs: None, padding: 0, poison: None, next: 0 }
    }

    /// Writes a third of the records in aggregates.
    #[must_use]
    pub fn with_aggregates(self) -> Writer<'a> {
        Writer { runs: Some(MIXED), ..self }
    }

    /// Writes all records in aggregates, so that hardly any two are in different ones.
    #[must_use]
    pub fn with_large_aggregates(self) -> Writer<'a> {
        Writer { runs: Some(AGGREGATES_ALONE), ..self }
    }

    /// Makes records larger by so many bytes.
    #[must_use]
    pub fn padded(self, bytes: usize) -> Writer<'a> {
        Writer { padding: bytes, ..self }
    }

    /// Makes the last one of so many records a poison of this kind for the guest `poison`.
    #[must_use]
    pub fn poisoned(self, every: u64, kind: &'static str) -> Writer<'a> {
        Writer { poison: Some((every, kind)), ..self }
    }

    /// Whether the record of this number is poison.
    pub fn is_poison(&self, number: u64) -> bool {
        self.poison.is_some_and(|(every, _)| number % every == every - 1)
    }

    /// How many records have been put.
    pub fn count(&self) -> u64 {
        self.next
    }

    /// Puts so many more records; their numbers.
    pub async fn put(&mut self, count: u64) -> Range<u64> {
        let first = self.next;
        self.next += count;
        let records: Vec<UserRecord> = (first..self.next).map(|number| self.record(number)).collect();
        for chunk in records.chunks(AT_ONCE) {
            let entries = match self.runs {
                Some(runs) => self.aggregate(chunk, runs).await,
                None => chunk.iter().map(alone).collect(),
            };
            self.send(entries).await;
        }
        first..self.next
    }

    /// Puts one record with a payload of its own.
    pub async fn put_data(&self, partition_key: &str, data: &[u8]) {
        self.send(vec![entry(partition_key, None, data)]).await;
    }

    /// The key of a record.
    pub fn key_of_number(&self, number: u64) -> String {
        // In another order than that of the numbers.
        key(number * 7 % self.keys)
    }

    /// A key whose records go to this shard.
    pub async fn key_of(&self, shard: &str) -> String {
        self.keys_of(shard).await.pop_first().expect("each shard has keys")
    }

    /// The keys whose records go to this shard.
    pub async fn keys_of(&self, shard: &str) -> BTreeSet<String> {
        let shards = self.services.shards(self.stream).await;
        let found = shards.iter().find(|candidate| candidate.shard_id() == shard).expect("a shard of the stream");
        let range = hash_key_range(found);
        (0..self.keys).map(key).filter(|key| range.contains(HashKey::of_partition_key(key))).collect()
    }

    fn record(&self, number: u64) -> UserRecord {
        let partition_key = self.key_of_number(number);
        let padding = "x".repeat(self.padding);
        let poison = match self.poison {
            Some((_, kind)) if self.is_poison(number) => format!(r#""poison":"{kind}","#),
            _other => String::new(),
        };
        let data = format!(r#"{{{poison}"n":{number},"key":"{partition_key}","padding":"{padding}"}}"#);
        UserRecord { partition_key, explicit_hash_key: None, data: data.into_bytes().into() }
    }

    /// Keeps the order of each shard's records.
    async fn aggregate(&self, records: &[UserRecord], runs: Runs) -> Vec<PutRecordsRequestEntry> {
        let shards = self.services.shards(self.stream).await;
        let is_open = |shard: &&aws_sdk_kinesis::types::Shard| {
            shard.sequence_number_range().is_some_and(|range| range.ending_sequence_number().is_none())
        };
        let mut entries = Vec::new();
        for range in shards.iter().filter(is_open).map(hash_key_range) {
            let of_shard: Vec<_> = records.iter().filter(|record| range.contains(record.hash_key())).collect();
            for run in of_shard.chunks(runs.length) {
                let (single, together) = run.split_at(run.len().min(runs.alone));
                entries.extend(single.iter().map(|record| alone(record)));
                let mut aggregator = Aggregator::default();
                together.iter().for_each(|record| aggregator.push(record));
                if let Some((payload, hash_key)) = aggregator.finish() {
                    entries.push(entry(AGGREGATE_PARTITION_KEY, Some(hash_key.to_string()), &payload));
                }
            }
        }
        entries
    }

    async fn send(&self, entries: Vec<PutRecordsRequestEntry>) {
        let put = self.services.kinesis.put_records().stream_name(self.stream).set_records(Some(entries));
        let put = put.send().await.expect("records are taken");
        assert_eq!(put.failed_record_count(), Some(0), "{put:?}");
    }
}

fn key(number: u64) -> String {
    format!("key-{number}")
}

fn alone(record: &UserRecord) -> PutRecordsRequestEntry {
    entry(&record.partition_key, None, &record.data)
}

fn entry(partition_key: &str, explicit_hash_key: Option<String>, data: &[u8]) -> PutRecordsRequestEntry {
    let entry = PutRecordsRequestEntry::builder().data(Blob::new(data)).partition_key(partition_key);
    entry.set_explicit_hash_key(explicit_hash_key).build().expect("data and a key are all that is required")
}
