//! Watches the shards of a consumer: names those that have work and make no progress, with the reason, and warns before
//! records fall out of their stream's retention.
//!
//! `judge` decides from what is known of one shard at one moment, `lag` when to warn, `parents` which shards cannot begin;
//! here that is told: once in the log when it begins and when it ends, in the metrics, and in the status.

mod judge;
mod lag;
mod parents;
mod reason;
mod telling;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use shardmill_lease::{Handle, LeaseKey, View};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::judge::{Patience, Patient, judge};
use self::parents::Parents;
pub(crate) use self::parents::fronts;
pub(crate) use self::reason::Reason;
use self::telling::{Found, Lags, Stalls, Table};
use crate::consumer::Parts;
use crate::live::Vitals;
use crate::shard_run::Shared;
use crate::shard_source::Streams;
use crate::status::{ShardStatus, Watched};
use crate::wall_clock::now_ms;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a stream is asked how long it keeps records: DescribeStreamSummary takes 20 calls a second of an account.
const ASK_EVERY: Duration = Duration::from_secs(300);

/// When to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// A shard with work that has made no progress for so long is stalled.
    pub stall_after: Duration,
    /// A lag of so many hundredths of the retention is an alarm, 1 to 100.
    pub lag_alarm: u32,
}

/// A shard that makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) reason: Reason,
    /// Since when the reason holds.
    pub(crate) since: Instant,
    /// When the shard made progress last.
    pub(crate) moved: Instant,
}

/// Watches one consumer.
pub(crate) struct Watchdog {
    parts: Arc<Parts>,
    shared: Arc<Shared>,
    handle: Handle,
    parents: Parents,
    stalls: Stalls,
    lags: Lags,
    table: Table,
}

/// What is known of a shard that is held.
struct Held {
    status: ShardStatus,
    vitals: Vitals,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { stall_after: Duration::from_secs(60), lag_alarm: 80 }
    }
}

/// Asks the consumer's streams now and then how long they keep records.
pub(crate) async fn keep_retention(streams: Streams) {
    loop {
        // Workers that started together must not ask together.
        let pause = ASK_EVERY.mul_f64(0.75 + rand::rng().random::<f64>() / 2.0);
        sleep(pause).await;
        for stream in streams.0.iter() {
            stream.look_at_retention().await;
        }
    }
}

// === impl Watchdog ===

impl Watchdog {
    pub(crate) fn new(parts: Arc<Parts>, shared: Arc<Shared>, handle: Handle) -> Self {
        let processor = || Arc::clone(&parts.options().processor);
        let stalls = Stalls::new(processor(), parts.metrics.clone());
        let lags = Lags::new(processor(), parts.metrics.clone());
        let table = Table::new(processor(), parts.store.lease_table().to_owned(), parts.metrics.clone());
        Self { parts, shared, handle, parents: Parents::default(), stalls, lags, table }
    }

    /// Looks for as long as it is let.
    pub(crate) async fn run(mut self) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look(Instant::now(), now_ms());
        }
    }

    fn look(&mut self, now: Instant, now_ms: u64) {
        let processor = Arc::clone(&self.parts.options().processor);
        let status = self.parts.status.clone();
        let shards = status.snapshot().remove(processor.as_ref()).unwrap_or_default().shards;
        let held: BTreeMap<String, Held> = shards
            .into_iter()
            .filter_map(|(key, status_of)| {
                let live = status.live(&processor, &key)?;
                live.show_lag(now);
                Some((key, Held { status: status_of, vitals: live.vitals(now) }))
            })
            .collect();
        let view = self.handle.view();
        let options = *self.parts.watchdog.borrow();
        let patience = self.patience(options);
        let stalls = self.standing(now, patience, &held, &view);
        let stalls = stalls.into_iter().filter_map(|(key, stall)| {
            let names = self.names(&key, &held)?;
            Some((key, names, stall))
        });
        let stalls = stalls.collect();
        let stalled = self.stalls.tell(now, now_ms, stalls);
        let failing = view.failing.as_ref().map(|failing| {
            let lasted = self.parts.clock.now().saturating_since(failing.since);
            (lasted, failing.reason.as_str())
        });
        let lease_table = self.table.tell(failing.filter(|(lasted, _)| *lasted >= patience.table), now_ms);
        let streams = &self.shared.streams;
        let lags = held.iter().map(|(key, Held { status, vitals })| {
            let stream = LeaseKey::parse(key).ok().and_then(|key| streams.of(&key));
            (key, status, vitals.behind(now, now_ms), stream.map(|(stream, _)| stream.retention_hours()))
        });
        let Found { alarms, used } = self.lags.tell(options.lag_alarm, lags);
        status.set_watched(&processor, Watched { stalled, alarms, used, lease_table });
    }

    /// The lease table is told of before leases run out, and shards with them.
    fn patience(&self, options: Options) -> Patience {
        let work = options.stall_after;
        Patience { work, table: work.min(self.parts.lease_options.expiry / 2) }
    }

    /// Everything that stands still, by lease.
    fn standing(
        &mut self,
        now: Instant,
        patience: Patience,
        held: &BTreeMap<String, Held>,
        view: &View,
    ) -> BTreeMap<String, Stall> {
        let mut stalls = BTreeMap::new();
        let mut here = BTreeMap::new();
        for (key, Held { status, vitals }) in held {
            let checkpoint_fails = LeaseKey::parse(key).ok().and_then(|key| self.shared.trouble.failing(&key));
            let stall = judge(now, patience, &Patient { state: &status.state, vitals, checkpoint_fails });
            let is_stopped = status.is_stopped() && now.saturating_duration_since(vitals.moved) >= patience.work;
            here.insert(key.as_str(), stall.as_ref().map(|stall| stall.moved).or(is_stopped.then_some(vitals.moved)));
            stalls.extend(stall.map(|stall| (key.clone(), stall)));
        }
        if view.leads {
            let waiting = self.parents.look(now, patience.work, &view.leases, &here);
            stalls.extend(waiting.into_iter().map(|(key, stall)| (key.to_string(), stall)));
        } else {
            self.parents = Parents::default();
        }
        stalls
    }

    /// The stream and the shard of a lease: also of one that nobody has.
    fn names(&self, key: &str, held: &BTreeMap<String, Held>) -> Option<[String; 2]> {
        if let Some(Held { status, .. }) = held.get(key) {
            return Some([status.stream.clone(), status.shard.clone()]);
        }
        let key = LeaseKey::parse(key).ok()?;
        let (stream, _) = self.shared.streams.of(&key)?;
        Some([stream.name().to_string(), key.shard_id().ok()?.to_string()])
    }
}

impl Drop for Watchdog {
    /// Nobody looks any more: what was found last must not stay.
    fn drop(&mut self) {
        self.parts.status.set_watched(&self.parts.options().processor, Watched::default());
    }
}

#[cfg(test)]
pub(crate) mod tests;
