//! The end of a batch: dead letters, outputs, checkpoint.

use shardmill_record::Batch;

use super::failing::Given;
use super::{Leave, ShardTask};
use crate::live::Activity;
use crate::{BatchProgress, Decision, Delivery, GivenUp, Invariant, SendError};

// === impl ShardTask ===

impl ShardTask {
    /// At most once: the checkpoint passes the batch before anybody sees it.
    pub(super) async fn checkpoint_first(&mut self, batch: &Batch) -> Result<(), Leave> {
        let Some(position) = batch.through().cloned() else { return Ok(()) };
        self.advance(position, None, batch.len());
        self.status.doing(Activity::Checkpointing);
        let fence = self.lease.fence();
        tokio::select! {
            biased;
            _ = fence.lost() => return Err(Leave::Lost),
            _ = self.abort.cancelled() => return Err(Leave::Abort),
            () = self.status.rewinding() => return Err(Leave::Rewind),
            () = self.checkpointer.flush() => {}
        }
        // Also where no checkpoint can be written any more.
        fence.check().map_err(|_| Leave::Lost)
    }

    /// Stores the records that are given up where they are passed over, sends the outputs, and lets the checkpoint pass
    /// what is dealt with. `leave`: why the batch is left before its end.
    pub(super) async fn conclude(
        &mut self,
        batch: &Batch,
        mut progress: BatchProgress,
        mut leave: Option<Leave>,
    ) -> Result<(), Leave> {
        let given_up: Vec<GivenUp> = progress.given_up().collect();
        let decision = (!given_up.is_empty()).then(|| self.decide(given_up.len(), batch.len()));
        let given = match (decision, &leave) {
            (Some(Decision::Pass { store, tolerated }), None) => {
                // Before any output: if they cannot be stored, the batch comes again.
                let stored = if store { self.store(batch, &given_up).await } else { Ok(()) };
                match stored {
                    Ok(()) => {
                        progress.pass_given_up();
                        let then = self.options.failure.then;
                        Some(if tolerated { Given::Tolerated { stored: store } } else { Given::Passed(then) })
                    }
                    Err(stop @ Leave::Stop(..)) => {
                        leave = Some(stop);
                        None
                    }
                    Err(lost) => return Err(lost),
                }
            }
            (Some(Decision::Stop(_)), Some(Leave::Stop(scope, _))) => Some(Given::Stopped(*scope)),
            // Nothing is given up, or whoever goes on with the shard tries it again.
            _none => None,
        };
        if self.options.delivery == Delivery::AtMostOnce {
            // Nobody tries anything again: what is done behind them is done for good.
            progress.pass_given_up();
        }
        self.settle(batch, progress).await?;
        if let Some(given) = given {
            self.tell_given_up(batch, given_up, given).await;
        }
        leave.map_or(Ok(()), Err)
    }

    /// Sends the outputs of what is dealt with at the front and lets the checkpoint pass it.
    async fn settle(&mut self, batch: &Batch, progress: BatchProgress) -> Result<(), Leave> {
        let prefix = progress.settled_prefix();
        let (done, skipped) = progress.settled_counts();
        let outputs = progress.into_outputs();
        if !outputs.is_empty() {
            let fence = self.lease.fence();
            self.status.doing(Activity::Sending);
            let sent = tokio::select! {
                biased;
                _ = fence.lost() => return Err(Leave::Lost),
                _ = self.abort.cancelled() => return Err(Leave::Abort),
                () = self.status.rewinding() => return Err(Leave::Rewind),
                sent = self.destinations.send(outputs, &fence) => sent,
            };
            match sent {
                Ok(count) => {
                    self.metrics.outputs.get_or_create(&self.labels).inc_by(count as u64);
                }
                Err(SendError::Fenced) => return Err(Leave::Lost),
                Err(refused) => return Err(Self::stop(refused.to_string())),
            }
        }
        // Done is what has been processed and whose outputs are where they belong.
        self.metrics.records_done.get_or_create(&self.labels).inc_by(done as u64);
        self.metrics.records_skipped.get_or_create(&self.labels).inc_by(skipped as u64);
        self.share.spend(prefix);
        if self.options.delivery == Delivery::AtMostOnce {
            return Ok(());
        }
        let last = prefix.checked_sub(1).map(|last| batch.position(last));
        let position = if prefix == batch.len() { batch.through().cloned() } else { last.clone() };
        if let Some(position) = position {
            Invariant::NothingLost.check(last.as_ref().is_none_or(|last| position >= *last), || {
                format!("the checkpoint would stop at {position}, before the last record done")
            });
            self.advance(position, last, prefix);
        }
        Ok(())
    }
}
