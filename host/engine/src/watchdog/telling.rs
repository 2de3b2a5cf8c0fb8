//! What is told of shards that stand still or fall behind: once in the log when it begins and when it ends, and in the
//! metrics for as long as it lasts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_stream::ReadFrom;
use tokio::time::Instant;

use super::Stall;
use super::lag::{Alarm, Told, Used};
use crate::Metrics;
use crate::metrics::{ProcessorLabels, ShardLabels, StalledLabels};
use crate::status::{LeaseTable, ShardStatus, Stalled};

/// Of so many shards at a time that stand still, or get on again, the log has a line for each; of more, one for the rest.
const LINES: usize = 10;

/// The stalls of one processor that were told.
#[derive(Debug)]
pub(super) struct Stalls {
    processor: Arc<str>,
    metrics: Metrics,
    /// By lease: how the metrics have it, and when the shard made progress last.
    known: BTreeMap<String, (StalledLabels, Instant)>,
}

/// The lags of one processor's shards, as they were told.
#[derive(Debug)]
pub(super) struct Lags {
    processor: Arc<str>,
    metrics: Metrics,
    known: BTreeMap<String, Lag>,
}

/// One shard's lag, as it was told.
#[derive(Debug)]
struct Lag {
    labels: ShardLabels,
    alarm: Alarm,
    /// In hundredths of the retention.
    used: u64,
    sentence: String,
}

/// What was told of one processor's lease table.
#[derive(Debug)]
pub(super) struct Table {
    name: String,
    labels: ProcessorLabels,
    metrics: Metrics,
}

/// What [`Lags::tell`] found, by lease.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The sentences of the alarms.
    pub(super) alarms: BTreeMap<String, String>,
    /// How much of the retention is used up, in hundredths.
    pub(super) used: BTreeMap<String, u64>,
}

// === impl Stalls ===

impl Stalls {
    pub(super) fn new(processor: Arc<str>, metrics: Metrics) -> Self {
        Self { processor, metrics, known: BTreeMap::new() }
    }

    /// Takes in everything that stands still now, by lease, with its stream and its shard. `now_ms`: the same moment in
    /// milliseconds since 1970.
    pub(super) fn tell(
        &mut self,
        now: Instant,
        now_ms: u64,
        stalls: Vec<(String, [String; 2], Stall)>,
    ) -> BTreeMap<String, Stalled> {
        let processor = &*self.processor;
        let mut shown = BTreeMap::new();
        let mut known = BTreeMap::new();
        let mut begun = Vec::new();
        for (key, [stream, shard], stall) in stalls {
            let because = sentence(&stall, &stream, &shard, now, now_ms);
            let seconds = now.saturating_duration_since(stall.moved).as_secs();
            let reason = stall.reason.label();
            let labels = StalledLabels {
                processor: processor.to_owned(),
                stream: stream.clone(),
                shard: shard.clone(),
                reason: reason.clone(),
            };
            let stalled = Stalled { stream, shard, reason, because, seconds };
            match self.known.remove(&key) {
                None => begun.push(stalled.clone()),
                Some((before, _)) if before != labels => _ = self.metrics.shard_stalled.remove(&before),
                Some(_) => {}
            }
            self.metrics.shard_stalled.get_or_create(&labels).set(i64::try_from(seconds).unwrap_or(i64::MAX));
            known.insert(key.clone(), (labels, stall.moved));
            shown.insert(key, stalled);
        }
        let ended = std::mem::replace(&mut self.known, known);
        for Stalled { stream, shard, reason, because, .. } in begun.iter().take(LINES) {
            tracing::warn!(processor, stream, shard, reason, "{because}");
        }
        if begun.len() > LINES {
            tracing::warn!(processor, shards = begun.len() - LINES, "more shards make no progress; /readyz names them");
        }
        for (labels, _) in ended.values() {
            self.metrics.shard_stalled.remove(labels);
        }
        for (StalledLabels { stream, shard, .. }, moved) in ended.values().take(LINES) {
            let seconds = now.saturating_duration_since(*moved).as_secs();
            tracing::info!(processor, stream, shard, seconds, "the shard does not stand still any more");
        }
        if ended.len() > LINES {
            tracing::info!(processor, shards = ended.len() - LINES, "more shards do not stand still any more");
        }
        shown
    }
}

/// A stall as a sentence.
pub(super) fn sentence(stall: &Stall, stream: &str, shard: &str, now: Instant, now_ms: u64) -> String {
    let seconds = now.saturating_duration_since(stall.moved).as_secs();
    let since = before(now_ms, now.saturating_duration_since(stall.since));
    let because = stall.reason.because();
    format!("shard {shard} of stream {stream} makes no progress for {seconds} s: {because} (since {since})")
}

