use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_record::ShardId;
use tokio::time::{Duration, Instant};

use crate::limits::{SHARD_BYTES_PER_SECOND, SHARD_RECORDS_PER_SECOND};

/// What is left of the rate after a throttle.
const LOWERED: f64 = 0.8;
/// How much of a shard's limits comes back in a second.
const RAISED_PER_SECOND: f64 = 0.05;
/// The rate that throttles leave, in parts of a shard's limits.
const LEAST: f64 = 0.1;

/// How fast a shard is written to: two buckets that hold what flows in within a second, one of Kinesis records and one
/// of bytes.
///
/// Whoever finds something in both may go, and may take out more than there is: a record of 10 MiB has to pass, and what
/// comes after it waits. Throttles lower the rate at once, and it comes back slowly, because what a shard takes
/// depends on what others write to it.
#[derive(Debug, Clone)]
struct Rate {
    /// In parts of what a shard takes.
    highest: f64,
    now: f64,
    records: f64,
    bytes: f64,
    /// When all this was so.
    at: Instant,
}

/// How fast each shard of a stream is written to, by all plans that have this in common. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Rates {
    /// In parts of what a shard takes; `None` for no limit.
    highest: Option<f64>,
    by_shard: Arc<Mutex<HashMap<ShardId, SharedRate>>>,
}

/// A shard's rate. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(super) struct SharedRate(Arc<Mutex<Rate>>);

// === impl Rates ===

impl Rates {
    pub(crate) fn new(highest: Option<f64>) -> Self {
        Self { highest, by_shard: Arc::default() }
    }

    /// A shard's rate, if there is to be one.
    pub(super) fn of(&self, shard: &ShardId, now: Instant) -> Option<SharedRate> {
        let highest = self.highest?;
        let mut by_shard = self.by_shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rate) = by_shard.get(shard) {
            return Some(rate.clone());
        }
        let rate = SharedRate(Arc::new(Mutex::new(Rate::new(highest, now))));
        by_shard.insert(shard.clone(), rate.clone());
        Some(rate)
    }

    /// Forgets shards that are written to no more.
    pub(super) fn keep(&self, is_open: impl Fn(&ShardId) -> bool) {
        if self.highest.is_some() {
            self.by_shard.lock().unwrap_or_else(PoisonError::into_inner).retain(|shard, _| is_open(shard));
        }
    }
}

// === impl SharedRate ===

impl SharedRate {
    fn rate(&self) -> MutexGuard<'_, Rate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Rate::ready_at`]. Another plan may come first.
    pub(super) fn ready_at(&self) -> Instant {
        self.rate().ready_at()
    }

    /// See [`Rate::take`].
    pub(super) fn take(&self, bytes: usize, now: Instant) {
        self.rate().take(bytes, now);
    }

    /// In parts of what a shard takes.
    #[cfg(test)]
    pub(super) fn part(&self) -> f64 {
        self.rate().now
    }

    /// See [`Rate::throttled`].
    pub(super) fn throttled(&self, now: Instant) {
        self.rate().throttled(now);
    }
}

// === impl Rate ===

impl Rate {
    fn new(highest: f64, at: Instant) -> Self {
        let (records, bytes) = (highest * SHARD_RECORDS_PER_SECOND, highest * SHARD_BYTES_PER_SECOND);
        Self { highest, now: highest, records, bytes, at }
    }

    /// When the next Kinesis record may go, if none goes before; perhaps in the past.
    fn ready_at(&self) -> Instant {
        let records = (1.0 - self.records) / (self.now * SHARD_RECORDS_PER_SECOND);
        // Something has to be there, if only a byte.
        let bytes = (1.0 - self.bytes) / (self.now * SHARD_BYTES_PER_SECOND);
        let seconds = records.max(bytes);
        if seconds > 0.0 {
            // Rounded up: who comes at this time shall not find a little less than is needed.
            self.at + Duration::from_secs_f64(seconds) + Duration::from_micros(1)
        } else {
            self.at
        }
    }

