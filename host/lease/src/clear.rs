//! Which leases have served their time and can be deleted.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::audit::ListedShard;
use crate::{Lease, LeaseKey, Moment};

/// When leases are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// How long a lease stays after its shard is done and what follows it has begun. 5 min, as the KCL.
    pub complete: Duration,
    /// How long a lease stays after its shard has left the stream's listing. 1 h: a listing that was wrong for a while
    /// must cost nothing.
    pub garbage: Duration,
}

/// Why a lease is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleared {
    /// Its shard is done, and every shard that follows has begun.
    Complete,
    /// The stream has not listed its shard for long.
    Garbage,
}

/// Remembers since when leases could be deleted.
#[derive(Debug, Default)]
pub struct Clearing {
    since: HashMap<LeaseKey, (Cleared, Moment)>,
}

// === impl Default for Delays ===

impl Default for Delays {
    fn default() -> Self {
        Self { complete: Duration::from_secs(300), garbage: Duration::from_secs(3600) }
    }
}

// === impl Cleared ===

impl Cleared {
    /// A short name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Garbage => "garbage",
        }
    }
}

// === impl Clearing ===

impl Clearing {
    /// What is due at `now`. `listed`: the shards of the streams that could be listed, if any.
    pub fn due(
        &mut self,
        now: Moment,
        delays: Delays,
        leases: &[Lease],
        listed: &[ListedShard],
    ) -> Vec<(LeaseKey, Cleared)> {
        let candidates = candidates(leases, listed);
        let before = std::mem::take(&mut self.since);
        let mut due = Vec::new();
        for (key, why) in candidates {
            let since = before.get(&key).filter(|(was, _)| *was == why).map_or(now, |(_, since)| *since);
            let delay = match why {
                Cleared::Complete => delays.complete,
                Cleared::Garbage => delays.garbage,
            };
            if now.saturating_since(since) >= delay {
                due.push((key.clone(), why));
            }
            self.since.insert(key, (why, since));
        }
        due
    }
}

