//! What one shard is about at this moment, beside what is shown of it: who wants to know why it stands still looks here.
//!
//! Whoever works for the shard says in a word what is begun, where something is waited for. Nothing here waits.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use shardmill_lease::HeldLease;
use shardmill_stream::polling::{Condition, Seen};
use tokio::time::Instant;

use crate::control::Control;

/// What a shard's task is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It waits for records.
    #[default]
    Waiting,
    /// The guest has a batch.
    Guest,
    /// A batch failed, and the next attempt is waited for.
    BackingOff,
    /// Outputs are on their way.
    Sending,
    /// Dead letters are on their way.
    Storing,
    /// A checkpoint has to be written before anything else.
    Checkpointing,
    /// A hook of the guest runs, or what it returned is on its way.
    Hook,
    /// The shard's end is written.
    Ending,
}

/// One shard whose lease is held.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pulse: Mutex<Pulse>,
    condition: OnceLock<Condition>,
    lease: OnceLock<Weak<HeldLease>>,
    /// What an operator wants.
    pub(crate) control: Control,
}

#[derive(Debug)]
struct Pulse {
    activity: Activity,
    since: Instant,
    /// When it got on last: a page was taken, or the position moved.
    moved: Instant,
    /// Whether all that there was is done.
    is_at_tip: bool,
}

/// What is known of a shard at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Vitals {
    pub(crate) activity: Activity,
    pub(crate) active_since: Instant,
    pub(crate) moved: Instant,
    pub(crate) is_at_tip: bool,
    /// `None` where no reader says anything.
    pub(crate) reader: Option<Seen>,
    /// As the lease has it.
    pub(crate) checkpoint: Option<String>,
}

// === impl Pulse ===

impl Default for Pulse {
    fn default() -> Self {
        let now = Instant::now();
        Self { activity: Activity::default(), since: now, moved: now, is_at_tip: false }
    }
}

// === impl Live ===

impl Live {
    pub(crate) fn attach(&self, condition: Condition, lease: &Arc<HeldLease>) {
        // A shard has one of each for as long as its lease is held.
        let _first = (self.condition.set(condition), self.lease.set(Arc::downgrade(lease)));
    }

    pub(crate) fn doing(&self, activity: Activity) {
        let mut pulse = self.pulse();
        (pulse.activity, pulse.since) = (activity, Instant::now());
    }

    pub(crate) fn moved(&self) {
        let mut pulse = self.pulse();
        pulse.moved = Instant::now();
        pulse.is_at_tip = false;
    }

    pub(crate) fn at_tip(&self) {
        self.pulse().is_at_tip = true;
    }

    pub(crate) fn vitals(&self, now: Instant) -> Vitals {
        let lease = self.lease.get().and_then(Weak::upgrade);
        let pulse = self.pulse();
        Vitals {
            activity: pulse.activity,
            active_since: pulse.since,
            moved: pulse.moved,
            is_at_tip: pulse.is_at_tip,
            reader: self.condition.get().map(|condition| condition.seen(now)),
            checkpoint: lease.map(|lease| lease.lease().checkpoint.to_string()),
        }
    }

    /// Shows in the metrics how far the shard is behind, also while nobody reads it.
    pub(crate) fn show_lag(&self, now: Instant) {
        if let Some(condition) = self.condition.get() {
            condition.show(now);
        }
    }

    fn pulse(&self) -> MutexGuard<'_, Pulse> {
        // Plain values: a panic elsewhere cannot leave them half-changed.
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
