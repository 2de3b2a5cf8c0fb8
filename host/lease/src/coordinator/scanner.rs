//! What the leader and its deputy know of the whole table, and what the leader makes of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use shardmill_cause::{Coded, code};
use shardmill_record::Checkpoint;
use tokio::time::timeout;

use super::ShardSource;
use crate::audit::{Hole, ListedShard, audit};
use crate::balance::{Assigned, Balance, Member, Place, Seat, View, Why};
use crate::fleet::{self, FLEET, Plan, Planned, Pulse, WorkerRow};
use crate::observer::Observer;
use crate::settling::Settling;
use crate::store::{Document, Error, InvalidRow, Listing};
use crate::writer::Surroundings;
use crate::{Lease, LeaseEpoch, LeaseKey, Moment, Options, WorkerId};

/// A scan of a large table has many pages; one that takes longer than this hangs.
const SCAN_TIMEOUT: Duration = Duration::from_secs(60);
/// A worker that has been gone for so many expiries is forgotten, with its plan.
const FORGET_AFTER: u32 = 3;
/// The most leases that one plan names: a document has its bounds, and what is left comes with the next.
const PLAN: usize = 1000;
/// For how many expiries nobody must have got on with a shard before that is told: a lease may change hands.
const HOLE_AFTER: u32 = 3;

/// What is remembered from scan to scan.
#[derive(Debug)]
pub(super) struct Scanner {
    observer: Observer,
    pulse: Pulse,
    settling: Settling,
    /// Who had each lease in the scan before.
    owners: HashMap<LeaseKey, WorkerId>,
    /// Who held each lease first at its epoch. Until the epoch moves, an owner that is another one was handed the lease and
    /// has not taken it; when the holder has let go, nobody runs it.
    holders: HashMap<LeaseKey, (LeaseEpoch, WorkerId)>,
    /// Leases that were let go, by whom and when.
    let_go: HashMap<LeaseKey, (WorkerId, Moment)>,
    /// Free leases that were given to a worker, and since when it has not taken them.
    pending: HashMap<LeaseKey, (WorkerId, Moment)>,
    /// Broken rows that were reported.
    reported: HashSet<LeaseKey>,
    /// Workers of no fleet that were reported.
    strangers: HashSet<WorkerId>,
    /// What was wrong with open shards in the last scan, and since when.
    holes: HashMap<(LeaseKey, LeaseKey), Moment>,
    /// The same for as long as this worker leads, so that a plan stays what it was.
    salt: u64,
}

/// One look at everything.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) listing: Listing,
    /// Leases that are left alone.
    pub(super) others: Vec<Lease>,
    pub(super) documents: BTreeMap<String, Document>,
    pub(super) now: Moment,
    pub(super) took: Duration,
}

/// What came of a scan.
#[derive(Debug, Default)]
pub(super) struct Assignments {
    pub(super) plans: BTreeMap<WorkerId, Plan>,
    pub(super) members: usize,
    /// A lease waits only for another scan.
    pub(super) is_unconfirmed: bool,
}

/// A worker of another system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stranger<'a> {
    pub(super) holder: &'a WorkerId,
    pub(super) lease: &'a LeaseKey,
    pub(super) is_alive: bool,
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

/// Reads both tables.
/// Leases that are not run are left out: nothing of this consumer is about them.
pub(super) async fn scan(surroundings: &Surroundings, source: &dyn ShardSource) -> Result<Scan, Error> {
    let sent = surroundings.clock.now();
    let both = async { tokio::try_join!(surroundings.store.list(), surroundings.store.documents(FLEET)) };
    let hangs = |elapsed| Error::Unavailable { table: "of leases".to_owned(), source: Box::new(elapsed) };
    let (mut listing, documents) = timeout(SCAN_TIMEOUT, both).await.map_err(hangs)??;
    listing.invalid.retain(|row| source.runs(&row.key));
    let (leases, others) = listing.leases.into_iter().partition(|lease| source.runs(&lease.key));
    let listing = Listing { leases, ..listing };
    let now = surroundings.clock.now();
    Ok(Scan { listing, others, documents, now, took: now.saturating_since(sent) })
}

// === impl Scanner ===

