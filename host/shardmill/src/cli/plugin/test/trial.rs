//! Hands batches to a plugin as a worker does, under the same failure policy, but for waiting and for giving up a shard.

use std::sync::Arc;
use std::time::Duration;

use shardmill_cause::code;
use shardmill_engine::{BatchProgress, Caused, GivenUp};
use shardmill_plugin::{
    Failure as CallFailure, GivenUpRecord, HookOutcome, InvalidOutcome, OutcomeLimits, ProcessError, Settled,
    ShardContext, Verdict,
};
use shardmill_record::{Batch, Position, ShardId};
use tokio::time::Instant;

use super::hooks::Hook;
use super::report::{BatchReport, Call, CallFailed, Cause, HookReport, Sent, Unwell};
use crate::cli::plugin::heard::Heard;
use crate::cli::plugin::records::Handed;
use crate::cli::plugin::room::{Loaded, Room};
use crate::cli::{Failure, output};

/// Who holds the leases, for the plugin.
const WORKER: &str = "shardmill-plugin-test";

/// What a worker has from its configuration and its leases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// How often a record is handed over before it has failed for good, 1 or more.
    pub(super) attempts: u32,
    /// Whether a batch with which a call fails is split.
    pub(super) bisect: bool,
    pub(super) lease_epoch: u64,
}

/// A plugin on trial.
pub(super) struct Trial<'a> {
    room: &'a Room,
    loaded: &'a Loaded,
    heard: &'a Heard,
    options: Options,
    batches: u64,
    hooks: u64,
    /// The last position that the plugin has seen of each shard, in the order in which they came.
    seen: Vec<(ShardId, Option<Position>)>,
    /// Shards that the plugin wants stopped.
    stopped: Vec<ShardId>,
    /// Whether it was told that a batch takes long.
    has_told: bool,
}

// === impl Trial ===

impl<'a> Trial<'a> {
    pub(super) fn new(room: &'a Room, loaded: &'a Loaded, heard: &'a Heard, options: Options) -> Self {
        let (batches, hooks, seen, stopped) = (0, 0, Vec::new(), Vec::new());
        Self { room, loaded, heard, options, batches, hooks, seen, stopped, has_told: false }
    }

    /// The shards that were seen, in the order in which they came.
    pub(super) fn shards(&self) -> Vec<ShardId> {
        self.seen.iter().map(|(shard, _)| shard.clone()).collect()
    }

    /// Whether this is the first time that the shard is heard of; from now on it is known.
    pub(super) fn is_new(&mut self, shard: &ShardId) -> bool {
        let is_new = !self.seen.iter().any(|(seen, _)| seen == shard);
        if is_new {
            self.seen.push((shard.clone(), None));
        }
        is_new
    }

    pub(super) fn is_stopped(&self, shard: &ShardId) -> bool {
        self.stopped.contains(shard)
    }

    /// Brings a batch to its end. `ends_shard`: whether a plugin is to be told that nothing comes after the last batch.
    ///
    /// # Errors
    /// If the host can make no call.
    pub(super) async fn process(&mut self, handed: &Handed, ends_shard: bool) -> Result<BatchReport, Failure> {
        self.is_new(&handed.shard);
        self.batches += 1;
        let mut report = BatchReport::new(self.batches, handed);
        let batch = &handed.batch;
        let mut progress = BatchProgress::new(batch.len(), self.options.attempts, self.options.bisect);
        loop {
            let part = progress.next_part().to_vec();
            if part.is_empty() {
                break;
            }
            let records = batch.select(part.iter().copied());
            let mut context = self.context(&handed.shard);
            context.attempt = progress.handed_over().saturating_add(1);
            context.last_batch = ends_shard && handed.is_last;
            let (result, call) = self.call(&context, &records).await?;
            let settled = result.and_then(|outcome| {
                let settled = outcome.settle(part.len(), &|name| self.room.knows_output(name), &self.limits())?;
                self.check_checkpoint(&handed.shard, settled.checkpoint.as_ref())?;
                Ok(settled)
            });
            let failure = match settled {
                Ok(settled) => {
                    report.take(handed, &part, &settled);
                    progress.apply(settled);
                    None
                }
                Err(failure) => {
                    self.tell_of_slow(&failure, part.len());
                    self.fail(handed, &failure, &mut progress);
                    Some(CallFailed::from(&failure))
                }
            };
            report.calls.push(Call { failure, ..call });
        }
        report.conclude(handed, progress);
        report.logs = self.heard.take();
        Ok(report)
    }

