//! Whether every hash key of a stream has somebody who reads it.
//!
//! A stream's open shards cover all hash keys. For each, some lease must be what stands between its records and their
//! processing: its own, or while parents are not done theirs. That lease must have a holder that lives.

use std::collections::{HashMap, HashSet};
use std::fmt;

use shardmill_record::HashKeyRange;

use crate::{Lease, LeaseKey, WorkerId};

/// A shard that the stream lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedShard {
    /// The key that its lease has, or would have.
    pub key: LeaseKey,
    /// Whether it takes records.
    pub is_open: bool,
    /// The keys of the shards that it follows, those that are gone included.
    pub parents: Vec<LeaseKey>,
    /// The hash keys that it takes.
    pub range: HashKeyRange,
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// Open shards that nobody gets on with, by key.
    pub holes: Vec<Hole>,
}

/// An open shard that nobody gets on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The open shard's key.
    pub shard: LeaseKey,
    /// Its hash keys.
    pub range: HashKeyRange,
    /// Which lease should have a holder: the shard's own, or that of an ancestor that is not done.
    pub lease: LeaseKey,
    /// What is wrong with that.
    pub reason: Reason,
}

/// Why nobody gets on with a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// There is no lease, and no ancestor whose end would create one.
    NoLease,
    /// The row cannot be read.
    Unreadable,
    /// The lease says that the shard is done, and it takes records.
    DoneThoughOpen,
    /// Nobody holds it.
    Unowned,
    /// Its holder does not renew it.
    Expired {
        /// The holder.
        holder: WorkerId,
    },
}

// === impl Reason ===

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLease => formatter.write_str("there is no lease for it"),
            Self::Unreadable => formatter.write_str("its row in the lease table cannot be read: repair or delete the row"),
            Self::DoneThoughOpen => formatter.write_str(
                "its lease says SHARD_END although the shard is open: delete the row to have it read from the start position",
            ),
            Self::Unowned => formatter.write_str("no worker holds its lease: are there workers with room for one more?"),
            Self::Expired { holder } => write!(formatter, "its holder `{holder}` does not renew it"),
        }
    }
}

// === impl Hole ===

impl fmt::Display for Hole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, range, lease, reason } = self;
        write!(formatter, "nobody reads shard {shard} (hash keys {range})")?;
        if lease != shard {
            write!(formatter, ", which waits for {lease}")?;
        }
        write!(formatter, ": {reason}")
    }
}

/// What is wrong now. `is_attended` says whether a lease has a holder that renews it.
pub fn audit(
    listed: &[ListedShard],
    leases: &[Lease],
    unreadable: &HashSet<LeaseKey>,
    is_attended: impl Fn(&Lease) -> bool,
) -> Vec<Hole> {
    let by_key: HashMap<&LeaseKey, &Lease> = leases.iter().map(|lease| (&lease.key, lease)).collect();
    let shards: HashMap<&LeaseKey, &ListedShard> = listed.iter().map(|shard| (&shard.key, shard)).collect();
    let mut holes = Vec::new();
    for shard in listed.iter().filter(|shard| shard.is_open) {
        let mut answerable = Vec::new();
        let mut visited = HashSet::new();
        trace(&shard.key, &by_key, &shards, unreadable, &mut visited, &mut answerable);
        let hole = |lease: &LeaseKey, reason| Hole {
            shard: shard.key.clone(),
            range: shard.range,
            lease: lease.clone(),
            reason,
        };
        if answerable.is_empty() {
            holes.push(hole(&shard.key, Reason::NoLease));
        }
        for found in answerable {
            match found {
                Answerable::Row(lease) if lease.is_complete() => holes.push(hole(&lease.key, Reason::DoneThoughOpen)),
                Answerable::Row(lease) if is_attended(lease) => {}
                Answerable::Row(lease) => holes.push(match lease.writer() {
                    Some(holder) => hole(&lease.key, Reason::Expired { holder: holder.clone() }),
                    None => hole(&lease.key, Reason::Unowned),
                }),
                Answerable::Unreadable(key) => holes.push(hole(key, Reason::Unreadable)),
            }
        }
    }
    holes.sort_by(|left, right| (&left.shard, &left.lease).cmp(&(&right.shard, &right.lease)));
    holes
}

