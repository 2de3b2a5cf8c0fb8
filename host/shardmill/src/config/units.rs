//! Durations and sizes as people write them.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A duration such as `"3s"`, `"500ms"`, `"1m 30s"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

/// A size such as `"64 MiB"`, `"5MB"`, or a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

struct TimeVisitor;
struct SizeVisitor;

// === impl Time ===

impl<'de> serde::Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `deserialize_str`: a bare number shall be told what it lacks.
        deserializer.deserialize_any(TimeVisitor)
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
