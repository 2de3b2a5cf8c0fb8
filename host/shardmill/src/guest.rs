//! A plugin as the engine sees it.

use std::sync::Arc;

use async_trait::async_trait;
use shardmill_engine::{Guest, Hook};
use shardmill_plugin::{Failure, HookOutcome, Outcome, Pool, ShardContext};
use shardmill_record::Batch;

/// The instances of one processor's plugin.
pub(crate) struct PluginGuest {
    pool: Pool,
}

/// A guest that somebody else closes.
pub(crate) struct Lent(pub(crate) Arc<dyn Guest>);

// === impl PluginGuest ===

impl PluginGuest {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool }
    }
}

#[async_trait]
impl Guest for PluginGuest {
    async fn process(&self, shard: &ShardContext, batch: &Batch) -> Result<Outcome, Failure> {
        // No record is to blame for an instance that does not start: nothing was handed over.
        let unmade = |failure| match failure {
            Failure::Host(_) => failure,
            failure => Failure::Host(format!("no instance of the guest starts: {failure}")),
        };
        self.pool.get().await.map_err(unmade)?.process_batch(shard, batch).await
    }

    fn has_hooks(&self) -> bool {
        self.pool.plugin().module().hooks()
    }

    async fn hook(&self, id: u64, shard: &ShardContext, hook: Hook) -> Result<HookOutcome, Failure> {
        let mut instance = self.pool.get().await?;
        match hook {
            Hook::Assigned => instance.assigned(id, shard).await,
            Hook::Revoked { time_left_ms } => instance.revoked(id, shard, time_left_ms).await,
            Hook::ShardEnded => instance.shard_ended(id, shard).await,
            Hook::Idle => instance.idle(id, shard).await,
            Hook::GivenUp(records) => instance.given_up(id, shard, &records).await,
        }
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}

#[async_trait]
impl Guest for Lent {
    async fn process(&self, shard: &ShardContext, batch: &Batch) -> Result<Outcome, Failure> {
        self.0.process(shard, batch).await
    }

    fn has_hooks(&self) -> bool {
        self.0.has_hooks()
    }

    async fn hook(&self, id: u64, shard: &ShardContext, hook: Hook) -> Result<HookOutcome, Failure> {
        self.0.hook(id, shard, hook).await
    }
}