enum Answerable<'a> {
    Row(&'a Lease),
    Unreadable(&'a LeaseKey),
}

/// Finds the leases on which the records of a shard depend now.
fn trace<'a>(
    key: &'a LeaseKey,
    leases: &HashMap<&'a LeaseKey, &'a Lease>,
    shards: &HashMap<&'a LeaseKey, &'a ListedShard>,
    unreadable: &'a HashSet<LeaseKey>,
    visited: &mut HashSet<&'a LeaseKey>,
    found: &mut Vec<Answerable<'a>>,
) {
    if !visited.insert(key) {
        return;
    }
    if let Some(key) = unreadable.get(key) {
        found.push(Answerable::Unreadable(key));
        return;
    }
    let before = found.len();
    let shard = shards.get(key);
    let lease = leases.get(key).copied();
    if lease.is_some_and(Lease::is_complete) {
        // Done; of an open shard that is wrong.
        if shard.is_some_and(|shard| shard.is_open) {
            found.extend(lease.map(Answerable::Row));
        }
        return;
    }
    for parent in shard.into_iter().flat_map(|shard| &shard.parents) {
        trace(parent, leases, shards, unreadable, visited, found);
    }
    // Without a parent that is under way it is the shard's own turn.
    if found.len() == before {
        found.extend(lease.map(Answerable::Row));
    }
}

#[cfg(test)]
mod tests {
    use shardmill_record::{Checkpoint, ShardId};

    use super::*;
    use crate::{LeaseEpoch, NewLease};

    fn key(id: u32) -> LeaseKey {
        LeaseKey::parse(&format!("shardId-{id:012}")).unwrap()
    }

    fn shard(id: u32, is_open: bool, parents: &[u32]) -> ListedShard {
        ListedShard {
            key: key(id),
            is_open,
            parents: parents.iter().map(|parent| key(*parent)).collect(),
            range: HashKeyRange::ALL,
        }
    }

    fn lease(id: u32, owner: Option<&str>, is_done: bool) -> Lease {
        let checkpoint = if is_done { Checkpoint::ShardEnd } else { Checkpoint::TrimHorizon };
        let new = NewLease { key: key(id), checkpoint, start_at: None, parents: Vec::<ShardId>::new(), range: None };
        let owner = owner.map(|owner| WorkerId::parse(owner).unwrap());
        Lease { owner, epoch: LeaseEpoch(1), ..new.into_lease() }
    }

    fn found(listed: &[ListedShard], leases: &[Lease]) -> Vec<(u32, u32, Reason)> {
        let number = |key: &LeaseKey| key.as_str().trim_start_matches("shardId-").parse().unwrap();
        let is_attended = |lease: &Lease| lease.owner.as_ref().is_some_and(|owner| owner.as_str() == "alive");
        let holes = audit(listed, leases, &HashSet::from([key(99)]), is_attended);
        holes.into_iter().map(|hole| (number(&hole.shard), number(&hole.lease), hole.reason)).collect()
    }

    #[test]
    fn every_open_shard_needs_a_lease_with_a_holder_that_renews_it() {
        let listed =
            [shard(0, true, &[]), shard(1, true, &[]), shard(2, true, &[]), shard(3, true, &[]), shard(99, true, &[])];
        let leases = [lease(0, Some("alive"), false), lease(1, None, false), lease(2, Some("dead"), false)];
        let dead = Reason::Expired { holder: WorkerId::parse("dead").unwrap() };
        let expected = [(1, 1, Reason::Unowned), (2, 2, dead), (3, 3, Reason::NoLease), (99, 99, Reason::Unreadable)];
        assert_eq!(found(&listed, &leases), expected);
    }

    #[test]
    fn a_child_is_attended_while_its_parents_are_and_has_its_own_turn_when_they_are_done() {
        let listed = [shard(0, false, &[]), shard(1, false, &[]), shard(2, true, &[0, 1])];
        // No lease of its own yet: the parents' end creates it.
        assert_eq!(found(&listed, &[lease(0, Some("alive"), false), lease(1, Some("alive"), false)]), []);
        let one_done = [lease(0, None, true), lease(1, None, false), lease(2, None, false)];
        assert_eq!(found(&listed, &one_done), [(2, 1, Reason::Unowned)]);
        let done = [lease(0, None, true), lease(1, None, true), lease(2, None, false)];
        assert_eq!(found(&listed, &done), [(2, 2, Reason::Unowned)]);
        assert_eq!(found(&listed, &done[..2]), [(2, 2, Reason::NoLease)]);
        let wrong = [lease(0, None, true), lease(1, None, true), lease(2, None, true)];
        assert_eq!(found(&listed, &wrong), [(2, 2, Reason::DoneThoughOpen)]);
    }

    #[test]
    fn what_is_said_names_the_shard_its_keys_and_what_it_waits_for() {
        let hole = Hole { shard: key(2), range: HashKeyRange::ALL, lease: key(1), reason: Reason::Unowned };
        let text = hole.to_string();
        for part in ["shardId-000000000002", "waits for shardId-000000000001", "no worker holds"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
