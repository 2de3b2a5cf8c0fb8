//! Whether another system works on the table: asked before anything is written.

use super::scanner::{Stranger, scan};
use super::{Coordinator, RunError};
use crate::options::Takeover;
use crate::{LeaseKey, WorkerId};

/// A worker of another system that works on the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the worker `{worker}` renews lease `{lease}` of this table and is none of Shardmill's, a KCL application it seems: both would take leases from each other; stop it first, or set `leases.takeover = \"force\"` to go on beside it"
)]
pub struct ForeignWorker {
    /// Its id.
    pub worker: WorkerId,
    /// A lease that it was seen to renew.
    pub lease: LeaseKey,
}

// === impl Coordinator ===

impl Coordinator {
    /// Makes sure that no other system works on the table, before anything is written. Returns whether that is known: a
    /// holder that is none of the fleet's has the expiry to show that it lives, and its leases cannot be taken before.
    pub(super) async fn vet(&mut self) -> Result<bool, RunError> {
        let scan = scan(&self.surroundings, &*self.source).await?;
        self.scanner.observe(&scan, &self.options);
        let now = scan.now;
        match self.scanner.stranger(&scan) {
            Some(Stranger { holder, lease, is_alive: true }) if self.options.takeover == Takeover::Refuse => {
                return Err(ForeignWorker { worker: holder.clone(), lease: lease.clone() }.into());
            }
            Some(Stranger { holder, is_alive: false, .. })
                if self.options.takeover == Takeover::Refuse
                    && now.saturating_since(self.rounds.joined_at) < self.options.expiry =>
            {
                if self.rounds.scanned.replace(now).is_none() {
                    tracing::info!(
                        application = self.options.application, worker = %holder,
                        "leases are held by a worker that is none of Shardmill's; waiting to see whether it lives"
                    );
                }
                return Ok(false);
            }
            _ => {}
        }
        self.rounds.is_vetted = true;
        if self.options.worker_runs_once {
            for order in self.left_behind(&scan.listing.leases) {
                self.start_acquiring(order);
            }
        }
        self.view.send_modify(|view| {
            view.leases = scan.listing.leases.into();
            view.others = scan.others.into();
        });
        Ok(true)
    }
}
