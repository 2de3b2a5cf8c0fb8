//! Keeps a worker's share of the leases: scans, takes, renews, and hands each lease to the user.
//!
//! One loop owns all decisions. Each held lease has a keeper task that renews it, so that no renewal waits for a scan,
//! a shard listing or another lease.

mod keeper;
mod round;
mod sync;
mod take;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::sync::ShardSource;

use self::keeper::Kept;
use self::round::Memory;
use self::sync::Synced;
use crate::assignment::{Assignment, FairShare};
use crate::fence::Lost;
use crate::held::HeldLease;
use crate::metrics::Metrics;
use crate::options::{Invalid, Options};
use crate::recorder::Recorder;
use crate::store::{self, Store};
use crate::twin::Twin;
use crate::writer::{Surroundings, Writer};
use crate::{Clock, Lease, LeaseKey};

/// How much sooner or later than its interval a scan comes.
const JITTER: f64 = 0.25;

/// What happens to the user.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A lease was taken: run its shard.
    Held(HeldLease),
}

/// Why a worker's leases are not run any more.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The table cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Another process has this worker's id.
    #[error(transparent)]
    Twin(#[from] Twin),
}

/// Runs a worker's leases. See [`Coordinator::run`].
pub struct Coordinator {
    options: Options,
    surroundings: Surroundings,
    source: Arc<dyn ShardSource>,
    assignment: Box<dyn Assignment>,
    random: SmallRng,
    events: mpsc::Sender<Event>,
    wake: Arc<Notify>,
    table: watch::Sender<Arc<[Lease]>>,
    /// The leases that this worker runs, or whose old handle the user has not dropped yet.
    held: HashMap<LeaseKey, Arc<Writer>>,
    keepers: JoinSet<Kept>,
    keys: HashMap<Id, LeaseKey>,
    syncs: JoinSet<Result<Synced, sync::Error>>,
    memory: Memory,
    draining: CancellationToken,
    /// Whether any lease was ever held: then what fails has worked before, and may again.
    has_held: bool,
    /// The process that makes this one stop.
    twin: Option<Twin>,
    scan_fails: bool,
    take_fails: bool,
    sync_fails: bool,
}

/// Talks to a running coordinator. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    wake: Arc<Notify>,
    table: watch::Receiver<Arc<[Lease]>>,
}

// === impl Handle ===

impl Handle {
    /// Scans the table and looks for shards without a lease now: something has changed.
    pub fn sync_soon(&self) {
        self.wake.notify_one();
    }

    /// Returns when a scan has found leases: the table can be read, and the stream's shards are in it.
    pub async fn leased(&mut self) {
        // An error means that the coordinator has ended, which is told elsewhere.
        if self.table.wait_for(|leases| !leases.is_empty()).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// All leases as of the last scan.
    pub fn leases(&self) -> Arc<[Lease]> {
        self.table.borrow().clone()
    }
}

// === impl Coordinator ===

impl Coordinator {
    /// A coordinator, its handle, and where its leases come out. `seed` sets the jitter and the order of takes.
    ///
    /// # Errors
    /// If the options do not go together.
    pub fn new(
        options: Options,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        source: Arc<dyn ShardSource>,
        metrics: Metrics,
        seed: u64,
    ) -> Result<(Self, Handle, mpsc::Receiver<Event>), Invalid> {
        options.validate()?;
        let (events, receiver) = mpsc::channel(options.events);
        let (table, table_receiver) = watch::channel(Arc::from([]));
        let wake = Arc::new(Notify::new());
        let surroundings = Surroundings {
            store,
            clock,
            recorder: Recorder::new(metrics, &options.application),
            expiry: options.expiry,
            write_timeout: options.write_timeout,
            renewals: Arc::new(Semaphore::new(options.parallelism)),
        };
        let coordinator = Self {
            options,
            surroundings,
            source,
            assignment: Box::new(FairShare),
            random: SmallRng::seed_from_u64(seed),
            events,
            wake: wake.clone(),
            table,
            held: HashMap::new(),
            keepers: JoinSet::new(),
            keys: HashMap::new(),
            syncs: JoinSet::new(),
            memory: Memory::default(),
            draining: CancellationToken::new(),
            has_held: false,
            twin: None,
            scan_fails: false,
            take_fails: false,
            sync_fails: false,
        };
        Ok((coordinator, Handle { wake, table: table_receiver }, receiver))
    }

