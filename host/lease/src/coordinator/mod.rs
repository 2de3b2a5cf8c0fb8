//! Keeps a worker's share of the leases: takes what it should have, renews it, and hands each lease to the user.
//!
//! One loop owns all decisions. Each held lease has a keeper task that renews it, and each lease that is being got hold
//! of has a task of its own, so that no renewal waits for a round, a shard listing or another lease. One worker of the
//! fleet leads: it looks at the whole table and says who should have what ([`crate::balance`]), looks for shards without
//! a lease, and clears away what is done.

mod acquire;
mod handle;
mod keeper;
mod lead;
mod member;
mod post;
mod round;
mod scanner;
mod sync;
mod take;
mod vet;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shardmill_cause::{Coded, Trouble, with_causes};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::handle::{Handle, TableTrouble, View};
pub use self::sync::{ShardSource, Survey};
pub use self::vet::ForeignWorker;

use self::acquire::{Acquirer, Order, Reason};
use self::keeper::{Kept, Pace};
use self::member::Membership;
use self::post::{Identity, Post};
use self::scanner::Scanner;
use self::take::Attempt;
use crate::balance::{Balance, Even};
use crate::bell::Bell;
use crate::fence::Lost;
use crate::fleet;
use crate::held::HeldLease;
use crate::metrics::Metrics;
use crate::options::{Invalid, Options};
use crate::recorder::Recorder;
use crate::store::{self, Store};
use crate::twin::Twin;
use crate::writer::{Surroundings, Writer};
use crate::{Clock, LeaseEpoch, LeaseKey, Moment};

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
    /// Another system works on the table.
    #[error(transparent)]
    Foreign(#[from] ForeignWorker),
}

/// Runs a worker's leases. See [`Coordinator::run`].
pub struct Coordinator {
    options: Options,
    me: Identity,
    surroundings: Surroundings,
    source: Arc<dyn ShardSource>,
    balance: Arc<dyn Balance>,
    random: SmallRng,
    events: mpsc::Sender<Event>,
    bell: Arc<Bell>,
    view: watch::Sender<View>,
    membership: Membership,
    leader: Post,
    deputy: Post,
    scanner: Scanner,
    rounds: round::Rounds,
    /// The leases that this worker runs, or whose old handle the user has not dropped yet.
    held: HashMap<LeaseKey, Arc<Writer>>,
    keepers: JoinSet<Kept>,
    keys: HashMap<Id, LeaseKey>,
    /// Leases that are being got hold of.
    acquiring: HashMap<Id, LeaseKey>,
    acquisitions: JoinSet<Acquired>,
    /// Bounds what acquisitions ask of the store at a time.
    takes: Arc<Semaphore>,
    /// The epochs of leases that this process took, or tried to take without learning whether it did, and does not run.
    epochs: BTreeMap<LeaseKey, HashSet<LeaseEpoch>>,
    /// Until when this worker leaves leases alone that it let go.
    barred: HashMap<LeaseKey, Moment>,
    syncs: JoinSet<Result<sync::Synced, sync::Error>>,
    sync: sync::State,
    /// Cancelled when the worker begins to leave.
    leaving: CancellationToken,
    leave_at: Option<Instant>,
    /// Cancelled when every lease is to be let go.
    draining: CancellationToken,
    /// Whether any lease was ever held: then what fails has worked before, and may again.
    has_held: bool,
    /// The process that makes this one stop.
    twin: Option<Twin>,
    /// Why leases cannot be taken, and when that was seen last.
    take_fails: Option<(TableTrouble, Moment)>,
}

/// What an acquisition ends with.
struct Acquired {
    /// Nothing, if nothing could be learnt of the lease.
    attempt: Option<Attempt>,
    permit: mpsc::OwnedPermit<Event>,
}

// === impl Coordinator ===

