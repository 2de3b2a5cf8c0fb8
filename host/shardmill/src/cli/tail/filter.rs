//! Which records are shown.

use memchr::memmem::Finder;
use serde_json::Value;
use shardmill_record::Record;

/// What a record must be to be shown: all that is said.
#[derive(Debug, Default)]
pub(super) struct Filter {
    keys: Vec<String>,
    contains: Vec<Finder<'static>>,
    fields: Vec<Field>,
}

/// A value that a field of the payload must have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pointer: String,
    /// As it was written.
    text: String,
    /// What that is as JSON, if it is.
    value: Option<Value>,
}

// === impl Filter ===

impl Filter {
    /// With one of these keys, if there are any; with all of these texts; with all of these fields.
    pub(super) fn new(keys: &[String], contains: &[String], fields: &[Field]) -> Self {
        let contains = contains.iter().map(|text| Finder::new(text.as_bytes()).into_owned()).collect();
        Self { keys: keys.to_vec(), contains, fields: fields.to_vec() }
    }

    pub(super) fn takes(&self, record: &Record<'_>) -> bool {
        (self.keys.is_empty() || self.keys.iter().any(|key| key == record.partition_key))
            && self.contains.iter().all(|text| text.find(record.data).is_some())
            && self.has_fields(record.data)
    }

    fn has_fields(&self, data: &[u8]) -> bool {
        if self.fields.is_empty() {
            return true;
        }
        let Ok(document) = serde_json::from_slice::<Value>(data) else { return false };
        self.fields.iter().all(|field| field.is_in(&document))
    }
}

// === impl Field ===

impl Field {
    /// Of `POINTER=VALUE`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some((pointer, value)) = text.split_once('=') else {
            return Err("POINTER=VALUE is expected, such as /user/id=42".to_owned());
        };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(format!("`{pointer}` is not a JSON pointer, which begins with a slash: write /{text}"));
        }
        let (pointer, text) = (pointer.to_owned(), value.to_owned());
        Ok(Self { pointer, value: serde_json::from_str(value).ok(), text })
    }

    fn is_in(&self, document: &Value) -> bool {
        match (document.pointer(&self.pointer), &self.value) {
            (None, _) => false,
            (Some(Value::String(found)), Some(Value::String(quoted))) => *found == self.text || found == quoted,
            (Some(Value::String(found)), _) => *found == self.text,
            (Some(found), Some(wanted)) => is_same(found, wanted),
            (Some(_), None) => false,
        }
    }
}

/// Numbers are the same however they are written.
fn is_same(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Number(found), Value::Number(wanted)) => {
            found == wanted || (found.is_f64() || wanted.is_f64()) && found.as_f64() == wanted.as_f64()
        }
        _other => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record<'a>(partition_key: &'a str, data: &'a [u8]) -> Record<'a> {
        Record {
            sequence_number: "1",
            sub_sequence_number: 0,
            partition_key,
            explicit_hash_key: None,
            approximate_arrival: 0,
            data,
        }
    }

    fn has(field: &str, data: &str) -> bool {
        Filter::new(&[], &[], &[Field::parse(field).unwrap()]).takes(&record("k", data.as_bytes()))
    }

    #[test]
    fn a_field_is_found_by_its_pointer_and_compared_as_a_value() {
        let data =
            r#"{"n":1,"f":2.50,"s":"1","b":true,"z":null,"o":{"a/b":[10,"x"]},"e":"","big":18446744073709551615}"#;
        for field in [
            "/n=1",
            "/n=1.0",
            "/n=1e0",
            "/f=2.5",
            "/s=1",
            "/s=\"1\"",
            "/b=true",
            "/z=null",
            "/o/a~1b/0=10",
            "/o/a~1b/1=x",
            "/o/a~1b=[10,\"x\"]",
            "/e=",
            "/big=18446744073709551615",
        ] {
            assert!(has(field, data), "{field}");
        }
        for field in [
            "/n=2",
            "/n=\"1\"",
            "/n=",
            "/b=false",
            "/z=",
            "/o/a~1b/2=10",
            "/missing=1",
            "/missing=null",
            "/big=18446744073709551614",
        ] {
            assert!(!has(field, data), "{field}");
        }
        assert!(has("=7", "7") && !has("/n=1", "[1]"));
        assert!(!has("/n=1", r#"{"n":1"#) && !has("/n=1", "\u{ff}"), "what is no JSON has no fields");
        // As deep as an attacker likes.
        assert!(!has("/n=1", &"[".repeat(1 << 20)));
    }

    #[test]
    fn a_field_needs_a_pointer_and_a_value() {
        assert!(Field::parse("/n").unwrap_err().contains("POINTER=VALUE"));
        assert!(Field::parse("n=1").unwrap_err().contains("write /n=1"));
        assert_eq!(Field::parse("/a=b=c").unwrap().text, "b=c");
    }

    #[test]
    fn one_of_the_keys_and_all_of_the_texts() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let filter = Filter::new(&texts(&["a", "b"]), &texts(&["x", "yz"]), &[]);
        assert!(filter.takes(&record("b", b"yzx")));
        assert!(!filter.takes(&record("c", b"yzx")) && !filter.takes(&record("a", b"yz")));
        assert!(Filter::default().takes(&record("", b"")));
    }
}
