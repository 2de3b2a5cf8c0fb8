//! Lines that `shardmill tail --json` has printed, as the records that they were.

use base64_simd::STANDARD;
use serde::Deserialize;
use shardmill_record::UserRecord;

use super::json;

/// What is needed of a line. Where a record was and when it arrived will be another place and time.
#[derive(Debug, Deserialize)]
struct Line {
    partition_key: String,
    explicit_hash_key: Option<String>,
    data: Option<String>,
    data_base64: Option<String>,
}

/// Where a record was and when it arrived, as far as its line says it.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(in crate::cli) struct Origin {
    pub(in crate::cli) shard: Option<String>,
    pub(in crate::cli) sequence_number: Option<String>,
    pub(in crate::cli) sub_sequence_number: Option<u64>,
    /// In milliseconds since 1970.
    pub(in crate::cli) arrived_at: Option<u64>,
}

/// Whether a line is one of these, whatever is in it.
pub(in crate::cli) fn is_one(line: &[u8]) -> bool {
    // Others may have a key or data of these names, and hardly both.
    serde_json::from_slice::<Line>(line).is_ok_and(|line| line.data.is_some() != line.data_base64.is_some())
}

/// What a line says of where the record was, or what is wrong with that.
pub(in crate::cli) fn origin(line: &[u8]) -> Result<Origin, String> {
    serde_json::from_slice(line).map_err(|error| json::said(&error, 0))
}

/// The record of a line, or what is wrong with it.
pub(in crate::cli) fn record(line: &[u8]) -> Result<UserRecord, String> {
    let Line { partition_key, explicit_hash_key, data, data_base64 } =
        serde_json::from_slice(line).map_err(|error| json::said(&error, 0))?;
    let data = match (data, data_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => STANDARD
            .decode_to_vec(text)
            .map_err(|_| "`data_base64` is not Base64 of the standard alphabet with padding".to_owned())?,
        (None, None) => return Err("there is neither `data` nor `data_base64`".to_owned()),
        (Some(_), Some(_)) => return Err("there are both `data` and `data_base64`".to_owned()),
    };
    let explicit_hash_key = explicit_hash_key.map(|key| key.parse()).transpose();
    let explicit_hash_key = explicit_hash_key.map_err(|error: shardmill_record::InvalidHashKey| error.to_string())?;
    Ok(UserRecord { partition_key, explicit_hash_key, data: data.into() })
}

#[cfg(test)]
mod tests {
    use shardmill_record::HashKey;

    use super::*;

    #[test]
    fn a_line_of_tail_is_the_record_that_it_was() {
        let line = br#"{"stream":"a","position":"4957/0","partition_key":"k\n","data":"x\u001b"}"#;
        let expected = UserRecord { partition_key: "k\n".into(), explicit_hash_key: None, data: "x\u{1b}".into() };
        assert_eq!(record(line), Ok(expected));
        let found = record(br#"{"partition_key":"k","explicit_hash_key":"12","data_base64":"/wA="}"#).unwrap();
        assert_eq!((found.explicit_hash_key, &found.data[..]), (Some(HashKey::new(12)), &b"\xff\0"[..]));
    }

    #[test]
    fn where_a_record_was_is_read_as_far_as_it_is_said() {
        let line = br#"{"shard":"s-1","sequence_number":"4957","sub_sequence_number":3,"arrived_at":12,"partition_key":"k","data":"x"}"#;
        let found = Origin {
            shard: Some("s-1".into()),
            sequence_number: Some("4957".into()),
            sub_sequence_number: Some(3),
            arrived_at: Some(12),
        };
        assert_eq!((origin(line), is_one(line)), (Ok(found), true));
        let bare = br#"{"partition_key":"k","data_base64":""}"#;
        assert_eq!((origin(bare), is_one(bare)), (Ok(Origin::default()), true));
        assert!(origin(br#"{"arrived_at":"today"}"#).unwrap_err().contains("expected u64"));
        for other in [&br#"{"data":"x"}"#[..], br#"{"partition_key":"k"}"#, b"x", br#"{"partition_key":1,"data":"x"}"#]
        {
            assert!(!is_one(other));
        }
    }

    #[test]
    fn what_is_no_such_line_is_told() {
        for (line, said) in [
            (&b"oops"[..], "expected value"),
            (br#"{"data":"x"}"#, "missing field `partition_key`"),
            (br#"{"partition_key":"k"}"#, "neither `data` nor"),
            (br#"{"partition_key":"k","data":"","data_base64":""}"#, "both"),
            (br#"{"partition_key":"k","data_base64":"?"}"#, "not Base64"),
            (br#"{"partition_key":"k","data":"","explicit_hash_key":"-1"}"#, "not a hash key"),
            (b"{\"partition_key\":\"\xff\",\"data\":\"\"}", "column"),
        ] {
            let told = record(line).unwrap_err();
            assert!(told.contains(said) && !told.contains("line 1"), "{told}");
        }
    }
}
