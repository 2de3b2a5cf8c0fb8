//! One lease that is held, for tests of what works under a lease.

use std::sync::Arc;

use async_trait::async_trait;
use shardmill_cause::AnyCoded;
use shardmill_record::{Checkpoint, ShardId};
use tokio_util::sync::CancellationToken;

use crate::store::memory::Memory;
use crate::{
    Coordinator, Event, HeldLease, Lease, LeaseKey, Metrics, NewLease, Options, ShardSource, Survey, TokioClock,
    WorkerId,
};

/// A stream of one shard.
struct OneShard;

#[async_trait]
impl ShardSource for OneShard {
    async fn survey(&self, leases: &[Lease]) -> Result<Survey, AnyCoded> {
        let key = LeaseKey::of_shard(&ShardId::parse("shardId-000000000000")?);
        let checkpoint = Checkpoint::TrimHorizon;
        let lease = NewLease { key, checkpoint, start_at: None, parents: Vec::new(), range: None };
        Ok(Survey { missing: if leases.is_empty() { vec![lease] } else { Vec::new() }, listed: Vec::new() })
    }
}

/// The lease of the shard `shardId-000000000000` on this table, for the application `orders`. It is renewed until the
/// test's runtime ends, or until it is let go.
pub async fn hold(store: &Memory, metrics: Metrics) -> HeldLease {
    let options = Options::new("orders", WorkerId::parse("w").expect("a worker's id"));
    let (store, clock) = (Arc::new(store.clone()), Arc::new(TokioClock::default()));
    let (coordinator, _handle, mut events) =
        Coordinator::new(options, store, clock, Arc::new(OneShard), metrics, 7).expect("options that go together");
    tokio::spawn(coordinator.run(CancellationToken::new()));
    let Some(Event::Held(lease)) = events.recv().await else { panic!("no lease") };
    // Without anybody who hears of leases, the coordinator lets them go.
    tokio::spawn(async move { while events.recv().await.is_some() {} });
    lease
}
