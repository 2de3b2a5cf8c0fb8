//! What can be done to workers, to the stream and to the services.

use std::time::Duration;

use crate::Held;

/// What may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temper {
    /// Only what is no reason to repeat anything.
    Gentle,
    /// Everything.
    Rough,
}

/// What is done to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// SIGKILL, and a new process after so long.
    Kill {
        /// From the end of the old one.
        pause: Duration,
    },
    /// SIGTERM, and a new process when the old one has ended.
    Roll,
    /// A new process, and SIGTERM for the old one when the new one is ready.
    Surge,
    /// SIGSTOP, and SIGCONT after so long.
    Freeze {
        /// From one to the other.
        time: Duration,
    },
    /// No network for so long.
    CutOff {
        /// From its loss to its return.
        time: Duration,
        /// What becomes of that which was under way.
        held: Held,
    },
}

/// What is done to the input's shards. Indexes count the open ones in the order of their hash keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reshard {
    /// In the middle.
    Split {
        /// Which one.
        index: usize,
    },
    /// With the next one.
    Merge {
        /// Which one.
        index: usize,
    },
}

/// What is wrong with the services for a while, for all workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather {
    /// What it is.
    pub trouble: Trouble,
    /// How many of the calls it befalls, from 0 to 1.
    pub chance: f64,
    /// How long it lasts.
    pub time: Duration,
}

/// What may be wrong with the services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// GetRecords is refused.
    ReadsThrottled,
    /// PutRecords is refused, as a whole or in part.
    PutsThrottled,
    /// PutRecords is carried out late: something is under way whenever something is done to a worker.
    PutsSlow,
    /// UpdateItem of leases is refused.
    LeaseWritesThrottled,
    /// UpdateItem of leases is carried out, and the answer is lost.
    LeaseAnswersLost,
}

// === impl Deed ===

impl Deed {
    /// For the report.
    pub fn name(self) -> &'static str {
        match self {
            Deed::Kill { .. } => "kill",
            Deed::Roll => "roll",
            Deed::Surge => "surge",
            Deed::Freeze { .. } => "freeze",
            Deed::CutOff { .. } => "cut-off",
        }
    }
}

// === impl Reshard ===

impl Reshard {
    /// For the report.
    pub fn name(self) -> &'static str {
        match self {
            Reshard::Split { .. } => "split",
            Reshard::Merge { .. } => "merge",
        }
    }
}

// === impl Trouble ===

impl Trouble {
    /// What is no reason to repeat anything.
    pub(super) const GENTLE: [Trouble; 4] =
        [Trouble::ReadsThrottled, Trouble::PutsThrottled, Trouble::PutsSlow, Trouble::LeaseWritesThrottled];

    /// For the report.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::ReadsThrottled => "reads-throttled",
            Trouble::PutsThrottled => "puts-throttled",
            Trouble::PutsSlow => "puts-slow",
            Trouble::LeaseWritesThrottled => "lease-writes-throttled",
            Trouble::LeaseAnswersLost => "lease-answers-lost",
        }
    }
}

// === impl Temper ===

impl Temper {
    /// For the report.
    pub fn name(self) -> &'static str {
        match self {
            Temper::Gentle => "gentle",
            Temper::Rough => "rough",
        }
    }
}
