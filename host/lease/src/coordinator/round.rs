use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use rand::Rng;
use shardmill_cause::with_causes;
use tokio::time::timeout;

use super::Coordinator;
use super::take::{Attempt, take};
use crate::assignment::{Candidate, Choice, Standing, View};
use crate::fence::Lost;
use crate::observer::Observer;
use crate::store::{Error, InvalidRow, Listing};
use crate::twin::{Verdict, Watch};
use crate::writer::Writer;
use crate::{Lease, LeaseEpoch, LeaseKey, Moment};

/// A scan of a large table has many pages; one that takes longer than this hangs.
const SCAN_TIMEOUT: Duration = Duration::from_secs(60);

/// What a worker remembers of the table from scan to scan.
#[derive(Debug, Default)]
pub(super) struct Memory {
    observer: Observer,
    /// The epochs of leases that this process took, or tried to take without learning whether it did.
    epochs: HashMap<LeaseKey, HashSet<LeaseEpoch>>,
    /// The epochs of leases under this worker's id when it first looked: what an earlier run left.
    left_behind: Option<HashMap<LeaseKey, LeaseEpoch>>,
    /// Leases under this worker's id that are another process's.
    twins: Watch,
    /// Until when this worker leaves leases alone that it let go.
    barred: HashMap<LeaseKey, Moment>,
    /// Broken rows that were reported.
    reported: HashSet<LeaseKey>,
}

/// How a lease's parents stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parents {
    /// All are done, or gone long ago.
    Done,
    /// All that have a row are done; the next scan will tell whether the others have none.
    Unconfirmed,
    /// One is not done.
    Running,
}

// === impl Memory ===

impl Memory {
    /// This worker leaves a lease to others until then.
    pub(super) fn let_go(&mut self, key: LeaseKey, until: Moment) {
        self.barred.insert(key, until);
    }

    fn has_tried(&self, lease: &Lease) -> bool {
        has_tried(&self.epochs, lease)
    }

    fn tried(&mut self, key: &LeaseKey, epochs: impl IntoIterator<Item = LeaseEpoch>) {
        self.epochs.entry(key.clone()).or_default().extend(epochs);
    }

    /// Takes in a scan.
    fn observe(&mut self, now: Moment, listing: &Listing) {
        self.observer.observe(now, &listing.leases);
        let by_key: HashMap<&LeaseKey, &Lease> = listing.leases.iter().map(|lease| (&lease.key, lease)).collect();
        self.barred.retain(|_, until| *until > now);
        self.epochs.retain(|key, epochs| {
            // Epochs only grow: what is below the row's will not come back.
            by_key.get(key).is_some_and(|lease| {
                epochs.retain(|epoch| *epoch >= lease.epoch);
                !epochs.is_empty()
            })
        });
    }

    fn report(&mut self, invalid: &[InvalidRow], application: &str) {
        for row in invalid {
            if self.reported.insert(row.key.clone()) {
                tracing::error!(application, %row, "a broken lease is left alone: its shard is not processed; repair or delete the row");
            }
        }
        let still: HashSet<&LeaseKey> = invalid.iter().map(|row| &row.key).collect();
        self.reported.retain(|key| still.contains(key));
    }
}

// === impl Coordinator ===

impl Coordinator {
    /// Scans, takes what is due, and says whether the next scan should follow at once.
    pub(super) async fn round(&mut self) -> Result<bool, Error> {
        let sent = self.surroundings.clock.now();
        let listing = match timeout(SCAN_TIMEOUT, self.surroundings.store.list()).await {
            Ok(Ok(listing)) => listing,
            Ok(Err(error)) => return self.scan_failed(error),
            Err(elapsed) => {
                let table = "of leases".to_owned();
                return self.scan_failed(Error::Unavailable { table, source: Box::new(elapsed) });
            }
        };
        let now = self.surroundings.clock.now();
        if self.scan_fails {
            tracing::info!(application = self.options.application, "the lease table is read again");
            self.scan_fails = false;
        }
        self.memory.report(&listing.invalid, &self.options.application);
        self.memory.observe(now, &listing);
        self.trip_passed(&listing.leases);
        self.look_for_twins(&listing.leases, now);
        let (candidates, is_unconfirmed) = self.candidates(&listing, now);
        let view = View {
            me: &self.options.worker,
            candidates: &candidates,
            max: self.options.max_leases_per_worker,
            salt: self.random.random(),
        };
        let incomplete = candidates.iter().filter(|candidate| candidate.standing != Standing::Complete).count();
        let time = now.saturating_since(sent);
        self.surroundings.recorder.scanned(time, incomplete, listing.invalid.len(), view.live_workers());
        let choices = self.assignment.choose(&view);
        self.take_all(choices, &listing.leases).await?;
        self.table.send_replace(listing.leases.into());
        Ok(is_unconfirmed)
    }

