//! A plugin as the engine sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shardmill_engine::{Answer, Guest, Hook};
use shardmill_plugin::{Failure, HookOutcome, Outcome, Place, ShardContext, Timeout};
use shardmill_record::Batch;
use tokio::time::{Instant, timeout_at};

use crate::deploy::{Call, Slot};

/// The instances of one processor's plugin, of whichever version is current when a call begins.
pub(crate) struct PluginGuest {
    slot: Arc<Slot>,
}

/// A guest that somebody else closes.
pub(crate) struct Lent(pub(crate) Arc<dyn Guest>);

// === impl PluginGuest ===

impl PluginGuest {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { slot }
    }
}

/// A call's batch through an instance.
async fn process(call: &Call<'_>, place: Place, shard: &ShardContext, batch: &Batch) -> Result<Outcome, Failure> {
    let mut instance = call.lend(place).await.map_err(unmade)?;
    let outcome = instance.process_batch(shard, batch).await;
    call.give_back(instance);
    outcome
}

/// No record is to blame for an instance that does not start: nothing was handed over.
fn unmade(failure: Failure) -> Failure {
    match failure {
        Failure::Host(_) => failure,
        failure => Failure::Host(format!("no instance of the guest starts: {failure}")),
    }
}

#[async_trait]
impl Guest for PluginGuest {
    async fn process(&self, shard: &ShardContext, batch: &Batch) -> Answer {
        match self.slot.place().await {
            Ok(place) => {
                // Not before there is a place: what had to wait for one begins with what is current then.
                let call = self.slot.enter();
                let outcome = process(&call, place, shard, batch).await;
                Answer { plugin: call.plugin(), outcome }
            }
            Err(failure) => Answer { plugin: self.slot.plugin(), outcome: Err(unmade(failure)) },
        }
    }

    fn plugin(&self) -> Arc<str> {
        self.slot.plugin()
    }

    fn has_hooks(&self) -> bool {
        self.slot.has_hooks()
    }

    async fn hook(&self, id: u64, shard: &ShardContext, hook: Hook, time: Duration) -> Result<HookOutcome, Failure> {
        let end = Instant::now() + time;
        let is_left = matches!(hook, Hook::Revoked { .. });
        let instance = async {
            let place = self.slot.place().await?;
            let call = self.slot.enter();
            let instance = call.lend(place).await?;
            Ok((call, instance))
        };
        let instance = match is_left {
            true => timeout_at(end, instance).await.unwrap_or_else(|_elapsed| {
                Err(Failure::Host("no instance of the guest was free before the shard had to be let go".to_owned()))
            }),
            false => instance.await,
        };
        let (call, mut instance) = instance.map_err(unmade)?;
        let calling = async {
            match hook {
                Hook::Assigned => instance.assigned(id, shard).await,
                Hook::Revoked { time_left_ms } => instance.revoked(id, shard, time_left_ms).await,
                Hook::ShardEnded => instance.shard_ended(id, shard).await,
                Hook::Idle => instance.idle(id, shard).await,
                Hook::GivenUp(records) => instance.given_up(id, shard, &records).await,
            }
        };
        let end = if is_left { end } else { Instant::now() + time };
        let outcome = timeout_at(end, calling).await;
        call.give_back(instance);
        outcome.unwrap_or_else(|_elapsed| Err(Failure::Timeout(Timeout::Wall(time))))
    }

    async fn close(&self) {
        self.slot.close().await;
    }
}

#[async_trait]
impl Guest for Lent {
    async fn process(&self, shard: &ShardContext, batch: &Batch) -> Answer {
        self.0.process(shard, batch).await
    }

    fn plugin(&self) -> Arc<str> {
        self.0.plugin()
    }

    fn has_hooks(&self) -> bool {
        self.0.has_hooks()
    }

    async fn hook(&self, id: u64, shard: &ShardContext, hook: Hook, time: Duration) -> Result<HookOutcome, Failure> {
        self.0.hook(id, shard, hook, time).await
    }
}
