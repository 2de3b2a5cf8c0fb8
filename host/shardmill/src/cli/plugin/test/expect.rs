//! What a plugin should send, and how what it sends differs from that.

use std::fs;
use std::path::Path;

use base64_simd::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use shardmill_cause::code;
use shardmill_record::HashKey;

use super::diff::{Step, align};
use super::report::Sent;
use crate::cli::{Failure, text};

/// An output that is expected, by what a line says of it: all else may be anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    output: String,
    partition_key: Option<String>,
    explicit_hash_key: Option<String>,
    data: Option<String>,
    data_base64: Option<String>,
    /// The payload as JSON, whatever its spaces and the order of its names.
    json: Option<Value>,
    /// The line as it was read.
    #[serde(skip)]
    line: String,
    #[serde(skip)]
    bytes: Option<Vec<u8>>,
    #[serde(skip)]
    hash_key: Option<HashKey>,
}

/// How what was sent differs from what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// The lines of both, in order, each with `-` in front if it is missing, and `+` if it was not expected.
    pub(super) lines: Vec<String>,
    pub(super) missing: usize,
    pub(super) unexpected: usize,
}

// === impl Expected ===

impl Expected {
    /// Reads a file of JSON lines.
    pub(super) fn read(path: &Path) -> Result<Vec<Self>, Failure> {
        let shown = path.display();
        let written = fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("{shown} cannot be read, and says what should come out: {error}"))
                .help("--update writes it, with what comes out")
        })?;
        let lines = written.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let parsed = lines.map(|(index, line)| {
            Self::parse(line).map_err(|wrong| {
                Failure::usage(format!("{shown}, line {}: {wrong}", index + 1))
                    .help("a line is {\"output\":\"NAME\",\"partition_key\":\"…\",\"data\":\"…\"}, or with json or data_base64 for data")
            })
        });
        parsed.collect()
    }

    fn parse(line: &str) -> Result<Self, String> {
        let mut expected: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let Self { data, data_base64, json, explicit_hash_key, .. } = &expected;
        let bytes = match (data, data_base64, json) {
            (Some(text), None, None) => Some(text.clone().into_bytes()),
            (None, Some(encoded), None) => {
                let decoded = STANDARD.decode_to_vec(encoded);
                Some(
                    decoded
                        .map_err(|_| "`data_base64` is not Base64 of the standard alphabet with padding".to_owned())?,
                )
            }
            (None, None, _) => None,
            _several => {
                return Err("more than one of `data`, `data_base64` and `json` says what the payload is".to_owned());
            }
        };
        let hash_key = explicit_hash_key.as_deref().map(str::parse).transpose();
        expected.hash_key = hash_key.map_err(|error: shardmill_record::InvalidHashKey| error.to_string())?;
        expected.bytes = bytes;
        line.trim().clone_into(&mut expected.line);
        Ok(expected)
    }

    /// Whether this is it, as far as it is said.
    fn is(&self, sent: &Sent) -> bool {
        let record = &sent.record;
        *self.output == *sent.output
            && self.partition_key.as_ref().is_none_or(|key| *key == record.partition_key)
            && self.hash_key.is_none_or(|key| Some(key) == record.explicit_hash_key)
            && self.bytes.as_ref().is_none_or(|bytes| bytes[..] == record.data[..])
            && self
                .json
                .as_ref()
                .is_none_or(|json| serde_json::from_slice::<Value>(&record.data).is_ok_and(|found| found == *json))
    }
}

/// An output as a line of such a file says it.
pub(super) fn as_value(sent: &Sent) -> Value {
    let record = &sent.record;
    let mut value = json!({ "output": &*sent.output, "partition_key": record.partition_key });
    if let Some(key) = record.explicit_hash_key {
        value["explicit_hash_key"] = key.to_string().into();
    }
    match std::str::from_utf8(&record.data) {
        Ok(data) => value["data"] = data.into(),
        Err(_no_text) => value["data_base64"] = STANDARD.encode_to_string(&record.data).into(),
    }
    value
}

/// Writes what was sent as what is expected from now on.
pub(super) fn write(path: &Path, sent: &[Sent]) -> Result<(), Failure> {
    let lines: String = sent.iter().map(|sent| text::json(&as_value(sent)) + "\n").collect();
    fs::write(path, lines).map_err(|error| {
        Failure::running(format!("{} cannot be written: {error}", path.display())).code(code::command::NOT_WRITTEN)
    })
}

