//! How a shard's task obeys an operator.

use std::sync::Arc;

use shardmill_cause::with_causes;
use shardmill_record::{HashKeyRange, Unpacker};

use crate::leave::Leave;
use crate::live::Activity;
use crate::shard_run::Counted;
use crate::shard_task::{Ended, ShardTask};
use crate::status::ShardState;

// === impl ShardTask ===

impl ShardTask {
    /// Rests: nothing is read or handed out, no memory is held, and the lease is kept. Then the shard is run anew from its
    /// checkpoint, which is written first, so that nothing that is done comes again.
    pub(crate) async fn pause(mut self) -> Ended {
        tracing::info!(
            processor = %self.work.options.processor, stream = %self.work.options.stream, shard = %self.scene.shard,
            "the shard is paused by an operator's order; its lease is kept"
        );
        self.scene.status.set_state(ShardState::Paused);
        self.let_pages_go();
        let paused = Counted::new(self.work.metrics.shards_paused.get_or_create(&self.work.labels).clone());
        let leave = self.rest().await;
        drop(paused);
        match leave {
            Some(leave) => Box::pin(self.leave(leave)).await,
            None => {
                tracing::info!(
                    processor = %self.work.options.processor, stream = %self.work.options.stream, shard = %self.scene.shard,
                    "the shard goes on"
                );
                Ended::Restart
            }
        }
    }

    /// `None` when the shard may go on.
    async fn rest(&mut self) -> Option<Leave> {
        let (fence, abort, lease, status) = (
            self.scene.lease.fence(),
            self.scene.abort.clone(),
            Arc::clone(&self.scene.lease),
            self.scene.status.clone(),
        );
        let leave = async {
            tokio::select! {
                biased;
                _ = fence.lost() => Leave::Lost,
                () = abort.cancelled() => Leave::Abort,
                () = lease.draining() => Leave::Drain,
                () = status.rewinding() => Leave::Rewind,
            }
        };
        let resumed = async {
            self.scene.checkpointer.flush().await;
            status.resumed().await;
        };
        tokio::select! {
            biased;
            leave = leave => Some(leave),
            () = resumed => None,
        }
    }

    /// Begins again from the checkpoint, once everything that is done is in it.
    pub(crate) async fn begin_again(mut self) -> Ended {
        if let Some(leave) = self.write_what_is_done().await {
            return Box::pin(self.leave(leave)).await;
        }
        tracing::info!(
            processor = %self.work.options.processor, stream = %self.work.options.stream, shard = %self.scene.shard,
            checkpoint = %self.scene.lease.lease().checkpoint, "the stopped shard is started again from its checkpoint"
        );
        Ended::Restart
    }

    /// `None` once the checkpoint is where everything is done.
    async fn write_what_is_done(&mut self) -> Option<Leave> {
        let (fence, abort) = (self.scene.lease.fence(), self.scene.abort.clone());
        tokio::select! {
            biased;
            _ = fence.lost() => Some(Leave::Lost),
            () = abort.cancelled() => Some(Leave::Abort),
            () = self.scene.checkpointer.flush() => None,
        }
    }

    /// Writes where the shard begins, and begins there. The batch in hand is given up.
    pub(crate) async fn rewind(mut self) -> Ended {
        let Some(order) = self.scene.status.take_rewind() else { return Ended::Restart };
        // Whatever it was at: it is about something now.
        self.scene.status.doing(Activity::Checkpointing);
        if let Some(reason) = self.scene.status.live().refuses_rewind() {
            // What is done is not to be repeated for that.
            let leave = self.write_what_is_done().await;
            order.answer(Err(reason.to_owned()));
            return match leave {
                Some(leave) => Box::pin(self.leave(leave)).await,
                None => Ended::Restart,
            };
        }
        let Self { work, scene, feed, .. } = self;
        let (options, shard, lease) = (&work.options, &scene.shard, &scene.lease);
        let (abort, status) = (&scene.abort, &scene.status);
        // From here on nothing may write how far the shard was.
        scene.checkpointer.end().await;
        drop(feed);
        let fence = lease.fence();
        let from = lease.lease().checkpoint.clone();
        let written = tokio::select! {
            biased;
            lost = fence.lost() => Err(lost.into()),
            () = abort.cancelled() => {
                order.answer(Err("the worker is stopping; whether it was written is not known".to_owned()));
                return Ended::Aborted;
            }
            written = lease.rewind(order.to) => written,
        };
        match written {
            Ok(()) => {
                let now = lease.lease();
                status.live().undone().forget();
                tracing::warn!(
                    processor = %options.processor, stream = %options.stream, %shard, %from, to = %now.checkpoint,
                    start_at = now.start_at, epoch = %now.epoch,
                    "the shard is rewound by an operator's order"
                );
                order.answer(Ok(()));
                Ended::Restart
            }
            Err(error) => {
                order.answer(Err(with_causes(&error)));
                if fence.check().is_err() { Ended::Lost } else { Ended::Restart }
            }
        }
    }

    /// Waits until a record may be handed over, where their number is limited.
    pub(crate) async fn wait_for_allowance(&mut self) -> Result<(), Leave> {
        if self.scene.share.must_wait() {
            self.scene.status.doing(Activity::Allowance);
        }
        let fence = self.scene.lease.fence();
        tokio::select! {
            biased;
            _ = fence.lost() => return Err(Leave::Lost),
            () = self.scene.abort.cancelled() => return Err(Leave::Abort),
            () = self.scene.lease.draining() => return Err(Leave::Drain),
            leave = self.scene.status.ordered() => return Err(leave),
            () = self.scene.share.available() => {}
        }
        self.scene.status.doing(Activity::Waiting);
        Ok(())
    }

    /// What was read ahead goes, or shards that stand would keep the bytes that the others need.
    pub(crate) fn let_pages_go(&mut self) {
        let read_ahead = self.feed.stop();
        self.scene.status.live().undone().give_up(read_ahead);
        self.unpacker = Unpacker::new(None, HashKeyRange::ALL, self.work.options.out_of_range);
        self.reservations.clear();
        self.scene.share.keep(0);
    }
}
