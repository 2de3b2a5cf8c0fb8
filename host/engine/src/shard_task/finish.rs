//! How a shard's task ends: nothing that is done is repeated, nothing that is not done is passed.

use std::sync::Arc;
use std::time::Duration;

use shardmill_cause::{AnyCoded, Coded, code, with_causes};

use super::{Ended, ShardTask};
use crate::batch_work::HookEnd;
use crate::leave::Leave;
use crate::live::Activity;
use crate::shard_run::Counted;
use crate::status::ShardState;
use crate::stop::StopReason;
use crate::{Delivery, Hook, Scope};

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
            Leave::Stop(scope, reason) => self.stand(scope, reason).await,
            Leave::Pause => self.pause().await,
            Leave::Rewind => self.rewind().await,
            Leave::Restart => self.begin_again().await,
        }
    }

    /// What is in flight is given up; what was done before is not.
    async fn aborted(self) -> Ended {
        let checkpointed = tokio::time::timeout(LAST_CHECKPOINT, self.scene.checkpointer.flush()).await.is_ok();
        tracing::warn!(
            processor = %self.work.options.processor, shard = %self.scene.shard, checkpointed,
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
        self.scene.status.doing(Activity::Ending);
        let failed = match self.work.tell_for_sure(Hook::ShardEnded, self.work.options.hook_timeout).await {
            Ok(HookEnd::Done) => String::new(),
            Ok(HookEnd::Failed(reason)) => format!("; its hook of the shard's end has failed: {reason}"),
            Err(leave) => return Box::pin(self.leave(leave)).await,
        };
        if let Some((allowed, last)) = self.scene.held_back() {
            let allowed = allowed.map_or_else(|| "nowhere yet".to_owned(), |allowed| format!("to {allowed} only"));
            let reason = format!(
                "the shard is closed and all of it is processed, and its processor lets the checkpoint go {allowed}, and not to the last record at {last} (`checkpoint = \"guest\"`){failed}"
            );
            return self.stand(Scope::Shard, reason).await;
        }
        self.scene.status.doing(Activity::Ending);
        let (fence, lease) = (self.scene.lease.fence(), Arc::clone(&self.scene.lease));
        let named = self.closed.take().and_then(|closed| closed.children);
        let mut failures = 0u32;
        loop {
            let completed = async {
                self.scene.checkpointer.flush().await;
                let children = self.scene.directory.children(&self.scene.shard, named.as_deref()).await?;
                self.scene.lease.complete(&children).await.map_err(Into::into)
            };
            let result: Result<(), AnyCoded> = tokio::select! {
                biased;
                _ = fence.lost() => return Ended::Lost,
                _ = self.scene.abort.cancelled() => return Ended::Aborted,
                result = completed => result,
                // Whoever is next can write the end as well.
                () = async { lease.draining().await; tokio::time::sleep(LAST_CHECKPOINT).await } => {
                    return self.release().await;
                }
            };
            match result {
                Ok(()) => {
                    tracing::info!(
                        processor = %self.work.options.processor, stream = %self.work.options.stream, shard = %self.scene.shard,
                        "the shard is closed and all of it is processed"
                    );
                    return Ended::Complete;
                }
                Err(AnyCoded { code, source }) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(
                            processor = %self.work.options.processor, shard = %self.scene.shard, error = with_causes(source.as_ref()),
                            %code, "the shard's end could not be written; trying again"
                        );
                    }
                    if let Some(leave) = self.before_retry().await {
                        return Box::pin(self.leave(leave)).await;
                    }
                }
            }
        }
    }

    /// Waits before the shard's end is tried again; a reason to leave ends that.
    async fn before_retry(&self) -> Option<Leave> {
        let fence = self.scene.lease.fence();
        tokio::select! {
            biased;
            _ = fence.lost() => Some(Leave::Lost),
            () = self.scene.abort.cancelled() => Some(Leave::Abort),
            () = self.scene.lease.draining() => Some(Leave::Drain),
            () = self.scene.status.rewinding() => Some(Leave::Rewind),
            () = tokio::time::sleep(RETRY_AFTER) => None,
        }
    }

    async fn release(self) -> Ended {
        self.scene.status.set_state(ShardState::Draining);
        let fence = self.scene.lease.fence();
        let abort = self.scene.abort.clone();
        let checkpointed = async {
            // Before the hook, which may take all the time that is left, and after it.
            self.scene.checkpointer.flush().await;
            let time_left = self.scene.lease.time_left(self.deadline.left(self.work.options.hook_timeout));
            let time_left_ms = u64::try_from(time_left.as_millis()).unwrap_or(u64::MAX);
            // The shard is left already.
            let _left = self.work.tell(Hook::Revoked { time_left_ms }, time_left).await;
            self.scene.checkpointer.flush().await;
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
            released = self.scene.lease.release() => released,
        };
        if let Err(error) = released {
            // It expires by itself then; nothing is lost but time.
            tracing::warn!(
                processor = %self.work.options.processor, shard = %self.scene.shard, error = with_causes(&error), code = %error.code(),
                "the lease could not be released; a successor must wait until it expires"
            );
        }
        Ended::Released
    }

    /// Stays on the shard without going on: were the lease let go, the next worker would only fail in its turn. Where the
    /// failure policy stops more than the shard, the lease is let go with the consumer's others.
    async fn stand(mut self, scope: Scope, reason: String) -> Ended {
        let remedy = match scope {
            Scope::Shard if self.work.options.delivery == Delivery::AtMostOnce => {
                "the shard is stopped; what was in hand is handed over at most once; mend the cause, then start the shard again (`shardmill restart`) or the worker, to go on behind that"
            }
            Scope::Shard => {
                "the shard is stopped; nothing of it is lost; mend the cause, then start the shard again (`shardmill restart`) or the worker, to go on from the last checkpoint"
            }
            Scope::Worker => "the failure policy stops the processor on this worker; its leases go to other workers",
            Scope::Process => "the failure policy stops the process",
        };
        let code = if scope == Scope::Shard { code::engine::SHARD_STOPPED } else { code::engine::STOPPED };
        tracing::error!(
            processor = %self.work.options.processor, stream = %self.work.options.stream, shard = %self.scene.shard, reason, %code,
            "{remedy}"
        );
        let stopped = Counted::new(self.work.metrics.shards_stopped.get_or_create(&self.work.labels).clone());
        self.scene.status.set_state(ShardState::Stopped { reason: reason.clone() });
        self.let_pages_go();
        if scope != Scope::Shard {
            let (stream, shard) = (Arc::clone(&self.work.options.stream), self.scene.shard.clone());
            self.stop_request.ask(StopReason { stream, shard, reason, process: scope == Scope::Process });
        }
        let fence = self.scene.lease.fence();
        let (abort, lease, status) =
            (self.scene.abort.clone(), Arc::clone(&self.scene.lease), self.scene.status.clone());
        let leave = async {
            tokio::select! {
                biased;
                _ = fence.lost() => Leave::Lost,
                () = abort.cancelled() => Leave::Abort,
                () = lease.draining() => Leave::Drain,
                () = status.rewinding(), if scope == Scope::Shard => Leave::Rewind,
                () = status.restarted(), if scope == Scope::Shard => Leave::Restart,
            }
        };
        let mut leave = std::pin::pin!(leave);
        let leave = tokio::select! {
            biased;
            leave = &mut leave => leave,
            () = self.scene.checkpointer.flush() => leave.await,
        };
        drop(stopped);
        match leave {
            Leave::Drain => self.release().await,
            Leave::Lost => self.lost(),
            Leave::Rewind => self.rewind().await,
            Leave::Restart => self.begin_again().await,
            _abort => self.aborted().await,
        }
    }
}
