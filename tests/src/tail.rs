//! Reads a stream: everything that is in it, and then what is new.

use std::collections::BTreeMap;

use aws_sdk_kinesis::types::ShardIteratorType;
use serde::Deserialize;
use shardmill_record::{BatchBuilder, BatchLimits, HashKeyRange, OutOfRange, PageBuilder, Position, Unpacker};

use crate::Services;

/// A user record that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The number that the writer gave it.
    pub number: u64,
    /// Its partition key.
    pub key: String,
    /// The shard that it is in.
    pub shard: String,
    /// Where it stands in the shard.
    pub position: Position,
    /// When the service took it in, in milliseconds since 1970.
    pub arrival: u64,
}

/// Follows all shards that a stream had at the start.
#[derive(Debug)]
pub struct Tail<'a> {
    services: &'a Services,
    shards: BTreeMap<String, Shard>,
    found: Vec<Found>,
}

#[derive(Debug)]
struct Shard {
    /// `None` at the shard's end.
    iterator: Option<String>,
    unpacker: Unpacker,
}

/// What the writer puts.
#[derive(Deserialize)]
struct Payload {
    n: u64,
    key: String,
}

// === impl Tail ===

impl<'a> Tail<'a> {
    /// From the oldest record on.
    pub async fn new(services: &'a Services, stream: &str) -> Tail<'a> {
        let mut shards = BTreeMap::new();
        for shard in services.shards(stream).await {
            let iterator = services.kinesis.get_shard_iterator().stream_name(stream).shard_id(shard.shard_id());
            let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
            let iterator = iterator.expect("an iterator").shard_iterator;
            let unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
            shards.insert(shard.shard_id().to_owned(), Shard { iterator, unpacker });
        }
        Tail { services, shards, found: Vec::new() }
    }

    /// Everything that is in a stream now.
    pub async fn all(services: &Services, stream: &str) -> Vec<Found> {
        let mut tail = Tail::new(services, stream).await;
        tail.poll().await;
        tail.found
    }

    /// Reads on to the tip of each shard; what is new.
    pub async fn poll(&mut self) -> &[Found] {
        let known = self.found.len();
        for (id, shard) in &mut self.shards {
            while let Some(iterator) = shard.iterator.take() {
                let read = self.services.kinesis.get_records().shard_iterator(iterator).send().await;
                let read = read.expect("records");
                let mut page = PageBuilder::default();
                for record in read.records() {
                    let arrival = record.approximate_arrival_timestamp().expect("a time of arrival").to_millis();
                    let arrival = u64::try_from(arrival.expect("a time in range")).expect("a time after 1970");
                    page.push(
                        record.sequence_number(),
                        record.partition_key().expect("a key"),
                        record.data().as_ref(),
                        arrival,
                    )
                    .expect("a sequence number");
                }
                shard.unpacker.push(page.build());
                shard.iterator = read.next_shard_iterator;
                if read.records.is_empty() && read.millis_behind_latest == Some(0) {
                    break;
                }
            }
            let mut batch = BatchBuilder::default();
            shard.unpacker.fill(&mut batch, &BatchLimits { records: usize::MAX, bytes: usize::MAX });
            let batch = batch.build();
            for (index, record) in batch.iter().enumerate() {
                let payload: Payload = serde_json::from_slice(record.data).unwrap_or_else(|error| {
                    panic!("{error}: a record in {id} is not the writer's: {}", String::from_utf8_lossy(record.data))
                });
                assert_eq!(payload.key, record.partition_key, "record {} has changed its key", payload.n);
                self.found.push(Found {
                    number: payload.n,
                    key: payload.key,
                    shard: id.clone(),
                    position: batch.position(index),
                    arrival: record.approximate_arrival,
                });
            }
        }
        &self.found[known..]
    }

    /// Everything that was found up to now: shard by shard and poll by poll, so in order for each shard.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// Reads on; how many records have been found up to now.
    pub async fn count(&mut self) -> usize {
        self.poll().await;
        self.found.len()
    }
}
