//! What a line or a row of the input is as a record.

use std::fmt::Write as _;

use bytes::Bytes;
use clap::ValueEnum;
use csv::ByteRecord;
use serde::de::IgnoredAny;
use serde_json::Value;
use shardmill_record::UserRecord;

/// How the input is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Each line is a payload as it stands.
    Lines,
    /// Each line is a payload that must be JSON.
    Jsonl,
    /// Each row is a payload: a JSON object with the first row's names, or with --no-header the row as CSV.
    Csv,
}

/// What the partition key of a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
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
pub(super) enum Bad {
    #[error("it is not JSON: {0}")]
    Json(serde_json::Error),
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

/// The columns of a CSV file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Their names as JSON texts; `None` without a header.
    names: Option<Vec<String>>,
    /// That of the key, from 0.
    key: Option<usize>,
    delimiter: u8,
}

/// Why the columns of a file are not those that were asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WrongColumns {
    #[error("there is no column `{0}`; the first row names {1}")]
    Missing(String, String),
    #[error("two columns have the name `{0}`")]
    Twice(String),
    #[error("the name of column {0} is not UTF-8")]
    Text(usize),
    #[error("without a header the key's column is named by its number, from 1, and not `{0}`")]
    NoNumber(String),
}

// === impl Key ===

impl Key {
    /// How the input is written, where nobody says it.
    pub(super) fn implies(&self) -> Format {
        match self {
            Self::Field(_) => Format::Jsonl,
            Self::Column(_) => Format::Csv,
            Self::Random | Self::Fixed(_) => Format::Lines,
        }
    }

    /// Whether records of this key can be told from input that is written so.
    pub(super) fn is_of(&self, format: Format) -> bool {
        match self {
            Self::Field(_) => format == Format::Jsonl,
            Self::Column(_) => format == Format::Csv,
            Self::Random | Self::Fixed(_) => true,
        }
    }

    fn of_document(&self, document: &Value) -> Result<String, Bad> {
        let Self::Field(pointer) = self else { return Ok(self.plain()) };
        match document.pointer(pointer) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            Some(Value::Bool(_)) => Err(Bad::Kind(pointer.clone(), "a truth value")),
            Some(Value::Array(_)) => Err(Bad::Kind(pointer.clone(), "a list")),
            Some(Value::Object(_)) => Err(Bad::Kind(pointer.clone(), "an object")),
            Some(Value::Null) | None => Err(Bad::NoField(pointer.clone())),
        }
    }

    /// Of one that needs nothing of the record.
    fn plain(&self) -> String {
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
    let partition_key = match (format, key) {
        (Format::Jsonl, Key::Field(_)) => {
            serde_json::from_slice(line).map_err(Bad::Json).and_then(|document| key.of_document(&document))
        }
        (Format::Jsonl, _) => serde_json::from_slice::<IgnoredAny>(line).map_err(Bad::Json).map(|_| key.plain()),
        _other => Ok(key.plain()),
    };
    Some(partition_key.map(|partition_key| record(partition_key, Bytes::copy_from_slice(line))))
}

fn record(partition_key: String, data: Bytes) -> UserRecord {
    UserRecord { partition_key, explicit_hash_key: None, data }
}

// === impl Columns ===

impl Columns {
    /// Of a file whose first row is this.
    pub(super) fn of_header(header: &ByteRecord, key: &Key, delimiter: u8) -> Result<Self, WrongColumns> {
        let mut names: Vec<&str> = Vec::with_capacity(header.len());
        for (index, name) in header.iter().enumerate() {
            let name = std::str::from_utf8(name).map_err(|_| WrongColumns::Text(index + 1))?;
            if names.contains(&name) {
                return Err(WrongColumns::Twice(name.to_owned()));
            }
            names.push(name);
        }
        let key = match key {
            Key::Column(wanted) => match names.iter().position(|name| name == wanted) {
                Some(index) => Some(index),
                None => return Err(WrongColumns::Missing(wanted.clone(), names.join(", "))),
            },
            _other => None,
        };
        Ok(Self { names: Some(names.into_iter().map(quoted).collect()), key, delimiter })
    }

    /// Of a file whose first row is a record like the others.
    pub(super) fn without_header(key: &Key, delimiter: u8) -> Result<Self, WrongColumns> {
        let key = match key {
            Key::Column(number) => match number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
                Some(index) => Some(index),
                None => return Err(WrongColumns::NoNumber(number.clone())),
            },
            _other => None,
        };
        Ok(Self { names: None, key, delimiter })
    }

    /// A row is a record.
    pub(super) fn record(&self, row: &ByteRecord, key: &Key) -> Result<UserRecord, Bad> {
        let partition_key = match self.key {
            Some(index) => {
                let expected = index + 1;
                let field = row.get(index).ok_or(Bad::Fields { found: row.len(), expected })?;
                text(field, index)?.to_owned()
            }
            None => key.plain(),
        };
        let data = match &self.names {
            Some(names) => object(names, row)?.into_bytes(),
            None => as_row(row, self.delimiter),
        };
        Ok(record(partition_key, data.into()))
    }
}

