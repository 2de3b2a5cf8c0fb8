//! What is told of shards that stand still or fall behind: once in the log when it begins and when it ends, and in the
//! metrics for as long as it lasts.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_stream::ReadFrom;
use tokio::time::Instant;

use super::Stall;
use super::lag::{Alarm, Told, Used};
use crate::Metrics;
use crate::metrics::{ShardLabels, StalledLabels};
use crate::status::{ShardStatus, Stalled};

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
    /// In hundredths of the retention.
    alarm_at: u32,
    known: BTreeMap<String, (ShardLabels, Alarm)>,
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
    let ago = now.saturating_duration_since(stall.since);
    let since = ReadFrom::AtTimestamp(now_ms.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)));
    let because = stall.reason.because();
    format!("shard {shard} of stream {stream} makes no progress for {seconds} s: {because} (since {since})")
}

// === impl Lags ===

impl Lags {
    pub(super) fn new(processor: Arc<str>, metrics: Metrics, alarm_at: u32) -> Self {
        Self { processor, metrics, alarm_at, known: BTreeMap::new() }
    }

    /// Takes in the shards as they are now; `retention_hours` tells how long the stream of a lease keeps records.
    pub(super) fn tell(
        &mut self,
        shards: &BTreeMap<String, ShardStatus>,
        retention_hours: impl Fn(&str) -> Option<u32>,
    ) -> Found {
        let processor = &*self.processor;
        let mut found = Found::default();
        let mut known = BTreeMap::new();
        for (key, ShardStatus { stream, shard, millis_behind_latest, .. }) in shards {
            let (Some(millis_behind), Some(hours)) = (*millis_behind_latest, retention_hours(key)) else { continue };
            let used = Used { millis_behind, retention_hours: hours };
            let (labels, mut alarm) = self.known.remove(key).unwrap_or_else(|| {
                let (stream, shard) = (stream.clone(), shard.clone());
                (ShardLabels { processor: processor.to_owned(), stream, shard }, Alarm::default())
            });
            self.metrics.retention_used.get_or_create(&labels).set(used.ratio());
            found.used.insert(key.clone(), used.percent());
            let sentence = || format!("shard {shard} of stream {stream} {used}");
            match alarm.look(&used, self.alarm_at) {
                Told::Begins => tracing::warn!(
                    processor,
                    stream,
                    shard,
                    millis_behind,
                    retention_hours = hours,
                    seconds_left = used.left().as_secs(),
                    "{}",
                    sentence()
                ),
                Told::Ends => tracing::info!(
                    processor,
                    stream,
                    shard,
                    millis_behind,
                    retention_hours = hours,
                    "the shard's lag is well within its stream's retention again"
                ),
                Told::Nothing => {}
            }
            if alarm.is_on() {
                found.alarms.insert(key.clone(), sentence());
            }
            known.insert(key.clone(), (labels, alarm));
        }
        for (labels, _) in std::mem::replace(&mut self.known, known).into_values() {
            self.metrics.retention_used.remove(&labels);
        }
        found
    }
}
