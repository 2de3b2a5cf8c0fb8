//! What one shard is about at this moment, beside what is shown of it: who wants to know why it stands still looks here.
//!
//! Whoever works for the shard says in a word what is begun, where something is waited for. Nothing here waits.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use shardmill_lease::HeldLease;
use shardmill_stream::polling::{Condition, Seen};
use tokio::time::Instant;

use crate::control::Control;
use crate::undone::Undone;

/// What a shard's task is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It waits for records.
    #[default]
    Waiting,
    /// It has records, and as many as may be processed are with other shards.
    Allowance,
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
    undone: Mutex<Undone>,
    condition: OnceLock<Condition>,
    lease: OnceLock<Weak<HeldLease>>,
    /// Whether the configuration says of this shard where it starts.
    has_own_start: OnceLock<bool>,
    /// What an operator wants.
    pub(crate) control: Control,
}

#[derive(Debug)]
struct Pulse {
    /// When the lease was taken.
    taken: Instant,
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
    /// When the oldest record arrived that was read and is not behind the checkpoint, in milliseconds since 1970.
    pub(crate) undone: Option<u64>,
    /// When the lease was taken.
    pub(crate) taken: Instant,
}

// === impl Vitals ===

impl Vitals {
    /// How old, in milliseconds, what is lost first may be: the oldest record that is not checkpointed, as far as it is
    /// known. The reader's lag is that of the end of its last page, and all of a page may have to be done; and of a shard
    /// that nobody has read since it was taken, only that is known.
    pub(crate) fn behind(&self, now: Instant, now_ms: u64) -> Option<u64> {
        let undone = self.undone.map(|arrived| now_ms.saturating_sub(arrived));
        let lag = self.reader.as_ref().and_then(|reader| reader.millis_behind);
        let unread = self.reader.as_ref().filter(|reader| !reader.has_read).map(|_| {
            let since = now.saturating_duration_since(self.taken);
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        });
        [undone, lag, unread].into_iter().flatten().max()
    }
}

// === impl Pulse ===

impl Default for Pulse {
    fn default() -> Self {
        let now = Instant::now();
        Self { taken: now, activity: Activity::default(), since: now, moved: now, is_at_tip: false }
    }
}

// === impl Live ===

impl Live {
    pub(crate) fn attach(&self, condition: Condition, lease: &Arc<HeldLease>, has_own_start: bool) {
        // A shard has one of each for as long as its lease is held.
        let _first = (
            self.condition.set(condition),
            self.lease.set(Arc::downgrade(lease)),
            self.has_own_start.set(has_own_start),
        );
    }

    /// Why the shard is not to be rewound.
    pub(crate) fn refuses_rewind(&self) -> Option<&'static str> {
        if self.lease.get().and_then(Weak::upgrade).is_some_and(|lease| lease.is_draining()) {
            return Some("this worker is letting the shard go: ask the one that has it next");
        }
        self.has_own_start.get().is_some_and(|has| *has).then_some(
            "the configuration has a start for this shard of its own, which would count again at the next start: take it out of `start-shards` first",
        )
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
        let lease = self.lease.get().and_then(Weak::upgrade).map(|lease| lease.lease());
        let undone = {
            let mut undone = self.undone();
            if let Some(checkpoint) = lease.as_ref().and_then(|lease| lease.checkpoint.position()) {
                undone.done(checkpoint);
            }
            undone.oldest()
        };
        let pulse = self.pulse();
        Vitals {
            activity: pulse.activity,
            active_since: pulse.since,
            moved: pulse.moved,
            is_at_tip: pulse.is_at_tip,
            reader: self.condition.get().map(|condition| condition.seen(now)),
            checkpoint: lease.map(|lease| lease.checkpoint.to_string()),
            undone,
            taken: pulse.taken,
        }
    }

    /// What was read and is not checkpointed.
    pub(crate) fn undone(&self) -> MutexGuard<'_, Undone> {
        self.undone.lock().unwrap_or_else(PoisonError::into_inner)
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
