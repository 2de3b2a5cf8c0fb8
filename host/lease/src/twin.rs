//! Another process with this worker's id.
//!
//! Ids are unlike each other unless an operator sets them, and then two processes may have one. No write of theirs is
//! lost on the other: each is conditional on the row's counter, and an epoch has one holder. But each takes the other's
//! leases for its own, counts one worker instead of two, and would leave work undone or, where the platform promised
//! that an id runs once, take leases back and forth. So one of them has to stop, and an operator to be told.
//!
//! A process knows the epochs that it took. A lease under its own name at another epoch was left by an earlier run, which
//! may still have a write on its way, or belongs to a process that lives: its counter moves again and again. Which of
//! two goes on must be clear to both from the table alone: the one that has the first lease by key. A worker that came
//! later has none as a rule, so it is the one that stops.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::{Lease, LeaseEpoch, LeaseKey, Moment, WorkerId};

/// A dead process has at most one write to a lease on its way.
const MOVES_OF_THE_LIVING: u32 = 2;
/// For how many expiries another process must have been seen before this one stops: a worker that is restarted under its
/// own name meets the one that is still finishing.
const PATIENCE: u32 = 3;

/// Leases under this worker's id that another process renews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twin {
    /// The id.
    pub worker: WorkerId,
    /// How many leases the other process was seen to renew.
    pub leases: usize,
    /// The first of them by key.
    pub first: LeaseKey,
}

/// What there is to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No other process uses the id.
    Alone,
    /// Another one does, as was not known before: to be told.
    Found(Twin),
    /// As before.
    Known,
    /// It is gone, as was not known before.
    Gone,
    /// This process is the one that has to stop.
    Yield(Twin),
}

/// Watches the leases under this worker's id that are not this process's.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    foreign: BTreeMap<LeaseKey, Foreign>,
    /// Since when another process has been seen without a break.
    since: Option<Moment>,
}

#[derive(Debug)]
struct Foreign {
    counter: u64,
    epoch: LeaseEpoch,
    moves: u32,
    moved_at: Moment,
}

// === impl Twin ===

impl fmt::Display for Twin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, leases, first } = self;
        write!(
            formatter,
            "another process uses the worker id `{worker}`: it renews {leases} leases, `{first}` among them, that this one did not take; give each worker a `worker-id` of its own, or leave the key out"
        )
    }
}

impl std::error::Error for Twin {}

// === impl Watch ===

impl Watch {
    /// Takes in a scan whose answer came at `now`. `is_own` says whether this process took the lease at this epoch, or
    /// tried to without learning whether it did.
    pub(crate) fn observe(
        &mut self,
        now: Moment,
        expiry: Duration,
        me: &WorkerId,
        leases: &[Lease],
        is_own: impl Fn(&Lease) -> bool,
    ) -> Verdict {
        let mine = leases.iter().filter(|lease| lease.writer() == Some(me));
        let (own, foreign): (Vec<&Lease>, Vec<&Lease>) = mine.partition(|lease| is_own(lease));
        self.note(now, &foreign);
        let living: BTreeSet<&LeaseKey> = self
            .foreign
            .iter()
            .filter(|(_, seen)| seen.moves >= MOVES_OF_THE_LIVING && now.saturating_since(seen.moved_at) < expiry)
            .map(|(key, _)| key)
            .collect();
        let Some(first) = living.first().copied() else {
            return if self.since.take().is_some() { Verdict::Gone } else { Verdict::Alone };
        };
        let twin = Twin { worker: me.clone(), leases: living.len(), first: first.clone() };
        let Some(since) = self.since else {
            self.since = Some(now);
            return Verdict::Found(twin);
        };
        let goes_on = own.iter().any(|lease| lease.key < *first);
        if goes_on || now.saturating_since(since) < expiry * PATIENCE { Verdict::Known } else { Verdict::Yield(twin) }
    }

