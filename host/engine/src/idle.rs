//! Whether there is nothing left to do, for runs that end by themselves.
//!
//! A shard at its tip, or one that is stopped, needs no more. Besides those that this worker has, it must be certain that it
//! is to have no others: leases of workers that are gone, and of shards that can begin now or once a parent of theirs is
//! done here. Shards of other workers that live are theirs, and so are those that follow them.

use std::collections::{BTreeMap, HashMap};

use shardmill_lease::{Lease, LeaseKey, View, WorkerId};
use tokio::time::Instant;

use crate::live::{Activity, Vitals};
use crate::status::{ConsumerStatus, ShardState, ShardStatus, Status};
use crate::watchdog::fronts;

/// What a worker knows of the leases that it does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fleet {
    /// Whether it is known what this worker should have.
    is_planned: bool,
    /// How many leases it has, or is getting hold of.
    claims: usize,
    /// How many others have a holder that may be dead.
    doubtful: usize,
    /// Leases that nobody has and that may come to this worker: of each, the leases here that it waits for.
    waiting: Vec<Vec<String>>,
}

// === impl Fleet ===

impl Fleet {
    /// `most`: the most leases that the worker may have.
    pub(crate) fn of(view: &View, worker: &WorkerId, most: Option<usize>) -> Self {
        let has_room = most.is_none_or(|most| view.claims < most);
        let leases = if view.leads { &view.leases[..] } else { &[] };
        let undone: HashMap<&LeaseKey, &Lease> =
            leases.iter().filter(|lease| !lease.is_complete()).map(|lease| (&lease.key, lease)).collect();
        let mut waiting = Vec::new();
        for lease in undone.values().filter(|lease| lease.writer().is_none()) {
            let fronts = fronts(lease, &undone);
            // Whoever has a parent goes on with what follows.
            if fronts.iter().any(|front| front.writer().is_some_and(|holder| holder != worker)) {
                continue;
            }
            let here = fronts.iter().filter(|front| front.writer().is_some());
            let here: Vec<_> = here.map(|front| front.key.to_string()).collect();
            // What cannot be taken is somebody else's; what follows a shard of this worker takes its place.
            if has_room || !here.is_empty() {
                waiting.push(here);
            }
        }
        Self { is_planned: view.is_planned, claims: view.claims, doubtful: view.doubtful.len(), waiting }
    }
}

// === impl Status ===

impl Status {
    /// Whether there is nothing to do: of each consumer, everything that this worker has is done up to the shards' tips or
    /// is stopped, and nothing more is to come to it. It may be otherwise at the next moment.
    pub fn is_idle(&self) -> bool {
        let now = Instant::now();
        self.with(|consumers| consumers.clone()).iter().all(|(name, consumer)| {
            let rests = |(key, shard): (&String, &ShardStatus)| self.rests(name, key, shard, now);
            consumer.stopped.is_some() || (has_all(consumer) && consumer.shards.iter().all(rests))
        })
    }

    fn rests(&self, consumer: &str, key: &str, shard: &ShardStatus, now: Instant) -> bool {
        match shard.state {
            ShardState::Stopped { .. } => true,
            ShardState::Running => self.live(consumer, key).is_some_and(|live| {
                let Vitals { activity, is_at_tip, .. } = live.vitals(now);
                is_at_tip && matches!(activity, Activity::Waiting | Activity::Hook)
            }),
            // Also one that is paused: it is not done.
            _ => false,
        }
    }
}

/// Whether the worker has all that it is to have.
fn has_all(ConsumerStatus { started, fleet, shards, .. }: &ConsumerStatus) -> bool {
    let Fleet { is_planned, claims, doubtful, waiting } = fleet;
    *started
        && *is_planned
        && *doubtful == 0
        && shards.len() >= *claims
        && !waiting.iter().any(|after| is_to_come(after, shards))
}

