//! Shards that cannot begin because their parents are not done, and do not get on: seen by the worker that leads, which
//! alone sees all leases.
//!
//! How a parent gets on is known where it is held. Of those that others hold the table tells only their checkpoints, which
//! stand still for good reasons too (few of them are written, the guest keeps them back, there are no records for hours):
//! their own workers name them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use shardmill_lease::{Lease, LeaseKey};
use tokio::time::Instant;

use super::{Reason, Stall};

/// Remembers parents that nobody has.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    /// Since when.
    free: HashMap<LeaseKey, Instant>,
}

// === impl Parents ===

impl Parents {
    /// The leases that wait for a parent which stands still. `here`: the leases that this worker runs, each with the time
    /// since when it stands, if it does, and nobody wants it to.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        stall_after: Duration,
        leases: &[Lease],
        here: &BTreeMap<&str, Option<Instant>>,
    ) -> Vec<(LeaseKey, Stall)> {
        let undone: HashMap<&LeaseKey, &Lease> =
            leases.iter().filter(|lease| !lease.is_complete()).map(|lease| (&lease.key, lease)).collect();
        let mut free = HashMap::new();
        let mut stalls = Vec::new();
        for lease in undone.values().filter(|lease| lease.writer().is_none()) {
            for front in fronts(lease, &undone) {
                let stands_since = match here.get(front.key.as_str()) {
                    Some(stands_since) => *stands_since,
                    None if front.writer().is_some() => None,
                    None => {
                        let since = self.free.get(&front.key).copied().unwrap_or(now);
                        free.insert(front.key.clone(), since);
                        (now.saturating_duration_since(since) >= stall_after).then_some(since)
                    }
                };
                if let Some(since) = stands_since {
                    let holder = front.writer().map(ToString::to_string);
                    let reason = Reason::Parent { lease: front.key.to_string(), holder };
                    stalls.push((lease.key.clone(), Stall { reason, since, moved: since }));
                    break;
                }
            }
        }
        self.free = free;
        stalls
    }
}

/// The ancestors of a lease that can be worked on now and are not done, each once.
pub(crate) fn fronts<'a>(lease: &Lease, undone: &HashMap<&LeaseKey, &'a Lease>) -> Vec<&'a Lease> {
    let mut fronts = Vec::new();
    let mut visited = HashSet::new();
    let mut open: Vec<LeaseKey> = lease.parent_keys().collect();
    while let Some(key) = open.pop() {
        let Some(parent) = undone.get(&key) else { continue };
        if !visited.insert(key) {
            continue;
        }
        let before: Vec<LeaseKey> = parent.parent_keys().filter(|key| undone.contains_key(key)).collect();
        if before.is_empty() {
            fronts.push(*parent);
        }
        open.extend(before);
    }
    fronts
}