    /// A call has failed as a whole.
    fn fail(&mut self, handed: &Handed, failure: &CallFailure, progress: &mut BatchProgress) {
        let reason = failure.to_string();
        if let CallFailure::Guest(ProcessError::StopShard { .. }) = failure {
            self.stopped.push(handed.shard.clone());
            progress.give_up_rest(&reason);
            return;
        }
        let can_help = !matches!(failure, CallFailure::Guest(ProcessError::Reject { .. }));
        let suspect = match failure {
            CallFailure::InvalidOutcome(invalid) => invalid.record(),
            _other => None,
        };
        progress.spoil(&reason, can_help, suspect);
    }

    /// A batch is shown when it is over, and one that is split because a call was ended by its time takes that time over and
    /// over: nobody should have to guess what goes on.
    fn tell_of_slow(&mut self, failure: &CallFailure, records: usize) {
        if !matches!(failure, CallFailure::Timeout(_)) || records < 2 || !self.options.bisect || self.has_told {
            return;
        }
        self.has_told = true;
        output::say(format_args!(
            "a call of {records} records took too long, and each part of the batch may: {failure}; --no-bisect takes the batch \
             for failed at once, and limits.batch-timeout is how long a call may take"
        ));
    }

    /// Calls a hook of a shard.
    ///
    /// # Errors
    /// If the host can make no call.
    pub(super) async fn hook(
        &mut self,
        hook: Hook,
        shard: &ShardId,
        given_up: &[GivenUpRecord],
    ) -> Result<HookReport, Failure> {
        self.hooks += 1;
        let id = self.hooks;
        let mut instance = self.room.instance(self.loaded).await?;
        let context = self.context(shard);
        let started = Instant::now();
        let result = match hook {
            Hook::Assigned => instance.assigned(id, &context).await,
            Hook::Idle => instance.idle(id, &context).await,
            Hook::Revoked => instance.revoked(id, &context, milliseconds(self.hook_time())).await,
            Hook::ShardEnded => instance.shard_ended(id, &context).await,
            Hook::GivenUp => instance.given_up(id, &context, given_up).await,
            Hook::Shutdown => instance.shutdown().await.map(|()| HookOutcome::default()),
        };
        let took = started.elapsed();
        let memory = instance.memory();
        drop(instance);
        let settled = result.and_then(|outcome| {
            let settled = outcome.settle(id, &|name| self.room.knows_output(name), &self.limits())?;
            self.check_checkpoint(shard, settled.checkpoint.as_ref())?;
            Ok(settled)
        });
        let (outputs, checkpoint, failure) = match settled {
            Ok(settled) => {
                let sent = |output| Sent::of(output, Cause::Hook);
                (settled.outputs.into_iter().map(sent).collect(), settled.checkpoint, None)
            }
            Err(CallFailure::Host(reason)) => return Err(Failure::running(reason).code(code::plugin::HOST_FAILED)),
            Err(failure) => (Vec::new(), None, Some(failure)),
        };
        Ok(HookReport {
            hook,
            // It is about the instance.
            shard: (hook != Hook::Shutdown).then(|| shard.clone()),
            outputs,
            checkpoint,
            call: Call { attempt: 1, records: 0, took, memory, failure: failure.as_ref().map(CallFailed::from) },
            logs: self.heard.take(),
        })
    }

