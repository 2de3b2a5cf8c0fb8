//! One batch through the guest and its outputs to their destinations.

use std::borrow::Cow;
use std::time::Duration;

use rand::Rng;
use shardmill_plugin::{Failure, GivenUpRecord, Outcome, ProcessError};
use shardmill_record::{Batch, Position};
use tokio::time::Instant;

use super::{Leave, ShardTask};
use crate::status::ShardState;
use crate::{Applied, BatchProgress, GivenUp, Hook, Invariant, SendError};

/// How often the log says that a shard's records are skipped.
const SKIPS_TOLD_EVERY: Duration = Duration::from_secs(60);

/// Of so many calls that the host could not make, the log tells of one.
const UNMADE_TOLD_EVERY: u32 = 20;

/// What came of one attempt.
struct Attempt {
    applied: Applied,
    kind: &'static str,
    /// Whether the call failed as a whole: then nobody knows which record is to blame.
    whole: bool,
    /// Whether the host could not make the call: then nothing was handed over, and no record's attempt is used up.
    unmade: bool,
    /// The guest's own wish for the wait before the next attempt.
    after: Option<Duration>,
    stop: Option<String>,
}

/// Says which record is given up; or which batch, where one record of it has spoiled the call and any may have.
fn blame(part: &Batch, first: Position, given_up: &GivenUp, whole: bool) -> String {
    let GivenUp { attempts, reason, .. } = given_up;
    match part.len() {
        records if whole && records > 1 => {
            let last = part.position(records - 1);
            format!(
                "the batch of {records} records from {first} to {last} is not processed after {attempts} attempts: {reason}"
            )
        }
        _single => format!("the record at {first} is not processed after {attempts} attempts: {reason}"),
    }
}

/// A failure, with the position of the record that it is about, where one is.
fn with_record(part: &Batch, failure: &Failure) -> String {
    match failure {
        Failure::InvalidOutcome(invalid) if invalid.record().is_some_and(|index| index < part.len()) => {
            let position = part.position(invalid.record().unwrap_or_default());
            format!("{failure}: caused by the record at {position}")
        }
        failure => failure.to_string(),
    }
}

// === impl ShardTask ===

impl ShardTask {
    /// Brings one batch to its end: every record done and every output acknowledged, or the shard is left with the
    /// done records at the batch's front accounted for.
    pub(crate) async fn process(&mut self, batch: Batch) -> Result<(), Leave> {
        let started = Instant::now();
        let mut progress = BatchProgress::new(batch.len(), self.options.attempts);
        let mut leave = None;
        let mut attempt = 0;
        let mut unmade = 0;
        while leave.is_none() {
            let handed = progress.pending();
            if handed.is_empty() {
                break;
            }
            attempt += 1;
            let part = if handed.len() == batch.len() {
                Cow::Borrowed(&batch)
            } else {
                Cow::Owned(batch.select(handed.iter().copied()))
            };
            let result = self.attempt(&part, attempt - unmade).await?;
            let came = self.judge(&part, &handed, result, &mut progress);
            unmade += u32::from(came.unmade);
            self.note(&batch, &came.applied);
            if came.applied.failed == 0 && came.stop.is_none() {
                continue;
            }
            self.count_failure(came.kind);
            if let Some(reason) = came.stop {
                leave = Some(Leave::Stop(reason));
            } else if let Some(given_up) = progress.first_given_up() {
                leave = Some(Leave::Stop(blame(&part, batch.position(given_up.index), &given_up, came.whole)));
            } else {
                self.show_retrying(&came, attempt);
                leave = self.back_off(attempt, came.after).await;
            }
        }
        if attempt > 1 && leave.is_none() {
            self.status.set_state(ShardState::Running);
            tracing::info!(
                processor = %self.options.processor, shard = %self.shard, attempts = attempt,
                "the batch that failed is processed"
            );
        }
        let given_up: Vec<GivenUp> = progress.given_up().collect();
        self.settle(&batch, progress).await?;
        self.tell_given_up(&batch, given_up).await;
        self.metrics.batch_seconds.get_or_create(&self.labels).observe(started.elapsed().as_secs_f64());
        match leave {
            None => Ok(()),
            Some(leave) => Err(leave),
        }
    }

    /// Calls the guest once. A call that is given up takes its instance with it.
    async fn attempt(&mut self, part: &Batch, attempt: u32) -> Result<Result<Outcome, Failure>, Leave> {
        let context = self.context(attempt, self.nothing_left());
        let fence = self.lease.fence();
        self.metrics.batches.get_or_create(&self.labels).inc();
        tokio::select! {
            biased;
            _ = fence.lost() => Err(Leave::Lost),
            _ = self.abort.cancelled() => Err(Leave::Abort),
            result = self.guest.process(&context, part) => Ok(result),
        }
    }