/// In the order of the columns.
fn object(names: &[String], row: &ByteRecord) -> Result<String, Bad> {
    if row.len() != names.len() {
        return Err(Bad::Fields { found: row.len(), expected: names.len() });
    }
    let mut object =
        String::with_capacity(row.as_slice().len() + names.iter().map(|name| name.len() + 4).sum::<usize>());
    for (index, (name, field)) in names.iter().zip(row).enumerate() {
        let separator = if index == 0 { '{' } else { ',' };
        // A text takes all that is written to it.
        let _ = write!(object, "{separator}{name}:{}", quoted(text(field, index)?));
    }
    object.push('}');
    Ok(object)
}

fn as_row(row: &ByteRecord, delimiter: u8) -> Vec<u8> {
    let mut writer =
        csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::with_capacity(row.as_slice().len()));
    // Memory takes all that is written to it.
    let _ = writer.write_byte_record(row);
    let mut line = writer.into_inner().unwrap_or_default();
    // The end of the line.
    line.pop();
    line
}

fn text(field: &[u8], index: usize) -> Result<&str, Bad> {
    std::str::from_utf8(field).map_err(|_| Bad::Text(index + 1))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let json = br#"{"id":7,"big":18446744073709551615,"user":{"name":"a\nb"},"no":null,"list":[1],"is":true}"#;
        let of = |pointer: &str| line(json, Format::Jsonl, &key(pointer)).unwrap();
        assert_eq!(of("/user/name").unwrap().partition_key, "a\nb");
        assert_eq!((of("/id").unwrap().partition_key, of("/list/0").unwrap().partition_key), ("7".into(), "1".into()));
        assert_eq!(of("/big").unwrap().partition_key, "18446744073709551615");
        assert_eq!(&of("/id").unwrap().data[..], json);
        assert!(told(of("/no")).contains("nothing at /no") && told(of("/missing")).contains("nothing at /missing"));
        assert!(told(of("/user")).contains("an object") && told(of("/list")).contains("a list"));
        assert!(told(of("/is")).contains("a truth value"));
        for bad in [&b"{"[..], b"\xff", b"1 2"] {
            assert!(told(line(bad, Format::Jsonl, &key("/id")).unwrap()).contains("not JSON"));
            assert!(told(line(bad, Format::Jsonl, &Key::Random).unwrap()).contains("not JSON"));
        }
    }

    #[test]
    fn a_row_is_an_object_with_the_names_of_the_header_in_their_order() {
        let header = ByteRecord::from(vec!["z", "carrier", "a\"b"]);
        let key = Key::Column("carrier".into());
        let columns = Columns::of_header(&header, &key, b',').unwrap();
        let record = columns.record(&ByteRecord::from(vec!["1", "UA", "x\ny"]), &key).unwrap();
        assert_eq!(record.partition_key, "UA");
        assert_eq!(&record.data[..], br#"{"z":"1","carrier":"UA","a\"b":"x\ny"}"#);
        assert!(told(columns.record(&ByteRecord::from(vec!["1", "UA"]), &key)).contains("2 fields where 3"));
        let no_text = ByteRecord::from(vec![&b"1"[..], b"UA", b"\xff"]);
        assert!(told(columns.record(&no_text, &key)).contains("field 3 is not UTF-8"));

        let wrong = |key: &str| Columns::of_header(&header, &Key::Column(key.into()), b',').unwrap_err().to_string();
        assert!(wrong("Carrier").contains("names z, carrier, a\"b"));
        let twice = ByteRecord::from(vec!["a", "a"]);
        assert_eq!(Columns::of_header(&twice, &Key::Random, b','), Err(WrongColumns::Twice("a".into())));
    }

    #[test]
    fn without_a_header_a_row_stays_a_row_and_columns_have_numbers() {
        let key = Key::Column("2".into());
        let columns = Columns::without_header(&key, b';').unwrap();
        let record = columns.record(&ByteRecord::from(vec!["a;b", "UA", ""]), &key).unwrap();
        assert_eq!((record.partition_key.as_str(), &record.data[..]), ("UA", &b"\"a;b\";UA;"[..]));
        assert!(told(columns.record(&ByteRecord::from(vec!["a"]), &key)).contains("1 fields where 2"));
        for column in ["0", "carrier", "-1"] {
            assert!(Columns::without_header(&Key::Column(column.into()), b',').is_err(), "{column}");
        }
    }

    proptest! {
        #[test]
        fn objects_are_json_and_rows_are_read_back(fields in prop::collection::vec(any::<String>(), 1..6)) {
            let names: Vec<String> = (0..fields.len()).map(|index| format!("c{index}")).collect();
            let row = ByteRecord::from(fields.clone());
            let columns = Columns::of_header(&ByteRecord::from(names.clone()), &Key::Random, b',').unwrap();
            let object: Value = serde_json::from_slice(&columns.record(&row, &Key::Random).unwrap().data).unwrap();
            for (name, field) in names.iter().zip(&fields) {
                prop_assert_eq!(object[name].as_str(), Some(field.as_str()));
            }
            let columns = Columns::without_header(&Key::Random, b',').unwrap();
            let line = columns.record(&row, &Key::Random).unwrap().data;
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&line[..]);
            let back = reader.byte_records().next().unwrap().unwrap();
            prop_assert_eq!(back, row);
        }
    }
}