impl Scanner {
    pub(super) fn new(salt: u64) -> Self {
        Self {
            observer: Observer::default(),
            pulse: Pulse::default(),
            settling: Settling::default(),
            owners: HashMap::new(),
            holders: HashMap::new(),
            let_go: HashMap::new(),
            pending: HashMap::new(),
            reported: HashSet::new(),
            strangers: HashSet::new(),
            holes: HashMap::new(),
            salt,
        }
    }

    /// Takes in a scan. The deputy does this alone, so that it need not wait anew when it becomes the leader.
    pub(super) fn observe(&mut self, scan: &Scan, options: &Options) {
        let Scan { listing, documents, now, .. } = scan;
        self.observer.observe(*now, &listing.leases);
        self.pulse.observe(*now, documents.iter().map(|(key, document)| (key.as_str(), document.version)));
        let mut owners = HashMap::with_capacity(listing.leases.len());
        let mut holders = HashMap::with_capacity(listing.leases.len());
        for lease in &listing.leases {
            let owner_before = self.owners.remove(&lease.key);
            let holder_before = self.holders.remove(&lease.key).filter(|(epoch, _)| *epoch == lease.epoch);
            let (Some(owner), Some(writer)) = (&lease.owner, lease.writer()) else {
                if let Some(before) = owner_before {
                    self.let_go.insert(lease.key.clone(), (before, *now));
                }
                continue;
            };
            owners.insert(lease.key.clone(), owner.clone());
            holders.insert(lease.key.clone(), holder_before.unwrap_or_else(|| (lease.epoch, writer.clone())));
        }
        self.owners = owners;
        self.holders = holders;
        let is_recent = |since: Moment| now.saturating_since(since) < options.retake_delay;
        self.let_go.retain(|_, (_, since)| is_recent(*since));
        self.report(&listing.invalid, &options.application);
    }

    /// Who should take what. `ShardEnd`s, parents and expiries are judged here; the balance is the rule's.
    /// `listed`: the shards that the stream lists, if that is known.
    pub(super) fn assign(
        &mut self,
        scan: &Scan,
        listed: Option<&[ListedShard]>,
        balance: &dyn Balance,
        options: &Options,
    ) -> Assignments {
        let now = scan.now;
        let members = self.members(scan, options);
        let (seats, is_unconfirmed) = self.seats(scan, listed, &members, options);
        let is_settled = self.settling.observe(now, &members, options.scan_interval, options.settle_time);
        let assigned = balance.assign(&View { members: &members, seats: &seats, is_settled, salt: self.salt });
        self.note_pending(&assigned, now);
        let rows: HashMap<&LeaseKey, &Lease> = scan.listing.leases.iter().map(|lease| (&lease.key, lease)).collect();
        let is_last = members.iter().all(|member| member.is_leaving);
        let mut plans: BTreeMap<WorkerId, Plan> =
            members.iter().map(|member| (member.worker.clone(), Plan { take: Vec::new(), is_last })).collect();
        // What is on its way is planned on, for a worker that has lost sight of it.
        let on_the_way = seats.iter().filter_map(|seat| match &seat.place {
            Place::OnTheWay(to) => Some(Assigned { key: seat.key.clone(), to: to.clone(), why: Why::Balance }),
            _ => None,
        });
        for Assigned { key, to, why } in assigned.into_iter().chain(on_the_way) {
            let (Some(row), Some(plan)) = (rows.get(&key), plans.get_mut(&to)) else { continue };
            if row.checkpoint_owner.as_ref() == Some(&to) && why != Why::Expired {
                // It holds the lease, and whom it was to go to has gone: it is free when it has let go. What has expired it
                // holds no more.
                continue;
            }
            if plan.take.len() < PLAN {
                plan.take.push(Planned {
                    key: key.as_str().to_owned(),
                    counter: row.counter,
                    epoch: row.epoch,
                    from: row.owner.as_ref().map(ToString::to_string),
                    why,
                });
            }
        }
        Assignments { plans, members: members.len(), is_unconfirmed }
    }

    /// Open shards that nobody has got on with for long.
    pub(super) fn holes(&mut self, scan: &Scan, listed: &[ListedShard], options: &Options) -> Vec<Hole> {
        let unreadable = scan.listing.invalid.iter().map(|row| row.key.clone()).collect();
        let is_attended =
            |lease: &Lease| lease.owner.is_some() && !self.observer.is_expired(&lease.key, scan.now, options.expiry);
        let mut holes = audit(listed, &scan.listing.leases, &unreadable, is_attended);
        let before = std::mem::take(&mut self.holes);
        holes.retain(|hole| {
            let at = (hole.shard.clone(), hole.lease.clone());
            let since = *self.holes.entry(at.clone()).or_insert_with(|| before.get(&at).copied().unwrap_or(scan.now));
            scan.now.saturating_since(since) >= options.expiry * HOLE_AFTER
        });
        holes
    }

