//! How long calls take, over any number of them.

use std::time::Duration;

/// Each power of two is cut into so many buckets, so that what is told is at most an 128th too large.
const STEPS: u64 = 1 << STEP_BITS;
const STEP_BITS: u32 = 7;

/// Times, counted in buckets of a hundred and twenty-eighth: what it takes of memory does not depend on how many there are.
#[derive(Debug, Clone, Default)]
pub(super) struct Latency {
    /// By bucket; as many as the longest needs.
    counts: Vec<u64>,
    count: u64,
    max: Duration,
}

// === impl Latency ===

impl Latency {
    pub(super) fn add(&mut self, took: Duration) {
        let bucket = bucket(nanoseconds(took));
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(took);
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn max(&self) -> Duration {
        self.max
    }

    /// The time that this part of all, more than 0 and up to 1, did not take longer than; 0 if there were none.
    pub(super) fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return Duration::from_nanos(largest(bucket)).min(self.max);
            }
        }
        self.max
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Below [`STEPS`] each number has a bucket of its own; above, those with the same power of two and the same bits behind it.
fn bucket(number: u64) -> usize {
    let power = (u64::BITS - number.leading_zeros()).saturating_sub(STEP_BITS + 1);
    (u64::from(power) * STEPS + (number >> power)) as usize
}

/// The largest number of a bucket.
fn largest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let power = (bucket / STEPS).saturating_sub(1);
    let mantissa = bucket - power * STEPS;
    (mantissa << power) + ((1 << power) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_takes_no_time() {
        let latency = Latency::default();
        assert_eq!((latency.count(), latency.quantile(0.5), latency.max()), (0, Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn small_numbers_are_exact() {
        let mut latency = Latency::default();
        (1..=100).for_each(|number| latency.add(Duration::from_nanos(number)));
        assert_eq!(latency.quantile(0.5), Duration::from_nanos(50));
        assert_eq!(latency.quantile(0.99), Duration::from_nanos(99));
        assert_eq!((latency.quantile(1.0), latency.max()), (Duration::from_nanos(100), Duration::from_nanos(100)));
        assert_eq!(latency.count(), 100);
    }

    proptest! {
        #[test]
        fn buckets_follow_each_other_and_hold_what_is_in_them(number: u64) {
            let found = bucket(number);
            prop_assert!(largest(found) >= number);
            prop_assert!(found == 0 || largest(found - 1) < number);
            prop_assert!(largest(found) - number <= number / STEPS);
        }

        #[test]
        fn a_quantile_is_at_most_a_little_too_large(
            mut times in prop::collection::vec(0..10_000_000_000_u64, 1..200),
            part in 0.01..1.0_f64,
        ) {
            let mut latency = Latency::default();
            times.iter().for_each(|time| latency.add(Duration::from_nanos(*time)));
            times.sort_unstable();
            let rank = (times.len() as f64 * part).ceil() as usize;
            let exact = times[rank - 1];
            let told = nanoseconds(latency.quantile(part));
            prop_assert!(told >= exact && told <= exact + exact / STEPS, "{told} for {exact}");
        }
    }
}
