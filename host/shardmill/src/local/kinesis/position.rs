//! Where in a shard a reader starts.
//!
//! The emulator returns the whole shard for `AT_TIMESTAMP` when no record is young enough, and a position at the tip
//! that can lie above the next record when the second turns. Both become exact sequence numbers here.

use ferrokinesis::sequence::{self, SeqObj};
use ferrokinesis::types::Stream;
use serde_json::{Map, Value};
use tokio::task::unconstrained;

use super::Backend;
use crate::unix_ms;

/// A starting position of GetShardIterator or SubscribeToShard, by the API's names.
pub(super) struct Start<'a> {
    pub(super) kind: &'a str,
    pub(super) sequence_number: Option<&'a str>,
    /// Seconds since 1970.
    pub(super) timestamp: Option<f64>,
}

/// The sequence number at or after which the reader's records are; `None` when the start is not in order.
pub(super) async fn resolve(backend: &Backend, stream: &Stream, index: i64, start: &Start<'_>) -> Option<String> {
    let shard = stream.shards.get(usize::try_from(index).ok()?)?;
    let first = &shard.sequence_number_range.starting_sequence_number;
    match start.kind {
        "TRIM_HORIZON" => Some(first.clone()),
        "AT_SEQUENCE_NUMBER" => start.sequence_number.map(String::from),
        "AFTER_SEQUENCE_NUMBER" => {
            Some(sequence::increment_sequence(&sequence::parse_sequence(start.sequence_number?).ok()?, None))
        }
        "LATEST" => Some(tip(backend, stream, index, first).await?),
        "AT_TIMESTAMP" => at_timestamp(backend, stream, index, first, start.timestamp?).await,
        _ => None,
    }
}

/// GetShardIterator with a position that the emulator gets wrong, as `AT_SEQUENCE_NUMBER`; `None` leaves it as it is.
pub(super) async fn rewrite_get_shard_iterator(backend: &Backend, body: &[u8]) -> Option<Vec<u8>> {
    let mut input: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let kind = input.get("ShardIteratorType")?.as_str()?;
    if !matches!(kind, "LATEST" | "AT_TIMESTAMP") || input.contains_key("StartingSequenceNumber") {
        return None;
    }
    let start = Start { kind, sequence_number: None, timestamp: input.get("Timestamp").and_then(Value::as_f64) };
    let stream = backend.store.get_stream(input.get("StreamName")?.as_str()?).await.ok()?;
    let (_, index) = sequence::resolve_shard_id(input.get("ShardId")?.as_str()?).ok()?;
    let position = resolve(backend, &stream, index, &start).await?;
    input.remove("Timestamp");
    input.insert("ShardIteratorType".into(), "AT_SEQUENCE_NUMBER".into());
    input.insert("StartingSequenceNumber".into(), position.into());
    serde_json::to_vec(&input).ok()
}

/// Above every record that has a number, below every one that will get one.
async fn tip(backend: &Backend, stream: &Stream, index: i64, first: &str) -> Option<String> {
    let next_counter = backend.store.current_shard_seq(&stream.stream_name, index).await;
    above_counter(next_counter.saturating_sub(1), first, unix_ms::now())
}

/// The first record that arrived in the timestamp's second or later, else the tip. The second is taken whole because
/// arrival times are whole seconds: nothing that arrived later is passed over.
async fn at_timestamp(backend: &Backend, stream: &Stream, index: i64, first: &str, timestamp: f64) -> Option<String> {
    // Within the same millisecond is not in the future.
    if (timestamp * 1000.0).floor() > unix_ms::now() as f64 {
        return None;
    }
    let _no_write_under_way = backend.records.read().await;
    let tip = tip(backend, stream, index, first).await?;
    let start = format!("{}/", sequence::shard_ix_to_hex(index));
    let end = sequence::shard_ix_to_hex(index + 1);
    let find = backend.store.find_first_record_at_timestamp(&stream.stream_name, &start, &end, timestamp.floor());
    match unconstrained(find).await {
        Some((key, _)) => key.split_once('/').map(|(_, sequence)| sequence.to_string()),
        None => Some(tip),
    }
}

/// A sequence number between the record numbered `counter` and the next one. A number orders by its counter first,
/// then by its time; records are dated at most a second ahead of the clock.
fn above_counter(counter: u64, first: &str, now_ms: u64) -> Option<String> {
    let first = sequence::parse_sequence(first).ok()?;
    Some(sequence::stringify_sequence(&SeqObj {
        seq_ix: Some(counter),
        seq_time: Some(now_ms.max(first.shard_create_time) + 60_000),
        byte1: None,
        seq_rand: None,
        version: 2,
        ..first
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(counter: u64, time_ms: u64) -> String {
        sequence::stringify_sequence(&SeqObj {
            shard_create_time: 1_700_000_000_000,
            seq_ix: Some(counter),
            byte1: None,
            seq_time: Some(time_ms),
            seq_rand: None,
            shard_ix: 3,
            version: 2,
        })
    }

    #[test]
    fn the_tip_lies_between_the_last_record_and_the_next_whatever_the_clock_says() {
        let now = 1_700_000_100_000;
        let tip = above_counter(7, &number(0, 1_700_000_000_000), now).unwrap();
        assert!(number(7, now + 1_000) < tip);
        assert!(tip < number(8, now - 1_000));
        let after = sequence::increment_sequence(&sequence::parse_sequence(&tip).unwrap(), None);
        assert!(tip < after && after < number(8, now - 1_000), "a reader may go on AT or AFTER it");
    }
}
