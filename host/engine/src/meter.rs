//! How much a shard carries, as far as it is read.

use std::time::Duration;

use tokio::time::Instant;

/// From one figure to the next.
const WINDOW: Duration = Duration::from_secs(10);
/// How much a new figure counts beside those before it: a minute of other traffic moves the mean by nine tenths.
const WEIGHT: f64 = 0.3;

/// Means bytes a second over windows of 10 s, newer ones counting more.
#[derive(Debug)]
pub(crate) struct Meter {
    since: Instant,
    bytes: u64,
    mean: Option<f64>,
}

// === impl Meter ===

impl Meter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0, mean: None }
    }

    /// Takes in so many bytes, also none. Returns bytes a second whenever there is a new figure.
    pub(crate) fn add(&mut self, now: Instant, bytes: u64) -> Option<u64> {
        self.bytes += bytes;
        let passed = now.saturating_duration_since(self.since);
        if passed < WINDOW {
            return None;
        }
        let rate = self.bytes as f64 / passed.as_secs_f64();
        let mean = self.mean.map_or(rate, |mean| mean + (rate - mean) * WEIGHT);
        *self = Self { since: now, bytes: 0, mean: Some(mean) };
        Some(mean as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_shard_has_its_rate_and_one_that_stops_goes_towards_nothing() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let at = |second| start + Duration::from_secs(second);
        let figures: Vec<_> = (1..=30).filter_map(|second| meter.add(at(second), 500)).collect();
        assert_eq!(figures, [500, 500, 500]);
        assert_eq!(meter.add(at(40), 0), Some(350));
        assert!((41..=120).filter_map(|second| meter.add(at(second), 0)).last().unwrap() < 25);
    }
}
