//! What can be wrong with a run.

use std::collections::BTreeSet;
use std::fmt;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Acknowledged records that never came out.
    Lost {
        /// Their key.
        key: String,
        /// Their numbers.
        numbers: Vec<u64>,
    },
    /// A record that nobody wrote.
    Unknown {
        /// Its key.
        key: String,
        /// Its number.
        nth: u64,
    },
    /// A record that no life has put.
    PutByNobody {
        /// Its key.
        key: String,
        /// Its number.
        nth: u64,
    },
    /// A record that came out and should have become a dead letter.
    Escaped {
        /// Its key.
        key: String,
        /// Its number.
        nth: u64,
    },
    /// A record that was given up and should not have been, or not there.
    GivenUp {
        /// Its key.
        key: String,
        /// Its number.
        nth: u64,
        /// The life that gave it up.
        by: String,
        /// The processor that did.
        processor: String,
    },
    /// A record that came out for the first time behind a later one.
    Overtaken {
        /// The key.
        key: String,
        /// Its number.
        nth: u64,
        /// The highest number before it.
        by: u64,
    },
    /// Records that a life should have repeated, or put, between two others.
    Skipped {
        /// The key.
        key: String,
        /// The life.
        life: String,
        /// The number before them.
        from: u64,
        /// The number after them.
        to: u64,
    },
    /// A key whose records are in more than one shard.
    Scattered {
        /// The key.
        key: String,
        /// The shards.
        shards: BTreeSet<String>,
    },
    /// Anything else that was promised.
    Other {
        /// What was promised.
        promise: String,
        /// What was seen.
        seen: String,
    },
}

// === impl Violation ===

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Lost { key, numbers } => {
                let some = &numbers[..numbers.len().min(10)];
                write!(f, "lost: {} records of {key}: {some:?}", numbers.len())
            }
            Violation::Unknown { key, nth } => write!(f, "unknown: nobody wrote record {nth} of {key}"),
            Violation::PutByNobody { key, nth } => write!(f, "record {nth} of {key} was put by no worker of this run"),
            Violation::Escaped { key, nth } => {
                write!(f, "came out: record {nth} of {key}, which is poison and should be a dead letter")
            }
            Violation::GivenUp { key, nth, by, processor } => {
                write!(f, "given up: record {nth} of {key}, which {processor} of {by} should not have given up")
            }
            Violation::Overtaken { key, nth, by } => {
                write!(f, "out of order: record {nth} of {key} came for the first time behind {by}")
            }
            Violation::Skipped { key, life, from, to } => {
                write!(f, "skipped: {life} put record {from} of {key}, then {to}, and nobody put what is between")
            }
            Violation::Scattered { key, shards } => write!(f, "{key} is in more than one shard: {shards:?}"),
            Violation::Other { promise, seen } => write!(f, "{promise}: {seen}"),
        }
    }
}
