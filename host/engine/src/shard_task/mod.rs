//! The loop of one leased shard. It owns the shard's state; nobody else touches it.

mod batching;
mod finish;
mod lanes;
mod scene;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use shardmill_record::{Batch, Unpacker};

use crate::batch_work::BatchWork;
use crate::budget::Reservation;
use crate::feed::{Feed, ShardClosed};
use crate::flow::{Route, Router};
use crate::leave::Leave;
use crate::meter::Meter;
use crate::status::ShardState;
use crate::stop::{Deadline, StopRequest};

pub(crate) use scene::{Progress, ShardScene};

/// Everything that a shard's task needs.
pub(crate) struct ShardTask {
    pub(crate) work: Arc<BatchWork>,
    pub(crate) scene: Arc<ShardScene>,
    /// Where there is a filter.
    pub(crate) router: Option<Router>,
    pub(crate) feed: Feed,
    pub(crate) unpacker: Unpacker,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) closed: Option<ShardClosed>,
    pub(crate) meter: Meter,
    /// When what is in flight is to be given up.
    pub(crate) deadline: Deadline,
    /// Where the failure policy asks for the consumer's stop.
    pub(crate) stop_request: StopRequest,
}

/// How a shard's task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The shard is closed and every record of it is done; its lease says so.
    Complete,
    /// The lease was let go, with everything that was done checkpointed.
    Released,
    /// The lease was lost; a successor goes on from the last checkpoint.
    Lost,
    /// What was in flight was given up because the time for a stop was over; it will be repeated.
    Aborted,
    /// The shard is to be run anew, from its lease's checkpoint and with the same lease.
    Restart,
}

// === impl ShardTask ===

impl ShardTask {
    /// Runs until the shard ends, or its lease is to be let go or is lost.
    pub(crate) async fn run(mut self) -> Ended {
        if let Err(leave) = self.work.tell(crate::Hook::Assigned, self.work.options.hook_timeout).await {
            return self.leave(leave).await;
        }
        self.scene.status.set_state(ShardState::Running);
        let options = &self.work.options;
        let leave = if options.flow.is_spread() || options.batch.is_timed() {
            self.work_in_lanes().await
        } else {
            match self.work().await {
                Err(leave) => leave,
                Ok(never) => match never {},
            }
        };
        self.leave(leave).await
    }

    async fn work(&mut self) -> Result<std::convert::Infallible, Leave> {
        loop {
            match self.next_batch().await? {
                Some(batch) => self.process(batch).await?,
                None => {
                    self.scene.status.had_nothing(self.scene.millis_behind());
                    self.work.tell(crate::Hook::Idle, self.work.options.hook_timeout).await?;
                }
            }
        }
    }

    /// One batch of a shard whose records are not spread.
    async fn process(&self, batch: Batch) -> Result<(), Leave> {
        let is_followed = !self.unpacker.is_empty();
        let Some(router) = &self.router else {
            self.scene.begins(&batch, is_followed, self.nothing_left());
            return self.work.process(batch, &[], &*self.scene).await;
        };
        let (mut kept, mut refused, mut invalid) = (Vec::with_capacity(batch.len()), Vec::new(), 0);
        for (index, record) in batch.iter().enumerate() {
            match router.route(&record) {
                Route::Nowhere { is_invalid } => {
                    invalid += usize::from(is_invalid);
                    continue;
                }
                Route::Failed(_, reason) => refused.push((kept.len(), reason)),
                Route::Track(_) => {}
            }
            kept.push(index);
        }
        let filtered = batch.len() - kept.len();
        self.work.metrics.filtered(&self.work.labels, filtered, invalid);
        self.scene.share.spend(filtered);
        if kept.is_empty() {
            if let Some(through) = batch.through().cloned() {
                // The guest has not seen them, so it has nothing to say of them.
                self.scene.advance(through, None, filtered);
            }
            self.scene.share.keep(0);
            return Ok(());
        }
        let batch = if filtered == 0 { batch } else { batch.select(kept) };
        self.scene.begins(&batch, is_followed, self.nothing_left());
        self.work.process(batch, &refused, &*self.scene).await
    }
}
