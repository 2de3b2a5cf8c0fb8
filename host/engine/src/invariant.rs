//! The promises that the engine checks while it runs. One that is broken is a defect of this program: it panics where
//! debug assertions are on, and is counted and logged in a release.

use std::sync::atomic::{AtomicU64, Ordering};

/// A promise by its name in ARCHITECTURE.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// No checkpoint passes a record whose outputs are not acknowledged by their destination.
    OutputsBeforeCheckpoint,
    /// A checkpoint never goes back.
    Monotonic,
    /// No record leaves without being processed or stored with its reason.
    NothingLost,
}

static BROKEN: [AtomicU64; Invariant::ALL.len()] = [const { AtomicU64::new(0) }; Invariant::ALL.len()];

// === impl Invariant ===

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OutputsBeforeCheckpoint, Self::Monotonic, Self::NothingLost];

    /// The name in ARCHITECTURE.md and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutputsBeforeCheckpoint => "outputs-before-checkpoint",
            Self::Monotonic => "monotonic",
            Self::NothingLost => "nothing-lost",
        }
    }

    /// Checks a condition that must hold.
    #[track_caller]
    pub fn check(self, holds: bool, what: impl FnOnce() -> String) {
        if holds {
            return;
        }
        BROKEN[self as usize].fetch_add(1, Ordering::Relaxed);
        let what = what();
        tracing::error!(invariant = self.name(), "a promise of this program is broken, please report it: {what}");
        debug_assert!(false, "invariant {} is broken: {what}", self.name());
    }

    /// How often it was broken since the process started.
    pub fn broken(self) -> u64 {
        BROKEN[self as usize].load(Ordering::Relaxed)
    }
}