/// Whether a lease that nobody has comes to this worker: not if it follows a shard that is stopped.
fn is_to_come(after: &[String], shards: &BTreeMap<String, ShardStatus>) -> bool {
    !after.iter().any(|key| shards.get(key).is_some_and(ShardStatus::is_stopped))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shardmill_record::{Checkpoint, ShardId};

    use super::*;
    use crate::watchdog::tests::{at, lease};

    fn worker() -> WorkerId {
        WorkerId::parse("me").unwrap()
    }

    fn key(shard: usize) -> LeaseKey {
        lease(shard, &[], None, Checkpoint::TrimHorizon).key
    }

    /// A worker with nothing to do but what these leases tell, and with these shards in these states.
    fn is_idle(leases: Vec<Lease>, shards: &[(usize, ShardState)], change: impl FnOnce(&mut View)) -> bool {
        let (status, leases) = (Status::default(), Arc::from(leases));
        status.add_consumer("p");
        status.set_started("p");
        let mut entries = Vec::new();
        for (shard, state) in shards {
            let id = ShardId::parse(&format!("shardId-{shard:012}")).unwrap();
            let entry = status.add_shard("p", "s", &id, &key(*shard));
            entry.set_state(state.clone());
            entry.had_nothing(Some(0));
            entries.push(entry);
        }
        let mut view = View { leases, leads: true, is_planned: true, claims: shards.len(), ..View::default() };
        change(&mut view);
        let options =
            shardmill_lease::Options { max_leases_per_worker: Some(2), ..shardmill_lease::Options::new("a", worker()) };
        status.set_fleet("p", &view, &options);
        status.is_idle()
    }

    fn stopped() -> ShardState {
        ShardState::Stopped { reason: "poison".to_owned() }
    }

    #[test]
    fn a_worker_is_idle_when_all_that_it_has_is_done_and_no_more_is_to_come() {
        let none = |_: &mut View| {};
        let mine = |done| lease(0, &[], Some("me"), done);
        assert!(is_idle(vec![mine(at(1))], &[(0, ShardState::Running)], none));
        for state in [ShardState::Starting, ShardState::Paused, ShardState::Draining] {
            assert!(!is_idle(vec![mine(at(1))], &[(0, state.clone())], none), "{state:?}");
        }
        assert!(is_idle(Vec::new(), &[], none), "all of it is others'");
        assert!(!is_idle(Vec::new(), &[], |view| view.is_planned = false), "nothing is known yet");
        assert!(!is_idle(Vec::new(), &[], |view| view.claims = 1), "a lease is on its way");
        let theirs = || vec![lease(3, &[], Some("them"), at(1))];
        assert!(is_idle(theirs(), &[], none));
        assert!(!is_idle(theirs(), &[], |view| view.doubtful = [key(3)].into()), "they may be dead");
    }

    #[test]
    fn what_nobody_has_is_waited_for_if_it_can_come_to_this_worker() {
        let none = |_: &mut View| {};
        let free = |shard, parents: &[usize]| lease(shard, parents, None, Checkpoint::TrimHorizon);
        let here = |at| lease(0, &[], Some("me"), at);
        let running = || (0, ShardState::Running);
        assert!(!is_idle(vec![free(1, &[])], &[], none));
        assert!(
            !is_idle(vec![lease(0, &[], None, Checkpoint::ShardEnd), free(1, &[0])], &[], none),
            "its parent is done"
        );
        // At the tip of a shard that others follow.
        let family = |parent: Lease| vec![parent, free(1, &[0]), free(2, &[1])];
        assert!(!is_idle(family(here(at(1))), &[running()], none));
        assert!(is_idle(family(here(at(1))), &[(0, stopped())], none), "nothing goes on behind a stopped shard");
        assert!(is_idle(family(lease(0, &[], Some("them"), at(1))), &[], none), "whoever has a parent goes on");
        // A merge: one parent is stopped here, and the other is nobody's.
        let merge = vec![here(at(1)), free(1, &[]), free(2, &[0, 1])];
        assert!(!is_idle(merge, &[(0, stopped())], none));
        // No room for more.
        let full = [running(), (5, ShardState::Running)];
        let own = || vec![here(at(1)), lease(5, &[], Some("me"), at(1))];
        assert!(is_idle([own(), vec![free(7, &[])]].concat(), &full, none));
        assert!(!is_idle([own(), vec![free(7, &[5])]].concat(), &full, none), "it takes the place of its parent");
    }
}
