//! How a shard's task obeys an operator.

use std::sync::Arc;

use shardmill_cause::with_causes;
use shardmill_record::{HashKeyRange, Unpacker};

use crate::shard_task::{Ended, Leave, ShardTask};
use crate::status::ShardState;

// === impl ShardTask ===

impl ShardTask {
    /// Rests: nothing is read or handed out, no memory is held, and the lease is kept. Then the shard is run anew from its
    /// checkpoint, which is written first, so that nothing that is done comes again.
    pub(crate) async fn pause(mut self) -> Ended {
        tracing::info!(
            processor = %self.options.processor, stream = %self.options.stream, shard = %self.shard,
            "the shard is paused by an operator's order; its lease is kept"
        );
        self.status.set_state(ShardState::Paused);
        self.let_pages_go();
        let paused = self.metrics.shards_paused.get_or_create(&self.labels).clone();
        paused.inc();
        let leave = self.rest().await;
        paused.dec();
        match leave {
            Some(leave) => Box::pin(self.leave(leave)).await,
            None => {
                tracing::info!(
                    processor = %self.options.processor, stream = %self.options.stream, shard = %self.shard,
                    "the shard goes on"
                );
                Ended::Restart
            }
        }
    }

    /// `None` when the shard may go on.
    async fn rest(&mut self) -> Option<Leave> {
        let (fence, abort, lease, status) =
            (self.lease.fence(), self.abort.clone(), Arc::clone(&self.lease), self.status.clone());
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
            self.checkpointer.flush().await;
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
        let (fence, abort) = (self.lease.fence(), self.abort.clone());
        let leave = tokio::select! {
            biased;
            _ = fence.lost() => Leave::Lost,
            () = abort.cancelled() => Leave::Abort,
            () = self.checkpointer.flush() => {
                tracing::info!(
                    processor = %self.options.processor, stream = %self.options.stream, shard = %self.shard,
                    checkpoint = %self.lease.lease().checkpoint, "the stopped shard is started again from its checkpoint"
                );
                return Ended::Restart;
            }
        };
        Box::pin(self.leave(leave)).await
    }

    /// Writes where the shard begins, and begins there. The batch in hand is given up.
    pub(crate) async fn rewind(self) -> Ended {
        let Some(order) = self.status.take_rewind() else { return Ended::Restart };
        let Self { options, shard, lease, checkpointer, feed, abort, .. } = self;
        // From here on nothing may write how far the shard was.
        checkpointer.end().await;
        drop(feed);
        if options.start.shards.contains_key(&shard) {
            order.answer(Err(format!(
                "the configuration has a start for shard {shard} of its own, which would count again at the next start: take it out of `start-shards` first"
            )));
            return Ended::Restart;
        }
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
        let fence = self.lease.fence();
        tokio::select! {
            biased;
            _ = fence.lost() => Err(Leave::Lost),
            () = self.abort.cancelled() => Err(Leave::Abort),
            () = self.lease.draining() => Err(Leave::Drain),
            leave = self.status.ordered() => Err(leave),
            () = self.share.available() => Ok(()),
        }
    }

    /// What was read ahead goes, or shards that stand would keep the bytes that the others need.
    fn let_pages_go(&mut self) {
        self.feed.stop();
        self.unpacker = Unpacker::new(None, HashKeyRange::ALL, self.options.out_of_range);
        self.reservations.clear();
        self.share.keep(0);
    }
}
