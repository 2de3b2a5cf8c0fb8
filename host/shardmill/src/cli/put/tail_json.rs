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

/// The record of a line, or what is wrong with it.
pub(super) fn record(line: &[u8]) -> Result<UserRecord, String> {
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
