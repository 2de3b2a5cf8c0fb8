//! How things of a spool are shown.

use std::time::{Duration, SystemTime};

use indicatif::HumanBytes;

use crate::cli::text;
use crate::unix_ms;

pub(super) fn size(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

/// When it was, and how long ago.
pub(super) fn since(time: SystemTime, now: SystemTime) -> String {
    let ago = Duration::from_secs(now.duration_since(time).unwrap_or_default().as_secs());
    format!("{} ({} ago)", at(time), humantime::format_duration(ago))
}

pub(super) fn at(time: SystemTime) -> String {
    text::second(unix_ms::of(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_with_its_age() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(since(at(1_790_000_000), at(1_790_007_265)), "2026-09-21T14:13:20Z (2h 1m 5s ago)");
        assert_eq!(since(at(1_790_000_000), at(1_789_000_000)), "2026-09-21T14:13:20Z (0s ago)");
        assert_eq!(since(at(1 << 40), at(0)), "9999-12-31T23:59:59Z (0s ago)");
    }
}
