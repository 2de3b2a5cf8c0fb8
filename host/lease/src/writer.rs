//! The one writer of a held lease.
//!
//! Renewals, checkpoints and the end of a lease share its counter, so they go through one place, one after another.
//! It is also the only place that knows which of its writes may have been applied without an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shardmill_cause::Trouble;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;

use crate::change::{self, Change, Refused};
use crate::fence::{Fence, Lost};
use crate::recorder::Recorder;
use crate::store::{self, Store};
use crate::{Clock, Lease, LeaseEpoch, LeaseKey, Moment, WorkerId};

/// How often one write is tried before its caller is told. More than one is needed only after a lost answer.
const ATTEMPTS: usize = 4;
/// The part of the expiry that clocks may differ by.
const CLOCK_MARGIN: u32 = 50;
/// Stands for a throughput that nobody has measured.
const UNMEASURED: u64 = u64::MAX;
/// Below this many bytes a second throughputs do not differ.
const MEASURABLE: u64 = 100;
/// Before a last write (release, completion) is tried again: at first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

/// Why a held lease was not changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not held any more: whatever was being done for the shard must stop.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The change does not apply: the caller's mistake.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The store failed; the lease is still held.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// What writers of one coordinator share.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: Recorder,
    pub(crate) expiry: Duration,
    pub(crate) write_timeout: Duration,
    /// Leases that cannot be renewed.
    pub(crate) trouble: Arc<Trouble<LeaseKey>>,
    /// Bounds renewals at a time.
    pub(crate) renewals: Arc<Semaphore>,
}

/// Writes one lease, from one take of it to its end.
pub(crate) struct Writer {
    key: LeaseKey,
    worker: WorkerId,
    fence: Fence,
    surroundings: Surroundings,
    /// The row as last written or read.
    lease: watch::Sender<Arc<Lease>>,
    state: Mutex<State>,
    /// How much the shard carries, in bytes a second; [`UNMEASURED`] if that is not known.
    throughput: AtomicU64,
    /// The highest epoch that a write of ours may have given the row, whether or not its answer has come.
    reached: AtomicU64,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// When the first of the writes was sent that were computed from the row as it is known, and of which it is not
    /// known whether they were or will be applied. If the counter turns out to have moved, this is the earliest
    /// moment at which others may have seen it move.
    in_doubt: Option<Moment>,
    /// What the row is after a rewind that is in doubt: another epoch, and ours all the same.
    rewound: Option<Lease>,
}

/// What a row that was read again says about a write.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// It was applied.
    Applied,
    /// It was not, and the lease is still ours, as it stands in the row.
    Ours,
    /// The lease is not ours any more.
    Lost(Lost),
}

// === impl Error ===

impl Error {
    /// Whether trying again later can help: the lease is held, the store had a bad moment.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }
}

// === impl Surroundings ===

impl Surroundings {
    /// How long after sending a renewal its holder is sure of the lease. Others count the whole expiry, from a later
    /// moment, and by other clocks: clocks that run at different speeds, which is never by a hundredth of it, must not
    /// make two holders sure.
    pub(crate) fn sure(&self) -> Duration {
        self.expiry - self.expiry / CLOCK_MARGIN
    }

    /// A call that did not come back in time.
    pub(crate) fn no_answer(&self) -> store::Error {
        let source = Box::new(NoAnswer(self.write_timeout));
        store::Error::Unavailable { table: self.store.sidecar_table().to_owned(), source }
    }
}

// === impl Writer ===

impl Writer {
    /// For a lease that was just taken by a request sent at `sent`.
    pub(crate) fn new(lease: Lease, worker: WorkerId, sent: Moment, surroundings: Surroundings) -> Self {
        Self {
            reached: AtomicU64::new(lease.epoch.get()),
            key: lease.key.clone(),
            worker,
            fence: Fence::new(surroundings.clock.clone(), sent + surroundings.sure()),
            surroundings,
            lease: watch::Sender::new(Arc::new(lease)),
            state: Mutex::default(),
            throughput: AtomicU64::new(UNMEASURED),
        }
    }

    pub(crate) fn lease(&self) -> Arc<Lease> {
        self.lease.borrow().clone()
    }

    pub(crate) fn epoch(&self) -> LeaseEpoch {
        self.lease.borrow().epoch
    }

