//! ListShards: paging by `NextToken`, and `ShardFilter`.

use axum::http::StatusCode;
use axum::response::Response;
use ferrokinesis::sequence;
use ferrokinesis::types::{Shard, Stream};
use serde::{Deserialize, Serialize};

use super::page::is_closed;
use super::{Backend, error, json};
use crate::unix_ms;

/// What AWS returns at once when the caller sets no limit.
const DEFAULT_RESULTS: usize = 1_000;
/// The most that a caller may ask for.
const MAX_RESULTS: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Input {
    stream_name: Option<String>,
    next_token: Option<String>,
    exclusive_start_shard_id: Option<String>,
    max_results: Option<usize>,
    shard_filter: Option<Filter>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Filter {
    r#type: String,
    shard_id: Option<String>,
    /// Seconds since 1970.
    timestamp: Option<f64>,
}

/// What `NextToken` holds: everything to go on with, because AWS takes no other parameter beside it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Token {
    stream: String,
    after: String,
    filter: Option<Filter>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Output<'a> {
    shards: &'a [&'a Shard],
    #[serde(skip_serializing_if = "Option::is_none")]
    next_token: Option<String>,
}

/// `None` when the request is not in order: the emulator says why.
pub(super) async fn answer(backend: &Backend, body: &[u8]) -> Option<Response> {
    let input: Input = serde_json::from_slice(body).ok()?;
    let results = input.max_results.unwrap_or(DEFAULT_RESULTS);
    if !(1..=MAX_RESULTS).contains(&results) {
        return None;
    }
    let (name, after, filter) = match (input.stream_name, input.next_token) {
        (Some(name), None) => (name, input.exclusive_start_shard_id, input.shard_filter),
        (None, Some(token)) => match serde_json::from_str::<Token>(&token) {
            Ok(token) => (token.stream, Some(token.after), token.filter),
            Err(_) => return Some(invalid("NextToken is not one that this service returned.")),
        },
        _ => return None,
    };
    let stream = backend.store.get_stream(&name).await.ok()?;
    let Some(mut shards) = select(&stream.shards, filter.as_ref(), horizon_ms(&stream, unix_ms::now())) else {
        return Some(invalid("ShardFilter: the type is unknown, or its ShardId or Timestamp is missing."));
    };
    if let Some(after) = after {
        shards.retain(|shard| shard.shard_id > after);
    }
    let page = &shards[..results.min(shards.len())];
    let next_token = match page.last() {
        Some(last) if page.len() < shards.len() => {
            serde_json::to_string(&Token { stream: name, after: last.shard_id.clone(), filter }).ok()
        }
        _ => None,
    };
    Some(json(&Output { shards: page, next_token }))
}

/// The shards that a filter keeps, in the order of their ids; `None` when the filter is not in order.
fn select<'a>(shards: &'a [Shard], filter: Option<&Filter>, horizon_ms: u64) -> Option<Vec<&'a Shard>> {
    let Some(filter) = filter else { return Some(shards.iter().collect()) };
    let timestamp_ms = || Some(((filter.timestamp? * 1000.0) as u64).max(horizon_ms));
    Some(match filter.r#type.as_str() {
        "FROM_TRIM_HORIZON" => shards.iter().collect(),
        "AFTER_SHARD_ID" => {
            let after = filter.shard_id.as_deref()?;
            shards.iter().filter(|shard| shard.shard_id.as_str() > after).collect()
        }
        "AT_LATEST" => shards.iter().filter(|shard| !is_closed(shard)).collect(),
        "AT_TRIM_HORIZON" => open_at(shards, horizon_ms),
        "AT_TIMESTAMP" => open_at(shards, timestamp_ms()?),
        "FROM_TIMESTAMP" => {
            let from = whole_seconds(timestamp_ms()?);
            shards.iter().filter(|shard| closed_at_ms(shard).is_none_or(|closed| closed >= from)).collect()
        }
        _ => return None,
    })
}

/// The shards open at a moment. The emulator keeps whole seconds, within which a shard may have been closed and
/// continued: then the parent stands for its children, so that the result covers each hash key once.
fn open_at(shards: &[Shard], at_ms: u64) -> Vec<&Shard> {
    let at = whole_seconds(at_ms);
    let open: Vec<&Shard> = shards
        .iter()
        .filter(|shard| opened_at_ms(shard) <= at && closed_at_ms(shard).is_none_or(|closed| closed >= at))
        .collect();
    let is_open = |id: &Option<String>| open.iter().any(|shard| Some(&shard.shard_id) == id.as_ref());
    open.iter()
        .copied()
        .filter(|shard| !is_open(&shard.parent_shard_id) && !is_open(&shard.adjacent_parent_shard_id))
        .collect()
}

