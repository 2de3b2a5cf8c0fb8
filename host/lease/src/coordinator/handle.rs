//! What a running coordinator shows, and what it can be told.

use std::sync::Arc;

use tokio::sync::watch;

use crate::audit::Audit;
use crate::bell::Bell;
use crate::{Lease, LeaseKey, Moment};

/// What a coordinator shows of what it knows.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// All leases as of the last scan of this worker, if it scans: only the fleet's leader and its deputy do.
    pub leases: Arc<[Lease]>,
    /// Those that are left alone, because [`ShardSource::runs`](super::ShardSource::runs) says so.
    pub others: Arc<[Lease]>,
    /// What the last audit of the stream's hash keys found, if this worker leads.
    pub audit: Arc<Audit>,
    /// Whether this worker leads the fleet.
    pub leads: bool,
    /// The worker has its place: the tables can be used, and the stream's shards are in them.
    pub is_ready: bool,
    /// How many leases this worker has, or is getting hold of.
    pub claims: usize,
    /// Whether it is known what this worker should have: where it leads, because it has seen the stream's shards and all
    /// leases; else because a leader that lives has had the time to plan for it. Never while the tables cannot be used.
    pub is_planned: bool,
    /// If this worker leads: leases of shards that are not done, whose holder was not seen to renew them, or not lately. It
    /// may be dead, and then they are shared out anew.
    pub doubtful: Arc<[LeaseKey]>,
    /// Why the tables cannot be used, if they cannot.
    pub failing: Option<TableTrouble>,
}

/// Why a consumer's tables cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableTrouble {
    /// Since when, by the coordinator's clock.
    pub since: Moment,
    /// What the store said last.
    pub reason: String,
}

/// Talks to a running coordinator. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(super) bell: Arc<Bell>,
    pub(super) view: watch::Receiver<View>,
}

// === impl Handle ===

impl Handle {
    /// Looks at the table and, on the leader, for shards without a lease now: something has changed.
    pub fn sync_soon(&self) {
        self.bell.ring(Vec::new());
    }

    /// Returns when the worker has its place: the tables can be used, and the stream's shards are in them.
    pub async fn leased(&mut self) {
        // An error means that the coordinator has ended, which is told elsewhere.
        if self.view.wait_for(|view| view.is_ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when what [`Handle::view`] shows has changed.
    pub async fn changed(&mut self) {
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What the coordinator knows.
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }
}
