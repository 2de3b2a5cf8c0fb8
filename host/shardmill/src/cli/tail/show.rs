//! How a record is shown.

use std::io::Write as _;

use base64_simd::STANDARD;
use clap::ValueEnum;
use serde_json::{Value, json};
use shardmill_record::{Record, ShardId};

use crate::cli::text;

/// What is printed of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// A line for people: when it arrived, its shard, its key, and the payload, in base64 where that is no text.
    Text,
    /// A JSON object, one a line.
    Json,
    /// The payload, byte for byte.
    Data,
}

/// Records of one shard.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub(super) stream: &'a str,
    pub(super) shard: &'a ShardId,
    /// What follows each payload.
    pub(super) separator: &'a [u8],
}

// === impl Shown ===

impl Shown<'_> {
    /// Puts a record behind those before it. `out_of_range`: its key is not one of its shard.
    pub(super) fn push(&self, out: &mut Vec<u8>, output: Output, record: &Record<'_>, out_of_range: bool) {
        match output {
            Output::Text => self.push_text(out, record, out_of_range),
            Output::Json => self.push_json(out, record, out_of_range),
            Output::Data => {
                out.extend_from_slice(record.data);
                out.extend_from_slice(self.separator);
            }
        }
    }

    fn push_text(&self, out: &mut Vec<u8>, record: &Record<'_>, out_of_range: bool) {
        let mark = if out_of_range { "(out of range) " } else { "" };
        let mut line = format!("{} {} {mark}", text::time(record.approximate_arrival), self.shard);
        text::push_line(&mut line, record.partition_key);
        line.push(' ');
        match std::str::from_utf8(record.data) {
            Ok(data) => text::push_line(&mut line, data),
            Err(_no_text) => {
                line.push_str("base64:");
                STANDARD.encode_append(record.data, &mut line);
            }
        }
        push(out, &line);
    }

    fn push_json(&self, out: &mut Vec<u8>, record: &Record<'_>, out_of_range: bool) {
        let mut object = json!({
            "stream": self.stream,
            "shard": self.shard.as_str(),
            "position": format!("{}/{}", record.sequence_number, record.sub_sequence_number),
            "sequence_number": record.sequence_number,
            "sub_sequence_number": record.sub_sequence_number,
            "arrived_at": record.approximate_arrival,
            "partition_key": record.partition_key,
        });
        if let Some(key) = record.explicit_hash_key {
            object["explicit_hash_key"] = key.into();
        }
        if out_of_range {
            object["out_of_range"] = true.into();
        }
        match std::str::from_utf8(record.data) {
            Ok(data) => object["data"] = data.into(),
            Err(_no_text) => object["data_base64"] = Value::String(STANDARD.encode_to_string(record.data)),
        }
        push(out, &text::json(&object));
    }
}

fn push(out: &mut Vec<u8>, line: &str) {
    // Memory takes all that is written to it.
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(data: &[u8]) -> Record<'_> {
        Record {
            sequence_number: "4957",
            sub_sequence_number: 3,
            partition_key: "k\u{1b}[2J",
            explicit_hash_key: Some("12"),
            approximate_arrival: 1_790_000_000_123,
            data,
        }
    }

    #[test]
    fn a_record_is_one_line_whatever_is_in_it() {
        let shard = ShardId::parse("shardId-000000000001").unwrap();
        let shown = Shown { stream: "orders", shard: &shard, separator: b"\0" };
        let all = |output, records: &[Record<'_>]| {
            let mut out = Vec::new();
            records.iter().for_each(|record| shown.push(&mut out, output, record, record.data.is_empty()));
            out
        };
        let text = [record("{\"a\":1}\n\u{1b}]0;x\u{7}".as_bytes()), record(b"\xff\0")];
        let head = "2026-09-21T14:13:20.123Z shardId-000000000001 k\\u{1b}[2J";
        let expected = format!("{head} {{\"a\":1}}\\n\\u{{1b}}]0;x\\u{{7}}\n{head} base64:/wA=\n");
        assert_eq!(String::from_utf8(all(Output::Text, &text)), Ok(expected));
        assert!(String::from_utf8_lossy(&all(Output::Text, &[record(b"")])).contains("01 (out of range) k"));
        assert_eq!(all(Output::Data, &[record(b"\x1b\xff\n"), record(b"")]), b"\x1b\xff\n\0\0");

        let out = String::from_utf8(all(Output::Json, &[record(b"a\x1b\n"), record(b"\xff\0"), record(b"")])).unwrap();
        assert!(!out.contains('\u{1b}'));
        let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[2]["out_of_range"], &lines[2]["data"]), (&true.into(), &"".into()));
        let mut expected = json!({
            "stream": "orders",
            "shard": "shardId-000000000001",
            "position": "4957/3",
            "sequence_number": "4957",
            "sub_sequence_number": 3,
            "arrived_at": 1_790_000_000_123_u64,
            "partition_key": "k\u{1b}[2J",
            "explicit_hash_key": "12",
            "data": "a\u{1b}\n",
        });
        assert_eq!(lines[0], expected);
        expected.as_object_mut().unwrap().remove("data");
        expected["data_base64"] = "/wA=".into();
        assert_eq!(lines[1], expected);
    }
}
