//! Which shards need a lease, where each starts, and when it may be read.
//!
//! Shards form a graph: a split gives a shard two children, a merge gives a child two parents. A closed shard stays
//! listed until its last record's retention is over, and is then gone, though its children still name it. Rules:
//!
//! - **parents-first**: a child is read after all of its parents are done ([`is_ready`]), from its beginning. A parent
//!   that is gone from the listing, or has no lease, never blocks.
//! - Leases are created ancestors first ([`missing_leases`] returns them in this order, and they have to be created in
//!   it), and the lease of a shard that is done is kept until all shards that follow it have begun. So an unleased shard of
//!   which a leased descendant has begun is done and cleaned up, and its lease is never created again. A descendant that
//!   waits at its beginning proves nothing: the end of one parent of a merge creates it, and the other parent's lease may
//!   never have been created.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use shardmill_record::{Checkpoint, HashKeyRange, ShardId};

use crate::Shard;
use crate::start::StartPosition;

/// What is known of an existing lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseState {
    /// Its checkpoint is `SHARD_END`.
    pub complete: bool,
    /// Its checkpoint is a position or `SHARD_END`: reading has begun.
    pub checkpointed: bool,
    /// Its checkpoint is `TRIM_HORIZON`: it waits at the shard's beginning.
    pub waits_at_beginning: bool,
    /// The start time that is stored with it, in milliseconds since 1970.
    pub start_at: Option<u64>,
}

/// A lease that has to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingLease {
    /// The shard.
    pub shard: ShardId,
    /// `TRIM_HORIZON`, `LATEST` or `AT_TIMESTAMP`.
    pub checkpoint: Checkpoint,
    /// The start time to store with it, in milliseconds since 1970; always there with `LATEST` and `AT_TIMESTAMP`.
    pub start_at: Option<u64>,
    /// The shard's parents, those that are gone included.
    pub parents: Vec<ShardId>,
    /// The shard's hash keys.
    pub range: HashKeyRange,
}

// === impl LeaseState ===

impl LeaseState {
    /// From a lease's checkpoint and the start time stored with it.
    pub fn of(checkpoint: &Checkpoint, start_at: Option<u64>) -> Self {
        Self {
            complete: checkpoint.is_shard_end(),
            checkpointed: !checkpoint.is_start(),
            waits_at_beginning: *checkpoint == Checkpoint::TrimHorizon,
            start_at,
        }
    }
}

/// The leases that are missing, ancestors first: create them in this order.
///
/// The first start of a consumer, which has no leases at all:
/// - `trim-horizon` and a timestamp: every listed shard, with that start;
/// - `latest`: the open shards, with the present time.
///
/// Afterwards:
/// - a shard with a leased ancestor starts at `TRIM_HORIZON`, whatever is configured, because its parent's reader has
///   brought everything before it. Where the start is a timestamp and no ancestor was checkpointed, or the timestamp
///   is still to come, it starts at that timestamp like its ancestors;
/// - a shard with a leased descendant is history, and gets none, unless all of those wait at their beginning;
/// - any other shard was left out when the first start was cut short, or lost its ancestors' leases while the consumer
///   was away: it starts as configured, where `latest` means the time of the first start as the other leases remember
///   it, or `TRIM_HORIZON` if none does. Records may come twice then, and none is lost.
pub fn missing_leases(
    listing: &[Shard],
    leases: &BTreeMap<ShardId, LeaseState>,
    configured: StartPosition,
    now_ms: u64,
) -> Vec<MissingLease> {
    let graph = Graph::new(listing);
    let history = graph.with_leased_descendants(leases);
    let ancestry = graph.leased_ancestry(leases);
    let first_start = leases.is_empty();
    let remembered = leases.values().filter_map(|lease| lease.start_at).min();

    let start_of = |shard: &Shard| -> (Checkpoint, Option<u64>) {
        match (ancestry.get(&shard.id), configured) {
            (Some(inherited), StartPosition::AtTimestamp(at)) if !inherited.checkpointed || at > now_ms => {
                (Checkpoint::AtTimestamp, Some(at))
            }
            (Some(_), _) | (None, StartPosition::TrimHorizon) => (Checkpoint::TrimHorizon, None),
            (None, StartPosition::AtTimestamp(at)) => (Checkpoint::AtTimestamp, Some(at)),
            (None, StartPosition::Latest) if first_start => (Checkpoint::Latest, Some(now_ms)),
            (None, StartPosition::Latest) => match remembered {
                Some(at) => (Checkpoint::Latest, Some(at)),
                None => (Checkpoint::TrimHorizon, None),
            },
        }
    };

    let past_is_left_out = first_start && configured == StartPosition::Latest;
    let is_missing = |shard: &&Shard| {
        !leases.contains_key(&shard.id) && !history.contains(&shard.id) && (shard.is_open() || !past_is_left_out)
    };
    graph
        .ancestors_first()
        .into_iter()
        .filter(is_missing)
        .map(|shard| {
            let (checkpoint, start_at) = start_of(shard);
            let parents = shard.parents.clone();
            MissingLease { shard: shard.id.clone(), checkpoint, start_at, parents, range: shard.range }
        })
        .collect()
}