    /// Whether the holder of a lease may be dead: it was not seen to renew it, or not for longer than it takes.
    pub(super) fn is_doubtful(&self, key: &LeaseKey, now: Moment, options: &Options) -> bool {
        let late = (options.renew_interval + options.scan_interval * 2).min(options.expiry);
        !self.observer.has_moved(key) || self.observer.is_expired(key, now, late)
    }

    /// When the next lease expires unless it moves before.
    pub(super) fn next_expiry(&self, leases: &[Lease], now: Moment, expiry: Duration) -> Option<Moment> {
        let held = leases.iter().filter(|lease| lease.owner.is_some() && !lease.is_complete());
        held.filter_map(|lease| self.observer.expires_at(&lease.key, expiry)).filter(|at| *at > now).min()
    }

    /// A worker that holds a lease and is not of this fleet, and whether it was seen to renew it: another system works on
    /// the table.
    pub(super) fn stranger<'a>(&self, scan: &'a Scan) -> Option<Stranger<'a>> {
        let held = scan.listing.leases.iter().filter(|lease| !lease.is_complete());
        let strangers = held.filter_map(|lease| Some((lease, lease.writer()?)));
        let mut strangers = strangers.filter(|(_, holder)| !scan.documents.contains_key(&fleet::worker_key(holder)));
        let first = strangers.next()?;
        let moved = |(lease, _): &(&Lease, &WorkerId)| self.observer.has_moved(&lease.key);
        let alive = std::iter::once(first).chain(strangers).find(moved);
        let (lease, holder) = alive.unwrap_or(first);
        Some(Stranger { holder, lease: &lease.key, is_alive: alive.is_some() })
    }

    /// Tells once of workers of other systems that live beside this fleet.
    pub(super) fn report_stranger(&mut self, scan: &Scan, application: &str) {
        let Some(Stranger { holder, lease, is_alive: true }) = self.stranger(scan) else { return };
        if self.strangers.insert(holder.clone()) {
            tracing::warn!(
                application, worker = %holder, %lease, code = %code::lease::FOREIGN,
                "a worker that is none of Shardmill's renews leases of this table; its leases are left to it"
            );
        }
    }

    /// Documents of workers that have been gone for long.
    pub(super) fn forgotten<'a>(&self, scan: &'a Scan, options: &Options) -> Vec<(&'a str, u64)> {
        let leases = scan.listing.leases.iter();
        let renewed = leases.filter(|lease| !self.observer.is_expired(&lease.key, scan.now, options.expiry));
        // One that renews leases lives, whatever keeps it from writing its row; without a row it would seem to be a
        // worker of another system.
        let holders: HashSet<&WorkerId> = renewed.filter_map(Lease::writer).collect();
        let lives = |worker: &WorkerId| {
            let still = self.pulse.still(&fleet::worker_key(worker), scan.now);
            holders.contains(worker) || still.is_some_and(|still| still < options.expiry * FORGET_AFTER)
        };
        let worker = |key: &str| fleet::worker_of(key).or_else(|| fleet::planned_for(key));
        let gone = scan.documents.iter().filter(|(key, _)| worker(key).is_some_and(|worker| !lives(&worker)));
        gone.map(|(key, document)| (key.as_str(), document.version)).collect()
    }

    fn members(&self, scan: &Scan, options: &Options) -> Vec<Member> {
        let member = |(key, document): (&String, &Document)| {
            let worker = fleet::worker_of(key)?;
            let row: WorkerRow = fleet::read(document)?;
            let lives = self.pulse.is_alive(key, scan.now, options.expiry, options.renew_interval);
            let WorkerRow { is_leaving, joined, generation, max, .. } = row;
            lives.then_some(Member { worker, is_leaving, joined, generation, max })
        };
        scan.documents.iter().filter_map(member).collect()
    }

    fn seats(
        &self,
        scan: &Scan,
        listed: Option<&[ListedShard]>,
        members: &[Member],
        options: &Options,
    ) -> (Vec<Seat>, bool) {
        let listed: Option<HashSet<&LeaseKey>> = listed.map(|listed| listed.iter().map(|shard| &shard.key).collect());
        let stays: HashSet<&WorkerId> =
            members.iter().filter(|member| !member.is_leaving).map(|member| &member.worker).collect();
        let broken = scan.listing.invalid.iter().map(|row| (row.key.clone(), false));
        let done: HashMap<LeaseKey, bool> =
            broken.chain(scan.listing.leases.iter().map(|lease| (lease.key.clone(), lease.is_complete()))).collect();
        let mut is_unconfirmed = false;
        let mut seats = Vec::with_capacity(scan.listing.leases.len());
        for lease in &scan.listing.leases {
            let mut parents = parents(lease, &done, self.observer.is_confirmed(&lease.key));
            if parents == Parents::Done && waits_for_unleased(lease, &done, listed.as_ref()) {
                parents = Parents::Running;
            }
            let is_expired = self.observer.is_expired(&lease.key, scan.now, options.expiry);
            let holder = self.holders.get(&lease.key).map(|(_, holder)| holder);
            let is_handed = holder.is_some() && holder != lease.owner.as_ref();
            let place = place(lease, parents, is_expired, is_handed, |worker| stays.contains(worker));
            is_unconfirmed |= place == Place::Out && !lease.is_complete() && parents == Parents::Unconfirmed;
            let avoid = self.let_go.get(&lease.key).map(|(by, _)| by);
            // A worker that does not take what it is given is passed over.
            let slow = self.pending.get(&lease.key);
            let slow = slow.filter(|(_, since)| scan.now.saturating_since(*since) >= options.expiry).map(|(by, _)| by);
            let throughput = lease.throughput.unwrap_or(0) as f64;
            seats.push(Seat { key: lease.key.clone(), place, avoid: slow.or(avoid).cloned(), throughput });
        }
        (seats, is_unconfirmed)
    }

    fn note_pending(&mut self, assigned: &[Assigned], now: Moment) {
        let free = assigned.iter().filter(|assigned| matches!(assigned.why, Why::Expired | Why::Unowned));
        let mut pending = HashMap::new();
        for Assigned { key, to, .. } in free {
            let since = self.pending.get(key).filter(|(before, _)| before == to).map_or(now, |(_, since)| *since);
            pending.insert(key.clone(), (to.clone(), since));
        }
        self.pending = pending;
    }

    fn report(&mut self, invalid: &[InvalidRow], application: &str) {
        for row in invalid {
            if self.reported.insert(row.key.clone()) {
                tracing::error!(application, %row, code = %row.code(), "a broken lease is left alone: its shard is not processed; repair or delete the row");
            }
        }
        let still: HashSet<&LeaseKey> = invalid.iter().map(|row| &row.key).collect();
        self.reported.retain(|key| still.contains(key));
    }
}