    /// Another rule for which leases to take.
    #[must_use]
    pub fn with_assignment(mut self, assignment: Box<dyn Assignment>) -> Self {
        self.assignment = assignment;
        self
    }

    /// Runs until `drain` is cancelled (or the receiver of events is dropped) and every lease is released or dropped:
    /// until then it goes on renewing them. Dropped before, it renews nothing any more, and fences close at their
    /// deadlines. The tables must be there ([`Store::ensure`]).
    ///
    /// # Errors
    /// [`RunError::Store`] if the first scan, the first new leases or the first takes show that the table cannot be used
    /// with these credentials; once that has worked, a store that fails is asked again for as long as it takes.
    /// [`RunError::Twin`], once every lease is let go, if another process uses the worker's id and has the better right
    /// to go on.
    pub async fn run(mut self, drain: CancellationToken) -> Result<(), RunError> {
        // Leases see the end at once, also while the loop is busy.
        self.draining = drain.child_token();
        let mut next_scan = Instant::now();
        let mut next_sync = Instant::now();
        loop {
            let is_draining = self.draining.is_cancelled();
            if is_draining {
                self.syncs.abort_all();
                if self.keepers.is_empty() {
                    return self.twin.map_or(Ok(()), |twin| Err(twin.into()));
                }
            }
            tokio::select! {
                () = drain.cancelled(), if !is_draining => {
                    tracing::info!(application = self.options.application, leases = self.held.len(), "draining");
                }
                () = self.events.closed(), if !is_draining => self.draining.cancel(),
                Some(kept) = self.keepers.join_next_with_id() => self.forget(kept),
                Some(synced) = self.syncs.join_next(), if !is_draining => {
                    if self.note_sync(synced)? {
                        next_scan = Instant::now();
                    }
                    if self.sync_fails {
                        next_sync = Instant::now() + self.options.scan_interval.min(self.options.sync_interval);
                    }
                }
                () = self.wake.notified(), if !is_draining => {
                    next_scan = Instant::now();
                    next_sync = next_scan;
                }
                () = tokio::time::sleep_until(next_scan), if !is_draining => {
                    let again_soon = self.round().await?;
                    next_scan = if again_soon { Instant::now() } else { Instant::now() + self.scan_pause() };
                    if !self.scan_fails && self.syncs.is_empty() && Instant::now() >= next_sync {
                        next_sync = Instant::now() + self.options.sync_interval;
                        self.start_sync();
                    }
                }
            }
        }
    }

    fn scan_pause(&mut self) -> Duration {
        self.options.scan_interval.mul_f64(self.random.random_range(1.0 - JITTER..=1.0 + JITTER))
    }

    /// A keeper has ended, and the user's handle is gone.
    fn forget(&mut self, kept: Result<(Id, Kept), JoinError>) {
        let (id, lost) = match kept {
            Ok((id, kept)) => (id, kept.lost),
            Err(error) => {
                // Without its keeper the lease is not renewed; let nobody run on until the deadline.
                let key = self.keys.get(&error.id());
                tracing::error!(lease = key.map(LeaseKey::as_str), %error, "the task that renews a lease has failed");
                (error.id(), Lost::Expired)
            }
        };
        let Some(key) = self.keys.remove(&id) else { return };
        if let Some(writer) = self.held.remove(&key) {
            writer.fence().trip(lost.clone());
        }
        if lost == Lost::Released {
            self.memory.let_go(key, self.surroundings.clock.now() + self.options.retake_delay);
        }
    }

    /// Runs a lease that was taken.
    fn hold(&mut self, writer: Writer, permit: mpsc::OwnedPermit<Event>) {
        self.has_held = true;
        let writer = Arc::new(writer);
        let key = writer.lease().key.clone();
        let draining = self.draining.child_token();
        let gone = CancellationToken::new();
        let keeper = keeper::keep(writer.clone(), self.options.renew_interval, draining.clone(), gone.clone());
        self.keys.insert(self.keepers.spawn(keeper).id(), key.clone());
        self.held.insert(key, writer.clone());
        permit.send(Event::Held(HeldLease::new(writer, draining, self.wake.clone(), gone)));
    }
}
