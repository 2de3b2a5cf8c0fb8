//! Who should have which lease: a pure rule on the whole table, applied by one worker for all of them.
//!
//! One rule on one view moves each lease at most once; workers that each decided for themselves would reach for the
//! same leases of the same victim. Nothing's safety depends on it: whoever is assigned a lease still takes it with a
//! conditional write, so two assigners at a time cost moves and no more.

mod even;
mod throughput;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};

pub use even::Even;
pub use throughput::Throughput;

use crate::{LeaseKey, WorkerId};

/// A worker that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Who it is.
    pub worker: WorkerId,
    /// Whether it is about to stop: it works on until its leases are with others, and gets no new ones.
    pub is_leaving: bool,
    /// When it started, as far as that orders the members: later is larger.
    pub joined: u64,
    /// What it runs: one number for each build and configuration.
    pub generation: u64,
    /// The most leases that it may have.
    pub max: Option<usize>,
}

/// Where a lease is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It can be taken.
    Free(Why),
    /// A worker that lives has it.
    With(WorkerId),
    /// It is on its way to this worker, from another one that has not let go yet.
    OnTheWay(WorkerId),
    /// It cannot be taken now, or its shard is done.
    Out,
}

/// A lease as the rule sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seat {
    /// The lease.
    pub key: LeaseKey,
    /// Where it is.
    pub place: Place,
    /// Who has just let it go: others go first.
    pub avoid: Option<WorkerId>,
    /// How much its shard carries, in bytes a second; 0 where that is not known.
    pub throughput: f64,
}

/// What the rule sees.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The workers that live. One that has a lease and is not among them counts as gone.
    pub members: &'a [Member],
    /// All leases of the table.
    pub seats: &'a [Seat],
    /// Whether no worker has come or gone lately. Until then nothing moves for the sake of balance: in a deploy the
    /// next change is a moment away, and would move the same leases again.
    pub is_settled: bool,
    /// Sets which of equal leases move, so that it is not always the same ones.
    pub salt: u64,
}

/// Why a lease gets a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Its holder has not renewed it for the expiry.
    Expired,
    /// Nobody has it.
    Unowned,
    /// Its holder is leaving.
    Leaving,
    /// Its holder has more than its share.
    Balance,
}

/// A lease and the worker that should have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The lease.
    pub key: LeaseKey,
    /// The worker.
    pub to: WorkerId,
    /// Why.
    pub why: Why,
}

/// A rule for who should have which lease.
pub trait Balance: Send + Sync + 'static {
    /// What should change. A lease that is free or whose holder leaves goes to somebody as long as there is room;
    /// what does not have to move stays.
    fn assign(&self, view: &View<'_>) -> Vec<Assigned>;
}

/// The members that may get leases, with what they have.
pub(crate) struct Loads<'a> {
    /// The youngest first: of equals, whoever has just come stays longest.
    members: Vec<&'a Member>,
    index: HashMap<&'a WorkerId, usize>,
    counts: Vec<usize>,
    /// By count, then by place in `members`: who has least is first.
    order: BTreeSet<(usize, usize)>,
}

// === impl Why ===

impl Why {
    /// A short name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Unowned => "unowned",
            Self::Leaving => "leaving",
            Self::Balance => "balance",
        }
    }
}

// === impl View ===

