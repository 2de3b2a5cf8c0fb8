//! What is told of calls, and of all of them together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_plugin::{Failure, Output, ProcessError};
use shardmill_record::{Position, ShardId, UserRecord};

use super::hooks::Hook;
use crate::cli::plugin::heard::Line;
use crate::cli::plugin::latency::Latency;
use crate::cli::plugin::records::Handed;
use crate::cli::put::Place;

/// A batch, from its first call to its last.
#[derive(Debug)]
pub(super) struct BatchReport {
    /// From 1.
    pub(super) number: u64,
    pub(super) shard: ShardId,
    pub(super) batcher: Option<Arc<str>>,
    pub(super) records: usize,
    pub(super) done: usize,
    pub(super) skipped: Vec<Unwell>,
    pub(super) failed: Vec<Unwell>,
    /// In the order in which a worker would send them.
    pub(super) outputs: Vec<Sent>,
    /// Outputs of records that have failed in the call.
    pub(super) dropped_outputs: usize,
    /// The last one that was named.
    pub(super) checkpoint: Option<Position>,
    pub(super) calls: Vec<Call>,
    pub(super) logs: Vec<Line>,
}

/// A hook that was called.
#[derive(Debug)]
pub(super) struct HookReport {
    pub(super) hook: Hook,
    pub(super) shard: Option<ShardId>,
    pub(super) outputs: Vec<Sent>,
    pub(super) checkpoint: Option<Position>,
    pub(super) call: Call,
    pub(super) logs: Vec<Line>,
}

/// A record that was not simply done.
#[derive(Debug, Clone)]
pub(super) struct Unwell {
    pub(super) place: Place,
    pub(super) position: Position,
    pub(super) partition_key: String,
    pub(super) reason: String,
    /// How many attempts have failed, where some have.
    pub(super) attempts: Option<u32>,
}

/// A record that a worker would send.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) output: Arc<str>,
    pub(super) record: UserRecord,
    pub(super) cause: Cause,
}

/// Why it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Because of the record that was read there.
    Record(Place),
    Batch,
    Hook,
}

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) attempt: u32,
    pub(super) records: usize,
    pub(super) took: Duration,
    /// Of the instance, after it.
    pub(super) memory: usize,
    pub(super) failure: Option<CallFailed>,
}

/// Why a call has failed as a whole.
#[derive(Debug)]
pub(super) struct CallFailed {
    /// One word.
    pub(super) kind: &'static str,
    pub(super) message: String,
    /// The call stack of a crash, where there is one.
    pub(super) backtrace: String,
    /// How long the plugin wants the next attempt to wait.
    pub(super) after: Option<Duration>,
}

/// All of it together.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// That were read.
    pub(super) records: u64,
    /// Places that held none.
    pub(super) bad: u64,
    pub(super) filtered_out: u64,
    pub(super) done: u64,
    pub(super) skipped: u64,
    pub(super) failed: u64,
    /// That were not handed over, because the plugin wanted their shard stopped.
    pub(super) left: u64,
    pub(super) batches: u64,
    /// By the output's name.
    pub(super) outputs: BTreeMap<String, u64>,
    pub(super) dropped_outputs: u64,
    /// Of `process-batch`.
    pub(super) calls: Latency,
    pub(super) failed_calls: u64,
    pub(super) failed_hooks: u64,
    /// The most that an instance had.
    pub(super) memory: usize,
}

// === impl BatchReport ===

impl BatchReport {
    pub(super) fn new(number: u64, handed: &Handed) -> Self {
        Self {
            number,
            shard: handed.shard.clone(),
            batcher: handed.batcher.clone(),
            records: handed.batch.len(),
            done: 0,
            skipped: Vec::new(),
            failed: Vec::new(),
            outputs: Vec::new(),
            dropped_outputs: 0,
            checkpoint: None,
            calls: Vec::new(),
            logs: Vec::new(),
        }
    }
}

// === impl Unwell ===

impl Unwell {
    /// Of a record by its place in what was handed over.
    pub(super) fn of(handed: &Handed, index: usize, reason: String, attempts: Option<u32>) -> Self {
        Self {
            place: handed.places[index],
            position: handed.batch.position(index),
            partition_key: handed.batch.record(index).partition_key.to_owned(),
            reason,
            attempts,
        }
    }
}

// === impl Sent ===

impl Sent {
    pub(super) fn of(output: Output, cause: Cause) -> Self {
        Self { output: output.name, record: output.record, cause }
    }
}

// === impl CallFailed ===

impl From<&Failure> for CallFailed {
    fn from(failure: &Failure) -> Self {
        let backtrace = match failure {
            Failure::Trap(trap) => trap.backtrace.clone(),
            _other => String::new(),
        };
        let after = match failure {
            Failure::Guest(ProcessError::Retry { after, .. }) if !after.is_zero() => Some(*after),
            _other => None,
        };
        Self { kind: failure.kind(), message: failure.to_string(), backtrace, after }
    }
}

// === impl Summary ===

impl Summary {
    pub(super) fn add_batch(&mut self, report: &BatchReport) {
        self.batches += 1;
        self.done += report.done as u64;
        self.skipped += report.skipped.len() as u64;
        self.failed += report.failed.len() as u64;
        self.dropped_outputs += report.dropped_outputs as u64;
        self.add_outputs(&report.outputs);
        for call in &report.calls {
            self.calls.add(call.took);
            self.failed_calls += u64::from(call.failure.is_some());
            self.memory = self.memory.max(call.memory);
        }
    }

    pub(super) fn add_hook(&mut self, report: &HookReport) {
        self.failed_hooks += u64::from(report.call.failure.is_some());
        self.memory = self.memory.max(report.call.memory);
        self.add_outputs(&report.outputs);
    }

    fn add_outputs(&mut self, outputs: &[Sent]) {
        for sent in outputs {
            *self.outputs.entry(sent.output.to_string()).or_default() += 1;
        }
    }
}
