use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use shardmill_lease::Fence;
use shardmill_plugin::ShardContext;
use shardmill_record::{Batch, Position};

use super::super::ShardScene;
use super::window::{Id, Window};
use crate::Delivery;
use crate::batch_work::{Leave, Origin, Scene};
use crate::live::Activity;
use crate::status::ShardState;

/// A shard, for one batch of many that are on their way: what is dealt with of it moves the checkpoint when everything before it
/// is dealt with as well.
pub(super) struct LaneScene {
    shard: Arc<ShardScene>,
    window: Arc<Mutex<Window>>,
    /// Of the batch's records.
    ids: Vec<Id>,
    /// How many of them are dealt with.
    passed: AtomicUsize,
}

// === impl LaneScene ===

impl LaneScene {
    pub(super) fn new(shard: Arc<ShardScene>, window: Arc<Mutex<Window>>, ids: Vec<Id>) -> Self {
        Self { shard, window, ids, passed: AtomicUsize::new(0) }
    }
}

/// Lets the checkpoint pass what is dealt with.
pub(super) fn advance(window: &mut Window, shard: &ShardScene) {
    if let Some(passed) = window.advance() {
        shard.advance(passed.through, passed.last_record, passed.records);
    }
}

#[async_trait]
impl Scene for LaneScene {
    fn origin(&self) -> Origin {
        self.shard.origin()
    }

    fn context(&self, attempt: u32) -> ShardContext {
        self.shard.context(attempt)
    }

    fn fence(&self) -> Fence {
        self.shard.fence()
    }

    async fn cut_off(&self) -> Leave {
        self.shard.cut_off().await
    }

    async fn aborted(&self) {
        self.shard.aborted().await;
    }

    async fn called_away(&self, delivery: Delivery) -> Leave {
        self.shard.called_away(delivery).await
    }

    async fn draining(&self) {
        self.shard.draining().await;
    }

    fn doing(&self, activity: Activity) {
        self.shard.doing(activity);
    }

    fn set_state(&self, state: ShardState) {
        self.shard.set_state(state);
    }

    fn hand_over(&self, last: Position) {
        self.shard.hand_over(last);
    }

    fn handed_over(&self) -> Option<Position> {
        self.shard.handed_over()
    }

    fn allow(&self, position: Position) {
        self.shard.allow(position);
    }

    async fn checkpoint_first(&self, batch: &Batch) -> Result<(), Leave> {
        self.shard.checkpoint_first(batch).await
    }

    fn passed(&self, _batch: &Batch, through: usize, records: usize, _is_end: bool) {
        let before = self.passed.swap(through, Ordering::Relaxed);
        self.shard.share.spend(records);
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.settle(self.ids[before..through].iter().copied());
        advance(&mut window, &self.shard);
    }
}
