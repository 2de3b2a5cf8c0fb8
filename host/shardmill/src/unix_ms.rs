//! Times in milliseconds since 1970, as Kinesis, dead letters and the fleet's documents have them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the clock of this machine says.
pub(crate) fn now() -> u64 {
    of(SystemTime::now())
}

/// 0 for what was before 1970.
pub(crate) fn of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The other way round; of any number that somebody may have written, because none is later than can be shown.
pub(crate) fn time(milliseconds: u64) -> SystemTime {
    /// After this the calendar that shows times ends, in the year 9999.
    const LAST: u64 = 253_402_300_799_999;
    UNIX_EPOCH + Duration::from_millis(milliseconds.min(LAST))
}
