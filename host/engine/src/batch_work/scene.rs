use std::sync::Arc;

use async_trait::async_trait;
use shardmill_lease::Fence;
use shardmill_plugin::ShardContext;
use shardmill_record::{Batch, Position, ShardId};

use super::Leave;
use crate::Delivery;
use crate::live::Activity;
use crate::status::ShardState;

/// Where records come from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The stream, by the name or ARN of the configuration.
    pub(crate) stream: Arc<str>,
    pub(crate) stream_arn: Arc<str>,
    pub(crate) shard: ShardId,
    pub(crate) lease_epoch: u64,
    /// How many processors the records have come through, the one that reads the shard not counted.
    pub(crate) hops: u32,
}

/// What is around a batch that is worked on: whose it is, and when to leave it.
#[async_trait]
pub(crate) trait Scene: Send + Sync {
    fn origin(&self) -> Origin;

    /// What a guest is told of the shard.
    fn context(&self, attempt: u32) -> ShardContext;

    /// What every request for the batch asks.
    fn fence(&self) -> Fence;

    /// Returns when the batch is to be left at once.
    async fn cut_off(&self) -> Leave;

    /// What a crash does to the records of the shard that the batch comes from, over whatever processors.
    fn delivery(&self) -> Delivery;

    /// Returns when the batch is to be left before another attempt.
    async fn called_away(&self) -> Leave;

    fn doing(&self, activity: Activity);

    fn set_state(&self, state: ShardState);

    /// The guest sees the records up to here.
    fn hand_over(&self, last: Position);

    /// The last record that the guest has seen: it cannot mean any position behind that.
    fn handed_over(&self) -> Option<Position>;

    /// The guest lets the checkpoint go up to here.
    fn allow(&self, position: Position);

    /// At most once: the checkpoint passes the batch before anybody sees it.
    async fn checkpoint_first(&self, batch: &Batch) -> Result<(), Leave>;
}

/// Who is told how far a batch is.
pub(crate) trait Ledger: Send + Sync {
    /// The first `through` records of the batch are dealt with, of which `records` are new, and what they have caused is where
    /// it belongs.
    fn passed(&self, batch: &Batch, through: usize, records: usize, is_end: bool);
}
