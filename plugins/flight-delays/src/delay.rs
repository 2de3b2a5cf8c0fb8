//! A delay in minutes, or none: as a JSON number, `null`, or the `"NA"` of exports from R.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

pub(crate) fn minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    deserializer.deserialize_any(Minutes)
}

struct Minutes;

impl Visitor<'_> for Minutes {
    type Value = Option<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("minutes, null or \"NA\"")
    }

    // Whole minutes beyond 2^53 lose precision, and are late all the same.
    fn visit_i64<E: Error>(self, minutes: i64) -> Result<Option<f64>, E> {
        Ok(Some(minutes as f64))
    }

    fn visit_u64<E: Error>(self, minutes: u64) -> Result<Option<f64>, E> {
        Ok(Some(minutes as f64))
    }

    fn visit_f64<E: Error>(self, minutes: f64) -> Result<Option<f64>, E> {
        Ok(Some(minutes))
    }

    fn visit_unit<E: Error>(self) -> Result<Option<f64>, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<f64>, E> {
        match text {
            "NA" => Ok(None),
            other => Err(E::invalid_value(Unexpected::Str(other), &self)),
        }
    }
}
