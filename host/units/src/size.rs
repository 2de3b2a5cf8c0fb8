//! Sizes in bytes.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;

/// A size such as `"64 MiB"` or `"5MB"`, or a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

struct SizeVisitor;

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Writes a size as a number of bytes.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(size: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(*size as u64)
}

/// Reads a size, into a `u64` or a `usize`.
///
/// # Errors
/// If it is none, which says what is expected, or if the number has no room for it.
pub fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let Size(bytes) = Size::deserialize(deserializer)?;
    T::try_from(bytes).map_err(|_| D::Error::invalid_value(Unexpected::Unsigned(bytes), &SizeVisitor))
}

// === impl Size ===

impl<'de> Deserialize<'de> for Size {
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
