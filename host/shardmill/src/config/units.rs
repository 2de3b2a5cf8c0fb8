//! Durations, sizes and numbers as people write them, and as they are shown to them.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A duration such as `"3s"`, `"500ms"`, `"1m 30s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(pub(super) Duration);

/// A size such as `"64 MiB"`, `"5MB"`, or a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Size(pub(super) u64);

/// A whole number, such as `500`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Count(pub(super) u64);

struct TimeVisitor;
struct SizeVisitor;
struct CountVisitor;

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

// === impl Time ===

impl<'de> serde::Deserialize<'de> for Time {
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

// === impl Size ===

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

/// In the largest unit that shows it exactly.
impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(formatter, "{} {name}", self.0 / unit),
            None if self.0 == 1 => formatter.write_str("1 byte"),
            None => write!(formatter, "{} bytes", self.0),
        }
    }
}

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a size such as \"64 MiB\" or \"512 KiB\", or a number of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        match text.parse::<bytesize::ByteSize>() {
            Ok(size) => Ok(Size(size.as_u64())),
            Err(_) => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Size, E> {
        u64::try_from(number).map(Size).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Size, E> {
        Ok(Size(number))
    }
}

// === impl Count ===

impl<'de> serde::Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `deserialize_u64`, whose errors speak of Rust's types.
        deserializer.deserialize_any(CountVisitor)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number, without quotes")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
        u64::try_from(number).map(Count).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Count, E> {
        Ok(Count(number))
    }
}