    fn judge(
        &self,
        part: &Batch,
        handed: &[usize],
        result: Result<Outcome, Failure>,
        progress: &mut BatchProgress,
    ) -> Attempt {
        let known = |name: &str| self.destinations.contains(name);
        let settled = match result {
            Ok(outcome) => outcome.settle(handed.len(), &known, &self.options.outcome).map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        match settled {
            Ok(settled) => {
                self.metrics.outputs_dropped.get_or_create(&self.labels).inc_by(settled.dropped_outputs as u64);
                let applied = progress.apply(handed, settled);
                Attempt { applied, kind: "record", whole: false, unmade: false, after: None, stop: None }
            }
            // For as long as it takes: no record and no guest is to blame.
            Err(failure @ Failure::Host(_)) => {
                let first_reason = Some(failure.to_string());
                let applied = Applied { failed: handed.len(), first_reason, ..Applied::default() };
                Attempt { applied, kind: failure.kind(), whole: true, unmade: true, after: None, stop: None }
            }
            Err(failure) => {
                let reason = with_record(part, &failure);
                let (retry, after, stop) = match &failure {
                    Failure::Guest(ProcessError::Retry { after, .. }) => (true, Some(*after), None),
                    Failure::Guest(ProcessError::Reject { .. }) => (false, None, None),
                    Failure::Guest(ProcessError::StopShard { message }) => {
                        (true, None, Some(format!("its processor asked for it: {message}")))
                    }
                    _other => (true, None, None),
                };
                let applied = progress.fail_all(handed, &reason, retry);
                Attempt { applied, kind: failure.kind(), whole: true, unmade: false, after, stop }
            }
        }
    }

    /// Counts what failed, and says now and then that records are skipped: a skip is a decision of the guest that
    /// nobody else sees.
    fn note(&mut self, batch: &Batch, applied: &Applied) {
        if applied.failed > 0 {
            self.metrics.records_failed.get_or_create(&self.labels).inc_by(applied.failed as u64);
        }
        let Some((index, reason)) = &applied.first_skip else { return };
        if self.skip_told.is_none_or(|told| told.elapsed() >= SKIPS_TOLD_EVERY) {
            self.skip_told = Some(Instant::now());
            tracing::info!(
                processor = %self.options.processor, shard = %self.shard, position = %batch.position(*index), reason,
                records = applied.skipped, "the guest skips records; further ones are in the metrics"
            );
        }
    }

    /// Tells the guest, once, of the records that will not be handed over again.
    async fn tell_given_up(&mut self, batch: &Batch, given_up: Vec<GivenUp>) {
        if given_up.is_empty() {
            return;
        }
        let record = |given_up: GivenUp| GivenUpRecord {
            position: batch.position(given_up.index),
            reason: given_up.reason,
            attempts: given_up.attempts,
        };
        let records = given_up.into_iter().map(record).collect();
        self.tell(Hook::GivenUp(records), self.options.hook_timeout).await;
    }

    /// A line for the first failure of a batch only: the ones after it are in the metrics and the status. What the host
    /// cannot do has no last attempt, so it is told again.
    fn show_retrying(&self, came: &Attempt, attempt: u32) {
        let reason = came.applied.first_reason.clone().unwrap_or_default();
        if attempt == 1 || came.unmade && attempt.is_multiple_of(UNMADE_TOLD_EVERY) {
            tracing::warn!(
                processor = %self.options.processor, shard = %self.shard, records = came.applied.failed, reason,
                attempts_allowed = self.options.attempts,
                "a batch failed and will be tried again"
            );
        }
        self.status.set_state(ShardState::Retrying { reason, attempts: attempt });
    }

    /// Waits before the next attempt; a reason to leave ends the wait.
    async fn back_off(&self, attempt: u32, wish: Option<Duration>) -> Option<Leave> {
        let delay = self.options.backoff.delay(attempt, rand::rng().random());
        let delay = wish.map_or(delay, |wish| wish.max(delay));
        let fence = self.lease.fence();
        tokio::select! {
            biased;
            _ = fence.lost() => Some(Leave::Lost),
            _ = self.abort.cancelled() => Some(Leave::Abort),
            _ = self.lease.draining() => Some(Leave::Drain),
            _ = tokio::time::sleep(delay) => None,
        }
    }

    /// Sends the outputs of the done records at the front and lets the checkpoint pass them.
    async fn settle(&mut self, batch: &Batch, progress: BatchProgress) -> Result<(), Leave> {
        let prefix = progress.settled_prefix();
        let (done, skipped) = progress.settled_counts();
        let outputs = progress.into_outputs();
        if !outputs.is_empty() {
            let fence = self.lease.fence();
            let sent = tokio::select! {
                biased;
                _ = fence.lost() => return Err(Leave::Lost),
                _ = self.abort.cancelled() => return Err(Leave::Abort),
                sent = self.destinations.send(outputs, &fence) => sent,
            };
            match sent {
                Ok(count) => {
                    self.metrics.outputs.get_or_create(&self.labels).inc_by(count as u64);
                }
                Err(SendError::Fenced) => return Err(Leave::Lost),
                Err(refused) => return Err(Leave::Stop(refused.to_string())),
            }
        }
        // Done is what has been processed and whose outputs are where they belong.
        self.metrics.records_done.get_or_create(&self.labels).inc_by(done as u64);
        self.metrics.records_skipped.get_or_create(&self.labels).inc_by(skipped as u64);
        let position = if prefix == batch.len() {
            batch.through().cloned()
        } else {
            prefix.checked_sub(1).map(|last| batch.position(last))
        };
        if let Some(position) = position {
            Invariant::NothingLost.check(prefix == 0 || position >= batch.position(prefix - 1), || {
                format!("the checkpoint would stop at {position}, before the last record done")
            });
            self.advance(position);
        }
        Ok(())
    }
}
