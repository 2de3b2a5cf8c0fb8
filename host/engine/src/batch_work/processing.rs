//! One batch through the guest: who gets it, in how many calls, and when that is over.

use std::borrow::Cow;
use std::time::Duration;

use shardmill_cause::{Coded, code};
use shardmill_plugin::{Failure, Outcome, ProcessError};
use shardmill_record::{Batch, BatchBuilder, Position};
use tokio::time::Instant;

use super::{BatchWork, Leave, Ledger};
use crate::coded::with_code;
use crate::live::Activity;
use crate::status::ShardState;
use crate::{Answer, Applied, BatchProgress, Caused, Decision, Delivery, GivenUp};

/// What came of one call.
pub(super) struct Attempt {
    /// How many records were handed over.
    pub(super) records: usize,
    pub(super) applied: Applied,
    /// How the metrics call the failure.
    kind: &'static str,
    /// Whether the call failed as a whole: then nobody knows which record is to blame.
    whole: bool,
    /// Whether the host could not make the call: then nothing was handed over, and no record's attempt is used up.
    pub(super) unmade: bool,
    /// The guest's own wish for the wait before the next attempt.
    pub(super) after: Option<Duration>,
    /// Why the guest wants the shard to stop.
    stop: Option<Leave>,
    /// How far the guest lets the checkpoint go.
    checkpoint: Option<Position>,
}

/// What a batch has gone through.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// Calls that failed.
    pub(super) failed: u32,
    /// Calls that the host could not make, since the last one that it could.
    pub(super) unmade: u32,
    /// Whether the log says that there is another attempt.
    pub(super) told: bool,
}

// === impl Attempt ===

impl Attempt {
    fn of(records: usize, applied: Applied, kind: &'static str) -> Self {
        Self { records, applied, kind, whole: false, unmade: false, after: None, stop: None, checkpoint: None }
    }

    fn has_failed(&self) -> bool {
        self.applied.failed > 0 || self.applied.split || self.unmade || self.stop.is_some()
    }
}

// === impl BatchWork ===

impl BatchWork {
    /// Brings one batch to its end: every record done and every output acknowledged, or given up and dealt with by the
    /// failure policy; or the shard is left with what is done at the batch's front accounted for.
    ///
    /// `refused`: records that have failed before anybody saw them, by their place, and why.
    pub(crate) async fn process(
        &self,
        batch: Batch,
        refused: &[(usize, String)],
        ledger: &dyn Ledger,
    ) -> Result<(), Leave> {
        let started = Instant::now();
        let mut progress = self.begin(&batch, refused);
        if self.options.delivery == Delivery::AtMostOnce {
            // What the checkpoint may have passed already, nobody is going to see.
            if let Err(leave) = self.scene.checkpoint_first(&batch).await {
                if matches!(leave, Leave::Abort) {
                    self.lose(&batch, progress);
                }
                return Err(leave);
            }
        }
        let leave = match self.work_through(&batch, &mut progress, ledger).await {
            Ok(leave) => leave,
            Err(leave) => {
                self.lose(&batch, progress);
                return Err(leave);
            }
        };
        self.conclude(&batch, progress, leave, ledger).await?;
        self.metrics.batch_seconds.get_or_create(&self.labels).observe(started.elapsed().as_secs_f64());
        Ok(())
    }

    /// A batch of which nothing has become yet.
    pub(super) fn begin(&self, batch: &Batch, refused: &[(usize, String)]) -> BatchProgress {
        let policy = &self.options.failure;
        let (attempts, bisect) = match self.options.delivery {
            Delivery::AtLeastOnce => (policy.attempts, policy.bisect),
            Delivery::AtMostOnce => (1, false),
        };
        let mut progress = BatchProgress::new(batch.len(), attempts, bisect);
        for (index, reason) in refused {
            progress.refuse(*index, reason);
        }
        progress
    }

