//! How a shard's task ends: nothing that is done is repeated, nothing that is not done is passed.

use std::sync::Arc;
use std::time::Duration;

use shardmill_cause::with_causes;
use shardmill_record::{HashKeyRange, Unpacker};
use tokio::time::{Instant, timeout_at};

use super::{Ended, Leave, ShardTask};
use crate::status::ShardState;
use crate::{Hook, SendError};

/// How long the last checkpoint may take when the time for a stop is over.
const LAST_CHECKPOINT: Duration = Duration::from_secs(2);
/// How long to wait before the store or the stream is asked again about a shard's end.
const RETRY_AFTER: Duration = Duration::from_secs(1);

// === impl ShardTask ===

impl ShardTask {
    pub(crate) async fn leave(self, leave: Leave) -> Ended {
        match leave {
            Leave::Closed => self.complete().await,
            Leave::Drain => self.release().await,
            Leave::Lost => self.lost(),
            Leave::Abort => self.aborted().await,
            Leave::Stop(reason) => self.stand(reason).await,
        }
    }

    /// What is in flight is given up; what was done before is not.
    async fn aborted(mut self) -> Ended {
        let checkpointed = tokio::time::timeout(LAST_CHECKPOINT, self.checkpointer.flush()).await.is_ok();
        tracing::warn!(
            processor = %self.options.processor, shard = %self.shard, checkpointed,
            "the time for the stop is over; what was in flight will be repeated by a successor"
        );
        Ended::Aborted
    }

    fn lost(&self) -> Ended {
        // The lease room has logged why.
        Ended::Lost
    }

    /// Every record is done and every output acknowledged: children first, then the shard's end, so that nobody
    /// sees a finished parent without its children.
    async fn complete(mut self) -> Ended {
        match self.call_hook(Hook::ShardEnded, self.options.hook_timeout).await {
            Ok(()) => {}
            Err(SendError::Fenced) => return Ended::Lost,
            Err(refused) => return self.stand(refused.to_string()).await,
        }
        let fence = self.lease.fence();
        let named = self.closed.take().and_then(|closed| closed.children);
        let mut failures = 0u32;
        loop {
            let completed = async {
                self.checkpointer.flush().await;
                let children = self.directory.children(&self.shard, named.as_deref()).await?;
                self.lease.complete(&children).await.map_err(Into::into)
            };
            let result: Result<(), Box<dyn std::error::Error + Send + Sync>> = tokio::select! {
                biased;
                _ = fence.lost() => return Ended::Lost,
                _ = self.abort.cancelled() => return Ended::Aborted,
                result = completed => result,
            };
            match result {
                Ok(()) => {
                    tracing::info!(
                        processor = %self.options.processor, stream = %self.options.stream, shard = %self.shard,
                        "the shard is closed and all of it is processed"
                    );
                    return Ended::Complete;
                }
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(
                            processor = %self.options.processor, shard = %self.shard, error = with_causes(error.as_ref()),
                            "the shard's end could not be written; trying again"
                        );
                    }
                    if fence.check().is_err() {
                        return Ended::Lost;
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    async fn release(mut self) -> Ended {
        self.status.set_state(ShardState::Draining);
        let fence = self.lease.fence();
        let abort = self.abort.clone();
        let hook_time = self.options.hook_timeout;
        let checkpointed = async {
            let time_left_ms = u64::try_from(hook_time.as_millis()).unwrap_or(u64::MAX);
            // Before the hook, which may take all the time that is left, and after it.
            self.checkpointer.flush().await;
            self.tell(Hook::Revoked { time_left_ms }, hook_time).await;
            self.checkpointer.flush().await;
        };
        let finished = tokio::select! {
            biased;
            _ = fence.lost() => return Ended::Lost,
            () = abort.cancelled() => None,
            () = checkpointed => Some(()),
        };
        if finished.is_none() {
            return self.aborted().await;
        }
        // Releasing closes the fence itself, so the fence is not waited for here.
        let released = tokio::select! {
            biased;
            () = abort.cancelled() => return Ended::Aborted,
            released = self.lease.release() => released,
        };
        if let Err(error) = released {
            // It expires by itself then; nothing is lost but time.
            tracing::warn!(
                processor = %self.options.processor, shard = %self.shard, error = with_causes(&error),
                "the lease could not be released; a successor must wait until it expires"
            );
        }
        Ended::Released
    }

    /// Stays on the shard without going on: were the lease let go, the next worker would only fail in its turn.
    async fn stand(mut self, reason: String) -> Ended {
        tracing::error!(
            processor = %self.options.processor, stream = %self.options.stream, shard = %self.shard, reason,
            "the shard is stopped; nothing of it is lost; mend the cause and restart the worker to go on from the last checkpoint"
        );
        self.metrics.shards_stopped.get_or_create(&self.labels).inc();
        self.status.set_state(ShardState::Stopped { reason });
        // What was read ahead goes, or shards that stand would keep the bytes that the others need.
        self.feed.stop();
        self.unpacker = Unpacker::new(None, HashKeyRange::ALL, self.options.out_of_range);
        self.reservations.clear();
        let fence = self.lease.fence();
        let (abort, lease) = (self.abort.clone(), Arc::clone(&self.lease));
        let leave = async {
            tokio::select! {
                biased;
                _ = fence.lost() => Leave::Lost,
                () = abort.cancelled() => Leave::Abort,
                () = lease.draining() => Leave::Drain,
            }
        };
        let mut leave = std::pin::pin!(leave);
        let leave = tokio::select! {
            biased;
            leave = &mut leave => leave,
            () = self.checkpointer.flush() => leave.await,
        };
        self.metrics.shards_stopped.get_or_create(&self.labels).dec();
        match leave {
            Leave::Drain => self.release().await,
            Leave::Lost => self.lost(),
            _abort => self.aborted().await,
        }
    }

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
    async fn call_hook(&mut self, hook: Hook, time: Duration) -> Result<(), SendError> {
        if !self.guest.has_hooks() {
            return Ok(());
        }
        self.hooks_called += 1;
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
