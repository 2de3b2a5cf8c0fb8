//! What a line of the input is as a record, and what a key is.

use bytes::Bytes;
use clap::ValueEnum;
use shardmill_record::UserRecord;

use super::json::{self, Found};
use super::tail_json;

/// How the input is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    /// Each line is a payload as it stands.
    Lines,
    /// Each line is a payload that must be JSON.
    Jsonl,
    /// Each row is a payload: a JSON object with the first row's names, or with --no-header the row as it stands.
    Csv,
    /// Each line is one of `shardmill tail --json`: its key, its explicit hash key and its payload.
    TailJson,
}

/// What the partition key of a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Key {
    /// Another one for each record, so that they are spread over all shards.
    Random,
    /// The same for all.
    Fixed(String),
    /// The value at this JSON pointer.
    Field(String),
    /// The value of the column of this name; without a header, of this number, from 1.
    Column(String),
}

/// Why a line or a row is no record.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Bad {
    #[error("it is not JSON: {0}")]
    Json(String),
    #[error("it is not a line of `shardmill tail --json`: {0}")]
    Tail(String),
    #[error("a quote that was opened on line {0} is not closed, so that all that follows it would be one row")]
    Open(u64),
    #[error(
        "a quote that was opened on line {0} is closed in front of more text: is the closing quote of a line missing?"
    )]
    Suspect(u64),
    #[error("there is nothing at {0} that could be a key")]
    NoField(String),
    #[error("at {0} there is {1}, and a text or a number is expected for a key")]
    Kind(String, &'static str),
    #[error("it has {found} fields where {expected} are expected")]
    Fields { found: usize, expected: usize },
    #[error("its field {0} is not UTF-8")]
    Text(usize),
    #[error("it is longer than {} MiB", super::source::LONGEST >> 20)]
    TooLong,
}

// === impl Key ===

impl Key {
    /// How the input must be written, where nobody says it.
    pub(super) fn implies(&self) -> Option<Format> {
        match self {
            Self::Field(_) => Some(Format::Jsonl),
            Self::Column(_) => Some(Format::Csv),
            Self::Random | Self::Fixed(_) => None,
        }
    }

    /// Whether records of this key can be told from input that is written so.
    pub(super) fn is_of(&self, format: Format) -> bool {
        match self {
            Self::Field(_) => format == Format::Jsonl,
            Self::Column(_) => format == Format::Csv,
            Self::Random => true,
            // The lines have keys of their own.
            Self::Fixed(_) => format != Format::TailJson,
        }
    }

    fn of_document(&self, document: &str) -> Result<String, Bad> {
        let Self::Field(pointer) = self else { return Ok(self.plain()) };
        match json::find(document, pointer) {
            Found::Text(text) => Ok(text.into_owned()),
            Found::Number(digits) => Ok(digits.to_owned()),
            Found::Other(kind) => Err(Bad::Kind(pointer.clone(), kind)),
            Found::Nothing => Err(Bad::NoField(pointer.clone())),
        }
    }

    /// Of one that needs nothing of the record.
    pub(super) fn plain(&self) -> String {
        match self {
            Self::Fixed(key) => key.clone(),
            _other => format!("{:032x}", rand::random::<u128>()),
        }
    }
}

/// A line is a record; `None` if it is empty.
pub(super) fn line(line: &[u8], format: Format, key: &Key) -> Option<Result<UserRecord, Bad>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    let partition_key = match format {
        Format::TailJson => return Some(tail_json::record(line).map_err(Bad::Tail)),
        Format::Jsonl => json::document(line).map_err(Bad::Json).and_then(|document| key.of_document(document)),
        Format::Lines | Format::Csv => Ok(key.plain()),
    };
    let data = Bytes::copy_from_slice(line);
    Some(partition_key.map(|partition_key| UserRecord { partition_key, explicit_hash_key: None, data }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bad: Result<UserRecord, Bad>) -> String {
        bad.unwrap_err().to_string()
    }

    #[test]
    fn a_line_is_the_payload_byte_for_byte_and_an_empty_one_is_none() {
        let fixed = Key::Fixed("k".into());
        let record = line(b" {\"a\": 1.0}\t\xff\r", Format::Lines, &fixed).unwrap().unwrap();
        assert_eq!((record.partition_key.as_str(), &record.data[..]), ("k", &b" {\"a\": 1.0}\t\xff"[..]));
        assert!(line(b"", Format::Lines, &fixed).is_none() && line(b"\r", Format::Jsonl, &fixed).is_none());
        let keys = [(); 2].map(|()| line(b"x", Format::Lines, &Key::Random).unwrap().unwrap().partition_key);
        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn the_key_of_a_json_line_is_a_text_or_a_number() {
        let key = |pointer: &str| Key::Field(pointer.into());
        let json = br#"{"id":7,"big":18446744073709551615,"user":{"name":"a\nb"},"no":null,"list":[1],"is":true,
            "large":123456789012345678901234567890,"hundred":1e2}"#;
        let of = |pointer: &str| line(json, Format::Jsonl, &key(pointer)).unwrap();
        assert_eq!(of("/user/name").unwrap().partition_key, "a\nb");
        assert_eq!((of("/id").unwrap().partition_key, of("/list/0").unwrap().partition_key), ("7".into(), "1".into()));
        assert_eq!(of("/big").unwrap().partition_key, "18446744073709551615");
        // As they are written, and not two of them as one.
        assert_eq!(of("/large").unwrap().partition_key, "123456789012345678901234567890");
        assert_eq!(of("/hundred").unwrap().partition_key, "1e2");
        assert_eq!(&of("/id").unwrap().data[..], json);
        assert!(told(of("/no")).contains("nothing at /no") && told(of("/missing")).contains("nothing at /missing"));
        assert!(told(of("/user")).contains("an object") && told(of("/list")).contains("a list"));
        assert!(told(of("/is")).contains("a truth value"));
        for bad in [&b"{"[..], b"\xff", b"1 2", b"{\"id\":1,\"a\":\"\xff\"}", br#"{"id":1,"a":"\ud800"}"#] {
            assert!(told(line(bad, Format::Jsonl, &key("/id")).unwrap()).contains("not JSON"));
            assert!(told(line(bad, Format::Jsonl, &Key::Random).unwrap()).contains("not JSON"));
        }
    }
}
