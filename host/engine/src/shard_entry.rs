//! Where a shard's task says what it is doing.

use std::sync::Arc;

use shardmill_record::Batch;

use crate::live::{Activity, Live};
use crate::status::{ShardState, ShardStatus, Status};

/// Where one shard's task writes what it is doing, and hears what an operator wants. Cheap to clone; the shard's entry goes
/// when the last one is dropped.
#[derive(Debug, Clone)]
pub(crate) struct ShardEntry {
    inner: Arc<Entry>,
}

#[derive(Debug)]
struct Entry {
    status: Status,
    consumer: String,
    key: String,
    live: Arc<Live>,
}

// === impl ShardEntry ===

impl ShardEntry {
    pub(crate) fn new(status: Status, consumer: String, key: String, live: Arc<Live>) -> Self {
        Self { inner: Arc::new(Entry { status, consumer, key, live }) }
    }

    /// Says what the task does now.
    pub(crate) fn set_state(&self, state: ShardState) {
        let is_stop = |state: &ShardState| matches!(state, ShardState::Stopped { .. });
        if is_stop(&state) && !self.is(is_stop) {
            // An order to start again was about the stop before.
            self.live().control.set_restart(false);
        }
        if state == ShardState::Running {
            // It has begun, or goes on: what was before is no standstill.
            self.live().moved();
        }
        self.update(|status| status.state = state);
    }

    /// Says what the task is about.
    pub(crate) fn doing(&self, activity: Activity) {
        self.live().doing(activity);
    }

    /// Says how far everything is done.
    pub(crate) fn set_position(&self, position: String) {
        self.live().moved();
        self.update(|status| status.position = Some(position));
    }

    /// Says that a page was taken, and how far the tip is ahead of it.
    pub(crate) fn set_lag(&self, millis_behind_latest: Option<u64>) {
        self.live().moved();
        self.update(|status| status.millis_behind_latest = millis_behind_latest);
    }

    /// Says that the records of a batch from this one on are on their way, and whether more of what was read follows them.
    pub(crate) fn handed_out(&self, batch: &Batch, from: usize, is_followed: bool) {
        let arrivals = batch.approximate_arrivals();
        if let (Some(first), Some(last)) = (arrivals.get(from), arrivals.last()) {
            let rest = is_followed.then_some(*last);
            self.live().undone().hand_out(batch.position(arrivals.len() - 1), *first, rest);
        }
    }

    /// Says that the shard had nothing new, as the page says that came with this lag.
    pub(crate) fn had_nothing(&self, millis_behind_latest: Option<u64>) {
        if millis_behind_latest.unwrap_or(0) == 0 {
            self.live().at_tip();
        }
    }

    /// What the shard is about, for who watches it and who tells it what to do.
    pub(crate) fn live(&self) -> &Live {
        &self.inner.live
    }

    fn is(&self, holds: impl FnOnce(&ShardState) -> bool) -> bool {
        let mut is = false;
        self.update(|status| is = holds(&status.state));
        is
    }

    fn update(&self, change: impl FnOnce(&mut ShardStatus)) {
        let Entry { status, consumer, key, .. } = self.inner.as_ref();
        status.with(|consumers| {
            let shard = consumers.get_mut(consumer).and_then(|consumer| consumer.shards.get_mut(key));
            if let Some(status) = shard {
                change(status);
            }
        });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.status.with(|consumers| {
            if let Some(consumer) = consumers.get_mut(&self.consumer) {
                consumer.shards.remove(&self.key);
            }
        });
        self.status.with_live(|all| all.remove(&(self.consumer.clone(), self.key.clone())));
    }
}
