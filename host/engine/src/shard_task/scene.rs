use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use shardmill_lease::{Fence, HeldLease};
use shardmill_plugin::ShardContext;
use shardmill_record::{Batch, Position, ShardId};
use tokio_util::sync::CancellationToken;

use crate::allowance::Share;
use crate::batch_work::{Ledger, Origin, Scene};
use crate::checkpointer::Checkpointer;
use crate::invariant::Invariant;
use crate::leave::Leave;
use crate::live::Activity;
use crate::policy::Watermark;
use crate::shard_entry::ShardEntry;
use crate::shard_source::Directory;
use crate::status::ShardState;
use crate::{Delivery, Options};

/// A shard whose lease is held: what its batches need of it, and what becomes of it with them.
pub(crate) struct ShardScene {
    pub(crate) options: Arc<Options>,
    pub(crate) worker: Arc<str>,
    pub(crate) shard: ShardId,
    pub(crate) lease: Arc<HeldLease>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) status: ShardEntry,
    pub(crate) checkpointer: Checkpointer,
    /// How many records it may hand over.
    pub(crate) share: Share,
    /// Cancelled when what is in flight is to be given up.
    pub(crate) abort: CancellationToken,
    pub(crate) progress: Mutex<Progress>,
    /// Whether nothing of the shard comes after what has been handed out.
    pub(crate) is_last: AtomicBool,
    /// Whether more of what was read follows what has been handed out.
    pub(crate) is_followed: AtomicBool,
}

/// How far the shard is.
#[derive(Debug)]
pub(crate) struct Progress {
    watermark: Watermark,
    millis_behind: Option<u64>,
}

// === impl Progress ===

impl Progress {
    pub(crate) fn new(watermark: Watermark) -> Self {
        Self { watermark, millis_behind: None }
    }
}

// === impl ShardScene ===

impl ShardScene {
    /// Returns when the shard is to begin somewhere else. Whoever lets it go does not do that any more.
    async fn rewinding(&self) {
        self.status.rewinding().await;
        if self.lease.is_draining() {
            std::future::pending::<()>().await;
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn millis_behind(&self) -> Option<u64> {
        self.progress().millis_behind
    }

    pub(crate) fn set_millis_behind(&self, millis_behind: Option<u64>) {
        self.progress().millis_behind = millis_behind;
    }

    /// A batch is handed out. `is_followed`: whether more of what was read comes after it; `is_last`: whether nothing does.
    pub(crate) fn begins(&self, batch: &Batch, is_followed: bool, is_last: bool) {
        self.is_followed.store(is_followed, Ordering::Relaxed);
        self.is_last.store(is_last, Ordering::Relaxed);
        self.status.handed_out(batch, 0, is_followed);
    }

    /// Everything up to `position` is done and its outputs are acknowledged: `records` more, the last of them at
    /// `last_record`.
    pub(crate) fn advance(&self, position: Position, last_record: Option<Position>, records: usize) {
        self.status.set_position(position.to_string());
        let checkpoint = self.progress().watermark.reach(position, last_record);
        self.checkpointer.advance(checkpoint, records as u64);
    }

    /// Where the guest keeps the checkpoint though later records are done: its position, and the last record's.
    pub(crate) fn held_back(&self) -> Option<(Option<Position>, Position)> {
        let progress = self.progress();
        let (allowed, last) = progress.watermark.held_back()?;
        Some((allowed.cloned(), last.clone()))
    }

    /// Lets the checkpoint pass the first `through` records of the batch, of which `records` are new.
    fn pass(&self, batch: &Batch, through: usize, records: usize) {
        let last = through.checked_sub(1).map(|last| batch.position(last));
        let position = if through == batch.len() { batch.through().cloned() } else { last.clone() };
        if let Some(position) = position {
            Invariant::NothingLost.check(last.as_ref().is_none_or(|last| position >= *last), || {
                format!("the checkpoint would stop at {position}, before the last record done")
            });
            self.advance(position, last, records);
        }
    }
}

#[async_trait]
impl Scene for ShardScene {
    fn origin(&self) -> Origin {
        Origin {
            stream: Arc::clone(&self.options.stream),
            stream_arn: self.directory.stream_arn().into(),
            shard: self.shard.clone(),
            lease_epoch: self.lease.lease().epoch.get(),
            hops: 0,
        }
    }

    fn context(&self, attempt: u32) -> ShardContext {
        ShardContext {
            application: self.options.application.clone(),
            processor: self.options.processor.clone(),
            stream: self.options.stream.clone(),
            shard: self.shard.clone(),
            worker: Arc::clone(&self.worker),
            lease_epoch: self.lease.lease().epoch.get(),
            attempt,
            millis_behind_latest: self.millis_behind(),
            last_batch: self.is_last.load(Ordering::Relaxed),
        }
    }

    fn fence(&self) -> Fence {
        self.lease.fence()
    }

    async fn cut_off(&self) -> Leave {
        let fence = self.lease.fence();
        tokio::select! {
            biased;
            _ = fence.lost() => Leave::Lost,
            () = self.abort.cancelled() => Leave::Abort,
            () = self.rewinding() => Leave::Rewind,
        }
    }

    fn delivery(&self) -> Delivery {
        self.options.delivery
    }

    /// What is handed over at most once is not left for a pause: nobody would come back to it.
    async fn called_away(&self) -> Leave {
        let fence = self.lease.fence();
        let ordered = async {
            match self.options.delivery {
                Delivery::AtLeastOnce => self.status.ordered().await,
                Delivery::AtMostOnce => {
                    self.rewinding().await;
                    Leave::Rewind
                }
            }
        };
        tokio::select! {
            biased;
            _ = fence.lost() => Leave::Lost,
            () = self.abort.cancelled() => Leave::Abort,
            () = self.lease.draining() => Leave::Drain,
            leave = ordered => leave,
        }
    }

    fn doing(&self, activity: Activity) {
        self.status.doing(activity);
    }

    fn set_state(&self, state: ShardState) {
        self.status.set_state(state);
    }

    fn hand_over(&self, last: Position) {
        self.progress().watermark.hand_over(last);
    }

    fn handed_over(&self) -> Option<Position> {
        self.progress().watermark.handed_over().cloned()
    }

    fn allow(&self, position: Position) {
        let checkpoint = self.progress().watermark.allow(position);
        self.checkpointer.advance(checkpoint, 0);
    }

    async fn checkpoint_first(&self, batch: &Batch) -> Result<(), Leave> {
        let Some(position) = batch.through().cloned() else { return Ok(()) };
        self.advance(position, None, batch.len());
        self.status.doing(Activity::Checkpointing);
        tokio::select! {
            biased;
            leave = self.cut_off() => return Err(leave),
            () = self.checkpointer.flush() => {}
        }
        // Also where no checkpoint can be written any more.
        self.lease.fence().check().map_err(|_| Leave::Lost)
    }
}

impl Ledger for ShardScene {
    fn passed(&self, batch: &Batch, through: usize, records: usize, is_end: bool) {
        self.status.handed_out(batch, through, self.is_followed.load(Ordering::Relaxed));
        self.share.spend(records);
        if is_end {
            self.share.keep(0);
        }
        if self.options.delivery == Delivery::AtLeastOnce {
            self.pass(batch, through, records);
        }
    }
}
