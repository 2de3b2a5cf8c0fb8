//! What a failure means for the batch: a wait, a split, and in the end records that are given up.

use std::time::Duration;

use bytes::Bytes;
use rand::Rng;
use shardmill_plugin::GivenUpRecord;
use shardmill_record::Batch;
use tokio::time::Instant;

use super::processing::{Attempt, Trials};
use super::{BatchWork, Leave};
use crate::coded::with_code;
use crate::live::Activity;
use crate::status::ShardState;
use crate::{Applied, Backoff, BatchProgress, DeadLetter, DeadLetterError, Decision, GivenUp, Hook, Scope, Then};

/// How often the log says of a shard that records are skipped, and that batches are split.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Of so many calls that the host could not make, the log tells of one.
pub(super) const UNMADE_TOLD_EVERY: u32 = 20;

/// Between calls that the host cannot make: no configuration of attempts is about them.
pub(super) const UNMADE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(30) };

/// So long a place for dead letters may keep a shard that is to be left: after that it has no room, or cannot be reached.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// A guest that wishes to wait for longer is called again then: it may have meant something else.
const LONGEST_WISH: Duration = Duration::from_secs(3600);

// === impl BatchWork ===

impl BatchWork {
    /// Counts what failed, and says now and then that records are skipped: a skip is a decision of the guest that
    /// nobody else sees.
    pub(super) fn note(&self, batch: &Batch, applied: &Applied) {
        if applied.failed > 0 {
            self.metrics.records_failed.get_or_create(&self.labels).inc_by(applied.failed as u64);
        }
        if let Some((index, reason)) = &applied.first_skip
            && is_due(&mut self.told().skip)
        {
            tracing::info!(
                processor = %self.options.processor, shard = %self.scene.origin().shard, position = %batch.position(*index), reason,
                records = applied.skipped, "the guest skips records; further ones are in the metrics"
            );
        }
    }

    /// Waits as long as has to be before the next call. A reason to leave ends the wait, and there may be one without.
    pub(super) async fn before_another(
        &self,
        batch: &Batch,
        progress: &BatchProgress,
        came: &Attempt,
        trials: &mut Trials,
    ) -> Option<Leave> {
        trials.failed = trials.failed.saturating_add(1);
        trials.unmade = if came.unmade { trials.unmade.saturating_add(1) } else { 0 };
        let reason = came.applied.first_reason.clone().unwrap_or_default();
        // Of those that failed, some may have attempts left: they come next.
        let failures = if came.unmade { trials.unmade } else { progress.attempts() };
        let backoff = if came.applied.split {
            self.show_split(batch, &reason);
            Duration::ZERO
        } else if failures > 0 {
            self.show_retrying(came, trials, &reason);
            let backoff = if came.unmade { UNMADE_BACKOFF } else { self.options.backoff };
            backoff.delay(failures, rand::rng().random())
        } else {
            Duration::ZERO
        };
        self.scene.set_state(ShardState::Retrying { reason, attempts: trials.failed });
        // What the guest wishes is about records that come again.
        let wish = came.after.filter(|_| came.applied.split || failures > 0);
        let wait = wish.map_or(backoff, |wish| wish.min(LONGEST_WISH).max(backoff));
        let waited = async {
            if wait.is_zero() {
                // A timer has a millisecond to go at least, and a split has many calls.
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(wait).await;
            }
        };
        self.scene.doing(Activity::BackingOff);
        tokio::select! {
            biased;
            leave = self.scene.called_away() => Some(leave),
            () = waited => None,
        }
    }

    /// A line for the first failure of a batch only: the ones after it are in the metrics and the status. What the host
    /// cannot do has no last attempt, so it is told again.
    fn show_retrying(&self, came: &Attempt, trials: &mut Trials, reason: &str) {
        if trials.told && !(came.unmade && trials.unmade.is_multiple_of(UNMADE_TOLD_EVERY)) {
            return;
        }
        trials.told = true;
        let records = if came.unmade { came.records } else { came.applied.failed };
        tracing::warn!(
            processor = %self.options.processor, shard = %self.scene.origin().shard, records, reason,
            attempts_allowed = self.options.failure.attempts,
            "a batch failed and will be tried again"
        );
    }

    fn show_split(&self, batch: &Batch, reason: &str) {
        self.metrics.batches_split.get_or_create(&self.labels).inc();
        if is_due(&mut self.told().split) {
            tracing::warn!(
                processor = %self.options.processor, shard = %self.scene.origin().shard, first = %batch.position(0),
                records = batch.len(), reason,
                "a batch failed as a whole, and is split until the records to blame stand alone; further ones are in the metrics"
            );
        }
    }

    pub(super) fn decide(&self, given_up: usize, records: usize) -> Decision {
        self.options.failure.decide(given_up, records, self.dead_letters.is_some())
    }