/// Whether a shard with these parents may be read: each parent is done, has no lease, or is gone from the listing.
pub fn is_ready(parents: &[ShardId], leases: &BTreeMap<ShardId, LeaseState>, listing: &[Shard]) -> bool {
    parents.iter().all(|parent| match leases.get(parent) {
        None => true,
        Some(lease) => lease.complete || !listing.iter().any(|shard| shard.id == *parent),
    })
}

/// The shards that take over from this one.
pub fn children_of<'a>(shard: &ShardId, listing: &'a [Shard]) -> Vec<&'a Shard> {
    listing.iter().filter(|child| child.parents.contains(shard)).collect()
}

/// What a shard's nearest leased ancestors say.
#[derive(Debug, Clone, Copy)]
struct Inherited {
    checkpointed: bool,
}

struct Graph<'a> {
    listing: &'a [Shard],
    by_id: HashMap<&'a ShardId, &'a Shard>,
    /// By parent, the parents that are gone included.
    children: HashMap<&'a ShardId, Vec<&'a Shard>>,
}

// === impl Graph ===

impl<'a> Graph<'a> {
    fn new(listing: &'a [Shard]) -> Self {
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        for shard in listing {
            for parent in &shard.parents {
                children.entry(parent).or_default().push(shard);
            }
        }
        Self { listing, by_id: listing.iter().map(|shard| (&shard.id, shard)).collect(), children }
    }

    fn listed_parents(&self, shard: &Shard) -> impl Iterator<Item = &'a Shard> {
        shard.parents.iter().filter_map(|parent| self.by_id.get(parent).copied())
    }

    /// Every shard after its parents; otherwise in the listing's order.
    fn ancestors_first(&self) -> Vec<&'a Shard> {
        let mut waiting_for: HashMap<&ShardId, usize> =
            self.listing.iter().map(|shard| (&shard.id, self.listed_parents(shard).count())).collect();
        let mut ready: VecDeque<&Shard> = self.listing.iter().filter(|shard| waiting_for[&shard.id] == 0).collect();
        let mut ordered = Vec::with_capacity(self.listing.len());
        while let Some(shard) = ready.pop_front() {
            ordered.push(shard);
            for child in self.children.get(&shard.id).into_iter().flatten() {
                if let Some(parents) = waiting_for.get_mut(&child.id) {
                    *parents -= 1;
                    if *parents == 0 {
                        ready.push_back(child);
                    }
                }
            }
        }
        // Shards in a circle cannot be; if a listing says so all the same, none of them is forgotten.
        if ordered.len() < self.listing.len() {
            let placed: HashSet<&ShardId> = ordered.iter().map(|shard| &shard.id).collect();
            ordered.extend(self.listing.iter().filter(|shard| !placed.contains(&shard.id)));
        }
        ordered
    }

    /// The listed shards from which a leased shard descends that does not wait at its beginning.
    fn with_leased_descendants(&self, leases: &BTreeMap<ShardId, LeaseState>) -> HashSet<&'a ShardId> {
        let mut found = HashSet::new();
        let begun = leases.iter().filter(|(_, lease)| !lease.waits_at_beginning);
        let mut to_visit: Vec<&Shard> = begun.filter_map(|(id, _)| self.by_id.get(id).copied()).collect();
        while let Some(shard) = to_visit.pop() {
            for parent in self.listed_parents(shard) {
                if found.insert(&parent.id) {
                    to_visit.push(parent);
                }
            }
        }
        found
    }

    /// For each listed shard that descends from a leased one, whether any of those ancestors was checkpointed.
    fn leased_ancestry(&self, leases: &BTreeMap<ShardId, LeaseState>) -> HashMap<&'a ShardId, Inherited> {
        let mut found: HashMap<&ShardId, Inherited> = HashMap::new();
        for shard in self.ancestors_first() {
            for parent in &shard.parents {
                let lease = leases.get(parent).map(|lease| Inherited { checkpointed: lease.checkpointed });
                for inherited in [lease, found.get(parent).copied()].into_iter().flatten() {
                    let entry = found.entry(&shard.id).or_insert(Inherited { checkpointed: false });
                    entry.checkpointed |= inherited.checkpointed;
                }
            }
        }
        found
    }
}
