//! What a row of CSV is as a record.

use std::fmt::Write as _;

use bytes::Bytes;
use csv::ByteRecord;
use serde_json::Value;
use shardmill_record::UserRecord;

use super::parse::{Bad, Key};

/// The columns of a CSV file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Their names as JSON texts; `None` without a header.
    names: Option<Vec<String>>,
    /// That of the key, from 0.
    key: Option<usize>,
}

/// Why the columns of a file are not those that were asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum WrongColumns {
    #[error("there is no column `{0}`; the first row names {1}")]
    Missing(String, String),
    #[error("two columns have the name `{0}`")]
    Twice(String),
    #[error("the first row cannot be taken for names: {0}")]
    Quotes(String),
    #[error("the name of column {0} is not UTF-8")]
    Text(usize),
    #[error("without a header the key's column is named by its number, from 1, and not `{0}`")]
    NoNumber(String),
}

// === impl Columns ===

impl Columns {
    /// Of a file whose first row is this.
    pub(super) fn of_header(header: &ByteRecord, key: &Key) -> Result<Self, WrongColumns> {
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
        Ok(Self { names: Some(names.into_iter().map(quoted).collect()), key })
    }

    /// Of a file whose first row is a record like the others.
    pub(super) fn without_header(key: &Key) -> Result<Self, WrongColumns> {
        let key = match key {
            Key::Column(number) => match number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
                Some(index) => Some(index),
                None => return Err(WrongColumns::NoNumber(number.clone())),
            },
            _other => None,
        };
        Ok(Self { names: None, key })
    }

    /// A row is a record. Without a header its payload is what the row was read from.
    pub(super) fn record(&self, row: &ByteRecord, raw: &[u8], key: &Key) -> Result<UserRecord, Bad> {
        let partition_key = match self.key {
            Some(index) => {
                let expected = index + 1;
                let field = row.get(index).ok_or(Bad::Fields { found: row.len(), expected })?;
                text(field, index)?.to_owned()
            }
            None => key.plain(),
        };
        let data = match &self.names {
            Some(names) => object(names, row)?.into(),
            None => Bytes::copy_from_slice(raw),
        };
        Ok(UserRecord { partition_key, explicit_hash_key: None, data })
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
    fn a_row_is_an_object_with_the_names_of_the_header_in_their_order() {
        let header = ByteRecord::from(vec!["z", "carrier", "a\"b"]);
        let key = Key::Column("carrier".into());
        let columns = Columns::of_header(&header, &key).unwrap();
        let record = columns.record(&ByteRecord::from(vec!["1", "UA", "x\ny"]), b"", &key).unwrap();
        assert_eq!(record.partition_key, "UA");
        assert_eq!(&record.data[..], br#"{"z":"1","carrier":"UA","a\"b":"x\ny"}"#);
        assert!(told(columns.record(&ByteRecord::from(vec!["1", "UA"]), b"", &key)).contains("2 fields where 3"));
        let no_text = ByteRecord::from(vec![&b"1"[..], b"UA", b"\xff"]);
        assert!(told(columns.record(&no_text, b"", &key)).contains("field 3 is not UTF-8"));

        let wrong = |key: &str| Columns::of_header(&header, &Key::Column(key.into())).unwrap_err().to_string();
        assert!(wrong("Carrier").contains("names z, carrier, a\"b"));
        let twice = ByteRecord::from(vec!["a", "a"]);
        assert_eq!(Columns::of_header(&twice, &Key::Random), Err(WrongColumns::Twice("a".into())));
    }

    #[test]
    fn without_a_header_a_row_stays_as_it_is_and_columns_have_numbers() {
        let key = Key::Column("2".into());
        let columns = Columns::without_header(&key).unwrap();
        let raw = b"\"a\";\"UA\"; ";
        let record = columns.record(&ByteRecord::from(vec!["a", "UA", " "]), raw, &key).unwrap();
        assert_eq!((record.partition_key.as_str(), &record.data[..]), ("UA", &raw[..]));
        assert!(told(columns.record(&ByteRecord::from(vec!["a"]), b"a", &key)).contains("1 fields where 2"));
        for column in ["0", "carrier", "-1"] {
            assert!(Columns::without_header(&Key::Column(column.into())).is_err(), "{column}");
        }
    }

    proptest! {
        #[test]
        fn objects_are_json(fields in prop::collection::vec(any::<String>(), 1..6)) {
            let names: Vec<String> = (0..fields.len()).map(|index| format!("c{index}")).collect();
            let row = ByteRecord::from(fields.clone());
            let columns = Columns::of_header(&ByteRecord::from(names.clone()), &Key::Random).unwrap();
            let object: Value = serde_json::from_slice(&columns.record(&row, b"", &Key::Random).unwrap().data).unwrap();
            for (name, field) in names.iter().zip(&fields) {
                prop_assert_eq!(object[name].as_str(), Some(field.as_str()));
            }
        }
    }
}
