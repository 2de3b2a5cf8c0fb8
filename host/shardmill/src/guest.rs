//! A plugin as the engine sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shardmill_engine::{Guest, Hook};
use shardmill_plugin::{Failure, HookOutcome, Outcome, Pool, Pooled, ShardContext, Timeout};
use shardmill_record::Batch;
use tokio::time::{Instant, timeout_at};

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

    /// No record is to blame for an instance that does not start: nothing was handed over.
    async fn instance(&self) -> Result<Pooled, Failure> {
        self.pool.get().await.map_err(|failure| match failure {
            Failure::Host(_) => failure,
            failure => Failure::Host(format!("no instance of the guest starts: {failure}")),
        })
    }
}

#[async_trait]
impl Guest for PluginGuest {
    async fn process(&self, shard: &ShardContext, batch: &Batch) -> Result<Outcome, Failure> {
        self.instance().await?.process_batch(shard, batch).await
    }

    fn has_hooks(&self) -> bool {
        self.pool.plugin().module().hooks()
    }

    async fn hook(&self, id: u64, shard: &ShardContext, hook: Hook, time: Duration) -> Result<HookOutcome, Failure> {
        let end = Instant::now() + time;
        let is_left = matches!(hook, Hook::Revoked { .. });
        let mut instance = match is_left {
            true => timeout_at(end, self.instance()).await.unwrap_or_else(|_elapsed| {
                Err(Failure::Host("no instance of the guest was free before the shard had to be let go".to_owned()))
            })?,
            false => self.instance().await?,
        };
        let call = async {
            match hook {
                Hook::Assigned => instance.assigned(id, shard).await,
                Hook::Revoked { time_left_ms } => instance.revoked(id, shard, time_left_ms).await,
                Hook::ShardEnded => instance.shard_ended(id, shard).await,
                Hook::Idle => instance.idle(id, shard).await,
                Hook::GivenUp(records) => instance.given_up(id, shard, &records).await,
            }
        };
        let end = if is_left { end } else { Instant::now() + time };
        timeout_at(end, call).await.unwrap_or_else(|_elapsed| Err(Failure::Timeout(Timeout::Wall(time))))
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

    async fn hook(&self, id: u64, shard: &ShardContext, hook: Hook, time: Duration) -> Result<HookOutcome, Failure> {
        self.0.hook(id, shard, hook, time).await
    }
}
