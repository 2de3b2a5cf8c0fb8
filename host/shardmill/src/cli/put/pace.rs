//! How fast records go.

use std::time::Duration;

use tokio::time::Instant;

/// What was not used in so long may be made up for: a timer comes late.
const BURST: Duration = Duration::from_millis(50);

/// When the next record may go.
#[derive(Debug)]
pub(super) struct Pace {
    /// From one record to the next; `None` for no limit.
    interval: Option<Duration>,
    next: Instant,
}

// === impl Pace ===

impl Pace {
    /// So many records a second.
    pub(super) fn new(per_second: Option<u32>, now: Instant) -> Self {
        Self { interval: per_second.map(|rate| Duration::from_secs(1) / rate.max(1)), next: now }
    }

    /// When the next record may go, if that is not yet.
    pub(super) fn wait(&self, now: Instant) -> Option<Instant> {
        self.interval.and((self.next > now).then_some(self.next))
    }

    /// Notes that one goes now.
    pub(super) fn goes(&mut self, now: Instant) {
        if let Some(interval) = self.interval {
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            self.next = self.next.max(earliest) + interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many records go in this time, if somebody looks every so often.
    fn count(pace: &mut Pace, now: &mut Instant, time: Duration, look_every: Duration) -> u32 {
        let end = *now + time;
        let mut count = 0;
        while *now < end {
            while pace.wait(*now).is_none() && count < 1_000_000 {
                pace.goes(*now);
                count += 1;
            }
            *now += look_every;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_pace_is_kept_by_a_slow_timer_and_after_a_pause() {
        let mut now = Instant::now();
        let second = Duration::from_secs(1);
        for rate in [1, 10, 3_000, 100_000] {
            let mut pace = Pace::new(Some(rate), now);
            let went = count(&mut pace, &mut now, second * 2, Duration::from_millis(1));
            assert!((rate * 2 - rate / 50..=rate * 2 + rate / 50 + 1).contains(&went), "{went} of {rate}");
            // What was not used in a long pause is lost.
            now += second * 100;
            let went = count(&mut pace, &mut now, second, Duration::from_millis(1));
            assert!(went <= rate + rate / 10 + 2, "{went} of {rate} after a pause");
        }
        assert_eq!(Pace::new(None, now).wait(now), None);
    }
}
