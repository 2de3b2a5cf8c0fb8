//! Where leases come from: the stream's shards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use shardmill_lease::audit::ListedShard;
use shardmill_lease::{Lease, LeaseKey, NewLease, ShardSource, Survey};
use shardmill_record::{Checkpoint, ShardId};
use shardmill_stream::lineage::{LeaseState, children_of, missing_leases};
use shardmill_stream::start::Start;
use shardmill_stream::{ChildShard, Kinesis};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Names the shards that take over when one ends.
#[async_trait]
pub(crate) trait Directory: Send + Sync {
    /// The leases of the children. `named` are those that the service gave with the shard's last page; without, the
    /// stream's shards are listed.
    async fn children(&self, shard: &ShardId, named: Option<&[ChildShard]>) -> Result<Vec<NewLease>, BoxError>;
}

/// The shards of one stream, asked of Kinesis.
#[derive(Debug, Clone)]
pub(crate) struct StreamShards {
    kinesis: Kinesis,
    stream: Arc<str>,
    start: Start,
}

// === impl StreamShards ===

impl StreamShards {
    pub(crate) fn new(kinesis: Kinesis, stream: Arc<str>, start: Start) -> Self {
        Self { kinesis, stream, start }
    }
}

#[async_trait]
impl ShardSource for StreamShards {
    async fn survey(&self, leases: &[Lease]) -> Result<Survey, BoxError> {
        let listing = self.kinesis.list_shards(&self.stream).await?;
        let mut states = BTreeMap::new();
        for lease in leases {
            states.insert(lease.key.shard_id()?, LeaseState::of(&lease.checkpoint, lease.start_at));
        }
        let missing = missing_leases(&listing, &states, self.start.position, now_ms());
        let to_lease = |missing: shardmill_stream::lineage::MissingLease| NewLease {
            key: LeaseKey::of_shard(&missing.shard),
            checkpoint: missing.checkpoint,
            start_at: missing.start_at,
            parents: missing.parents,
            range: Some(missing.range),
        };
        let listed = |shard: &shardmill_stream::Shard| ListedShard {
            key: LeaseKey::of_shard(&shard.id),
            is_open: shard.is_open(),
            parents: shard.parents.iter().map(LeaseKey::of_shard).collect(),
            range: shard.range,
        };
        let listed = listing.iter().map(listed).collect();
        Ok(Survey { missing: missing.into_iter().map(to_lease).collect(), listed })
    }
}

#[async_trait]
impl Directory for StreamShards {
    async fn children(&self, shard: &ShardId, named: Option<&[ChildShard]>) -> Result<Vec<NewLease>, BoxError> {
        let children = match named {
            Some(named) => named.to_vec(),
            None => {
                let listing = self.kinesis.list_shards(&self.stream).await?;
                children_of(shard, &listing).into_iter().map(shardmill_stream::Shard::as_child).collect()
            }
        };
        Ok(children.into_iter().map(from_beginning).collect())
    }
}

/// A child is read from its beginning, so that nothing between it and its parents is skipped.
fn from_beginning(child: ChildShard) -> NewLease {
    NewLease {
        key: LeaseKey::of_shard(&child.id),
        checkpoint: Checkpoint::TrimHorizon,
        start_at: None,
        parents: child.parents,
        range: Some(child.range),
    }
}

/// Milliseconds since 1970. Only start positions are told by it, which are times of the service.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
