//! How a record is shown.

use base64_simd::STANDARD;
use serde_json::{Value, json};
use shardmill_record::{Record, ShardId};

use crate::cli::text;

/// A line for people: when it arrived, its shard, its key, and the payload, in base64 where that is no text.
pub(super) fn push_text(out: &mut String, shard: &ShardId, record: &Record<'_>) {
    out.push_str(&format!("{} {shard} ", text::time(record.approximate_arrival)));
    text::push_line(out, record.partition_key);
    out.push(' ');
    match std::str::from_utf8(record.data) {
        Ok(data) => text::push_line(out, data),
        Err(_no_text) => {
            out.push_str("base64:");
            STANDARD.encode_append(record.data, out);
        }
    }
    out.push('\n');
}

/// A line for machines.
pub(super) fn push_json(out: &mut String, stream: &str, shard: &ShardId, record: &Record<'_>) {
    let mut object = json!({
        "stream": stream,
        "shard": shard.as_str(),
        "position": format!("{}/{}", record.sequence_number, record.sub_sequence_number),
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "arrived_at": record.approximate_arrival,
        "partition_key": record.partition_key,
    });
    if let Some(key) = record.explicit_hash_key {
        object["explicit_hash_key"] = key.into();
    }
    match std::str::from_utf8(record.data) {
        Ok(data) => object["data"] = data.into(),
        Err(_no_text) => object["data_base64"] = Value::String(STANDARD.encode_to_string(record.data)),
    }
    out.push_str(&text::json(&object));
    out.push('\n');
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
        let mut out = String::new();
        push_text(&mut out, &shard, &record("{\"a\":1}\n\u{1b}]0;x\u{7}".as_bytes()));
        push_text(&mut out, &shard, &record(b"\xff\0"));
        let head = "2026-09-21T14:13:20.123Z shardId-000000000001 k\\u{1b}[2J";
        assert_eq!(out, format!("{head} {{\"a\":1}}\\n\\u{{1b}}]0;x\\u{{7}}\n{head} base64:/wA=\n"));

        let mut out = String::new();
        push_json(&mut out, "orders", &shard, &record(b"a\x1b\n"));
        push_json(&mut out, "orders", &shard, &record(b"\xff\0"));
        assert!(!out.contains('\u{1b}'));
        let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
