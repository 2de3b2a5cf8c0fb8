//! What only the leader does with what it has seen: it writes plans, and shows what is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::time::timeout;

use super::Coordinator;
use super::scanner::{Assignments, Scan};
use crate::audit::Audit;
use crate::fleet::{Plan, plan_key, read};
use crate::store::{Document, Error};
use crate::{Lease, LeaseKey, WorkerId};

// === impl Coordinator ===

impl Coordinator {
    /// Says once that this worker leads, or leads no more.
    pub(super) fn note_leadership(&mut self) {
        let leads = self.is_leader();
        if std::mem::replace(&mut self.rounds.was_leader, leads) == leads {
            return;
        }
        self.surroundings.recorder.leads(leads);
        let (application, worker) = (&self.options.application, &self.options.worker);
        if leads {
            tracing::info!(application, %worker, "this worker leads: it says who should have which lease");
            self.sync.make_due();
        } else {
            tracing::info!(application, %worker, "this worker leads no more");
            // What it would go on to show would be old.
            self.view.send_modify(|view| {
                view.leads = false;
                view.audit = Arc::default();
                view.doubtful = Arc::default();
            });
        }
    }

    /// Writes the plans that have changed, and takes away what workers that are gone have left.
    pub(super) async fn publish(&self, scan: &Scan, assignments: &Assignments) -> Result<(), Error> {
        let surroundings = &self.surroundings;
        let (store, limit) = (&surroundings.store, surroundings.write_timeout);
        let mut writes: Vec<BoxFuture<'_, Result<bool, Error>>> = Vec::new();
        for (worker, plan) in changed(&assignments.plans, &scan.documents, &self.options.worker) {
            let (key, body) = (plan_key(worker), json!(plan));
            let version = scan.documents.get(&key).map(|document| document.version);
            writes.push(Box::pin(async move {
                // Whatever comes of it, the next scan shows it.
                let put = timeout(limit, store.put_document(&key, &body, version)).await;
                put.map_err(|_| surroundings.no_answer())?
            }));
        }
        for (key, version) in self.scanner.forgotten(scan, &self.options) {
            writes.push(Box::pin(async move {
                let deleted = timeout(limit, store.delete_document(key, version)).await;
                deleted.map_err(|_| surroundings.no_answer())?
            }));
        }
        // One after another they would take longer than a round.
        let mut writes = stream::iter(writes).buffer_unordered(self.options.parallelism);
        while let Some(written) = writes.next().await {
            written?;
        }
        Ok(())
    }

    /// Shows others what was seen.
    pub(super) fn show(&mut self, scan: Scan) {
        let leads = self.is_leader();
        let holes = if leads {
            self.scanner.holes(&scan, self.sync.listed.as_deref().unwrap_or_default(), &self.options)
        } else {
            Vec::new()
        };
        self.surroundings.recorder.unattended(holes.len());
        let before = self.view.borrow().audit.clone();
        for hole in holes.iter().filter(|hole| !before.holes.contains(hole)) {
            tracing::error!(application = self.options.application, "{hole}");
        }
        if holes.is_empty() && !before.holes.is_empty() {
            tracing::info!(application = self.options.application, "every shard has a worker again");
        }
        let audit = if holes == before.holes { before } else { Arc::new(Audit { holes }) };
        let is_doubtful = |lease: &&Lease| {
            let is_anothers = !lease.is_complete() && lease.writer().is_some() && !self.held.contains_key(&lease.key);
            is_anothers && self.scanner.is_doubtful(&lease.key, scan.now, &self.options)
        };
        let doubtful: Vec<LeaseKey> = match leads {
            true => scan.listing.leases.iter().filter(is_doubtful).map(|lease| lease.key.clone()).collect(),
            false => Vec::new(),
        };
        let leases: Arc<[Lease]> = scan.listing.leases.into();
        self.view.send_modify(|view| {
            view.is_ready |= !leases.is_empty();
            view.leases = leases;
            view.others = scan.others.into();
            view.audit = audit;
            view.leads = leads;
            view.doubtful = doubtful.into();
        });
    }
}

/// The plans that are not in the table as they should be. The leader's own is carried out without being written.
fn changed<'a>(
    plans: &'a BTreeMap<WorkerId, Plan>,
    documents: &BTreeMap<String, Document>,
    leader: &WorkerId,
) -> Vec<(&'a WorkerId, &'a Plan)> {
    let is_changed = |(worker, plan): &(&WorkerId, &Plan)| {
        let written: Plan = documents.get(&plan_key(worker)).and_then(read).unwrap_or_default();
        *worker != leader && written != **plan
    };
    plans.iter().filter(is_changed).collect()
}