/// Nothing if all is as expected.
pub(super) fn compare(expected: &[Expected], sent: &[Sent]) -> Option<Difference> {
    let steps = align(expected.len(), sent.len(), |left, right| expected[left].is(&sent[right]));
    let mut difference = Difference { lines: Vec::new(), missing: 0, unexpected: 0 };
    for step in steps {
        let (mark, line) = match step {
            Step::Both(_, at) => (' ', text::json(&as_value(&sent[at]))),
            Step::Left(at) => {
                difference.missing += 1;
                ('-', text::line(&expected[at].line))
            }
            Step::Right(at) => {
                difference.unexpected += 1;
                ('+', text::json(&as_value(&sent[at])))
            }
        };
        difference.lines.push(format!("{mark} {line}"));
    }
    (difference.missing + difference.unexpected > 0).then_some(difference)
}

#[cfg(test)]
mod tests {
    use shardmill_record::UserRecord;
    use tempfile::TempDir;

    use super::super::report::Cause;
    use super::*;

    fn sent(output: &str, key: &str, data: &[u8]) -> Sent {
        let record = UserRecord { partition_key: key.to_owned(), explicit_hash_key: None, data: data.to_vec().into() };
        Sent { output: output.into(), record, cause: Cause::Batch }
    }

    fn expected(lines: &[&str]) -> Vec<Expected> {
        lines.iter().map(|line| Expected::parse(line).unwrap_or_else(|wrong| panic!("{line}: {wrong}"))).collect()
    }

    #[test]
    fn what_a_line_does_not_say_may_be_anything() {
        let found = sent("out", "k", br#"{"b": 2, "a": 1.0}"#);
        for line in [
            r#"{"output":"out"}"#,
            r#"{"output":"out","partition_key":"k"}"#,
            r#"{"output":"out","json":{"a":1.0,"b":2}}"#,
            r#"{"output":"out","data":"{\"b\": 2, \"a\": 1.0}"}"#,
        ] {
            assert_eq!(compare(&expected(&[line]), std::slice::from_ref(&found)), None, "{line}");
        }
        for line in [
            r#"{"output":"other"}"#,
            r#"{"output":"out","partition_key":"l"}"#,
            r#"{"output":"out","explicit_hash_key":"1"}"#,
            r#"{"output":"out","json":{"a":1.0}}"#,
            r#"{"output":"out","data":"{}"}"#,
            r#"{"output":"out","data_base64":"/w=="}"#,
        ] {
            assert!(compare(&expected(&[line]), std::slice::from_ref(&found)).is_some(), "{line}");
        }
    }

    #[test]
    fn a_difference_is_told_line_by_line() {
        let lines = [r#"{"output":"out","partition_key":"a"}"#, r#"{"output":"out","partition_key":"b"}"#];
        let found = [sent("out", "a", b"1"), sent("out", "c", b"\xff")];
        let difference = compare(&expected(&lines), &found).unwrap();
        assert_eq!((difference.missing, difference.unexpected), (1, 1));
        let told = [
            r#"  {"data":"1","output":"out","partition_key":"a"}"#,
            r#"- {"output":"out","partition_key":"b"}"#,
            r#"+ {"data_base64":"/w==","output":"out","partition_key":"c"}"#,
        ];
        assert_eq!(difference.lines, told);
    }

    #[test]
    fn what_is_written_is_what_is_expected_then() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("expected.jsonl");
        let mut with_hash_key = sent("out", "b\u{1b}", b"\xff\0");
        with_hash_key.record.explicit_hash_key = Some(HashKey::new(7));
        let found = [sent("out", "a", "é\n".as_bytes()), with_hash_key];
        write(&path, &found).unwrap();
        assert_eq!(compare(&Expected::read(&path).unwrap(), &found), None);
        assert!(!fs::read_to_string(&path).unwrap().contains('\u{1b}'));
    }

    #[test]
    fn a_line_that_says_nothing_is_told_with_its_number() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("expected.jsonl");
        for (line, said) in [
            ("oops", "expected value"),
            (r#"{"partition_key":"k"}"#, "missing field `output`"),
            (r#"{"output":"a","dta":"x"}"#, "unknown field `dta`"),
            (r#"{"output":"a","data":"x","json":1}"#, "more than one"),
            (r#"{"output":"a","data_base64":"?"}"#, "not Base64"),
            (r#"{"output":"a","explicit_hash_key":"x"}"#, "not a hash key"),
        ] {
            fs::write(&path, format!("{{\"output\":\"a\"}}\n\n{line}\n")).unwrap();
            let told = Expected::read(&path).unwrap_err().message();
            assert!(told.contains("line 3") && told.contains(said), "{told}");
        }
        assert!(Expected::read(&folder.path().join("none")).unwrap_err().message().contains("cannot be read"));
    }
}
