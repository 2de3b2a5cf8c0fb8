//! Which leases a worker takes: a pure rule on what it sees.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};

use crate::{LeaseKey, WorkerId};

/// How a lease stands to the worker that looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// This worker runs it.
    Held,
    /// A worker that lives has it.
    Live(WorkerId),
    /// This worker has it in the table, and does not run it: an answer was lost, or an earlier run left it.
    Own,
    /// Its holder has not renewed it for the expiry.
    Expired,
    /// Nobody has it, and it can start.
    Unowned,
    /// It cannot start yet: a parent is not done, or this worker let it go a moment ago.
    Waiting,
    /// Its shard is done.
    Complete,
}

/// A lease as the rule sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The lease.
    pub key: LeaseKey,
    /// How it stands.
    pub standing: Standing,
}

/// What a worker sees.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The worker that looks.
    pub me: &'a WorkerId,
    /// All leases of the table.
    pub candidates: &'a [Candidate],
    /// The most leases that the worker may hold.
    pub max: Option<usize>,
    /// Sets the order in which this worker takes leases apart from that of others, so that they seldom collide.
    pub salt: u64,
}

/// Why a lease is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It is this worker's in the table.
    Reclaimed,
    /// Its holder is gone.
    Expired,
    /// Nobody has it.
    Unowned,
}

/// A lease to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The lease.
    pub key: LeaseKey,
    /// Why.
    pub why: Why,
}

/// A rule for which leases to take.
pub trait Assignment: Send + Sync + 'static {
    /// The leases to take now, the most urgent first.
    fn choose(&self, view: &View<'_>) -> Vec<Choice>;
}

/// Everybody's fair share: the leases that are running or can run, divided by the live workers, rounded up. Takes what
/// is free up to that, all at once; takes nothing from a worker that lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FairShare;

// === impl View ===

impl View<'_> {
    /// How many workers hold a lease that has not expired; this one counts also if it holds none.
    pub fn live_workers(&self) -> usize {
        let others = self.candidates.iter().filter_map(|candidate| match &candidate.standing {
            Standing::Live(worker) if worker != self.me => Some(worker),
            _ => None,
        });
        others.collect::<HashSet<_>>().len() + 1
    }

    /// How many leases this worker runs.
    pub fn held(&self) -> usize {
        self.candidates.iter().filter(|candidate| candidate.standing == Standing::Held).count()
    }

    /// How many leases are running or can run.
    pub fn to_share(&self) -> usize {
        let is_shared = |candidate: &&Candidate| !matches!(candidate.standing, Standing::Waiting | Standing::Complete);
        self.candidates.iter().filter(is_shared).count()
    }
}

// === impl Why ===

impl Why {
    /// A short name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reclaimed => "reclaimed",
            Self::Expired => "expired",
            Self::Unowned => "unowned",
        }
    }
}

// === impl FairShare ===

impl FairShare {
    /// How many leases the worker should hold.
    pub fn target(view: &View<'_>) -> usize {
        let share = view.to_share().div_ceil(view.live_workers());
        view.max.map_or(share, |max| share.min(max))
    }
}

impl Assignment for FairShare {
    fn choose(&self, view: &View<'_>) -> Vec<Choice> {
        let free = view.candidates.iter().filter_map(|candidate| {
            let why = match candidate.standing {
                Standing::Own => Why::Reclaimed,
                Standing::Expired => Why::Expired,
                Standing::Unowned => Why::Unowned,
                Standing::Held | Standing::Live(_) | Standing::Waiting | Standing::Complete => return None,
            };
            Some(Choice { key: candidate.key.clone(), why })
        });
        let mut choices: Vec<Choice> = free.collect();
        choices.sort_by_cached_key(|choice| (choice.why, salted(view.salt, &choice.key), choice.key.clone()));
        choices.truncate(Self::target(view).saturating_sub(view.held()));
        choices
    }
}

fn salted(salt: u64, key: &LeaseKey) -> u64 {
    let mut hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().build_hasher();
    salt.hash(&mut hasher);
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn worker(id: u8) -> WorkerId {
        WorkerId::parse(&format!("w{id}")).unwrap()
    }

    fn standing() -> impl Strategy<Value = Standing> {
        prop_oneof![
            Just(Standing::Held),
            (0..4u8).prop_map(|id| Standing::Live(worker(id))),
            Just(Standing::Own),
            Just(Standing::Expired),
            Just(Standing::Unowned),
            Just(Standing::Waiting),
            Just(Standing::Complete),
        ]
    }

    fn candidates(standings: Vec<Standing>) -> Vec<Candidate> {
        let key = |index| LeaseKey::parse(&format!("shardId-{index:012}")).unwrap();
        standings.into_iter().enumerate().map(|(index, standing)| Candidate { key: key(index), standing }).collect()
    }

    proptest! {
        #[test]
        fn takes_what_is_free_up_to_the_share_and_no_more(
            standings in proptest::collection::vec(standing(), 0..40),
            max in proptest::option::of(1..10usize),
            salt: u64,
        ) {
            let candidates = candidates(standings);
            let me = worker(9);
            let view = View { me: &me, candidates: &candidates, max, salt };
            let choices = FairShare.choose(&view);
            let target = FairShare::target(&view);
            let is_free = |candidate: &&Candidate| {
                matches!(candidate.standing, Standing::Own | Standing::Expired | Standing::Unowned)
            };
            let free = candidates.iter().filter(is_free).count();
            prop_assert_eq!(choices.len(), free.min(target.saturating_sub(view.held())));
            prop_assert!(max.is_none_or(|max| view.held() + choices.len() <= max.max(view.held())));
            let keys: HashSet<_> = choices.iter().map(|choice| &choice.key).collect();
            prop_assert_eq!(keys.len(), choices.len());
            for choice in &choices {
                prop_assert!(candidates.iter().filter(is_free).any(|candidate| candidate.key == choice.key));
            }
            prop_assert!(choices.is_sorted_by_key(|choice| choice.why));
        }

        /// Workers that look one after another leave nothing behind, and none has more than its share.
        #[test]
        fn workers_that_come_together_take_everything(leases in 1..60usize, workers in 1..6u8) {
            let mut holders: Vec<Option<u8>> = vec![None; leases];
            // Everybody is live at the start: each holds one lease already, as far as they go round.
            for id in 0..workers.min(u8::try_from(leases).unwrap()) {
                holders[usize::from(id)] = Some(id);
            }
            for id in 0..workers {
                let me = worker(id);
                let standing = |holder: &Option<u8>| match holder {
                    None => Standing::Unowned,
                    Some(holder) if *holder == id => Standing::Held,
                    Some(holder) => Standing::Live(worker(*holder)),
                };
                let candidates = candidates(holders.iter().map(standing).collect());
                let view = View { me: &me, candidates: &candidates, max: None, salt: u64::from(id) };
                for choice in FairShare.choose(&view) {
                    let index = candidates.iter().position(|candidate| candidate.key == choice.key).unwrap();
                    holders[index] = Some(id);
                }
            }
            prop_assert!(holders.iter().all(Option::is_some));
            let share = leases.div_ceil(usize::from(workers.min(u8::try_from(leases).unwrap())));
            for id in 0..workers {
                prop_assert!(holders.iter().filter(|holder| **holder == Some(id)).count() <= share);
            }
        }
    }
}
