use std::sync::Arc;
use std::time::Duration;

use shardmill_plugin::OutcomeLimits;
use shardmill_record::{BatchLimits, OutOfRange};
use shardmill_stream::start::Start;

use crate::Backoff;

/// How a consumer works.
#[derive(Debug, Clone)]
pub struct Options {
    /// The application's name.
    pub application: Arc<str>,
    /// The processor's name.
    pub processor: Arc<str>,
    /// The stream, by its name or its ARN.
    pub stream: Arc<str>,
    /// Where to begin without a checkpoint.
    pub start: Start,
    /// What goes into a batch.
    pub batch: BatchOptions,
    /// How often a record is handed over before it is given up, 1 or more.
    pub attempts: u32,
    /// The wait between attempts.
    pub backoff: Backoff,
    /// How often the checkpoint is written while records are being processed.
    pub checkpoint_interval: Duration,
    /// What becomes of user records outside their shard's range.
    pub out_of_range: OutOfRange,
    /// What an outcome may hold.
    pub outcome: OutcomeLimits,
    /// How long a hook may take.
    pub hook_timeout: Duration,
    /// How long a stop may take before what is in flight is given up.
    pub shutdown_timeout: Duration,
}

/// What goes into a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchOptions {
    /// How much.
    pub limits: BatchLimits,
    /// How long a batch that is not full may wait for more records.
    pub wait: Duration,
}
