//! How long to wait before another attempt.

use std::time::Duration;

/// Exponential back-off with jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure, before jitter.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

// === impl Backoff ===

impl Backoff {
    /// The wait after so many failures (1 or more): doubled each time up to the longest, then shortened by up to a
    /// half. `random` is from 0 to 1; workers that fail together must not come back together.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let full = self.first.saturating_mul(1 << doublings).min(self.longest);
        full.mul_f64(1.0 - random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_delay_doubles_and_stays_within_bounds(failures in 1u32..10_000, random in 0.0f64..=1.0) {
            let backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };
            let delay = backoff.delay(failures, random);
            let full = backoff.delay(failures, 0.0);
            prop_assert!(delay <= full && delay >= full / 2);
            prop_assert!(full <= backoff.longest);
            prop_assert!(failures > 8 || full == backoff.first * (1 << (failures - 1)));
        }
    }
}
