//! Where in a JSON text a value is, and the way to it without reading the rest into memory.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A place in a JSON text: a JSON pointer (RFC 6901) if it is empty or begins with `/`, else names with dots
/// between them. A number among the names is an index where the text has an array.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Path {
    /// As it was written.
    text: String,
    names: Vec<String>,
}

/// The value at the end of some names.
#[derive(Clone, Copy)]
struct At<'p> {
    names: &'p [String],
}

// === impl Path ===

impl TryFrom<String> for Path {
    type Error = String;

    fn try_from(text: String) -> Result<Path, String> {
        let names = if text.is_empty() {
            Vec::new()
        } else if let Some(pointer) = text.strip_prefix('/') {
            // In this order, or `~01` would become `/`.
            pointer.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect()
        } else {
            let names: Vec<String> = text.split('.').map(str::to_owned).collect();
            if names.iter().any(String::is_empty) {
                return Err(format!("the path {text:?} has an empty name; write it as a JSON pointer if it is meant"));
            }
            names
        };
        Ok(Path { text, names })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Path {
    /// The value there as text: a text itself, a number or a truth value as JSON writes it. `None` if nothing is
    /// there, or `null`, an object or an array.
    ///
    /// # Errors
    /// If the data as a whole is not JSON.
    pub fn find<'de>(&self, data: &'de [u8]) -> Result<Option<Cow<'de, str>>, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(data);
        let found = At { names: &self.names }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(found)
    }
}

// === impl At ===

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl At<'_> {
    /// A value that is neither object nor array is the one only if no name is left.
    fn here<'de>(self, value: impl FnOnce() -> Cow<'de, str>) -> Option<Cow<'de, str>> {
        self.names.is_empty().then(value)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(self.here(|| Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.here(|| Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.here(|| Cow::Borrowed(if value { "true" } else { "false" })))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(self.here(|| Cow::Owned(number.to_string())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.here(|| Cow::Owned(number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(self.here(|| Cow::Owned(serde_json::Value::from(number).to_string())))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Name<'de>>()? {
            match self.names {
                // Of two fields of one name the last counts, as with most readers of JSON.
                [first, rest @ ..] if name.0 == *first => found = map.next_value_seed(At { names: rest })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let wanted = self.names.first().and_then(|name| index(name));
        let mut found = None;
        for place in 0_usize.. {
            if wanted == Some(place) {
                match seq.next_element_seed(At { names: &self.names[1..] })? {
                    Some(value) => found = value,
                    None => break,
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

/// A field's name, borrowed unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// RFC 6901 has one way to write an index: `0`, or digits that do not begin with it.
fn index(name: &str) -> Option<usize> {
    let is_index = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    is_index.then(|| name.parse().ok()).flatten()
}
