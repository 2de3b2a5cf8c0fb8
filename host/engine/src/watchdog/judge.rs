//! Whether a shard stands still though it has work, and why. Pure: what is known of the shard comes in.

use std::time::Duration;

use shardmill_cause::Failing;
use shardmill_stream::polling::{Phase, Seen, Trouble};
use tokio::time::Instant;

use super::{Reason, Stall};
use crate::live::{Activity, Vitals};
use crate::status::ShardState;

/// What is known of a shard.
#[derive(Debug)]
pub(crate) struct Patient<'a> {
    pub(crate) state: &'a ShardState,
    pub(crate) vitals: &'a Vitals,
    /// Whether its checkpoints fail.
    pub(crate) checkpoint_fails: Option<Failing>,
}

/// How long is too long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Without progress.
    pub(crate) work: Duration,
    /// With checkpoints that fail: renewals do as well then, and the lease runs out.
    pub(crate) table: Duration,
}

/// The shard's stall, if it is one. A shard that was stopped, paused or told to let go stands because somebody wants it
/// to, and says so by itself.
pub(crate) fn judge(now: Instant, patience: Patience, patient: &Patient<'_>) -> Option<Stall> {
    let Patient { state, vitals, checkpoint_fails } = patient;
    if !matches!(state, ShardState::Starting | ShardState::Running | ShardState::Retrying { .. }) {
        return None;
    }
    let stands = has_work(vitals) && now.saturating_duration_since(vitals.moved) >= patience.work;
    if stands {
        let (reason, since) = reason(patient);
        return Some(Stall { reason, since, moved: vitals.moved });
    }
    let failing = checkpoint_fails.as_ref().filter(|failing| failing.lasted >= patience.table)?;
    let since = now.checked_sub(failing.lasted).unwrap_or(now);
    Some(Stall { reason: Reason::Checkpoint { reason: failing.reason.clone() }, since, moved: since })
}

/// Whether there is anything to do. What has never been read may hold anything.
fn has_work(vitals: &Vitals) -> bool {
    match (vitals.activity, &vitals.reader) {
        (Activity::Waiting, Some(reader)) => !reader.has_read || reader.millis_behind.is_some_and(|lag| lag > 0),
        // It is with the shards that have the rest of what this run may process.
        (Activity::Waiting, None) | (Activity::Allowance, _) => false,
        _ => true,
    }
}

fn reason(Patient { state, vitals, checkpoint_fails }: &Patient<'_>) -> (Reason, Instant) {
    let since = vitals.active_since;
    match (vitals.activity, state) {
        (Activity::Guest | Activity::BackingOff, ShardState::Retrying { reason, attempts }) => {
            (Reason::Retrying { attempts: *attempts, reason: reason.clone() }, vitals.moved)
        }
        (Activity::Guest | Activity::BackingOff, _) => (Reason::Guest, since),
        (Activity::Sending, _) => (Reason::Outputs, since),
        (Activity::Storing, _) => (Reason::DeadLetters, since),
        (Activity::Checkpointing, _) => {
            let reason = checkpoint_fails.as_ref().map_or("the store does not answer", |failing| &failing.reason);
            (Reason::Checkpoint { reason: reason.to_owned() }, since)
        }
        (Activity::Hook, _) => (Reason::Hook, since),
        (Activity::Ending, _) => (Reason::Ending, since),
        (Activity::Waiting | Activity::Allowance, _) => {
            vitals.reader.as_ref().map_or((Reason::Unknown, since), reading)
        }
    }
}

/// Why no page comes.
fn reading(reader: &Seen) -> (Reason, Instant) {
    let Seen { phase, since, trouble, .. } = reader;
    match (phase, trouble) {
        // What is in its way is worse than what has failed before.
        (Phase::Memory, _) => (Reason::Memory, *since),
        (Phase::Stream, _) => (Reason::Stream, *since),
        (Phase::Store, _) => (Reason::Store, *since),
        (_, Some(Trouble { since, reason, at_iterator: true, .. })) => {
            (Reason::NoIterator { reason: Some(reason.clone()) }, *since)
        }
        (_, Some(Trouble { since, failures, kind, reason, .. })) => {
            (Reason::Reads { kind: kind.as_str(), failures: *failures, reason: reason.clone() }, *since)
        }
        (Phase::Iterator, None) => (Reason::NoIterator { reason: None }, *since),
        (Phase::Records, None) => (Reason::NoAnswer, *since),
        (Phase::Turn, None) => (Reason::Turn, *since),
        (Phase::Starting | Phase::Pause | Phase::Full, None) => (Reason::Unknown, *since),
    }
}