    /// Hands records over until all are dealt with, or there is a reason to leave.
    async fn work_through(
        &self,
        batch: &Batch,
        progress: &mut BatchProgress,
        ledger: &dyn Ledger,
    ) -> Result<Option<Leave>, Leave> {
        let mut trials = Trials::default();
        loop {
            let handed = progress.next_part().to_vec();
            if handed.is_empty() {
                break;
            }
            let part = if handed.len() == batch.len() {
                Cow::Borrowed(batch)
            } else {
                Cow::Owned(batch.select(handed.iter().copied()))
            };
            let Answer { plugin, outcome } = self.call(&part, progress.handed_over().saturating_add(1)).await?;
            progress.handed_to(plugin);
            let mut came = self.judge(&part, outcome, progress);
            self.note(batch, &came.applied);
            if let Some(position) = came.checkpoint.clone() {
                self.scene.allow(position);
            }
            if came.has_failed() {
                self.count_failure(came.kind);
                self.give_up_old(batch, progress);
                if let Some(leave) = came.stop.take() {
                    return Ok(Some(leave));
                }
                if let Some(leave) = self.policy_stops(batch, &part, progress, came.whole) {
                    return Ok(Some(leave));
                }
            } else {
                trials.unmade = 0;
            }
            if let Some(leave) = self.relieve(batch, progress, ledger).await? {
                return Ok(Some(leave));
            }
            if came.has_failed() && !progress.next_part().is_empty() {
                if let Some(leave) = self.before_another(batch, progress, &came, &mut trials).await {
                    return Ok(Some(leave));
                }
                // They may have grown too old while they waited.
                self.give_up_old(batch, progress);
                if let Some(leave) = self.policy_stops(batch, batch, progress, false) {
                    return Ok(Some(leave));
                }
            }
        }
        // Where no call has failed, records may have before anybody saw them. What stands before them is done now.
        if let Some(leave) = self.policy_stops(batch, batch, progress, false) {
            return Ok(Some(leave));
        }
        if trials.failed > 0 {
            self.scene.set_state(ShardState::Running);
        }
        if trials.told && progress.given_up_count() == 0 {
            tracing::info!(
                processor = %self.options.processor, shard = %self.scene.origin().shard, attempts = trials.failed + 1,
                "the batch that failed is processed"
            );
        }
        Ok(None)
    }

    /// Tells the guest that nothing has come: a call without records, whose outputs are sent. One that fails is counted and
    /// told, and holds nothing up.
    pub(crate) async fn process_nothing(&self) -> Result<(), Leave> {
        let batch = BatchBuilder::default().build();
        let known = |name: &str| self.destinations.contains(name);
        let settled = self.call(&batch, 1).await?.outcome.and_then(|outcome| {
            let settled = outcome.settle(0, &known, &self.options.outcome)?;
            self.check_checkpoint(settled.checkpoint.as_ref())?;
            Ok(settled)
        });
        match settled {
            Ok(settled) => {
                let outputs = settled.outputs.into_iter().map(|output| Caused { by: 0, since: 0, output });
                self.send(outputs.collect(), &batch).await.leave.map_or(Ok(()), Err)?;
                if let Some(position) = settled.checkpoint {
                    self.scene.allow(position);
                }
                Ok(())
            }
            Err(Failure::Guest(ProcessError::StopShard { message })) => Err(asked_to_stop(&message)),
            Err(failure) => {
                self.count_failure(failure.kind());
                tracing::warn!(
                    processor = %self.options.processor, shard = %self.scene.origin().shard, %failure,
                    "a call without records failed"
                );
                Ok(())
            }
        }
    }

    fn give_up_old(&self, batch: &Batch, progress: &mut BatchProgress) {
        let Some(max_age) = self.options.failure.max_age else { return };
        let now = (self.wall_clock)();
        let arrivals = batch.approximate_arrivals();
        progress.expire(max_age, |index| Duration::from_millis(now.saturating_sub(arrivals[index])));
    }

    /// Calls the guest once. A call that is given up takes its instance with it.
    async fn call(&self, part: &Batch, attempt: u32) -> Result<Answer, Leave> {
        if let Some(last) = part.len().checked_sub(1) {
            self.scene.hand_over(part.position(last));
        }
        let context = self.scene.context(attempt);
        self.metrics.batches.get_or_create(&self.labels).inc();
        self.scene.doing(Activity::Guest);
        tokio::select! {
            biased;
            leave = self.scene.cut_off() => Err(leave),
            answer = self.guest.process(&context, part) => Ok(answer),
        }
    }

