//! What an operator can tell a shard to do: pause, go on, begin again, begin somewhere else.
//!
//! An order is for the lease as this worker holds it: it goes with the lease, and the next worker knows nothing of it. What
//! a rewind has written stays.

use std::future::Future;

use shardmill_lease::change::Restart;
use tokio::sync::{oneshot, watch};

use crate::leave::Leave;
use crate::shard_entry::ShardEntry;
use crate::status::Status;

/// Why an order was not carried out, where nobody is left to say more.
const GONE: &str = "this worker let the shard go, or lost it, before that was done; ask the worker that has it now";

/// The orders that one shard's task has to obey. All of them change in one place, so that none is seen without what it says.
#[derive(Debug, Default)]
pub(crate) struct Control {
    orders: watch::Sender<Orders>,
}

#[derive(Debug, Default)]
struct Orders {
    paused: bool,
    /// Of the task itself: what fails is not tried again.
    leaving: bool,
    restart: bool,
    rewind: Option<RewindOrder>,
}

/// Begin somewhere else.
#[derive(Debug)]
pub(crate) struct RewindOrder {
    pub(crate) to: Restart,
    answer: oneshot::Sender<Result<(), String>>,
}

// === impl RewindOrder ===

impl RewindOrder {
    /// Says what came of it.
    pub(crate) fn answer(self, result: Result<(), String>) {
        // Nobody may wait for it any more.
        let _gone = self.answer.send(result);
    }
}

// === impl Control ===

impl Control {
    /// Whether that changes anything.
    fn set_paused(&self, paused: bool) -> bool {
        self.orders.send_if_modified(|orders| std::mem::replace(&mut orders.paused, paused) != paused)
    }

    /// The order that was there before.
    fn set_rewind(&self, order: Option<RewindOrder>) -> Option<RewindOrder> {
        let mut before = None;
        self.orders.send_modify(|orders| before = std::mem::replace(&mut orders.rewind, order));
        before
    }

    /// For a shard that is stopped now, or not any more.
    pub(crate) fn set_restart(&self, restart: bool) {
        self.orders.send_modify(|orders| orders.restart = restart);
    }

    /// For a shard that stops while several of its batches are on their way: those that would be tried again are left, as for
    /// a pause.
    pub(crate) fn set_leaving(&self, leaving: bool) {
        self.orders.send_modify(|orders| orders.leaving = leaving);
    }

    async fn until(&self, holds: impl FnMut(&Orders) -> bool) {
        if self.orders.subscribe().wait_for(holds).await.is_err() {
            // The sender is in `self`, so that this is never reached.
            std::future::pending::<()>().await;
        }
    }
}

// === impl ShardEntry ===

impl ShardEntry {
    /// Why the task has to leave its loop, if an operator wants something of it, or it stops.
    pub(crate) fn order(&self) -> Option<Leave> {
        match &*self.live().control.orders.borrow() {
            Orders { rewind: Some(_), .. } => Some(Leave::Rewind),
            Orders { paused: true, .. } | Orders { leaving: true, .. } => Some(Leave::Pause),
            _ => None,
        }
    }

    /// Returns when there is such an order.
    pub(crate) async fn ordered(&self) -> Leave {
        self.live().control.until(|orders| orders.paused || orders.leaving || orders.rewind.is_some()).await;
        self.order().unwrap_or(Leave::Pause)
    }

    /// Returns when the shard is to begin somewhere else.
    pub(crate) async fn rewinding(&self) {
        self.live().control.until(|orders| orders.rewind.is_some()).await;
    }

    /// Returns when the shard may go on.
    pub(crate) async fn resumed(&self) {
        self.live().control.until(|orders| !orders.paused).await;
    }

    /// Returns when a stopped shard is to begin again.
    pub(crate) async fn restarted(&self) {
        self.live().control.until(|orders| orders.restart).await;
    }

    /// Where the shard is to begin; the order is the caller's to carry out.
    pub(crate) fn take_rewind(&self) -> Option<RewindOrder> {
        self.live().control.set_rewind(None)
    }
}

// === impl Status ===

impl Status {
    /// Lets a shard rest once the batch in hand is done: it reads nothing, its lease is kept. Until it is resumed, or this
    /// worker lets the lease go. Whether that changes anything; `None` if this worker does not hold the lease.
    pub fn pause(&self, consumer: &str, lease_key: &str) -> Option<bool> {
        Some(self.live(consumer, lease_key)?.control.set_paused(true))
    }

    /// Lets a paused shard go on, from its last checkpoint. As [`pause`](Self::pause).
    pub fn resume(&self, consumer: &str, lease_key: &str) -> Option<bool> {
        Some(self.live(consumer, lease_key)?.control.set_paused(false))
    }

    /// Lets a stopped shard begin again, from its last checkpoint. `false` if it is not stopped, or not held here.
    pub fn restart(&self, consumer: &str, lease_key: &str) -> bool {
        let Some(live) = self.live(consumer, lease_key) else { return false };
        // A task that is not waiting yet finds it when it does.
        self.if_stopped(consumer, lease_key, || live.control.set_restart(true))
    }

    /// Lets a shard begin somewhere else; the batch in hand is given up. What it returns says whether the lease table took
    /// it, and why not. `None` if this worker does not hold the lease.
    pub fn rewind(
        &self,
        consumer: &str,
        lease_key: &str,
        to: Restart,
    ) -> Option<impl Future<Output = Result<(), String>> + Send + use<>> {
        let live = self.live(consumer, lease_key)?;
        let (answer, answered) = oneshot::channel();
        let order = RewindOrder { to, answer };
        // The batch in hand is not to be given up for nothing.
        if let Some(reason) = live.refuses_rewind() {
            order.answer(Err(reason.to_owned()));
        } else if let Some(before) = live.control.set_rewind(Some(order)) {
            before.answer(Err("another rewind took its place before it was done".to_owned()));
        }
        // Not kept alive here: when the lease goes, the order goes, and that is the answer.
        drop(live);
        Some(async move { answered.await.unwrap_or_else(|_gone| Err(GONE.to_owned())) })
    }
}