/// So long before a time in milliseconds since 1970.
fn before(now_ms: u64, ago: Duration) -> ReadFrom {
    ReadFrom::AtTimestamp(now_ms.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)))
}

impl Drop for Stalls {
    fn drop(&mut self) {
        for (labels, _) in self.known.values() {
            self.metrics.shard_stalled.remove(labels);
        }
    }
}

// === impl Lags ===

impl Lags {
    pub(super) fn new(processor: Arc<str>, metrics: Metrics) -> Self {
        Self { processor, metrics, known: BTreeMap::new() }
    }

    /// Takes in the shards as they are now: of each its lease, how far it is behind, and how long its stream keeps records,
    /// in hours. What is not known at the moment stays as it was. `alarm_at`: in hundredths of that.
    pub(super) fn tell<'a>(
        &mut self,
        alarm_at: u32,
        shards: impl Iterator<Item = (&'a String, &'a ShardStatus, Option<u64>, Option<u32>)>,
    ) -> Found {
        let mut found = Found::default();
        let mut known = BTreeMap::new();
        for (key, status, behind, hours) in shards {
            let before = self.known.remove(key);
            let used =
                behind.zip(hours).map(|(millis_behind, retention_hours)| Used { millis_behind, retention_hours });
            let lag = match used {
                Some(used) => self.tell_one(alarm_at, before, status, &used),
                None => before,
            };
            let Some(lag) = lag else { continue };
            found.used.insert(key.clone(), lag.used);
            if lag.alarm.is_on() {
                found.alarms.insert(key.clone(), lag.sentence.clone());
            }
            known.insert(key.clone(), lag);
        }
        for Lag { labels, .. } in std::mem::replace(&mut self.known, known).values() {
            self.hide(labels);
        }
        found
    }

    fn tell_one(&self, alarm_at: u32, before: Option<Lag>, status: &ShardStatus, used: &Used) -> Option<Lag> {
        let (processor, ShardStatus { stream, shard, .. }) = (&*self.processor, status);
        let (labels, mut alarm) = before.map_or_else(
            || {
                let (processor, stream, shard) = (processor.to_owned(), stream.clone(), shard.clone());
                (ShardLabels { processor, stream, shard }, Alarm::default())
            },
            |lag| (lag.labels, lag.alarm),
        );
        self.metrics.retention_used.get_or_create(&labels).set(used.ratio());
        let sentence = format!("shard {shard} of stream {stream} {used}");
        let Used { millis_behind, retention_hours } = *used;
        match alarm.look(used, alarm_at) {
            Told::Begins => {
                self.metrics.lag_alarms.get_or_create(&labels).set(1);
                tracing::warn!(
                    processor,
                    stream,
                    shard,
                    millis_behind,
                    retention_hours,
                    seconds_left = used.left().as_secs(),
                    "{sentence}"
                );
            }
            Told::Ends => {
                self.metrics.lag_alarms.remove(&labels);
                tracing::info!(
                    processor,
                    stream,
                    shard,
                    millis_behind,
                    retention_hours,
                    "the shard's lag is well within its stream's retention again"
                );
            }
            Told::Nothing => {}
        }
        Some(Lag { labels, alarm, used: used.percent(), sentence })
    }

    fn hide(&self, labels: &ShardLabels) {
        self.metrics.retention_used.remove(labels);
        self.metrics.lag_alarms.remove(labels);
    }
}

impl Drop for Lags {
    fn drop(&mut self) {
        for Lag { labels, .. } in self.known.values() {
            self.hide(labels);
        }
    }
}

// === impl Table ===

impl Table {
    pub(super) fn new(processor: Arc<str>, name: String, metrics: Metrics) -> Self {
        Self { name, labels: ProcessorLabels { processor: processor.to_string() }, metrics }
    }

    /// Takes in for how long the table cannot be used and what was said, if it cannot and has not been for too long. The
    /// log has it from the lease room.
    pub(super) fn tell(&self, failing: Option<(Duration, &str)>, now_ms: u64) -> Option<LeaseTable> {
        let Some((lasted, reason)) = failing else {
            self.metrics.lease_table_failing.remove(&self.labels);
            return None;
        };
        let (name, seconds) = (&self.name, lasted.as_secs());
        self.metrics.lease_table_failing.get_or_create(&self.labels).set(i64::try_from(seconds).unwrap_or(i64::MAX));
        let since = before(now_ms, lasted);
        let because = format!(
            "the lease table {name} cannot be used for {seconds} s, and shards are let go when their leases run out: {reason} (since {since})"
        );
        Some(LeaseTable { reason: "store-failing", because, seconds })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.metrics.lease_table_failing.remove(&self.labels);
    }
}