    /// A Kinesis record of this size goes.
    fn take(&mut self, bytes: usize, now: Instant) {
        self.flow(now);
        self.records -= 1.0;
        self.bytes -= bytes as f64;
    }

    /// The shard has refused something, because it takes no more.
    fn throttled(&mut self, now: Instant) {
        self.flow(now);
        self.now = (self.now * LOWERED).max(LEAST.min(self.highest));
        self.fill_up_to_a_second();
    }

    fn flow(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.records += seconds * self.now * SHARD_RECORDS_PER_SECOND;
        self.bytes += seconds * self.now * SHARD_BYTES_PER_SECOND;
        self.now = (self.now + seconds * RAISED_PER_SECOND).min(self.highest);
        self.at = self.at.max(now);
        self.fill_up_to_a_second();
    }

    fn fill_up_to_a_second(&mut self) {
        self.records = self.records.min((self.now * SHARD_RECORDS_PER_SECOND).max(1.0));
        self.bytes = self.bytes.min(self.now * SHARD_BYTES_PER_SECOND);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends Kinesis records of a size as early as may be for so long, and says how many.
    fn sent(rate: &mut Rate, from: Instant, seconds: u64, bytes: usize) -> u32 {
        let until = from + Duration::from_secs(seconds);
        let (mut now, mut count) = (from, 0);
        loop {
            now = now.max(rate.ready_at());
            if now > until {
                return count;
            }
            rate.take(bytes, now);
            count += 1;
        }
    }

    #[test]
    fn small_records_are_bounded_by_number_and_large_ones_by_size() {
        let start = Instant::now();
        // A full bucket, and ten seconds of what flows in.
        assert!((16_490..=16_510).contains(&sent(&mut Rate::new(1.5, start), start, 10, 100)));
        let aggregates = sent(&mut Rate::new(1.5, start), start, 10, 51_200);
        assert!((337..=339).contains(&aggregates), "{aggregates}");
        // Each of the largest ones takes as long as ten ordinary ones.
        let largest = sent(&mut Rate::new(1.0, start), start, 60, 10 << 20);
        assert!((6..=7).contains(&largest), "{largest}");
    }

    #[test]
    fn throttles_lower_the_rate_at_once_and_it_comes_back_slowly() {
        let start = Instant::now();
        let mut rate = Rate::new(1.5, start);
        rate.throttled(start);
        assert!((rate.now - 1.2).abs() < 1e-9, "{rate:?}");
        for _ in 0..50 {
            rate.throttled(start);
        }
        assert_eq!(rate.now, LEAST);
        assert!(rate.records <= LEAST * 1_000.0 && rate.bytes <= LEAST * 1_048_576.0);
        let mut seconds = 0;
        while rate.now < 1.5 {
            seconds += 1;
            rate.flow(start + Duration::from_secs(seconds));
        }
        assert_eq!(seconds, 28);
        // Who asked for less than the least keeps it.
        let mut slow = Rate::new(0.01, start);
        slow.throttled(start);
        assert_eq!(slow.now, 0.01);
    }

    proptest! {
        #[test]
        fn no_more_goes_than_flows_in_but_for_one_record(
            percent in 1..300u32, sizes in prop::collection::vec(1..2_000_000usize, 1..50),
            pauses in prop::collection::vec(0..3_000u64, 50),
        ) {
            let highest = f64::from(percent) / 100.0;
            let start = Instant::now();
            let mut rate = Rate::new(highest, start);
            let (mut now, mut bytes) = (start, 0);
            for (size, pause) in sizes.iter().zip(pauses) {
                now = (now + Duration::from_millis(pause)).max(rate.ready_at());
                let seconds = (now - start).as_secs_f64();
                prop_assert!(bytes as f64 <= highest * SHARD_BYTES_PER_SECOND * (seconds + 1.0) + 1.0);
                rate.take(*size, now);
                bytes += size;
            }
        }
    }
}
