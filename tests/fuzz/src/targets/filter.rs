//! A filter and a record: a line with a JSON list of patterns, and the body behind it.
//!
//! What is wrong with a pattern is said. Filters that are made say of a JSON body what a matcher says that is slow and obvious, and
//! of another body never that its fields match.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use shardmill_filter::{Action, Filter, Metadata, OnInvalidJson, Pattern, Verdict};

use crate::slow::{Record, matches_record};

const METADATA: Metadata<'static> = Metadata {
    partition_key: "key",
    explicit_hash_key: None,
    sequence_number: "49",
    sub_sequence_number: 3,
    approximate_arrival: 1_700_000_000_500,
    shard_id: "shardId-000000000001",
    stream: "orders",
};

/// See the module.
pub fn run(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let Ok(patterns) = serde_json::from_slice::<Vec<Value>>(line) else { return };
    let parsed: Vec<_> = patterns.iter().map(parse).collect();
    let Some(parsed) = parsed.into_iter().collect::<Option<Vec<Pattern>>>() else { return };
    let Ok(filter) = Filter::new(parsed, OnInvalidJson::Fail) else {
        return assert!(patterns.is_empty() || patterns.len() > shardmill_filter::MAX_PATTERNS);
    };
    let verdict = filter.decide(&METADATA, body);
    assert_eq!(filter.action(verdict) == Action::Deliver, verdict == Verdict::Matched);
    let reason = filter.invalid_json(body);
    if verdict == Verdict::InvalidJson {
        let reason = reason.expect("what is not JSON has a reason");
        assert!(!reason.is_empty() && serde_json::from_slice::<Value>(body).is_err(), "{reason}");
    } else if let (Ok(text), Ok(tree)) = (str::from_utf8(body), serde_json::from_slice::<Value>(body)) {
        assert_eq!(reason, None);
        let metadata = metadata();
        let record = Record { metadata: &metadata, text, body: &tree };
        let is_matched = patterns.iter().any(|pattern| matches_record(pattern.as_object().expect("taken"), &record));
        assert_eq!(verdict == Verdict::Matched, is_matched, "{} and {text}", String::from_utf8_lossy(line));
    } else if serde_json::from_slice::<IgnoredAny>(body).is_err() {
        let ask_for_json = patterns.iter().all(|pattern| pattern["data"].is_object());
        assert!(!ask_for_json || verdict == Verdict::NotMatched, "{} and {body:?}", String::from_utf8_lossy(line));
    }
}

/// From a text as from what was read of it.
fn parse(pattern: &Value) -> Option<Pattern> {
    let (of_text, of_value) = (Pattern::parse(&pattern.to_string()), Pattern::from_value(pattern));
    assert_eq!(of_text.is_ok(), of_value.is_ok(), "{pattern}: {of_text:?} {of_value:?}");
    of_value.map_err(|error| assert!(!error.to_string().is_empty())).ok()
}

/// By the names that patterns have for it.
fn metadata() -> Map<String, Value> {
    let Value::Object(metadata) = json!({
        "partitionKey": METADATA.partition_key,
        "sequenceNumber": METADATA.sequence_number,
        "subSequenceNumber": METADATA.sub_sequence_number,
        "approximateArrivalTimestamp": METADATA.approximate_arrival as f64 / 1000.0,
        "shardId": METADATA.shard_id,
        "stream": METADATA.stream,
    }) else {
        unreachable!("an object")
    };
    metadata
}