    async fn call(
        &mut self,
        context: &ShardContext,
        records: &Batch,
    ) -> Result<(Result<shardmill_plugin::Outcome, CallFailure>, Call), Failure> {
        let mut instance = self.room.instance(self.loaded).await?;
        if let Some(last) = records.len().checked_sub(1) {
            self.see(&context.shard, records.position(last));
        }
        let started = Instant::now();
        let result = instance.process_batch(context, records).await;
        let took = started.elapsed();
        if let Err(CallFailure::Host(reason)) = result {
            return Err(Failure::running(reason).code(code::plugin::HOST_FAILED));
        }
        let memory = instance.memory();
        let call = Call { attempt: context.attempt, records: records.len(), took, memory, failure: None };
        Ok((result, call))
    }

    fn see(&mut self, shard: &ShardId, position: Position) {
        for (_, last) in self.seen.iter_mut().filter(|(seen, _)| seen == shard) {
            if last.as_ref().is_none_or(|last| *last < position) {
                *last = Some(position.clone());
            }
        }
    }

    /// As a worker does: a position behind all that the plugin has seen is one that it cannot mean.
    fn check_checkpoint(&self, shard: &ShardId, checkpoint: Option<&Position>) -> Result<(), InvalidOutcome> {
        let last = self.seen.iter().find(|(seen, _)| seen == shard).and_then(|(_, last)| last.clone());
        match checkpoint {
            Some(position) if last.as_ref().is_none_or(|last| position > last) => {
                Err(InvalidOutcome::CheckpointBeyond { position: position.clone(), last })
            }
            _good => Ok(()),
        }
    }

    fn context(&self, shard: &ShardId) -> ShardContext {
        ShardContext {
            application: self.room.config().application.as_str().into(),
            processor: self.room.processor().name.as_str().into(),
            stream: Arc::from(self.room.stream()),
            shard: shard.clone(),
            worker: WORKER.into(),
            lease_epoch: self.options.lease_epoch,
            attempt: 1,
            millis_behind_latest: Some(0),
            last_batch: false,
        }
    }

    fn limits(&self) -> OutcomeLimits {
        OutcomeLimits { bytes: self.room.processor().limits.outcome as usize, ..OutcomeLimits::default() }
    }

    fn hook_time(&self) -> Duration {
        self.loaded.plugin.limits().hook_timeout
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

// === impl BatchReport ===

impl BatchReport {
    /// Takes over what a call said of the records at these places of the batch.
    fn take(&mut self, handed: &Handed, part: &[usize], settled: &Settled) {
        for (index, verdict) in part.iter().zip(&settled.verdicts) {
            if let Verdict::Skipped { reason } = verdict {
                self.skipped.push(Unwell::of(handed, *index, reason.clone(), None));
            }
        }
        self.dropped_outputs += settled.dropped_outputs;
        if let Some(checkpoint) = &settled.checkpoint {
            self.checkpoint = Some(checkpoint.clone());
        }
    }

    /// Takes over what has become of each record in the end, and what a worker would send.
    fn conclude(&mut self, handed: &Handed, mut progress: BatchProgress) {
        let unwell = |given_up: GivenUp| Unwell::of(handed, given_up.index, given_up.reason, Some(given_up.attempts));
        self.failed = progress.given_up().map(unwell).collect();
        self.skipped.sort_by_key(|skipped| skipped.place);
        progress.pass_given_up();
        let front = progress.take_front(false);
        self.done = progress.pass(front.through).done;
        let sent = |Caused { by, output, .. }: Caused| match output.cause {
            shardmill_plugin::Cause::Record(_) => {
                let cause = handed.places.get(by).map_or(Cause::Batch, |place| Cause::Record(*place));
                Sent::of(output, cause)
            }
            _call => Sent::of(output, Cause::Batch),
        };
        self.outputs = front.outputs.into_iter().map(sent).collect();
    }
}