    fn scan_failed(&mut self, error: Error) -> Result<bool, Error> {
        self.surroundings.recorder.scan_failed();
        let never_worked = self.table.borrow().is_empty() && self.held.is_empty();
        if never_worked && error.is_final() {
            return Err(error);
        }
        if !self.scan_fails {
            let (application, error) = (&self.options.application, with_causes(&error));
            tracing::warn!(application, error, "the lease table cannot be read; held leases are kept, none is taken");
        }
        self.scan_fails = true;
        Ok(false)
    }

    /// Closes the fences of leases that others were seen to have taken, sooner than the next renewal would.
    fn trip_passed(&self, leases: &[Lease]) {
        for lease in leases {
            let Some(writer) = self.held.get(&lease.key) else { continue };
            // A scan may be older than the last write, and epochs only grow.
            if lease.epoch > writer.lease().epoch {
                writer.fence().trip(lease.writer().map_or(Lost::Evicted, |by| Lost::Taken { by: by.clone() }));
            }
        }
    }

    /// How every lease stands, and whether one waits only for another scan.
    fn candidates(&self, listing: &Listing, now: Moment) -> (Vec<Candidate>, bool) {
        let broken = listing.invalid.iter().map(|row| (row.key.clone(), false));
        let done: HashMap<LeaseKey, bool> =
            broken.chain(listing.leases.iter().map(|lease| (lease.key.clone(), lease.is_complete()))).collect();
        let mut is_unconfirmed = false;
        let candidate = |lease: &Lease| {
            let parents = parents(lease, &done, self.memory.observer.is_confirmed(&lease.key));
            let standing = self.standing(lease, parents, now);
            is_unconfirmed |= standing == Standing::Waiting && parents == Parents::Unconfirmed;
            Candidate { key: lease.key.clone(), standing }
        };
        let run = listing.leases.iter().filter(|lease| self.source.runs(&lease.key));
        let candidates = run.map(candidate).collect();
        (candidates, is_unconfirmed)
    }

    fn standing(&self, lease: &Lease, parents: Parents, now: Moment) -> Standing {
        if lease.is_complete() {
            return Standing::Complete;
        }
        let me = &self.options.worker;
        let running = self.held.get(&lease.key);
        if running.is_some_and(|writer| writer.fence().check().is_ok()) {
            return Standing::Held;
        }
        let is_expired = self.memory.observer.is_expired(&lease.key, now, self.options.expiry);
        let is_own = lease.writer() == Some(me) && self.may_reclaim(lease);
        let standing = match lease.owner.as_ref().or(lease.checkpoint_owner.as_ref()) {
            None => Standing::Unowned,
            Some(_) if is_own => Standing::Own,
            Some(_) if is_expired => Standing::Expired,
            Some(owner) => return Standing::Live(owner.clone()),
        };
        // An old handle that the user has not dropped yet still runs the shard's task.
        let is_busy = running.is_some();
        if is_busy || self.memory.barred.contains_key(&lease.key) || parents != Parents::Done {
            return Standing::Waiting;
        }
        standing
    }

    /// Whether a lease that is this worker's in the table can be taken back at once: this process took it, or an
    /// earlier run left it that cannot be alive. What another process takes under this id later is left to it, or the two
    /// would take it back and forth.
    fn may_reclaim(&self, lease: &Lease) -> bool {
        let is_left = || {
            let left = self.memory.left_behind.as_ref().and_then(|left| left.get(&lease.key));
            left == Some(&lease.epoch)
        };
        self.memory.has_tried(lease) || (self.options.worker_runs_once && is_left())
    }

