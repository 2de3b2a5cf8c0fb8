//! The loop of one leased shard. It owns the shard's state; nobody else touches it.

mod batching;

mod failing;
mod finish;
mod hooks;
mod processing;
mod settling;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use shardmill_lease::HeldLease;
use shardmill_plugin::ShardContext;
use shardmill_record::{ShardId, Unpacker};
use tokio_util::sync::CancellationToken;

use crate::allowance::Share;
use crate::checkpointer::Checkpointer;
use crate::feed::{Feed, ShardClosed};
use crate::meter::Meter;
use crate::metrics::{ConsumerLabels, FailureLabels};
use crate::policy::Watermark;
use crate::shard_entry::ShardEntry;
use crate::shard_source::Directory;
use crate::status::ShardState;
use crate::stop::{Deadline, StopRequest};
use crate::{DeadLetters, Destinations, Guest, Metrics, Options, Reservation, Scope};

/// Everything that a shard's task needs.
pub struct ShardTask {
    pub(crate) options: Arc<Options>,
    pub(crate) worker: Arc<str>,
    pub(crate) shard: ShardId,
    pub(crate) lease: Arc<HeldLease>,
    pub(crate) guest: Arc<dyn Guest>,
    /// The digest of the guest's plugin.
    pub(crate) plugin: Arc<str>,
    pub(crate) destinations: Destinations,
    pub(crate) dead_letters: Option<Arc<dyn DeadLetters>>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) feed: Feed,
    pub(crate) unpacker: Unpacker,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) closed: Option<ShardClosed>,
    pub(crate) millis_behind: Option<u64>,
    pub(crate) meter: Meter,
    pub(crate) watermark: Watermark,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) status: ShardEntry,
    /// How many records it may hand over.
    pub(crate) share: Share,
    pub(crate) metrics: Metrics,
    pub(crate) labels: ConsumerLabels,
    /// Cancelled when what is in flight is to be given up.
    pub(crate) abort: CancellationToken,
    /// When that will be.
    pub(crate) deadline: Deadline,
    /// Where the failure policy asks for the consumer's stop.
    pub(crate) stop_request: StopRequest,
    pub(crate) wall_clock: WallClock,
    pub(crate) hooks_called: u64,
    pub(crate) told: Told,
}

/// Milliseconds since 1970. Ages of records are told by it, whose times of arrival are a service's.
pub(crate) type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// When the log last said what happens all the time.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// That records are skipped.
    pub(crate) skip: Option<tokio::time::Instant>,
    /// That batches are split.
    pub(crate) split: Option<tokio::time::Instant>,
}

/// How a shard's task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The shard is closed and every record of it is done; its lease says so.
    Complete,
    /// The lease was let go, with everything that was done checkpointed.
    Released,
    /// The lease was lost; a successor goes on from the last checkpoint.
    Lost,
    /// What was in flight was given up because the time for a stop was over; it will be repeated.
    Aborted,
    /// The shard is to be run anew, from its lease's checkpoint and with the same lease.
    Restart,
}

/// Why the loop is left.
pub(crate) enum Leave {
    /// The lease is to be let go.
    Drain,
    Lost,
    Abort,
    /// The shard cannot go on, or the failure policy stops it, and maybe more with it.
    Stop(Scope, String),
    /// The shard's end is reached.
    Closed,
    /// An operator lets the shard rest.
    Pause,
    /// An operator lets the shard begin somewhere else.
    Rewind,
    /// A stopped shard is to begin again.
    Restart,
}

// === impl ShardTask ===

impl ShardTask {
    /// Runs until the shard ends, or its lease is to be let go or is lost.
    pub async fn run(mut self) -> Ended {
        self.tell(crate::Hook::Assigned, self.options.hook_timeout).await;
        self.status.set_state(ShardState::Running);
        let leave = match self.work().await {
            Err(leave) => leave,
            Ok(never) => match never {},
        };
        self.leave(leave).await
    }

    async fn work(&mut self) -> Result<std::convert::Infallible, Leave> {
        loop {
            match self.next_batch().await? {
                Some(batch) => self.process(batch).await?,
                None => {
                    self.status.had_nothing(self.millis_behind);
                    self.tell(crate::Hook::Idle, self.options.hook_timeout).await;
                }
            }
        }
    }

    /// What a guest is told of the shard.
    pub(crate) fn context(&self, attempt: u32, last_batch: bool) -> ShardContext {
        let lease = self.lease.lease();
        ShardContext {
            application: self.options.application.clone(),
            processor: self.options.processor.clone(),
            stream: self.options.stream.clone(),
            shard: self.shard.clone(),
            worker: Arc::clone(&self.worker),
            lease_epoch: lease.epoch.get(),
            attempt,
            millis_behind_latest: self.millis_behind,
            last_batch,
        }
    }

    /// The shard cannot go on, whatever the failure policy says.
    pub(crate) fn stop(reason: impl Into<String>) -> Leave {
        Leave::Stop(Scope::Shard, reason.into())
    }

    pub(crate) fn count_failure(&self, kind: &'static str) {
        let labels = FailureLabels { processor: self.options.processor.to_string(), kind };
        self.metrics.attempts_failed.get_or_create(&labels).inc();
    }
}
