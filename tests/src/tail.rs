//! Reads a stream: everything that is in it, and then what is new.

use serde::Deserialize;
use shardmill_record::Position;

use crate::Services;
use crate::shard_reader::ShardReader;

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
    shards: Vec<ShardReader>,
    found: Vec<Found>,
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
        Tail { services, shards: ShardReader::of_all(services, stream).await, found: Vec::new() }
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
        for reader in &mut self.shards {
            while reader.read(self.services).await {}
            let (batch, id) = (reader.batch(), &reader.shard);
            for (index, record) in batch.iter().enumerate() {
                // A record may be made to be no JSON as a whole.
                let payload = serde_json::Deserializer::from_slice(record.data).into_iter::<Payload>().next();
                let payload = payload.and_then(Result::ok).unwrap_or_else(|| {
                    panic!("a record in {id} is not the writer's: {}", String::from_utf8_lossy(record.data))
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
