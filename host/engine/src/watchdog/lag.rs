//! When a shard's lag comes so near the stream's retention that somebody has to know. Pure.

use std::fmt;
use std::time::Duration;

const HOUR_MS: u64 = 3_600_000;

/// How much of its retention a shard has used up by its lag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) millis_behind: u64,
    pub(crate) retention_hours: u32,
}

/// Whether it has been told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    is_on: bool,
}

/// What there is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    Begins,
    Ends,
}

// === impl Used ===

impl Used {
    fn retention(&self) -> u64 {
        u64::from(self.retention_hours).max(1) * HOUR_MS
    }

    /// 1 where records are lost.
    pub(crate) fn ratio(&self) -> f64 {
        self.millis_behind as f64 / self.retention() as f64
    }

    pub(crate) fn percent(&self) -> u64 {
        u64::try_from(u128::from(self.millis_behind) * 100 / u128::from(self.retention())).unwrap_or(u64::MAX)
    }

    /// How long until records are lost, if the shard gets no further.
    pub(crate) fn left(&self) -> Duration {
        Duration::from_millis(self.retention().saturating_sub(self.millis_behind))
    }
}

impl fmt::Display for Used {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = |time: Duration| (time.as_secs() / 3600, time.as_secs() / 60 % 60);
        let (hours, past) = minutes(Duration::from_millis(self.millis_behind));
        let retention = self.retention_hours;
        write!(formatter, "is {hours} h {past} min behind, and its stream keeps records for {retention} h: ")?;
        match minutes(self.left()) {
            (0, 0) => formatter.write_str("records are being lost; make the retention longer now"),
            (hours, minutes) => write!(
                formatter,
                "records are lost in {hours} h {minutes} min unless it catches up; make the retention longer to gain time"
            ),
        }
    }
}

// === impl Alarm ===

impl Alarm {
    pub(crate) fn is_on(self) -> bool {
        self.is_on
    }

    /// Begins at so many hundredths, and ends well below, so that a lag at the border is not told again and again.
    pub(crate) fn look(&mut self, used: &Used, percent: u32) -> Told {
        let (used, percent) = (used.percent(), u64::from(percent));
        match self.is_on {
            false if used >= percent => {
                self.is_on = true;
                Told::Begins
            }
            true if used * 10 < percent * 9 => {
                self.is_on = false;
                Told::Ends
            }
            _ => Told::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(minutes: u64) -> Used {
        Used { millis_behind: minutes * 60_000, retention_hours: 24 }
    }

    #[test]
    fn an_alarm_begins_once_near_the_retention_and_ends_once_well_below() {
        let mut alarm = Alarm::default();
        // 80 % of a day are 1,152 minutes, nine tenths of that 1,037.
        let told: Vec<_> = [0, 1_151, 1_152, 1_300, 1_100, 1_160, 1_036, 1_100, 1_152, 5_000]
            .map(|minutes| alarm.look(&used(minutes), 80))
            .into();
        let expected = {
            use Told::{Begins, Ends, Nothing};
            [Nothing, Nothing, Begins, Nothing, Nothing, Nothing, Ends, Nothing, Begins, Nothing]
        };
        assert_eq!(told, expected);
        assert!(alarm.is_on());
    }

    #[test]
    fn the_time_that_is_left_is_told() {
        let text = used(21 * 60 + 15).to_string();
        assert!(
            text.contains("21 h 15 min behind") && text.contains("24 h") && text.contains("in 2 h 45 min"),
            "{text}"
        );
        assert_eq!(used(21 * 60 + 15).percent(), 88);
        assert!((used(720).ratio() - 0.5).abs() < 1e-9);
        for lost in [used(1_440), used(10_000)] {
            assert_eq!(lost.left(), Duration::ZERO);
            assert!(lost.to_string().contains("records are being lost"), "{lost}");
        }
        let absurd = Used { millis_behind: u64::MAX, retention_hours: 0 };
        assert!(absurd.percent() > 100 && !absurd.to_string().is_empty());
    }
}