    fn note(&mut self, now: Moment, leases: &[&Lease]) {
        let gone: BTreeSet<&LeaseKey> = leases.iter().map(|lease| &lease.key).collect();
        self.foreign.retain(|key, _| gone.contains(key));
        for lease in leases {
            let (counter, epoch) = (lease.counter, lease.epoch);
            let seen =
                self.foreign.entry(lease.key.clone()).or_insert(Foreign { counter, epoch, moves: 0, moved_at: now });
            if (seen.counter, seen.epoch) != (counter, epoch) {
                *seen = Foreign { counter, epoch, moves: seen.moves + 1, moved_at: now };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shardmill_record::Checkpoint;

    use super::*;
    use crate::NewLease;

    const EXPIRY: Duration = Duration::from_secs(10);

    fn me() -> WorkerId {
        WorkerId::parse("w").unwrap()
    }

    fn lease(index: u8, epoch: u64, counter: u64) -> Lease {
        let key = LeaseKey::parse(&format!("shard-{index}")).unwrap();
        let checkpoint = Checkpoint::TrimHorizon;
        let new = NewLease { key, checkpoint, start_at: None, parents: Vec::new(), range: None }.into_lease();
        Lease { owner: Some(me()), epoch: LeaseEpoch(epoch), counter, ..new }
    }

    /// Scans at these seconds; this process took what has epoch 1.
    fn verdicts(scans: &[(u64, Vec<Lease>)]) -> Vec<Verdict> {
        let mut watch = Watch::default();
        let is_own = |lease: &Lease| lease.epoch == LeaseEpoch(1);
        let observe = |(second, leases): &(u64, Vec<Lease>)| {
            let now = Moment::since_origin(Duration::from_secs(*second));
            watch.observe(now, EXPIRY, &me(), leases, is_own)
        };
        scans.iter().map(observe).collect()
    }

    fn is_yield(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Yield(_))
    }

    #[test]
    fn what_an_earlier_run_left_is_no_other_process() {
        // One write of it was still on its way, and this process renews what it took itself.
        let scans: Vec<_> =
            (0..40).map(|second| (second, vec![lease(0, 5, 7 + second.min(1)), lease(1, 1, second)])).collect();
        assert!(verdicts(&scans).iter().all(|verdict| *verdict == Verdict::Alone));
    }

    #[test]
    fn leases_of_other_workers_do_not_matter() {
        let other = |counter| Lease { owner: Some(WorkerId::parse("v").unwrap()), ..lease(0, 5, counter) };
        let scans: Vec<_> = (0..40).map(|second| (second, vec![other(second)])).collect();
        assert!(verdicts(&scans).iter().all(|verdict| *verdict == Verdict::Alone));
    }

    #[test]
    fn who_has_nothing_is_told_at_once_and_stops_after_a_while() {
        let scans: Vec<_> = (0..50).map(|second| (second, vec![lease(3, 5, second), lease(4, 5, second)])).collect();
        let verdicts = verdicts(&scans);
        let first = LeaseKey::parse("shard-3").unwrap();
        let twin = Twin { worker: me(), leases: 2, first };
        assert_eq!(verdicts[..4], [Verdict::Alone, Verdict::Alone, Verdict::Found(twin.clone()), Verdict::Known]);
        assert_eq!(verdicts.iter().position(is_yield), Some(32), "after three expiries");
        let text = twin.to_string();
        assert!(["`w`", "shard-3", "`worker-id`"].iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn of_two_that_share_the_leases_exactly_one_goes_on() {
        let scans = |mine: [u8; 2], others: [u8; 2]| -> Vec<_> {
            let at = |second| {
                let own = mine.map(|index| lease(index, 1, second));
                own.into_iter().chain(others.map(|index| lease(index, 2, second))).collect::<Vec<_>>()
            };
            (0..60).map(|second| (second, at(second))).collect()
        };
        for (one, other) in [([0, 1], [2, 3]), ([0, 3], [1, 2]), ([2, 0], [3, 1])] {
            assert!(!verdicts(&scans(one, other)).iter().any(is_yield), "{one:?} has the first");
            assert!(verdicts(&scans(other, one)).iter().any(is_yield), "{other:?} has not");
        }
    }

    #[test]
    fn one_that_was_finishing_is_forgotten() {
        let seen = |second: u64| vec![lease(0, 5, second)];
        let mut scans: Vec<_> = (0..20).map(|second| (second, seen(second))).collect();
        scans.extend((20..80).map(|second| (second, seen(19))));
        scans.extend((80..100).map(|second| (second, Vec::new())));
        let verdicts = verdicts(&scans);
        assert!(!verdicts.iter().any(is_yield));
        assert_eq!(verdicts[28..32], [Verdict::Known, Verdict::Gone, Verdict::Alone, Verdict::Alone]);
    }

    #[test]
    fn a_lease_that_is_taken_over_and_over_is_as_good_as_renewed() {
        let scans: Vec<_> = (0..50).map(|second| (second, vec![lease(0, 5 + second, 9)])).collect();
        assert!(verdicts(&scans).iter().any(is_yield));
    }
}