/// The oldest moment that the stream can hold records of.
fn horizon_ms(stream: &Stream, now_ms: u64) -> u64 {
    let created = (stream.stream_creation_timestamp.0 * 1000.0) as u64;
    created.max(now_ms.saturating_sub(u64::from(stream.retention_period_hours) * 3_600_000))
}

fn opened_at_ms(shard: &Shard) -> u64 {
    let first = &shard.sequence_number_range.starting_sequence_number;
    sequence::parse_sequence(first).map_or(0, |first| first.shard_create_time)
}

/// `None` while the shard is open.
fn closed_at_ms(shard: &Shard) -> Option<u64> {
    let last = shard.sequence_number_range.ending_sequence_number.as_deref()?;
    sequence::parse_sequence(last).ok()?.seq_time
}

fn whole_seconds(ms: u64) -> u64 {
    ms / 1000 * 1000
}

fn invalid(message: &str) -> Response {
    error(StatusCode::BAD_REQUEST, "InvalidArgumentException", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrokinesis::sequence::SeqObj;
    use ferrokinesis::types::{HashKeyRange, SequenceNumberRange};

    const T0: u64 = 1_700_000_000_000;

    fn number(opened: u64, time: u64) -> String {
        sequence::stringify_sequence(&SeqObj {
            shard_create_time: opened,
            seq_ix: None,
            byte1: None,
            seq_time: Some(time),
            seq_rand: None,
            shard_ix: 0,
            version: 2,
        })
    }

    /// `opened` and `closed` in seconds after T0.
    fn shard(id: &str, opened: u64, closed: Option<u64>, parent: Option<&str>) -> Shard {
        let opened = T0 + opened * 1000;
        Shard {
            shard_id: id.to_string(),
            hash_key_range: HashKeyRange::new("0".into(), "1".into()),
            sequence_number_range: SequenceNumberRange {
                starting_sequence_number: number(opened, opened),
                ending_sequence_number: closed.map(|closed| number(opened, T0 + closed * 1000)),
            },
            parent_shard_id: parent.map(String::from),
            adjacent_parent_shard_id: None,
        }
    }

    /// `a` splits at 100 s into `b` and `c`; `c` splits at 200 s into `d` and `e`.
    fn lineage() -> Vec<Shard> {
        vec![
            shard("a", 0, Some(100), None),
            shard("b", 101, None, Some("a")),
            shard("c", 101, Some(200), Some("a")),
            shard("d", 201, None, Some("c")),
            shard("e", 201, None, Some("c")),
        ]
    }

    fn selected(kind: &str, shard_id: Option<&str>, seconds: Option<u64>) -> Option<String> {
        let filter = Filter {
            r#type: kind.to_string(),
            shard_id: shard_id.map(String::from),
            timestamp: seconds.map(|seconds| (T0 / 1000 + seconds) as f64),
        };
        let shards = lineage();
        select(&shards, Some(&filter), T0).map(|found| found.iter().map(|shard| shard.shard_id.as_str()).collect())
    }

    #[test]
    fn each_filter_keeps_its_shards() {
        for (kind, shard_id, seconds, expected) in [
            ("FROM_TRIM_HORIZON", None, None, "abcde"),
            ("AT_TRIM_HORIZON", None, None, "a"),
            ("AT_LATEST", None, None, "bde"),
            ("AFTER_SHARD_ID", Some("b"), None, "cde"),
            ("AT_TIMESTAMP", None, Some(50), "a"),
            ("AT_TIMESTAMP", None, Some(150), "bc"),
            ("AT_TIMESTAMP", None, Some(250), "bde"),
            ("FROM_TIMESTAMP", None, Some(150), "bcde"),
            ("FROM_TIMESTAMP", None, Some(250), "bde"),
        ] {
            assert_eq!(selected(kind, shard_id, seconds).as_deref(), Some(expected), "{kind} {seconds:?}");
        }
    }

    #[test]
    fn the_shards_open_at_a_moment_cover_each_hash_key_once() {
        for seconds in 0..300 {
            let found = selected("AT_TIMESTAMP", None, Some(seconds)).unwrap();
            assert!(["a", "bc", "bde"].contains(&found.as_str()), "{found} after {seconds} s");
        }
    }

    #[test]
    fn a_filter_without_its_operand_is_refused() {
        assert_eq!(selected("AT_TIMESTAMP", None, None), None);
        assert_eq!(selected("AFTER_SHARD_ID", None, None), None);
        assert_eq!(selected("SOMETIMES", None, None), None);
    }
}
