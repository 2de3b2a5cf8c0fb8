//! Times as they are typed.

use std::borrow::Cow;

/// How long ago, such as `2h`, as a time in milliseconds since 1970, as `now` is. `None` if it is not written so.
pub(super) fn ago(text: &str, now: u64) -> Option<u64> {
    let ago = humantime::parse_duration(text).ok()?;
    Some(now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)))
}

/// A day stands for its beginning; whatever else stays as it is.
pub(super) fn beginning(text: &str) -> Cow<'_, str> {
    let is_day = text.len() == "2026-07-01".len() && text.bytes().filter(|byte| *byte == b'-').count() == 2;
    if is_day { format!("{text}T00:00:00Z").into() } else { text.into() }
}