    /// The epoch that the row may have by what this writer has sent.
    pub(crate) fn reached(&self) -> LeaseEpoch {
        LeaseEpoch(self.reached.load(Ordering::SeqCst))
    }

    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    pub(crate) fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// When the last successful renewal was sent.
    pub(crate) fn renewed_at(&self) -> Moment {
        let deadline = self.fence.deadline().to_duration();
        Moment::since_origin(deadline.saturating_sub(self.surroundings.sure()))
    }

    /// Whether another worker is waiting for this one to let go.
    pub(crate) fn is_handing_off(&self) -> bool {
        let lease = self.lease.borrow();
        lease.checkpoint_owner.as_ref() == Some(&self.worker) && lease.owner.as_ref() != Some(&self.worker)
    }

    /// Renews, unless another write did so less than `fresh` ago. When it had been renewed before, if this has done it.
    pub(crate) async fn renew(&self, fresh: Duration) -> Result<Option<Moment>, Error> {
        let mut state = self.state.lock().await;
        let (change, before) = (self.renewal(), self.renewed_at());
        if change == Change::Renew && self.surroundings.clock.now().saturating_since(before) < fresh {
            return Ok(None);
        }
        // Asked for with the lock in hand: a renewal that waits behind a checkpoint keeps no other from being sent.
        let renewals = self.surroundings.renewals.clone();
        let _permit = renewals.acquire_owned().await;
        self.write_locked(&mut state, &change).await.map(|()| Some(before))
    }

    /// Notes how much the shard carries, for the next renewal.
    pub(crate) fn measured(&self, throughput: u64) {
        self.throughput.store(throughput.min(UNMEASURED - 1), Ordering::Relaxed);
    }

    /// Throughput is never still: it is written when it has gone somewhere else.
    fn renewal(&self) -> Change {
        let throughput = self.throughput.load(Ordering::Relaxed);
        let known = self.lease.borrow().throughput;
        let has_moved = known.is_none_or(|known| throughput.abs_diff(known) > known / 10 + MEASURABLE);
        if throughput != UNMEASURED && has_moved { Change::Measure { throughput } } else { Change::Renew }
    }

