//! Durations and sizes as the configuration writes them.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A duration such as `"3s"`, `"500ms"` or `"1m 30s"`.
pub(super) mod time {
    use std::time::Duration;

    use serde::Serializer;

    use super::{Deserializer, Error, TimeVisitor, Unexpected, Visitor, fmt};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        // Not `deserialize_str`: a bare number shall be told what it lacks.
        deserializer.deserialize_any(TimeVisitor)
    }

    pub(crate) fn text(time: Duration) -> String {
        humantime::format_duration(time).to_string()
    }

    impl Visitor<'_> for TimeVisitor {
        type Value = Duration;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a duration with its unit in quotes, such as \"500ms\", \"3s\" or \"1m 30s\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            humantime::parse_duration(text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
}

/// A size such as `"50 KiB"` or `"5MB"`, or a number of bytes.
pub(super) mod size {
    use serde::Serializer;

    use super::{Deserializer, Error, SizeVisitor, Unexpected, Visitor, fmt};

    const UNITS: [(&str, usize); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

    pub(crate) fn serialize<S: Serializer>(size: &usize, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(*size as u64)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }

    /// In the largest unit that shows it exactly.
    pub(crate) fn text(size: usize) -> String {
        match UNITS.iter().find(|(_, unit)| size >= *unit && size.is_multiple_of(*unit)) {
            Some((name, unit)) => format!("{} {name}", size / unit),
            None => format!("{size} bytes"),
        }
    }

    impl Visitor<'_> for SizeVisitor {
        type Value = usize;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a size such as \"64 MiB\" or \"512 KiB\", or a number of bytes")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<usize, E> {
            let size = text.parse::<bytesize::ByteSize>().ok().and_then(|size| usize::try_from(size.as_u64()).ok());
            size.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<usize, E> {
            usize::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<usize, E> {
            usize::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
        }
    }
}

struct TimeVisitor;
struct SizeVisitor;
