//! Durations.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;

/// A duration such as `"3s"`, `"500ms"` or `"1m 30s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

struct TimeVisitor;

/// Writes a duration as [`deserialize`] reads it.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Time(*time))
}

/// Reads a duration.
///
/// # Errors
/// If it is none, which says what is expected.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Time::deserialize(deserializer).map(|time| time.0)
}

// === impl Time ===

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `deserialize_str`: a bare number shall be told what it lacks.
        deserializer.deserialize_any(TimeVisitor)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(formatter)
    }
}

impl Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration with its unit in quotes, such as \"500ms\", \"3s\" or \"1m 30s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
        humantime::parse_duration(text).map(Time).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}
