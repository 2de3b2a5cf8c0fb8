//! Records that are given up, and where they go.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use shardmill_lease::Fence;
use shardmill_record::{HashKey, Position, ShardId};

/// A record that was given up, with all that is needed to find out why and to process it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The application.
    pub application: Arc<str>,
    /// The processor that gave it up.
    pub processor: Arc<str>,
    /// The stream that it came from, by the name or ARN of the configuration.
    pub stream: Arc<str>,
    /// The ARN of that stream: a name alone says nothing of region and account.
    pub stream_arn: Arc<str>,
    /// How many processors it came through, the one that reads the stream not counted. If any, it is an output of the one
    /// before, and no record of the stream; it stands where the record stands that has caused it.
    pub hops: u32,
    /// The shard that it came from.
    pub shard: ShardId,
    /// Where it stands there.
    pub position: Position,
    /// Its partition key.
    pub partition_key: String,
    /// The hash key that its producer gave it, if any.
    pub explicit_hash_key: Option<HashKey>,
    /// Its payload.
    pub data: Bytes,
    /// When it arrived in the stream, in milliseconds since 1970.
    pub arrived_at: u64,
    /// When it was given up, in milliseconds since 1970.
    pub given_up_at: u64,
    /// How often it was handed over.
    pub attempts: u32,
    /// What was said of it last.
    pub reason: String,
    /// The digest of the plugin that it was handed to.
    pub plugin: Arc<str>,
    /// The worker that gave it up.
    pub worker: Arc<str>,
    /// The epoch of the shard's lease: tells repeats of one worker's letters from those of its successor.
    pub lease_epoch: u64,
}

/// Why dead letters were not stored.
#[derive(Debug, thiserror::Error)]
pub enum DeadLetterError {
    /// The lease is lost: whoever holds it now gives the records up again.
    #[error("the lease was lost before the dead letters were stored")]
    Fenced,
    /// They cannot be stored there, however long one waits.
    #[error("dead letters cannot be stored in {place}: {reason}")]
    Refused {
        /// The stream, folder or output.
        place: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// A place for dead letters.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Stores letters of one shard, in order. Returns when they are durable: the checkpoint may pass them then. What fails in
    /// passing is tried again for as long as the lease is held. A letter may be stored twice, never lost.
    async fn store(&self, letters: Vec<DeadLetter>, fence: &Fence) -> Result<(), DeadLetterError>;
}