impl<'a> View<'a> {
    /// What every rule starts with: free leases go to who has least; so do those of members that leave, but first among
    /// the younger ones of another generation, then among the younger ones. Returns what members have afterwards.
    ///
    /// In a deploy the younger ones are there to stay, and the older ones leave next: what they were given would move
    /// again. A younger one gets no more than twice its share, in case it is the only one.
    pub(crate) fn settle(&self, assigned: &mut Vec<Assigned>) -> Loads<'a> {
        let mut loads = Loads::of(self);
        let leaving: HashMap<&WorkerId, &Member> =
            self.members.iter().filter(|member| member.is_leaving).map(|member| (&member.worker, member)).collect();
        let homeless = self.seats.iter().filter_map(|seat| match &seat.place {
            Place::Free(why) => Some((*why, seat, None)),
            Place::With(worker) => leaving.get(worker).map(|member| (Why::Leaving, seat, Some(*member))),
            _ => None,
        });
        let mut homeless: Vec<_> = homeless.collect();
        homeless.sort_by_cached_key(|(why, seat, _)| (seat.avoid.is_some(), *why, self.salted(&seat.key)));
        let shared = self.seats.iter().filter(|seat| seat.place != Place::Out).count();
        let twice_the_share = 2 * shared.div_ceil(loads.len().max(1));
        for (why, seat, left_by) in homeless {
            let younger = left_by.and_then(|left_by| {
                let next =
                    loads.least_of_younger(left_by, twice_the_share, |member| member.generation != left_by.generation);
                next.or_else(|| loads.least_of_younger(left_by, twice_the_share, |_| true))
            });
            let avoided = seat.avoid.as_ref().and_then(|worker| loads.place_of(worker));
            let others = || loads.least_but(avoided);
            let Some(to) = younger.or_else(others).or_else(|| loads.least(usize::MAX)) else { break };
            loads.give(to);
            assigned.push(Assigned { key: seat.key.clone(), to: loads.worker(to).clone(), why });
        }
        loads
    }

    /// The leases that a member has for good, in an order that the salt sets.
    pub(crate) fn movable(&self) -> HashMap<&'a WorkerId, Vec<&'a Seat>> {
        let mut movable: HashMap<&WorkerId, Vec<&Seat>> = HashMap::new();
        for seat in self.seats {
            if let Place::With(worker) = &seat.place {
                movable.entry(worker).or_default().push(seat);
            }
        }
        for seats in movable.values_mut() {
            seats.sort_by_cached_key(|seat| self.salted(&seat.key));
        }
        movable
    }

    fn salted(&self, key: &LeaseKey) -> u64 {
        let mut hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().build_hasher();
        self.salt.hash(&mut hasher);
        key.hash(&mut hasher);
        hasher.finish()
    }
}

// === impl Loads ===

impl<'a> Loads<'a> {
    fn of(view: &View<'a>) -> Self {
        let mut members: Vec<&Member> = view.members.iter().filter(|member| !member.is_leaving).collect();
        members.sort_by(|left, right| (right.joined, &right.worker).cmp(&(left.joined, &left.worker)));
        let index: HashMap<&WorkerId, usize> =
            members.iter().enumerate().map(|(place, member)| (&member.worker, place)).collect();
        let mut counts = vec![0; members.len()];
        for seat in view.seats {
            if let Place::With(worker) | Place::OnTheWay(worker) = &seat.place
                && let Some(&place) = index.get(worker)
            {
                counts[place] += 1;
            }
        }
        let order = counts.iter().enumerate().map(|(place, count)| (*count, place)).collect();
        Self { members, index, counts, order }
    }

    pub(crate) fn place_of(&self, worker: &WorkerId) -> Option<usize> {
        self.index.get(worker).copied()
    }

    pub(crate) fn worker(&self, place: usize) -> &'a WorkerId {
        &self.members[place].worker
    }

    pub(crate) fn count(&self, place: usize) -> usize {
        self.counts[place]
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether a member may have one more.
    pub(crate) fn has_room(&self, place: usize) -> bool {
        self.members[place].max.is_none_or(|max| self.counts[place] < max)
    }

    /// Who has least, less than `below`, and room for one more.
    pub(crate) fn least(&self, below: usize) -> Option<usize> {
        let mut from_least = self.order.iter().take_while(|(count, _)| *count < below);
        from_least.find(|(_, place)| self.has_room(*place)).map(|(_, place)| *place)
    }

    /// [`Self::least`] without one of them.
    fn least_but(&self, avoided: Option<usize>) -> Option<usize> {
        let fits = |place: &usize| Some(*place) != avoided && self.has_room(*place);
        self.order.iter().map(|(_, place)| *place).find(fits)
    }

    /// [`Self::least`] among those that joined after this one.
    fn least_of_younger(&self, than: &Member, below: usize, is_wanted: impl Fn(&Member) -> bool) -> Option<usize> {
        let younger = self.members.partition_point(|member| member.joined > than.joined);
        let from_least = self.order.iter().take_while(|(count, _)| *count < below).map(|(_, place)| *place);
        let mut wanted = from_least.filter(|place| *place < younger && is_wanted(self.members[*place]));
        wanted.find(|place| self.has_room(*place))
    }

    /// Members from who has most to who has least.
    pub(crate) fn busiest_first(&self) -> impl Iterator<Item = usize> {
        self.order.iter().rev().map(|(_, place)| *place)
    }

    pub(crate) fn give(&mut self, place: usize) {
        self.change(place, |count| count + 1);
    }

    pub(crate) fn take(&mut self, place: usize) {
        self.change(place, |count| count - 1);
    }

    fn change(&mut self, place: usize, change: impl Fn(usize) -> usize) {
        self.order.remove(&(self.counts[place], place));
        self.counts[place] = change(self.counts[place]);
        self.order.insert((self.counts[place], place));
    }
}
