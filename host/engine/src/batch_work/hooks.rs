//! Events of the shard's life, as its guest is told of them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use shardmill_plugin::{Failure, InvalidOutcome};
use shardmill_record::{BatchBuilder, Position};
use tokio::time::{Instant, timeout_at};

use super::{BatchWork, Leave};
use crate::live::Activity;
use crate::{Caused, Hook, SendError};

/// What came of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HookEnd {
    /// The guest has returned, and what it returned is where it belongs. Or it wants to know nothing.
    Done,
    /// It has failed. `unmade`: because the host could not call the guest.
    Failed { reason: String, unmade: bool },
    /// The time for a stop was over.
    Aborted,
}

// === impl BatchWork ===

impl BatchWork {
    /// Tells the guest of an event whose outputs nothing depends on: what cannot be sent is logged.
    pub(crate) async fn tell(&self, hook: Hook, time: Duration) {
        let name = hook.name();
        if let Err(error) = self.call_hook(hook, time).await {
            tracing::warn!(
                processor = %self.options.processor, shard = %self.scene.origin().shard, hook = name, %error,
                "the outputs of a hook could not be sent"
            );
        }
    }

    /// Tells the guest of an event, if it wants to know, and sends what it returns. The call is bounded in time, and
    /// one that fails is logged and holds nothing up; its outputs are sent like those of records, for as long as it
    /// takes.
    pub(crate) async fn call_hook(&self, hook: Hook, time: Duration) -> Result<HookEnd, SendError> {
        if !self.guest.has_hooks() {
            return Ok(HookEnd::Done);
        }
        self.scene.doing(Activity::Hook);
        let id = self.hooks_called.fetch_add(1, Ordering::Relaxed) + 1;
        let name = hook.name();
        let mut context = self.scene.context(1);
        context.last_batch = matches!(hook, Hook::ShardEnded);
        let fence = self.scene.fence();
        let known = |output: &str| self.destinations.contains(output);
        let call = async {
            let outcome = self.guest.hook(id, &context, hook).await?;
            let settled = outcome.settle(id, &known, &self.options.outcome)?;
            self.check_checkpoint(settled.checkpoint.as_ref())?;
            Ok::<_, Failure>(settled)
        };
        let result = tokio::select! {
            biased;
            _ = fence.lost() => return Err(SendError::Fenced),
            () = self.scene.aborted() => return Ok(HookEnd::Aborted),
            result = timeout_at(Instant::now() + time, call) => result,
        };
        let failed = match result {
            Ok(Ok(settled)) => {
                let outputs = settled.outputs.into_iter().map(|output| Caused { by: 0, output }).collect();
                let batch = BatchBuilder::default().build();
                let outputs = tokio::select! {
                    biased;
                    _ = fence.lost() => return Err(SendError::Fenced),
                    () = self.scene.aborted() => return Ok(HookEnd::Aborted),
                    sent = self.destinations.send(outputs, &batch, &self.scene) => sent.map_err(unsent)?,
                };
                self.metrics.outputs.get_or_create(&self.labels).inc_by(outputs as u64);
                if let Some(position) = settled.checkpoint {
                    self.scene.allow(position);
                }
                return Ok(HookEnd::Done);
            }
            Ok(Err(failure)) => (failure.to_string(), matches!(failure, Failure::Host(_))),
            Err(_elapsed) => (format!("it took longer than {time:?}"), false),
        };
        let (reason, unmade) = failed;
        self.count_failure("hook");
        tracing::warn!(
            processor = %self.options.processor, shard = %self.scene.origin().shard, hook = name, reason,
            "a hook failed"
        );
        Ok(HookEnd::Failed { reason, unmade })
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

/// Why the outputs of a hook were not sent, where the shard is not left for it.
fn unsent(leave: Leave) -> SendError {
    match leave {
        Leave::Stop(_, reason) => SendError::Refused { output: "of a hook".to_owned(), reason },
        _left => SendError::Fenced,
    }
}
