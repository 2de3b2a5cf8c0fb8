//! Shards that cannot begin because their parents are not done, and do not get on: seen by the worker that leads, which
//! alone sees all leases. A child whose parent gets on waits as it should.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use shardmill_lease::{Lease, LeaseKey};
use shardmill_record::Checkpoint;
use tokio::time::Instant;

use super::{Reason, Stall};

/// Remembers how far parents were.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    /// Since when each has stood where it stands.
    seen: HashMap<LeaseKey, (Checkpoint, Instant)>,
}

// === impl Parents ===

impl Parents {
    /// The leases that wait for a parent which stands still.
    pub(crate) fn look(&mut self, now: Instant, stall_after: Duration, leases: &[Lease]) -> Vec<(LeaseKey, Stall)> {
        let undone: HashMap<&LeaseKey, &Lease> =
            leases.iter().filter(|lease| !lease.is_complete()).map(|lease| (&lease.key, lease)).collect();
        let mut seen = HashMap::new();
        let mut stalls = Vec::new();
        for lease in undone.values().filter(|lease| lease.writer().is_none()) {
            for front in fronts(lease, &undone) {
                let before = self.seen.get(&front.key).filter(|(checkpoint, _)| *checkpoint == front.checkpoint);
                let since = before.map_or(now, |(_, since)| *since);
                seen.insert(front.key.clone(), (front.checkpoint.clone(), since));
                if now.saturating_duration_since(since) >= stall_after {
                    let holder = front.writer().map(ToString::to_string);
                    let reason = Reason::Parent { lease: front.key.to_string(), holder };
                    stalls.push((lease.key.clone(), Stall { reason, since, moved: since }));
                    break;
                }
            }
        }
        self.seen = seen;
        stalls
    }
}

/// The ancestors that can be worked on now and are not done, each once.
fn fronts<'a>(lease: &Lease, undone: &HashMap<&LeaseKey, &'a Lease>) -> Vec<&'a Lease> {
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
