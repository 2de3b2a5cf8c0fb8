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
    /// Another build in the place of its plugin's file, and SIGHUP.
    Reload,
    /// What is no plugin in the place of its plugin's file, and SIGHUP; the file is back when it was refused.
    ReloadBad,
    /// No file of it may grow for so long: its dead letters, its log and its cache have no room.
    FillDisk {
        /// From one to the other.
        time: Duration,
    },
    /// Its wall clock goes wrong by so many seconds, and is right again after so long.
    SkewClock {
        /// Forward, or backward if it is negative.
        seconds: i64,
        /// From one to the other.
        time: Duration,
    },
}

/// A row of the lease table is deleted: that of an open shard, which operators are told to do where it is to be read anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forget {
    /// Which one of the open shards, in the order of their hash keys, counted round and round.
    pub index: usize,
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
    /// GetRecords and PutRecords are answered with 503.
    CallsFail,
    /// Connections are reset under GetRecords, PutRecords and UpdateItem of leases, before these are carried out.
    ConnectionsReset,
    /// Whatever is read or written is answered late.
    AnswersLate,
    /// UpdateItem of leases is carried out, and the answer is lost.
    LeaseAnswersLost,
    /// PutRecords is carried out, and the answer is lost: its records have to be sent again.
    PutAnswersLost,
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
            Deed::Reload => "reload",
            Deed::ReloadBad => "reload-bad",
            Deed::FillDisk { .. } => "disk-full",
            Deed::SkewClock { .. } => "clock-wrong",
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

// === impl Forget ===

impl Forget {
    /// For the report.
    pub const NAME: &'static str = "lease-deleted";
}

// === impl Trouble ===

impl Trouble {
    /// What is no reason to repeat anything.
    pub(super) const GENTLE: [Trouble; 7] = [
        Trouble::ReadsThrottled,
        Trouble::PutsThrottled,
        Trouble::PutsSlow,
        Trouble::LeaseWritesThrottled,
        Trouble::CallsFail,
        Trouble::ConnectionsReset,
        Trouble::AnswersLate,
    ];
    /// What may be.
    pub(super) const ROUGH: [Trouble; 2] = [Trouble::LeaseAnswersLost, Trouble::PutAnswersLost];

    /// For the report.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::ReadsThrottled => "reads-throttled",
            Trouble::PutsThrottled => "puts-throttled",
            Trouble::PutsSlow => "puts-slow",
            Trouble::LeaseWritesThrottled => "lease-writes-throttled",
            Trouble::CallsFail => "calls-fail",
            Trouble::ConnectionsReset => "connections-reset",
            Trouble::AnswersLate => "answers-late",
            Trouble::LeaseAnswersLost => "lease-answers-lost",
            Trouble::PutAnswersLost => "put-answers-lost",
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