    /// Stores records that are given up. A reason to leave if that is not possible.
    pub(super) async fn store(&self, batch: &Batch, given_up: &[GivenUp]) -> Result<(), Leave> {
        let Some(place) = &self.dead_letters else {
            return Err(Leave::stop("records are given up, and the processor has no place for dead letters"));
        };
        let now = (self.wall_clock)();
        let letters = given_up.iter().map(|given_up| self.letter(batch, given_up, now)).collect();
        let fence = self.scene.fence();
        self.scene.doing(Activity::Storing);
        let began = Instant::now();
        // What is on its way is brought to its end, and is not to come again because somebody else is in a hurry.
        let away = async {
            let leave = self.scene.called_away().await;
            tokio::time::sleep_until(began + STORE_PATIENCE).await;
            leave
        };
        let stored = tokio::select! {
            biased;
            leave = self.scene.cut_off() => return Err(leave),
            // Whoever goes on with the shard stores them. At most once that is nobody.
            leave = away, if !self.is_once() => return Err(leave),
            stored = place.store(letters, &fence) => stored,
        };
        match stored {
            Ok(()) => Ok(()),
            Err(DeadLetterError::Fenced) => Err(Leave::Lost),
            Err(refused) => Err(Leave::stop(with_code(&refused))),
        }
    }

    fn letter(&self, batch: &Batch, given_up: &GivenUp, now: u64) -> DeadLetter {
        let (record, origin) = (batch.record(given_up.index), self.scene.origin());
        DeadLetter {
            application: self.options.application.clone(),
            processor: self.options.processor.clone(),
            stream: origin.stream,
            stream_arn: origin.stream_arn,
            hops: origin.hops,
            shard: origin.shard,
            position: batch.position(given_up.index),
            partition_key: record.partition_key.to_owned(),
            explicit_hash_key: record.explicit_hash_key.and_then(|key| key.parse().ok()),
            data: Bytes::copy_from_slice(record.data),
            arrived_at: record.approximate_arrival,
            given_up_at: now,
            attempts: given_up.attempts,
            reason: given_up.reason.clone(),
            plugin: given_up.plugin.clone().unwrap_or_else(|| self.guest.plugin()),
            worker: self.worker.clone(),
            lease_epoch: origin.lease_epoch,
        }
    }

    /// Counts and logs records that are given up.
    pub(super) fn show_given_up(&self, batch: &Batch, given_up: &[GivenUp], then: Given) {
        for given_up in given_up {
            self.metrics.give_up(&self.labels, given_up.why.as_str(), then.as_str());
        }
        let Some(first) = given_up.first() else { return };
        let text = match then {
            Given::Passed(_) | Given::Tolerated { .. } => "records are given up",
            // What stops says so itself.
            Given::Stopped(_) if !self.is_once() => return,
            Given::Stopped(_) | Given::Lost => {
                "records are lost: they are handed over once (`delivery = \"at-most-once\"`)"
            }
        };
        tracing::warn!(
            processor = %self.options.processor, stream = %self.scene.origin().stream, shard = %self.scene.origin().shard,
            records = given_up.len(), of = batch.len(), first = %batch.position(first.index), attempts = first.attempts,
            why = first.why.as_str(), reason = first.reason, then = then.as_str(), "{text}"
        );
    }

    /// Tells the guest of records that are given up. What it returns is sent before the checkpoint passes them.
    pub(super) async fn tell_given_up(&self, batch: &Batch, given_up: &[GivenUp]) -> Result<(), Leave> {
        let record = |given_up: &GivenUp| GivenUpRecord {
            position: batch.position(given_up.index),
            reason: given_up.reason.clone(),
            attempts: given_up.attempts,
        };
        let records = given_up.iter().map(record).collect();
        self.tell_for_sure(Hook::GivenUp(records), self.options.hook_timeout).await.map(|_end| ())
    }
}

/// What has become of records that are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// They are passed over, as the policy says.
    Passed(Then),
    /// They are passed over because they are few.
    Tolerated { stored: bool },
    /// They have stopped so much.
    Stopped(Scope),
    /// The checkpoint had passed them, and nobody has them any more.
    Lost,
}

impl Given {
    /// The word in the metrics and the log: as in the configuration, where it has one.
    fn as_str(self) -> &'static str {
        match self {
            Self::Passed(then) => then.as_str(),
            Self::Tolerated { stored: false } => "tolerated",
            Self::Tolerated { stored: true } => "tolerated-dead-letter",
            Self::Lost => "lost",
            Self::Stopped(Scope::Shard) => Then::StopShard.as_str(),
            Self::Stopped(Scope::Worker) => Then::StopWorker.as_str(),
            Self::Stopped(Scope::Process) => Then::StopProcess.as_str(),
        }
    }
}

/// Whether something that happens all the time is to be told now.
fn is_due(told: &mut Option<Instant>) -> bool {
    let due = told.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
    if due {
        *told = Some(Instant::now());
    }
    due
}
