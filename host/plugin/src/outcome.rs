use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{Position, ShardId, UserRecord};

use crate::Mask;

/// The shard that a call is about, the same in every call of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardContext {
    /// The application of the configuration.
    pub application: Arc<str>,
    /// The processor's name in the configuration.
    pub processor: Arc<str>,
    /// The stream's name.
    pub stream: Arc<str>,
    /// The shard.
    pub shard: ShardId,
    /// The worker that holds the shard's lease.
    pub worker: Arc<str>,
    /// Grows whenever the lease changes hands: the fencing token.
    pub lease_epoch: u64,
    /// How often the records of this batch have been handed over, counting this call: 1 at first.
    pub attempt: u32,
    /// How far the newest record of the shard is ahead, in milliseconds, where the service tells.
    pub millis_behind_latest: Option<u64>,
    /// Whether this is the shard's last batch.
    pub last_batch: bool,
}

/// What a guest says became of a batch. Nothing of it is to be carried out before [`Outcome::settle`] has checked it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Which records have been dealt with.
    pub done: Done,
    /// Records that could not be processed.
    pub failed: Vec<FailedRecord>,
    /// Records that were passed over on purpose.
    pub skipped: Vec<SkippedRecord>,
    /// How far the host may checkpoint, where the configuration leaves that to the processor.
    pub checkpoint: Option<Position>,
    /// Records for other streams.
    pub outputs: Vec<Output>,
    /// Hides secrets where an error tells of the names of outputs. In what is carried out nothing is hidden.
    pub mask: Mask,
}

/// Which records of a batch have been dealt with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Done {
    /// Every record that is not named as failed or skipped.
    #[default]
    Others,
    /// The records before this index that are not named as failed or skipped.
    Before(u32),
    /// Just these.
    Listed(Vec<u32>),
}

/// A record that could not be processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRecord {
    /// Its place in the batch.
    pub index: u32,
    /// Why.
    pub reason: String,
    /// Whether another attempt can help.
    pub retry: bool,
}

/// A record that was passed over on purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRecord {
    /// Its place in the batch.
    pub index: u32,
    /// Why.
    pub reason: String,
}

/// A record for another stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The output's name in the configuration.
    pub name: Arc<str>,
    /// What to send.
    pub record: UserRecord,
    /// Why it exists.
    pub cause: Cause,
}

/// Why an output exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The record at this index of the batch.
    Record(u32),
    /// The batch as a whole.
    Batch,
    /// The call of a hook with this id.
    Hook(u64),
}

/// What a hook returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookOutcome {
    /// How far the host may checkpoint, where the configuration leaves that to the processor.
    pub checkpoint: Option<Position>,
    /// Records for other streams.
    pub outputs: Vec<Output>,
    /// Hides secrets where an error tells of the names of outputs. In what is carried out nothing is hidden.
    pub mask: Mask,
}

/// A record that the failure policy gave up, as the hook `given-up` is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUpRecord {
    /// Where the record stands.
    pub position: Position,
    /// The last reason.
    pub reason: String,
    /// How often it was handed over.
    pub attempts: u32,
}

/// Why a guest says that a whole call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// Try the same records again, no sooner than after this time.
    #[error("the processor asks for another attempt: {message}")]
    Retry {
        /// How long to wait at least.
        after: Duration,
        /// Why.
        message: String,
    },
    /// No attempt can succeed.
    #[error("the processor rejects the batch: {message}")]
    Reject {
        /// Why.
        message: String,
    },
    /// The shard must not go on before somebody has looked at it.
    #[error("the processor stops the shard: {message}")]
    StopShard {
        /// Why.
        message: String,
    },
}
