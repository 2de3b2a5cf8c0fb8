use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shardmill_record::Checkpoint;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::bell::Bell;
use crate::change::{Change, Restart};

use crate::fence::{Fence, Lost};
use crate::writer::{Error, Writer};
use crate::{Lease, Moment, NewLease};

/// Before a child's lease that could not be created is tried again.
const CREATE_BACKOFF: Duration = Duration::from_millis(500);

/// A lease that this worker holds: the right to run its shard, until the fence says otherwise.
///
/// The coordinator renews it. Dropping it lets it go as [`release`](Self::release) does, without telling the
/// result; this worker does not take the lease again before it is dropped, so two tasks never run one shard.
pub struct HeldLease {
    writer: Arc<Writer>,
    draining: CancellationToken,
    /// Until when a hand-off waits.
    hand_off_by: Arc<OnceLock<Moment>>,
    bell: Arc<Bell>,
    /// Tells the coordinator that the user is done. Dropped last.
    _gone: DropGuard,
}

// === impl HeldLease ===

impl HeldLease {
    pub(crate) fn new(
        writer: Arc<Writer>,
        draining: CancellationToken,
        hand_off_by: Arc<OnceLock<Moment>>,
        bell: Arc<Bell>,
        gone: CancellationToken,
    ) -> Self {
        Self { writer, draining, hand_off_by, bell, _gone: gone.drop_guard() }
    }

    /// The lease as last written.
    pub fn lease(&self) -> Arc<Lease> {
        self.writer.lease()
    }

    /// What to ask before every request for the shard.
    pub fn fence(&self) -> Fence {
        self.writer.fence().clone()
    }

    /// Resolves when the lease is to be let go: finish or abort what is under way, checkpoint, release.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Whether the lease is to be let go.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// How much time there is before another worker takes the lease without asking, at most `longest`. What a hand-off has
    /// taken before this worker has seen it is not known to the millisecond.
    pub fn time_left(&self, longest: Duration) -> Duration {
        let now = self.writer.surroundings().clock.now();
        self.hand_off_by.get().map_or(longest, |by| longest.min(by.saturating_since(now)))
    }

    /// Moves the checkpoint to a position: everything up to and including it is done.
    ///
    /// # Errors
    /// [`Error::Lost`] ends the lease; after an error that [is transient](Error::is_transient), the checkpoint may
    /// be in the table or not, and a later one makes it good.
    pub async fn checkpoint(&self, to: Checkpoint) -> Result<(), Error> {
        self.writer.write(&Change::Checkpoint { to }).await
    }

    /// Notes how much the shard carries, in bytes a second: the next renewal writes it, for balancing by throughput.
    pub fn measured(&self, throughput: u64) {
        self.writer.measured(throughput);
    }

    /// Fixes the time at which a lease without a position starts, in milliseconds since 1970. Once.
    pub async fn set_start_at(&self, at: u64) -> Result<(), Error> {
        self.writer.write(&Change::SetStart { at }).await
    }

    /// Lets the shard begin somewhere else, before or behind its checkpoint, by an operator's order. Repeats what fails in
    /// passing, for as long as the lease is held. The epoch has grown when this returns; a checkpoint that was computed
    /// before must not be written after it.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lease was lost before it was known whether the table took it.
    pub async fn rewind(&self, to: Restart) -> Result<(), Error> {
        self.writer.write_last(&Change::Rewind { to }).await
    }

    /// Ends the lease because its shard is done: creates the children's leases, then writes `SHARD_END`, in this
    /// order, so that a crash in between loses no child. Repeats what fails in passing, for as long as the lease is
    /// held. May be called again after an error.
    pub async fn complete(&self, children: &[NewLease]) -> Result<(), Error> {
        if self.writer.lease().is_complete() {
            return Ok(());
        }
        let mut shards = Vec::with_capacity(children.len());
        for child in children {
            self.create(child).await?;
            shards.extend(child.key.shard_id());
        }
        self.writer.write_last(&Change::Complete { children: shards }).await?;
        self.bell.ring(children.iter().map(|child| child.key.clone()).collect());
        Ok(())
    }

    /// Lets the lease go, so that another worker can take it at its next scan. The fence closes before anything is
    /// sent.
    ///
    /// # Errors
    /// If it could not be written before the lease's deadline: then others take it when it has expired.
    pub async fn release(&self) -> Result<(), Error> {
        self.writer.release().await
    }

    async fn create(&self, child: &NewLease) -> Result<(), Error> {
        let surroundings = self.writer.surroundings();
        loop {
            self.writer.fence().check()?;
            match tokio::time::timeout(surroundings.write_timeout, surroundings.store.create(child)).await {
                Ok(Ok(created)) => {
                    if created {
                        surroundings.recorder.created();
                        let parent = &self.writer.lease().key;
                        tracing::info!(lease = %child.key, %parent, checkpoint = %child.checkpoint, "lease created");
                    }
                    return Ok(());
                }
                Ok(Err(error)) if !error.is_transient() => return Err(error.into()),
                Ok(Err(_)) | Err(_) => tokio::time::sleep(CREATE_BACKOFF).await,
            }
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.writer.fence().trip(Lost::Released);
    }
}

impl fmt::Debug for HeldLease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("HeldLease");
        debug.field("lease", &self.lease()).field("fence", self.writer.fence()).finish()
    }
}
