//! Pages in, batches out.

use std::time::Duration;

use shardmill_record::{Batch, BatchBuilder, BatchLimits};
use tokio::time::{Instant, sleep, sleep_until};

use super::ShardTask;
use crate::coded::with_code;
use crate::feed::{Fed, PAGE_BYTES};
use crate::leave::Leave;
use crate::live::Activity;

/// How often a batch that waits for more records looks whether others want its memory.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

// === impl ShardTask ===

impl ShardTask {
    /// The next batch, or `None` when the shard had nothing new.
    pub(crate) async fn next_batch(&mut self) -> Result<Option<Batch>, Leave> {
        // Not before the last batch of the pages is processed: it holds what they held, and so does the guest.
        if self.unpacker.is_empty() {
            self.reservations.clear();
        }
        // Also in the middle of a page, which may hold many batches.
        if self.scene.lease.is_draining() && !self.nothing_left() {
            return Err(Leave::Drain);
        }
        if let Some(leave) = self.scene.status.order() {
            return Err(leave);
        }
        self.scene.status.doing(Activity::Waiting);
        let mut builder = BatchBuilder::default();
        let mut deadline = None;
        loop {
            if builder.is_empty() && !self.unpacker.is_empty() {
                self.wait_for_allowance().await?;
            }
            let full = self.unpack(&mut builder);
            if full || (!builder.is_empty() && (self.closed.is_some() || self.work.options.batch.wait.is_zero())) {
                return Ok(Some(builder.build()));
            }
            if self.closed.is_some() {
                // Records that were left out at the very end still move the checkpoint.
                self.advance_over_nothing(builder);
                return Err(Leave::Closed);
            }
            if !builder.is_empty() {
                deadline.get_or_insert_with(|| Instant::now() + self.work.options.batch.wait);
                // Batches that wait must not take all of the memory, or nobody could read what they wait for.
                if !self.reservations.iter().all(|reservation| reservation.leaves(PAGE_BYTES)) {
                    return Ok(Some(builder.build()));
                }
            }
            // Nothing of the builder is lost when this is left: it has not been checkpointed, so it is read again.
            let fence = self.scene.lease.fence();
            let fed = tokio::select! {
                biased;
                _ = fence.lost() => return Err(Leave::Lost),
                _ = self.scene.abort.cancelled() => return Err(Leave::Abort),
                _ = self.scene.lease.draining() => return Err(Leave::Drain),
                leave = self.scene.status.ordered() => return Err(leave),
                fed = self.feed.next() => fed,
                _ = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    return Ok(Some(builder.build()));
                }
                () = sleep(LOOK_EVERY), if deadline.is_some() => continue,
            };
            let was_empty = self.take(fed)?;
            if was_empty && builder.is_empty() && self.closed.is_none() {
                self.advance_over_nothing(builder);
                return Ok(None);
            }
        }
    }

    fn unpack(&mut self, builder: &mut BatchBuilder) -> bool {
        let limits = self.scene.share.limits(&self.work.options.batch.limits);
        let full = self.fill(builder, &limits);
        self.scene.share.keep(builder.len());
        if self.unpacker.is_empty() && builder.is_empty() {
            self.reservations.clear();
        }
        full
    }

    /// Moves records of what was read into a batch; whether it is full.
    pub(super) fn fill(&mut self, builder: &mut BatchBuilder, limits: &BatchLimits) -> bool {
        let met = self.unpacker.fill(builder, limits);
        for (family, count) in [
            (&self.work.metrics.aggregates, met.aggregates),
            (&self.work.metrics.broken_aggregates, met.broken_aggregates),
            (&self.work.metrics.records_out_of_range, met.out_of_range),
        ] {
            if count > 0 {
                family.get_or_create(&self.work.labels).inc_by(count);
            }
        }
        met.full
    }

    /// Takes a page in; whether it was empty.
    pub(super) fn take(&mut self, fed: Option<Result<Fed, shardmill_stream::Error>>) -> Result<bool, Leave> {
        let fed = match fed {
            Some(Ok(fed)) => fed,
            Some(Err(error)) => return Err(Leave::stop(format!("it cannot be read: {}", with_code(&error)))),
            None => return Err(Leave::stop("its reader has ended without saying why")),
        };
        let empty = fed.page.is_empty();
        if let Some(throughput) = self.meter.add(Instant::now(), fed.page.content() as u64) {
            self.scene.lease.measured(throughput);
        }
        self.scene.set_millis_behind(fed.millis_behind);
        self.scene.status.set_lag(fed.millis_behind);
        self.reservations.extend(fed.reservation);
        self.unpacker.push(fed.page);
        self.closed = fed.end;
        Ok(empty)
    }

    fn advance_over_nothing(&mut self, builder: BatchBuilder) {
        if let Some(position) = builder.build().through() {
            self.scene.advance(position.clone(), None, 0);
        }
    }

    /// Whether nothing of the shard comes after what has been handed out.
    pub(crate) fn nothing_left(&self) -> bool {
        self.closed.is_some() && self.unpacker.is_empty()
    }
}
