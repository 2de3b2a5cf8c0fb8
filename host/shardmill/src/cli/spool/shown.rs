//! How things of a spool are shown.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use indicatif::HumanBytes;

use crate::cli::text;

/// Of a text in a table, in characters.
const LONGEST: usize = 60;

/// A text of somebody else's in one line, not longer than a column.
pub(super) fn short(whole: &str) -> String {
    let mut short = text::line(whole);
    if let Some((at, _)) = short.char_indices().nth(LONGEST) {
        short.truncate(at);
        short.push('…');
    }
    short
}

pub(super) fn size(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

pub(super) fn records(count: u64) -> String {
    if count == 1 { "1 record".to_owned() } else { format!("{count} records") }
}

/// When it was, and how long ago.
pub(super) fn since(time: SystemTime, now: SystemTime) -> String {
    let ago = Duration::from_secs(now.duration_since(time).unwrap_or_default().as_secs());
    format!("{} ({} ago)", at(time), humantime::format_duration(ago))
}

pub(super) fn at(time: SystemTime) -> String {
    /// After this the calendar of the library ends, in the year 9999.
    const LAST: u64 = 253_402_300_799;
    let last = UNIX_EPOCH + Duration::from_secs(LAST);
    humantime::format_rfc3339_seconds(time.clamp(UNIX_EPOCH, last)).to_string()
}

/// In milliseconds since 1970, for programs.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(short(&"é".repeat(LONGEST + 1)), format!("{}…", "é".repeat(LONGEST)));
        assert_eq!(short("a\nb"), "a\\nb");
    }

    #[test]
    fn a_time_is_told_with_its_age() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(since(at(1_790_000_000), at(1_790_007_265)), "2026-09-21T14:13:20Z (2h 1m 5s ago)");
        assert_eq!(since(at(1_790_000_000), at(1_789_000_000)), "2026-09-21T14:13:20Z (0s ago)");
        assert_eq!(since(at(1 << 40), at(0)), "9999-12-31T23:59:59Z (0s ago)");
    }
}