/// What could be deleted now.
///
/// A lease that is done keeps its shard from being read again for as long as the stream lists it and no lease of a
/// descendant is there: so it stays until every child's lease has gone beyond its start. Ancestors go first, so that a
/// lease never misses the child that was deleted before it.
fn candidates(leases: &[Lease], listed: &[ListedShard]) -> Vec<(LeaseKey, Cleared)> {
    let by_key: HashMap<&LeaseKey, &Lease> = leases.iter().map(|lease| (&lease.key, lease)).collect();
    let mut children: HashMap<LeaseKey, HashSet<LeaseKey>> = HashMap::new();
    for lease in leases {
        for parent in lease.parent_keys() {
            children.entry(parent).or_default().insert(lease.key.clone());
        }
        let named = lease.children.iter().map(|child| lease.key.sibling(child));
        children.entry(lease.key.clone()).or_default().extend(named);
    }
    let streams: HashSet<&str> = listed.iter().map(|shard| shard.key.prefix()).collect();
    let there: HashSet<&LeaseKey> = listed.iter().map(|shard| &shard.key).collect();
    let mut candidates = Vec::new();
    for lease in leases {
        let has_begun = |child: &LeaseKey| by_key.get(child).is_some_and(|child| !child.checkpoint.is_start());
        let followers = children.get(&lease.key);
        let is_followed = followers.is_some_and(|children| !children.is_empty() && children.iter().all(has_begun));
        let is_eldest = !lease.parent_keys().any(|parent| by_key.contains_key(&parent));
        if lease.is_complete() && is_followed && is_eldest {
            candidates.push((lease.key.clone(), Cleared::Complete));
        } else if streams.contains(lease.key.prefix()) && !there.contains(&lease.key) {
            candidates.push((lease.key.clone(), Cleared::Garbage));
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_record::{Checkpoint, HashKeyRange, ShardId};

    use super::*;
    use crate::NewLease;

    fn id(id: u32) -> ShardId {
        ShardId::parse(&format!("shardId-{id:012}")).unwrap()
    }

    fn key(number: u32) -> LeaseKey {
        LeaseKey::of_shard(&id(number))
    }

    fn position() -> Checkpoint {
        Checkpoint::parse("7", 0).unwrap()
    }

    fn lease(number: u32, parents: &[u32], checkpoint: Checkpoint) -> Lease {
        let parents = parents.iter().map(|parent| id(*parent)).collect();
        NewLease { key: key(number), checkpoint, start_at: None, parents, range: None }.into_lease()
    }

    fn listed(number: u32) -> ListedShard {
        ListedShard { key: key(number), is_open: true, parents: Vec::new(), range: HashKeyRange::ALL }
    }

    fn at(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_lease_that_is_done_goes_after_a_delay_once_all_that_follows_has_begun() {
        let mut clearing = Clearing::default();
        let delays = Delays::default();
        let done = || lease(0, &[], Checkpoint::ShardEnd);
        let listed = [listed(0), listed(1), listed(2)];
        let waits = [done(), lease(1, &[0], position()), lease(2, &[0], Checkpoint::TrimHorizon)];
        assert_eq!(clearing.due(at(0), delays, &waits, &listed), []);
        assert_eq!(clearing.due(at(400), delays, &waits, &listed), [], "one child has not begun");
        let begun = [done(), lease(1, &[0], position()), lease(2, &[0], position())];
        assert_eq!(clearing.due(at(500), delays, &begun, &listed), []);
        assert_eq!(clearing.due(at(799), delays, &begun, &listed), []);
        assert_eq!(clearing.due(at(800), delays, &begun, &listed), [(key(0), Cleared::Complete)]);
        let named = Lease { children: vec![id(1), id(2)], ..done() };
        let one = [named, lease(1, &[0], position())];
        assert_eq!(clearing.due(at(2000), delays, &one, &listed), [], "a child that has no lease yet");
    }

    #[test]
    fn a_lease_whose_shard_is_not_listed_goes_after_the_longer_delay_and_one_that_comes_back_stays() {
        let mut clearing = Clearing::default();
        let delays = Delays::default();
        let leases = [lease(0, &[], position()), lease(1, &[], position())];
        assert_eq!(clearing.due(at(0), delays, &leases, &[listed(1)]), []);
        assert_eq!(clearing.due(at(3000), delays, &leases, &[listed(0), listed(1)]), []);
        assert_eq!(clearing.due(at(3700), delays, &leases, &[listed(1)]), []);
        assert_eq!(clearing.due(at(7299), delays, &leases, &[listed(1)]), []);
        assert_eq!(clearing.due(at(7300), delays, &leases, &[listed(1)]), [(key(0), Cleared::Garbage)]);
        assert_eq!(clearing.due(at(9999), delays, &leases, &[]), [], "the stream could not be listed");
    }

    proptest! {
        /// Deleting whatever can be deleted, over and over, leaves a table from which every shard that is not done is
        /// read, and none that is done would be read again.
        #[test]
        fn no_lease_goes_that_keeps_a_done_shard_from_being_read_again(
            parents in prop::collection::vec(prop::option::of(0..20u32), 1..20),
            states in prop::collection::vec(0..3u8, 20),
        ) {
            // Parents have lower numbers.
            let parents: Vec<Option<u32>> = (0u32..).zip(&parents).map(|(own, parent)| parent.filter(|parent| *parent < own)).collect();
            let mut leases: Vec<Lease> = Vec::new();
            for (own, parent) in (0u32..).zip(&parents) {
                // A child begins when its parent is done.
                let may_begin = parent.is_none_or(|parent| leases[parent as usize].is_complete());
                let checkpoint = match states[own as usize] {
                    0 => Checkpoint::TrimHorizon,
                    _ if !may_begin => Checkpoint::TrimHorizon,
                    1 => position(),
                    _ => Checkpoint::ShardEnd,
                };
                leases.push(lease(own, &parent.iter().copied().collect::<Vec<_>>(), checkpoint));
            }
            let shards: Vec<ListedShard> = (0..parents.len() as u32).map(listed).collect();
            loop {
                let gone = candidates(&leases, &shards);
                if gone.is_empty() {
                    break;
                }
                leases.retain(|lease| !gone.iter().any(|(key, _)| *key == lease.key));
            }
            let there: HashSet<LeaseKey> = leases.iter().map(|lease| lease.key.clone()).collect();
            for own in 0..parents.len() as u32 {
                let has_descendant = || {
                    (own + 1..parents.len() as u32).any(|other| {
                        let mut at = other;
                        while let Some(parent) = parents[at as usize] {
                            if parent == own {
                                return there.contains(&key(other));
                            }
                            at = parent;
                        }
                        false
                    })
                };
                prop_assert!(there.contains(&key(own)) || has_descendant(), "shard {own} would be read again");
            }
        }
    }
}
