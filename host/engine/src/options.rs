use std::sync::Arc;
use std::time::Duration;

use shardmill_plugin::OutcomeLimits;
use shardmill_record::{BatchLimits, OutOfRange};
use shardmill_stream::start::Start;

use crate::{Backoff, CheckpointBy, FailurePolicy, Flow, Prefetch, Window};

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
    /// How far shards are read ahead.
    pub prefetch: Prefetch,
    /// Which records go to the guest, and how they are spread over its calls.
    pub flow: Arc<Flow>,
    /// What becomes of records that fail.
    pub failure: FailurePolicy,
    /// The wait between attempts.
    pub backoff: Backoff,
    /// What a crash does to records that are being processed.
    pub delivery: Delivery,
    /// Who says how far the checkpoint may go.
    pub checkpoint: CheckpointBy,
    /// How often the checkpoint is written while records are being processed.
    pub checkpoint_interval: Duration,
    /// Of so many records the checkpoint is written before that, 1 or more.
    pub checkpoint_count: Option<u64>,
    /// What becomes of user records outside their shard's range.
    pub out_of_range: OutOfRange,
    /// What an outcome may hold.
    pub outcome: OutcomeLimits,
    /// How long a hook may take.
    pub hook_timeout: Duration,
    /// How long a stop may take before what is in flight is given up.
    pub shutdown_timeout: Duration,
}

impl Options {
    /// The most bytes of one shard's records that are copied into batches at a time.
    pub(crate) fn bytes_in_batches(&self) -> u64 {
        let bytes = |batch: &BatchOptions| batch.limits.bytes as u64;
        if !self.flow.is_spread() {
            return bytes(&self.batch);
        }
        let batchers = self.flow.batchers.iter().map(|batcher| bytes(&batcher.batch));
        let of_a_lane = batchers.fold(bytes(&self.batch), u64::saturating_add);
        // One on its way and one that is being collected.
        of_a_lane.saturating_mul(u64::from(self.flow.lanes)).saturating_mul(2)
    }
}

/// What goes into a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchOptions {
    /// How much.
    pub limits: BatchLimits,
    /// How long a batch that is not full may wait for more records.
    pub wait: Duration,
    /// Whether records that arrived in different windows are in different batches. A batch waits until its window is
    /// over at the latest.
    pub window: Option<Window>,
    /// Whether the guest is called without records where none has come for the whole of `wait`, or of a window.
    pub empty: bool,
}

impl BatchOptions {
    /// Whether batches are made of more than what comes.
    pub(crate) fn is_timed(&self) -> bool {
        self.window.is_some() || self.empty
    }
}

impl Default for BatchOptions {
    fn default() -> Self {
        let limits = BatchLimits { records: 500, bytes: 4 << 20 };
        Self { limits, wait: Duration::ZERO, window: None, empty: false }
    }
}

/// What a crash does to records that are being processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// They are processed again: the checkpoint passes a record when its outputs are acknowledged.
    #[default]
    AtLeastOnce,
    /// They are not processed again: the checkpoint passes a record before it is handed over.
    AtMostOnce,
}
