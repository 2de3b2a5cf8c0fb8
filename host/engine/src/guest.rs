//! What the engine needs of a guest.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shardmill_plugin::{Failure, GivenUpRecord, HookOutcome, Outcome, ShardContext};
use shardmill_record::Batch;

/// An event of a shard's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hook {
    /// The lease is held, the first batch comes next.
    Assigned,
    /// The shard is let go; so many milliseconds are left.
    Revoked {
        /// After this time the call is ended.
        time_left_ms: u64,
    },
    /// The shard is closed, and every record of it is done.
    ShardEnded,
    /// The shard had nothing new.
    Idle,
    /// These records are given up.
    GivenUp(Vec<GivenUpRecord>),
}

/// What came of a batch that was handed over.
#[derive(Debug)]
pub struct Answer {
    /// The digest of the plugin that got it: a guest may be another version of itself from one call to the next.
    pub plugin: Arc<str>,
    /// What the guest returned, or why there is nothing.
    pub outcome: Result<Outcome, Failure>,
}

/// A guest, or what stands for one in tests. Calls for different shards may run at the same time. Each call is answered by
/// one version of it, and of two calls, one after the end of the other, the second is never answered by an older one.
#[async_trait]
pub trait Guest: Send + Sync {
    /// Hands a batch over. Dropping the future ends the call.
    async fn process(&self, shard: &ShardContext, batch: &Batch) -> Answer;

    /// The digest of the plugin that a call would be handed to now.
    fn plugin(&self) -> Arc<str>;

    /// Whether [`hook`](Self::hook) does anything.
    fn has_hooks(&self) -> bool;

    /// Tells of an event. The call may take this time; waiting until it can be made does not count, except where the time is
    /// what is left of the lease ([`Hook::Revoked`]). Dropping the future ends the call.
    async fn hook(&self, id: u64, shard: &ShardContext, hook: Hook, time: Duration) -> Result<HookOutcome, Failure>;

    /// Says that no call comes any more.
    async fn close(&self) {}
}

// === impl Hook ===

impl Hook {
    /// The hook's name in logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Revoked { .. } => "revoked",
            Self::ShardEnded => "shard-ended",
            Self::Idle => "idle",
            Self::GivenUp(_) => "given-up",
        }
    }
}