impl Coordinator {
    /// A coordinator, its handle, and where its leases come out. `seed` sets the jitter and which of equal leases move.
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
        let (view, view_receiver) = watch::channel(View::default());
        let bell = Arc::new(Bell::default());
        let mut random = SmallRng::seed_from_u64(seed);
        let surroundings = Surroundings {
            store,
            clock,
            recorder: Recorder::new(metrics, &options.application),
            expiry: options.expiry,
            write_timeout: options.write_timeout,
            trouble: Arc::new(Trouble::new(options.renew_interval / 2)),
            renewals: Arc::new(Semaphore::new(options.parallelism)),
        };
        let me = Identity {
            worker: options.worker.clone(),
            run: format!("{:016x}", random.random::<u64>()),
            runs_once: options.worker_runs_once,
        };
        let coordinator = Self {
            me,
            source,
            balance: Arc::new(Even { moves: options.moves }),
            events,
            bell: bell.clone(),
            view,
            membership: Membership::default(),
            leader: Post::new(fleet::LEADER),
            deputy: Post::new(fleet::DEPUTY),
            scanner: Scanner::new(random.random()),
            rounds: round::Rounds::new(surroundings.clock.now()),
            held: HashMap::new(),
            keepers: JoinSet::new(),
            keys: HashMap::new(),
            acquiring: HashMap::new(),
            acquisitions: JoinSet::new(),
            takes: Arc::new(Semaphore::new(options.parallelism)),
            epochs: BTreeMap::new(),
            barred: HashMap::new(),
            syncs: JoinSet::new(),
            sync: sync::State::default(),
            leaving: CancellationToken::new(),
            leave_at: None,
            draining: CancellationToken::new(),
            has_held: false,
            twin: None,
            take_fails: None,
            surroundings,
            random,
            options,
        };
        Ok((coordinator, Handle { bell, view: view_receiver }, receiver))
    }

    /// Another rule for who should have which lease.
    #[must_use]
    pub fn with_balance(mut self, balance: Arc<dyn Balance>) -> Self {
        self.balance = balance;
        self
    }

    /// Runs until `drain` is cancelled (or the receiver of events is dropped) and every lease is let go: until then it
    /// goes on renewing them. A worker that is told to drain first lets others take its leases over one by one, for as
    /// long as [`Options::leave_timeout`] at most, and then drains what is left; where nobody else is, it drains at once.
    /// Dropped before, it renews nothing any more, and fences close at their deadlines. The tables must be there
    /// ([`Store::ensure`]).
    ///
    /// # Errors
    /// [`RunError::Store`] if the first round, the first new leases or the first takes show that the table cannot be used
    /// with these credentials; once that has worked, a store that fails is asked again for as long as it takes.
    /// [`RunError::Twin`], once every lease is let go, if another process uses the worker's id and has the better right
    /// to go on.
    pub async fn run(mut self, drain: CancellationToken) -> Result<(), RunError> {
        let mut next_round = Instant::now();
        loop {
            let is_leaving = self.leaving.is_cancelled();
            let is_draining = self.draining.is_cancelled();
            self.show_standing();
            if is_leaving && self.keepers.is_empty() && self.acquisitions.is_empty() {
                self.resign().await;
                return self.twin.map_or(Ok(()), |twin| Err(twin.into()));
            }
            // In this order, so that a simulation of one seed is the same every time.
            tokio::select! {
                biased;
                () = drain.cancelled(), if !is_leaving => {
                    tracing::info!(
                        application = self.options.application, leases = self.held.len(),
                        "leaving: others take the leases over while this worker goes on, and what is left is let go"
                    );
                    self.leave();
                    next_round = Instant::now();
                }
                () = tokio::time::sleep_until(self.leave_at.unwrap_or(next_round)), if self.leave_at.is_some() && !is_draining => {
                    self.drain();
                }
                () = self.events.closed(), if !is_draining => {
                    self.leave();
                    self.drain();
                }
                Some(kept) = self.keepers.join_next_with_id() => self.forget(kept),
                Some(acquired) = self.acquisitions.join_next_with_id() => self.acquired(acquired)?,
                Some(synced) = self.syncs.join_next(), if !is_draining => {
                    if self.note_sync(synced)? {
                        next_round = Instant::now();
                    }
                }
                children = self.bell.rung(), if !is_draining => {
                    for key in children {
                        self.start_acquiring(Order {
                            key,
                            reason: Reason::Child,
                            from: None,
                            own_epochs: HashSet::new(),
                            row: None,
                        });
                    }
                    self.sync.make_due();
                    next_round = Instant::now();
                }
                () = tokio::time::sleep_until(next_round), if !is_draining => {
                    let again_soon = self.round().await?;
                    next_round = if again_soon { Instant::now() } else { Instant::now() + self.pause() };
                    self.start_sync_if_due();
                }
            }
        }
    }

    /// Begins to leave: others are asked to take over, and this worker takes nothing more.
    fn leave(&mut self) {
        self.leaving.cancel();
        self.leave_at = Some(Instant::now() + self.options.leave_timeout);
    }

    /// Lets everything go.
    fn drain(&mut self) {
        self.draining.cancel();
        self.syncs.abort_all();
    }

    /// Leaves nothing behind that others would have to wait for.
    async fn resign(&mut self) {
        let Self { surroundings, me, membership, leader, deputy, .. } = self;
        tokio::join!(membership.leave(surroundings, me), leader.resign(surroundings), deputy.resign(surroundings));
    }

    /// Begins to get hold of a lease, unless that is under way, or this worker must leave it alone.
    fn start_acquiring(&mut self, order: Order) {
        let now = self.surroundings.clock.now();
        self.barred.retain(|_, until| *until > now);
        let wanted = self.held.len() + self.acquiring.len();
        let has_room = self.options.max_leases_per_worker.is_none_or(|max| wanted < max);
        // An old handle that the user has not dropped yet still runs the shard's task.
        let is_busy = self.held.contains_key(&order.key) || self.acquiring.values().any(|key| *key == order.key);
        let is_run = self.source.runs(&order.key);
        if is_busy || !has_room || !is_run || self.barred.contains_key(&order.key) || self.leaving.is_cancelled() {
            return;
        }
        // A lease that the user has no room to receive is left to others.
        let Ok(permit) = self.events.clone().try_reserve_owned() else { return };
        let acquirer = Acquirer {
            surroundings: self.surroundings.clone(),
            worker: self.options.worker.clone(),
            renew_interval: self.options.renew_interval,
            hand_off_timeout: self.options.hand_off_timeout,
            draining: self.draining.clone(),
            takes: self.takes.clone(),
        };
        let key = order.key.clone();
        let acquiring = self.acquisitions.spawn(async move {
            let attempt = acquirer.acquire(order).await;
            Acquired { attempt, permit }
        });
        self.acquiring.insert(acquiring.id(), key);
    }

    fn acquired(&mut self, acquired: Result<(Id, Acquired), JoinError>) -> Result<(), store::Error> {
        let (id, Acquired { attempt, permit }) = match acquired {
            Ok(acquired) => acquired,
            Err(error) => {
                let key = self.acquiring.remove(&error.id());
                tracing::error!(lease = key.as_ref().map(LeaseKey::as_str), %error, "the task that takes a lease has failed");
                return Ok(());
            }
        };
        let Some(key) = self.acquiring.remove(&id) else { return Ok(()) };
        let Some(Attempt { writer, in_doubt, failed, .. }) = attempt else { return Ok(()) };
        match writer {
            Some(writer) => {
                self.epochs.remove(&key);
                self.hold(writer, permit);
                if self.take_fails.take().is_some() {
                    tracing::info!(application = self.options.application, "leases can be taken again");
                }
            }
            None if in_doubt.is_empty() => {
                self.epochs.remove(&key);
            }
            None => {
                self.epochs.insert(key, in_doubt.into_iter().collect());
            }
        }
        failed.map_or(Ok(()), |error| self.take_failed(error))
    }

    fn take_failed(&mut self, error: store::Error) -> Result<(), store::Error> {
        if !self.has_held && error.is_final() {
            return Err(error);
        }
        let (now, reason) = (self.surroundings.clock.now(), with_causes(&error));
        if self.take_fails.is_none() {
            tracing::warn!(application = self.options.application, error = reason, code = %error.code(), "leases cannot be taken; trying on");
        }
        let since = self.take_fails.as_ref().map_or(now, |(trouble, _)| trouble.since);
        self.take_fails = Some((TableTrouble { since, reason }, now));
        Ok(())
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
        let Some(writer) = self.held.remove(&key) else { return };
        writer.fence().trip(lost.clone());
        match lost {
            Lost::Released => {
                self.barred.insert(key, self.surroundings.clock.now() + self.options.retake_delay);
            }
            // It may still be this worker's in the table, and then nobody else can know that it does not run.
            Lost::Expired => {
                self.epochs.entry(key).or_default().insert(writer.epoch());
                self.bell.ring(Vec::new());
            }
            _ => {}
        }
    }

    /// Runs a lease that was taken.
    fn hold(&mut self, writer: Writer, permit: mpsc::OwnedPermit<Event>) {
        self.has_held = true;
        let writer = Arc::new(writer);
        let key = writer.lease().key.clone();
        let draining = self.draining.child_token();
        let gone = CancellationToken::new();
        let pace = Pace { interval: self.options.renew_interval, leaving: self.leaving.clone() };
        let by = Arc::new(OnceLock::new());
        let hand_off = keeper::HandOff { timeout: self.options.hand_off_timeout, by: Arc::clone(&by) };
        let keeper = keeper::keep(writer.clone(), pace, draining.clone(), hand_off, gone.clone());
        self.keys.insert(self.keepers.spawn(keeper).id(), key.clone());
        self.held.insert(key, writer.clone());
        permit.send(Event::Held(HeldLease::new(writer, draining, by, self.bell.clone(), gone)));
    }
}