    /// Finds another process that uses this worker's id, and stops this one if it is the one to stop.
    fn look_for_twins(&mut self, leases: &[Lease], now: Moment) {
        let Self { options, memory, .. } = self;
        let me = &options.worker;
        memory.left_behind.get_or_insert_with(|| {
            let left = leases.iter().filter(|lease| lease.writer() == Some(me));
            left.map(|lease| (lease.key.clone(), lease.epoch)).collect()
        });
        let epochs = &memory.epochs;
        let is_own = |lease: &Lease| has_tried(epochs, lease);
        match memory.twins.observe(now, options.expiry, me, leases, is_own) {
            Verdict::Alone | Verdict::Known => {}
            Verdict::Gone => {
                let (application, worker) = (&options.application, me);
                tracing::info!(application, %worker, "no other process uses this worker's id any more");
            }
            Verdict::Found(twin) => {
                tracing::error!(
                    application = options.application, worker = %me, leases = twin.leases, lease = %twin.first,
                    "another process uses this worker's id; one of the two will stop: give each worker a `worker-id` of its own, or leave the key out"
                );
            }
            Verdict::Yield(twin) => {
                self.twin = Some(twin);
                self.draining.cancel();
            }
        }
    }

    async fn take_all(&mut self, choices: Vec<Choice>, leases: &[Lease]) -> Result<(), Error> {
        let by_key: HashMap<&LeaseKey, &Lease> = leases.iter().map(|lease| (&lease.key, lease)).collect();
        let (surroundings, worker) = (self.surroundings.clone(), self.options.worker.clone());
        let (events, draining) = (self.events.clone(), self.draining.clone());
        let takes = choices.into_iter().filter_map(|choice| Some((Lease::clone(by_key.get(&choice.key)?), choice.why)));
        let takes = takes.map(|(lease, why)| {
            let (surroundings, worker, events) = (&surroundings, &worker, events.clone());
            let draining = &draining;
            async move {
                // A lease that the user has no room to receive is left to others.
                let permit = events.try_reserve_owned().ok().filter(|_| !draining.is_cancelled())?;
                let key = lease.key.clone();
                Some((key, take(surroundings, worker, lease, why).await, permit))
            }
        });
        let mut attempts = stream::iter(takes.collect::<Vec<_>>()).buffer_unordered(self.options.parallelism);
        let mut first_failure = None;
        let mut is_any_taken = false;
        // Handed on as they come: the first lease's deadline runs while the last is being taken.
        while let Some(attempt) = attempts.next().await {
            let Some((key, Attempt { writer, in_doubt, failed }, permit)) = attempt else { continue };
            self.memory.tried(&key, in_doubt.into_iter().chain(writer.as_ref().map(Writer::epoch)));
            first_failure = first_failure.or(failed);
            if let Some(writer) = writer {
                is_any_taken = true;
                self.hold(writer, permit);
            }
        }
        match first_failure {
            Some(error) => self.takes_failed(error),
            None if is_any_taken && std::mem::take(&mut self.take_fails) => {
                tracing::info!(application = self.options.application, "leases can be taken again");
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn takes_failed(&mut self, error: Error) -> Result<(), Error> {
        if !self.has_held && error.is_final() {
            return Err(error);
        }
        if !std::mem::replace(&mut self.take_fails, true) {
            let (application, error) = (&self.options.application, with_causes(&error));
            tracing::warn!(application, error, "leases cannot be taken; trying on");
        }
        Ok(())
    }
}

/// Whether this process took a lease at the epoch that it has, or tried to without learning whether it did.
fn has_tried(epochs: &HashMap<LeaseKey, HashSet<LeaseEpoch>>, lease: &Lease) -> bool {
    epochs.get(&lease.key).is_some_and(|epochs| epochs.contains(&lease.epoch))
}

/// The invariant "parents-first".
fn parents(lease: &Lease, done: &HashMap<LeaseKey, bool>, is_confirmed: bool) -> Parents {
    let mut standing = Parents::Done;
    for parent in lease.parent_keys() {
        match done.get(&parent) {
            Some(true) => {}
            Some(false) => return Parents::Running,
            None if is_confirmed => {}
            None => standing = Parents::Unconfirmed,
        }
    }
    standing
}
