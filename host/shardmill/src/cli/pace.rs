//! How fast records go that a command sends.

use std::time::Duration;

use tokio::time::Instant;

/// What was not used in so long may be made up for: a timer comes late.
const BURST: Duration = Duration::from_millis(50);

/// When the next record may go.
#[derive(Debug)]
pub(crate) struct Pace {
    /// From one record to the next; `None` for no limit.
    interval: Option<Duration>,
    next: Instant,
}

// === impl Pace ===

impl Pace {
    /// So many records a second.
    pub(crate) fn new(per_second: Option<u32>, now: Instant) -> Self {
        Self { interval: per_second.map(|rate| Duration::from_secs(1) / rate.max(1)), next: now }
    }

    /// How many records to send at a time, at most so many: no more than in a second.
    pub(crate) fn at_once(&self, most: usize) -> usize {
        let in_a_second = self.interval.map(|interval| (1.0 / interval.as_secs_f64()).round() as usize);
        in_a_second.map_or(most, |rate| rate.clamp(1, most))
    }

    /// When the next record may go, if that is not yet.
    pub(crate) fn wait(&self, now: Instant) -> Option<Instant> {
        self.interval.and((self.next > now).then_some(self.next))
    }

    /// Takes the time for so many; when they may go.
    pub(crate) fn takes(&mut self, records: usize, now: Instant) -> Instant {
        let at = self.wait(now).unwrap_or(now);
        self.goes(records, at);
        at
    }

    /// Notes that so many go now.
    pub(crate) fn goes(&mut self, records: usize, now: Instant) {
        if let Some(interval) = self.interval {
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            self.next = self.next.max(earliest) + interval * u32::try_from(records).unwrap_or(u32::MAX);
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
                pace.goes(1, *now);
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

    #[tokio::test(start_paused = true)]
    async fn many_that_go_at_once_take_the_time_of_all() {
        let now = Instant::now();
        let mut pace = Pace::new(Some(100), now);
        assert_eq!((pace.at_once(5_000), pace.at_once(20)), (100, 20));
        pace.goes(50, now);
        pace.goes(100, now);
        let next = pace.wait(now).unwrap() - now;
        assert!((Duration::from_millis(1_450)..=Duration::from_millis(1_500)).contains(&next), "{next:?}");
        let mut shared = Pace::new(Some(100), now);
        assert_eq!(shared.takes(100, now), now);
        assert!(shared.takes(1, now) >= now + Duration::from_millis(950), "whoever is next waits for the others");
        let unlimited = Pace::new(None, now);
        assert_eq!((unlimited.wait(now), unlimited.at_once(5_000)), (None, 5_000));
    }
}
