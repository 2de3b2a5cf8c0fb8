//! The demo's input: see demo/README.md for its source and licence.

use bytes::Bytes;
use shardmill_record::UserRecord;

const FLIGHTS: &str = include_str!("../../../../../demo/flights-3-days.jsonl");

/// One record for each flight, keyed by carrier and flight number.
pub(super) fn records() -> Vec<UserRecord> {
    FLIGHTS.lines().map(record).collect()
}

fn record(line: &'static str) -> UserRecord {
    let flight: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let carrier = flight["carrier"].as_str().unwrap_or("unknown");
    UserRecord {
        partition_key: format!("{carrier}{}", flight["flight"]),
        explicit_hash_key: None,
        data: Bytes::from_static(line.as_bytes()),
    }
}