    /// Applies a change, once.
    pub(crate) async fn write(&self, change: &Change) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        self.write_locked(&mut state, change).await
    }

    /// Applies a change that nothing follows, for as long as the lease is held.
    pub(crate) async fn write_last(&self, change: &Change) -> Result<(), Error> {
        let (mut backoff, longest) = BACKOFF;
        loop {
            match self.write(change).await {
                Err(error) if error.is_transient() => {}
                result => return result,
            }
            tokio::time::sleep(backoff).await;
            backoff = longest.min(backoff * 2);
        }
    }

    /// Lets go. The fence is closed first: the next holder may start the moment the row is written.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        self.fence.trip(Lost::Released);
        match self.write_last(&Change::Release).await {
            // Whoever took it in between, it is let go.
            Ok(()) | Err(Error::Lost(Lost::Completed | Lost::Taken { .. } | Lost::Evicted | Lost::Deleted)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write_locked(&self, state: &mut State, change: &Change) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let known = self.lease();
            if self.is_done(&known, change) {
                return Ok(());
            }
            self.may_send(change)?;
            let predicted = change::apply(&known, change)?;
            let sent = self.surroundings.clock.now();
            // Noted before sending: the caller may be dropped while it waits for the answer.
            let before = state.clone();
            state.in_doubt.get_or_insert(sent);
            if predicted.epoch > known.epoch {
                self.reached.fetch_max(predicted.epoch.get(), Ordering::SeqCst);
                state.rewound = Some(predicted.clone());
            }
            let write = self.surroundings.store.write(&known, change);
            let answer = timeout(self.surroundings.write_timeout, write).await;
            let current = match answer {
                Ok(Ok(row)) => {
                    self.recorder().wrote(change.name(), "ok");
                    *state = State::default();
                    self.written(row, Some(sent));
                    return Ok(());
                }
                Err(_) | Ok(Err(store::Error::Unknown { .. })) => {
                    self.recorder().wrote(change.name(), "unknown");
                    None
                }
                Ok(Err(error)) => {
                    self.recorder().wrote(change.name(), error.name());
                    *state = before;
                    match error {
                        store::Error::Conflict { current, .. } => current,
                        store::Error::Refused { refused, .. } => return Err(Error::Refused(refused)),
                        error => return Err(Error::Store(error)),
                    }
                }
            };
            let row = match current {
                Some(row) => Some(*row),
                None => self.read_again().await?,
            };
            match judge(&known, &predicted, state.rewound.as_ref(), row.as_ref()) {
                Verdict::Applied => {
                    let earliest = std::mem::take(state).in_doubt;
                    self.written(row.unwrap_or(predicted), earliest);
                    return Ok(());
                }
                Verdict::Ours => {
                    let Some(row) = row else { continue };
                    if row.counter != known.counter {
                        // Whatever is still on its way was computed from the old counter, and comes to nothing.
                        *state = State::default();
                    }
                    self.lease.send_replace(Arc::new(row));
                }
                Verdict::Lost(lost) => {
                    self.fence.trip(lost.clone());
                    return Err(Error::Lost(lost));
                }
            }
        }
        let source = Box::new(ManyAttempts);
        Err(Error::Store(store::Error::Unavailable { table: "of leases".to_owned(), source }))
    }

    /// Whether an end that is asked for has been reached before.
    fn is_done(&self, known: &Lease, change: &Change) -> bool {
        match change {
            Change::Complete { .. } => known.is_complete(),
            Change::Release => known.writer() != Some(&self.worker),
            _ => false,
        }
    }

    /// Whether a request may be sent at this moment: the invariant "fenced".
    fn may_send(&self, change: &Change) -> Result<(), Lost> {
        match self.fence.check() {
            Err(Lost::Released) if *change == Change::Release => {
                let is_held = self.surroundings.clock.now() < self.fence.deadline();
                if is_held { Ok(()) } else { Err(Lost::Expired) }
            }
            result => result,
        }
    }

    fn written(&self, row: Lease, sent: Option<Moment>) {
        if row.is_complete() {
            self.fence.trip(Lost::Completed);
        } else if row.writer() != Some(&self.worker) {
            self.fence.trip(Lost::Released);
        } else if let Some(sent) = sent {
            self.fence.extend(sent + self.surroundings.sure());
        }
        self.lease.send_replace(Arc::new(row));
    }

    async fn read_again(&self) -> Result<Option<Lease>, store::Error> {
        match timeout(self.surroundings.write_timeout, self.surroundings.store.get(&self.key)).await {
            Ok(row) => row,
            Err(elapsed) => Err(store::Error::Unavailable { table: "of leases".to_owned(), source: Box::new(elapsed) }),
        }
    }

    fn recorder(&self) -> &Recorder {
        &self.surroundings.recorder
    }
}

/// A call that was given up.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct NoAnswer(Duration);

/// A row that moves under every attempt is no race any more, but somebody who uses our worker id.
#[derive(Debug, thiserror::Error)]
#[error("{ATTEMPTS} attempts in a row met a row that had moved")]
struct ManyAttempts;

/// What a row says about a write that would have made `predicted` of `known`, after a lost answer or a conflict.
///
/// One epoch has one holder, and only it moves the counter: a row of the same epoch and holder was written by us. So was
/// one that is as an earlier write of ours in doubt, a rewind, would have made it.
fn judge(known: &Lease, predicted: &Lease, rewound: Option<&Lease>, row: Option<&Lease>) -> Verdict {
    let Some(row) = row else { return Verdict::Lost(Lost::Deleted) };
    let same_writer = row.epoch == predicted.epoch && row.writer() == predicted.writer();
    let same_content = row.checkpoint == predicted.checkpoint
        && row.start_at == predicted.start_at
        && predicted.children.iter().all(|child| row.children.contains(child));
    if row.counter == predicted.counter && same_writer && same_content {
        return Verdict::Applied;
    }
    if row.epoch == known.epoch && row.writer() == known.writer() {
        return Verdict::Ours;
    }
    let is_rewound = |rewound: &Lease| {
        let of = |lease: &Lease| (lease.epoch, lease.counter, lease.start_at);
        of(row) == of(rewound) && row.writer() == rewound.writer() && row.checkpoint == rewound.checkpoint
    };
    if rewound.is_some_and(is_rewound) {
        return Verdict::Ours;
    }
    if row.is_complete() {
        return Verdict::Lost(Lost::Completed);
    }
    match row.writer() {
        Some(worker) => Verdict::Lost(Lost::Taken { by: worker.clone() }),
        None => Verdict::Lost(Lost::Evicted),
    }
}