/// `is_handed`: the owner has not taken the lease yet.
fn place(
    lease: &Lease,
    parents: Parents,
    is_expired: bool,
    is_handed: bool,
    stays: impl Fn(&WorkerId) -> bool,
) -> Place {
    if lease.is_complete() {
        return Place::Out;
    }
    let free = |why| if parents == Parents::Done { Place::Free(why) } else { Place::Out };
    match (&lease.owner, &lease.checkpoint_owner) {
        (None, _) => free(Why::Unowned),
        (Some(_), _) if is_expired => free(Why::Expired),
        (Some(owner), None) if !is_handed => Place::With(owner.clone()),
        (Some(owner), _) if stays(owner) => Place::OnTheWay(owner.clone()),
        // The one that it was to go to has gone or goes: somebody else has to wait for it.
        (Some(_), Some(_)) => free(Why::Leaving),
        // And here the old holder has let go already: nobody runs it.
        (Some(_), None) => free(Why::Unowned),
    }
}

/// Whether a lease waits at its beginning for a parent that has no lease yet: the end of one parent of a merge creates the
/// child, and the other's lease may not have been created. It is, with the next sync, if the stream lists the shard.
fn waits_for_unleased(lease: &Lease, done: &HashMap<LeaseKey, bool>, listed: Option<&HashSet<&LeaseKey>>) -> bool {
    lease.checkpoint == Checkpoint::TrimHorizon
        && lease
            .parent_keys()
            .any(|parent| !done.contains_key(&parent) && listed.is_none_or(|listed| listed.contains(&parent)))
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
