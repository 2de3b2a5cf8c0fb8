//! One batch through a guest to its end: calls, failures, dead letters, outputs. Whose batch it is, a shard's or that of a stage
//! behind another processor, is a [`Scene`]'s business.

mod failing;
mod hooks;
mod processing;
mod scene;
mod settling;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

pub(crate) use hooks::HookEnd;
pub(crate) use scene::{Ledger, Origin, Scene};

use crate::metrics::{ConsumerLabels, FailureLabels};
use crate::{DeadLetters, Delivery, Destinations, Guest, Metrics, Options, Scope};

/// What brings batches to their end. Any number of batches at a time, for who keeps their order.
pub(crate) struct BatchWork {
    pub(crate) options: Arc<Options>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) worker: Arc<str>,
    pub(crate) destinations: Destinations,
    pub(crate) dead_letters: Option<Arc<dyn DeadLetters>>,
    pub(crate) metrics: Metrics,
    pub(crate) labels: ConsumerLabels,
    pub(crate) wall_clock: WallClock,
    pub(crate) hooks_called: Arc<AtomicU64>,
    pub(crate) told: Arc<Mutex<Told>>,
    pub(crate) scene: Arc<dyn Scene>,
}

/// Milliseconds since 1970. Ages of records are told by it, whose times of arrival are a service's.
pub(crate) type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// When the log last said what happens all the time.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// That records are skipped.
    skip: Option<Instant>,
    /// That batches are split.
    split: Option<Instant>,
}

/// Why the work is left.
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

// === impl Leave ===

impl Leave {
    /// The shard cannot go on, whatever the failure policy says.
    pub(crate) fn stop(reason: impl Into<String>) -> Self {
        Self::Stop(Scope::Shard, reason.into())
    }

    /// Of two reasons the one that must be heard: what cannot wait, then an end in order, which needs no further one. Of two stops
    /// what stops more counts, and both are told.
    pub(crate) fn or_worse(self, other: Self) -> Self {
        let rank = |leave: &Self| match leave {
            Self::Lost => 0,
            Self::Abort => 1,
            Self::Rewind => 2,
            Self::Drain => 3,
            Self::Stop(..) => 4,
            Self::Closed | Self::Pause | Self::Restart => 5,
        };
        match (self, other) {
            (Self::Stop(scope, reason), Self::Stop(more, other)) => {
                Self::Stop(scope.max(more), format!("{reason}; and {other}"))
            }
            (one, other) if rank(&other) < rank(&one) => other,
            (one, _) => one,
        }
    }
}

// === impl BatchWork ===

impl BatchWork {
    /// Whether nobody comes back to what is in hand when the batch is left.
    fn is_once(&self) -> bool {
        self.scene.delivery() == Delivery::AtMostOnce
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_failure(&self, kind: &'static str) {
        let labels = FailureLabels { processor: self.options.processor.to_string(), kind };
        self.metrics.attempts_failed.get_or_create(&labels).inc();
    }
}
