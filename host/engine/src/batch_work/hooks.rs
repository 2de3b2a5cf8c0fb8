//! Events of the shard's life, as its guest is told of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::Rng as _;
use shardmill_plugin::{Failure, InvalidOutcome};
use shardmill_record::{BatchBuilder, Position};

use super::failing::{UNMADE_BACKOFF, UNMADE_TOLD_EVERY};
use super::{BatchWork, Leave};
use crate::live::Activity;
use crate::{Caused, Hook};

/// What came of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HookEnd {
    /// The guest has returned, and what it returned is where it belongs. Or it wants to know nothing.
    Done,
    /// It has failed, and why.
    Failed(String),
}

/// Why a hook has failed.
struct Failed {
    reason: String,
    /// Because the host could not call the guest.
    unmade: bool,
}

// === impl BatchWork ===

impl BatchWork {
    /// Tells the guest of an event, if it wants to know, and sends what it returns. The call is bounded in time, and one that
    /// fails is logged and holds nothing up; its outputs are sent like those of records, for as long as it takes.
    pub(crate) async fn tell(&self, hook: Hook, time: Duration) -> Result<(), Leave> {
        if let Err(failed) = self.call_hook(&hook, time).await? {
            self.show_failed(&hook, &failed);
        }
        Ok(())
    }

    /// The same, again until the host could make the call.
    pub(crate) async fn tell_for_sure(&self, hook: Hook, time: Duration) -> Result<HookEnd, Leave> {
        let mut unmade = 0u32;
        loop {
            let Err(failed) = self.call_hook(&hook, time).await? else { return Ok(HookEnd::Done) };
            if !failed.unmade || unmade.is_multiple_of(UNMADE_TOLD_EVERY) {
                self.show_failed(&hook, &failed);
            }
            if !failed.unmade {
                return Ok(HookEnd::Failed(failed.reason));
            }
            unmade = unmade.saturating_add(1);
            tokio::select! {
                biased;
                leave = self.scene.called_away() => return Err(leave),
                () = tokio::time::sleep(UNMADE_BACKOFF.delay(unmade, rand::rng().random())) => {}
            }
        }
    }

    async fn call_hook(&self, hook: &Hook, time: Duration) -> Result<Result<(), Failed>, Leave> {
        if !self.guest.has_hooks() {
            return Ok(Ok(()));
        }
        self.scene.doing(Activity::Hook);
        let id = self.hooks_called.fetch_add(1, Ordering::Relaxed) + 1;
        let mut context = self.scene.context(1);
        context.last_batch = matches!(hook, Hook::ShardEnded);
        let known = |output: &str| self.destinations.contains(output);
        let call = async {
            let outcome = self.guest.hook(id, &context, hook.clone(), time).await?;
            let settled = outcome.settle(id, &known, &self.options.outcome)?;
            self.check_checkpoint(settled.checkpoint.as_ref())?;
            Ok::<_, Failure>(settled)
        };
        let result = tokio::select! {
            biased;
            leave = self.scene.cut_off() => return Err(leave),
            result = call => result,
        };
        let settled = match result {
            Ok(settled) => settled,
            Err(failure) => {
                let unmade = matches!(failure, Failure::Host(_));
                return Ok(Err(Failed { reason: failure.to_string(), unmade }));
            }
        };
        let outputs = settled.outputs.into_iter().map(|output| Caused { by: 0, since: 0, output }).collect();
        if let Some(leave) = self.send(outputs, &BatchBuilder::default().build()).await.leave {
            // Of other events the guest is told once more.
            if matches!(hook, Hook::Idle | Hook::Revoked { .. }) {
                let reason = match &leave {
                    Leave::Stop(_, reason) => reason,
                    Leave::Lost => "the lease was lost",
                    _left => "the shard was left",
                };
                tracing::warn!(
                    processor = %self.options.processor, shard = %self.scene.origin().shard, hook = hook.name(), reason,
                    "the outputs of a hook could not be sent"
                );
            }
            return Err(leave);
        }
        if let Some(position) = settled.checkpoint {
            self.scene.allow(position);
        }
        Ok(Ok(()))
    }

    fn show_failed(&self, hook: &Hook, failed: &Failed) {
        self.count_failure("hook");
        tracing::warn!(
            processor = %self.options.processor, shard = %self.scene.origin().shard, hook = hook.name(),
            reason = failed.reason, "a hook failed"
        );
    }

    /// A guest that names a position behind everything that it has seen does not mean this shard: were that taken, the
    /// checkpoint would pass everything that is done from then on.
    pub(super) fn check_checkpoint(&self, checkpoint: Option<&Position>) -> Result<(), InvalidOutcome> {
        let last = self.scene.handed_over();
        match checkpoint {
            Some(position) if last.as_ref().is_none_or(|last| position > last) => {
                Err(InvalidOutcome::CheckpointBeyond { position: position.clone(), last })
            }
            _good => Ok(()),
        }
    }
}
