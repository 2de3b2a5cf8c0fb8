use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_record::Batch;

use super::super::ShardScene;
use super::window::{Id, Window};
use crate::Delivery;
use crate::batch_work::Ledger;

/// One batch of many that are on their way: what is dealt with of it moves the checkpoint when everything before it is dealt
/// with as well.
pub(super) struct LaneLedger {
    shard: Arc<ShardScene>,
    window: Arc<Mutex<Window>>,
    /// Of the batch's records.
    ids: Vec<Id>,
    /// How many of them are dealt with.
    passed: AtomicUsize,
}

// === impl LaneLedger ===

impl LaneLedger {
    pub(super) fn new(shard: Arc<ShardScene>, window: Arc<Mutex<Window>>, ids: Vec<Id>) -> Self {
        Self { shard, window, ids, passed: AtomicUsize::new(0) }
    }
}

impl Ledger for LaneLedger {
    fn passed(&self, _batch: &Batch, through: usize, records: usize, is_end: bool) {
        let before = self.passed.swap(through, Ordering::Relaxed);
        self.shard.share.spend(records);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.settle(self.ids[before..through].iter().copied());
        // At most once the checkpoint is at the batch's end already.
        if is_end || self.shard.options.delivery == Delivery::AtLeastOnce {
            advance(&mut window, &self.shard);
        }
    }
}

/// Lets the checkpoint pass what is dealt with.
pub(super) fn advance(window: &mut Window, shard: &ShardScene) {
    if let Some(passed) = window.advance() {
        shard.advance(passed.through, passed.last_record, passed.records);
    }
}
