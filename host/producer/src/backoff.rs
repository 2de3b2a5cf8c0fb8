//! How long to leave a shard alone that failed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Exponential, with jitter: producers that were throttled together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    random: Mutex<SmallRng>,
}

// === impl Backoff ===

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration, seed: u64) -> Self {
        Self { min, max, random: Mutex::new(SmallRng::seed_from_u64(seed)) }
    }

    /// After this many failures one after another.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        let random = self.random.lock().unwrap_or_else(PoisonError::into_inner).random();
        delay(self.min, self.max, failures, random)
    }
}

/// Between a half and the whole of `min * 2^(failures - 1)`, which is at most `max`.
fn delay(min: Duration, max: Duration, failures: u32, random: f64) -> Duration {
    let doubled = 2u32.checked_pow(failures.saturating_sub(1)).and_then(|factor| min.checked_mul(factor));
    doubled.unwrap_or(max).min(max).mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_highest_and_are_jittered_by_half() {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(5));
        let highest: Vec<_> = (1..=9).map(|failures| delay(min, max, failures, 1.0).as_millis()).collect();
        assert_eq!(highest, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(delay(min, max, u32::MAX, 0.0), Duration::from_millis(2_500));
        assert_eq!(delay(min, max, 1, 0.5), Duration::from_micros(37_500));
    }
}
