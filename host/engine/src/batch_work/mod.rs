//! One batch through a guest to its end: calls, failures, dead letters, outputs. Whose batch it is, a shard's or that
//! of a stage behind another processor, is a [`Scene`]'s business.

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

use crate::leave::Leave;
use crate::metrics::{ConsumerLabels, FailureLabels};
use crate::wall_clock::WallClock;
use crate::{DeadLetters, Delivery, Destinations, Guest, Metrics, Options};

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

/// When the log last said what happens all the time.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// That records are skipped.
    skip: Option<Instant>,
    /// That batches are split.
    split: Option<Instant>,
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
