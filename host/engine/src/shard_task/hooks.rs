//! Events of the shard's life, as its guest is told of them.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::ShardTask;
use crate::live::Activity;
use crate::{Hook, SendError};

// === impl ShardTask ===

impl ShardTask {
    /// Tells the guest of an event whose outputs nothing depends on: what cannot be sent is logged.
    pub(crate) async fn tell(&mut self, hook: Hook, time: Duration) {
        let name = hook.name();
        if let Err(error) = self.call_hook(hook, time).await {
            tracing::warn!(
                processor = %self.options.processor, shard = %self.shard, hook = name, %error,
                "the outputs of a hook could not be sent"
            );
        }
    }

    /// Tells the guest of an event, if it wants to know, and sends what it returns. The call is bounded in time, and
    /// one that fails is logged and holds nothing up; its outputs are sent like those of records, for as long as it
    /// takes.
    pub(super) async fn call_hook(&mut self, hook: Hook, time: Duration) -> Result<(), SendError> {
        if !self.guest.has_hooks() {
            return Ok(());
        }
        self.hooks_called += 1;
        self.status.doing(Activity::Hook);
        let (id, name) = (self.hooks_called, hook.name());
        let context = self.context(1, matches!(hook, Hook::ShardEnded));
        let fence = self.lease.fence();
        let known = |output: &str| self.destinations.contains(output);
        let call = async {
            let outcome = self.guest.hook(id, &context, hook).await.map_err(|failure| failure.to_string())?;
            outcome.settle(id, &known, &self.options.outcome).map_err(|invalid| invalid.to_string())
        };
        let result = tokio::select! {
            biased;
            _ = fence.lost() => return Err(SendError::Fenced),
            () = self.abort.cancelled() => return Ok(()),
            result = timeout_at(Instant::now() + time, call) => result,
        };
        let failed = match result {
            Ok(Ok(settled)) => {
                let outputs = tokio::select! {
                    biased;
                    _ = fence.lost() => return Err(SendError::Fenced),
                    () = self.abort.cancelled() => return Ok(()),
                    sent = self.destinations.send(settled.outputs, &fence) => sent?,
                };
                self.metrics.outputs.get_or_create(&self.labels).inc_by(outputs as u64);
                if let Some(position) = settled.checkpoint {
                    self.allow(position);
                }
                return Ok(());
            }
            Ok(Err(reason)) => reason,
            Err(_elapsed) => format!("it took longer than {time:?}"),
        };
        self.count_failure("hook");
        tracing::warn!(
            processor = %self.options.processor, shard = %self.shard, hook = name, reason = failed,
            "a hook failed"
        );
        Ok(())
    }
}
