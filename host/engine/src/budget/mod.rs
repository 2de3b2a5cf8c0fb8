//! The bytes that records in flight may take, shared by all shards of a process.
//!
//! [`ledger`] decides who gets memory; here it is waited for.

mod ledger;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;

use self::ledger::{Held, Ledger, ShardKey};
use crate::Metrics;
use crate::metrics::ProcessorLabels;

/// A record is no smaller a batch than this, whatever the limits of batches are.
const LARGE_RECORD: u64 = 1 << 20;

/// A bounded number of bytes, of which each consumer has a fair share. A page is reserved before it is read and until the
/// last batch of it is processed, with the batch and the guest's copy of it, so that memory stays bounded whatever arrives
/// and however many shards there are. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    metrics: Option<Metrics>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    waiting: HashMap<ShardKey, oneshot::Sender<Held>>,
    /// What each consumer holds, and how many of its shards wait, for the metrics.
    shown: BTreeMap<Arc<str>, [Gauge; 2]>,
}

/// One shard's way to the budget, for as long as it is read.
#[derive(Debug)]
pub(crate) struct ShardBudget {
    shared: Arc<Shared>,
    key: ShardKey,
}

/// Bytes that are taken from the budget for one page until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    key: ShardKey,
    held: Held,
}

/// A shard that waits. Dropped before it has got what it waits for, it waits no more.
struct Waits<'a> {
    shard: &'a ShardBudget,
    granted: oneshot::Receiver<Held>,
    is_over: bool,
}

// === impl Budget ===

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self::with(bytes, None)
    }

    fn with(bytes: u64, metrics: Option<Metrics>) -> Self {
        let state = State { ledger: Ledger::new(bytes), waiting: HashMap::new(), shown: BTreeMap::new() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), metrics }) }
    }

    /// A budget of the same size that shows in the metrics how large it is, and what of it is reserved. To be made before
    /// anything is.
    #[must_use]
    pub fn shown_in(self, metrics: &Metrics) -> Self {
        let total = self.shared.state().ledger.total();
        metrics.memory_budget.set(in_bytes(total));
        Self::with(total, Some(metrics.clone()))
    }

    /// A shard of a processor that is going to be read, whose batches have at most so many bytes, or one large record.
    /// Of the batch and its copy at most half the budget is counted.
    pub(crate) fn shard(&self, processor: &str, batch_bytes: u64) -> ShardBudget {
        let copies = batch_bytes.max(LARGE_RECORD).saturating_mul(2);
        self.open(processor, copies)
    }

    fn open(&self, processor: &str, most_copies: u64) -> ShardBudget {
        let mut state = self.shared.state();
        let processor: Arc<str> = processor.into();
        let key = state.ledger.open(&processor, most_copies, shardmill_stream::WHOLE_PAGE);
        if let Some(metrics) = &self.shared.metrics {
            state.shown.entry(processor).or_insert_with_key(|processor| {
                let labels = ProcessorLabels { processor: processor.to_string() };
                let gauge = |family: &crate::metrics::OfProcessor| family.get_or_create(&labels).clone();
                [gauge(&metrics.processor_memory), gauge(&metrics.memory_waiting)]
            });
        }
        ShardBudget { shared: Arc::clone(&self.shared), key }
    }

    /// The bytes that are free.
    pub fn available(&self) -> u64 {
        self.shared.state().ledger.free()
    }

    /// So many bytes for a processor of their own.
    #[cfg(test)]
    pub(crate) async fn reserve(&self, bytes: u64) -> Reservation {
        self.open("a test", 0).reserve(bytes).await
    }
}

// === impl Shared ===

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // The ledger does not panic on what it is given, and is whole between its calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something, gives what is free then to those who wait, and shows what has become of it.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        while let Some((key, held)) = state.ledger.serve() {
            // Whoever does not wait any more has taken itself out, or is about to give this back: see `Waits`.
            if let Some(waits) = state.waiting.remove(&key) {
                let _gone = waits.send(held);
            }
        }
        if let Some(metrics) = &self.metrics {
            metrics.memory_reserved.set(in_bytes(state.ledger.total() - state.ledger.free()));
        }
        for (processor, [reserved, waiting]) in &state.shown {
            let (held, waits) = state.ledger.of(processor);
            reserved.set(in_bytes(held));
            waiting.set(i64::try_from(waits).unwrap_or(i64::MAX));
        }
        result
    }
}

// === impl ShardBudget ===

impl ShardBudget {
    /// The most bytes of its records that may be in batches at a time: the guest has as much, and of both together at most
    /// half the budget is counted.
    pub(crate) fn most_in_batches(&self) -> u64 {
        self.shared.state().ledger.most_copies(self.key) / 2
    }

    /// Waits until it is this shard's turn and a page of so many bytes can be held, with the batch that it makes; more than
    /// the budget has beside that is cut to it. Cancel-safe: who does not wait any more has nothing.
    pub(crate) async fn reserve(&mut self, page: u64) -> Reservation {
        let (sender, granted) = oneshot::channel();
        let mut waits = Waits { shard: self, granted, is_over: false };
        let key = self.key;
        self.shared.change(|state| {
            state.waiting.insert(key, sender);
            state.ledger.ask(key, page);
        });
        let held = (&mut waits.granted).await.expect("a shard that waits is told");
        waits.is_over = true;
        Reservation { shared: Arc::clone(&self.shared), key, held }
    }
}

impl Drop for ShardBudget {
    fn drop(&mut self) {
        self.shared.change(|state| state.ledger.close(self.key));
    }
}

// === impl Waits ===

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let key = self.shard.key;
        self.shard.shared.change(|state| {
            state.waiting.remove(&key);
            if !state.ledger.withdraw(key)
                && let Ok(held) = self.granted.try_recv()
            {
                state.ledger.release(key, held);
            }
        });
    }
}

// === impl Reservation ===

impl Reservation {
    /// Says what came: a page that takes so many bytes, with so many of keys and payloads. What is over is given back; or,
    /// where that is more than was expected, what is missing is taken as far as it is free. To wait for the rest would be
    /// to wait for others who may wait for the same.
    pub(crate) fn resize_to(&mut self, page: u64, content: u64) {
        let to = Held { page, content };
        self.held = self.shared.change(|state| state.ledger.resize(self.key, self.held, to));
    }

    /// The bytes that are held for the page itself.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.page
    }

    /// Whether so many bytes more are free, and nobody waits for them.
    pub(crate) fn leaves(&self, bytes: u64) -> bool {
        let state = self.shared.state();
        state.ledger.free() >= bytes && !state.ledger.anybody_waits()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shared.change(|state| state.ledger.release(self.key, self.held));
    }
}

fn in_bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