    fn judge(&self, part: &Batch, result: Result<Outcome, Failure>, progress: &mut BatchProgress) -> Attempt {
        let known = |name: &str| self.destinations.contains(name);
        let settled = match result {
            Ok(outcome) => outcome
                .settle(part.len(), &known, &self.options.outcome)
                .and_then(|settled| self.check_checkpoint(settled.checkpoint.as_ref()).map(|()| settled))
                .map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        let failure = match settled {
            Ok(mut settled) => {
                self.metrics.outputs_dropped.get_or_create(&self.labels).inc_by(settled.dropped_outputs as u64);
                let checkpoint = settled.checkpoint.take();
                return Attempt { checkpoint, ..Attempt::of(part.len(), progress.apply(settled), "record") };
            }
            Err(failure) => failure,
        };
        let reason = with_record(part, &failure);
        let untouched = Applied { first_reason: Some(reason.clone()), ..Applied::default() };
        match &failure {
            // For as long as it takes: no record and no guest is to blame.
            Failure::Host(_) => {
                Attempt { unmade: true, whole: true, ..Attempt::of(part.len(), untouched, failure.kind()) }
            }
            Failure::Guest(ProcessError::StopShard { message }) => {
                let stop = Some(asked_to_stop(message));
                Attempt { stop, whole: true, ..Attempt::of(part.len(), untouched, failure.kind()) }
            }
            Failure::Guest(ProcessError::Retry { after, .. }) => {
                let applied = progress.spoil(&reason, true, None);
                Attempt { after: Some(*after), whole: true, ..Attempt::of(part.len(), applied, failure.kind()) }
            }
            _other => {
                let retry = !matches!(failure, Failure::Guest(ProcessError::Reject { .. }));
                let applied = progress.spoil(&reason, retry, suspect(part, &failure));
                Attempt { whole: true, ..Attempt::of(part.len(), applied, failure.kind()) }
            }
        }
    }

    /// Whether so many records are given up that the failure policy stops. The rest of the batch is not tried then.
    fn policy_stops(&self, batch: &Batch, part: &Batch, progress: &BatchProgress, whole: bool) -> Option<Leave> {
        let given_up = progress.given_up_count();
        if given_up == 0 {
            return None;
        }
        match self.decide(given_up, batch.len()) {
            Decision::Pass { .. } => None,
            Decision::Stop(scope) => {
                let in_part = |given_up: &GivenUp| !whole || batch.position(given_up.index) >= part.position(0);
                let first = progress.given_up().find(in_part).or_else(|| progress.given_up().next())?;
                Some(Leave::Stop(scope, blame(batch, part, &first, given_up, whole)))
            }
        }
    }
}

fn asked_to_stop(message: &str) -> Leave {
    Leave::stop(format!("its processor asked for it: {message} ({})", code::plugin::GUEST_STOP))
}

/// Says which record is given up; or which batch, where one record of it has spoiled the call and any may have.
fn blame(batch: &Batch, part: &Batch, first: &GivenUp, given_up: usize, whole: bool) -> String {
    let GivenUp { index, attempts, reason, .. } = first;
    let at = batch.position(*index);
    if whole && part.len() > 1 {
        let (records, first, last) = (part.len(), part.position(0), part.position(part.len() - 1));
        return format!(
            "the batch of {records} records from {first} to {last} is not processed after {attempts} attempts: {reason}"
        );
    }
    let others = match given_up - 1 {
        0 => String::new(),
        others => format!(" (and {others} more of its batch)"),
    };
    format!("the record at {at}{others} is not processed after {attempts} attempts: {reason}")
}

/// The record that has spoiled a call, by its place, where the failure tells.
fn suspect(part: &Batch, failure: &Failure) -> Option<usize> {
    match failure {
        Failure::InvalidOutcome(invalid) => invalid.record().filter(|index| *index < part.len()),
        _other => None,
    }
}

/// A failure, with the position of the record that it is about, where one is.
fn with_record(part: &Batch, failure: &Failure) -> String {
    match suspect(part, failure) {
        Some(index) => {
            format!("{failure}: caused by the record at {} ({})", part.position(index), failure.code())
        }
        None => with_code(failure),
    }
}
