//! GetRecords: pages of at most 10 MiB, how far they are behind, and the children at the shard's end.
//!
//! The page is read from the store and written as JSON directly, which takes less time than the emulator's own way by
//! way of a tree of values.

use axum::http::StatusCode;
use axum::response::Response;
use ferrokinesis::types::{ResponseRecord, Shard};
use ferrokinesis::{sequence, shard_iterator};
use serde::{Deserialize, Serialize};

use super::page::{ChildShard, MAX_PAGE_BYTES, Page, children, has_ended};
use super::{Backend, error, json};
use crate::unix_ms;

/// The most records of one call, and how many it returns when the caller sets no limit.
const MAX_RECORDS: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Input {
    shard_iterator: String,
    limit: Option<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Output<'a> {
    records: Vec<ResponseRecord<'a>>,
    millis_behind_latest: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_shard_iterator: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    child_shards: Vec<ChildShard<'a>>,
}

/// `None` when the request is not in order: the emulator says why.
pub(super) async fn answer(backend: &Backend, body: &[u8]) -> Option<Response> {
    let input: Input = serde_json::from_slice(body).ok()?;
    let limit = input.limit.unwrap_or(MAX_RECORDS);
    let (issued_at, stream_name, shard_id, from) = shard_iterator::decode_shard_iterator(&input.shard_iterator).ok()?;
    let age_ms = unix_ms::now().checked_sub(issued_at)?;
    if !(1..=MAX_RECORDS).contains(&limit) || age_ms > backend.store.options.iterator_ttl_seconds * 1000 {
        return None;
    }
    sequence::parse_sequence(&from).ok()?;
    let stream = backend.store.get_stream(&stream_name).await.ok()?;
    let (_, index) = sequence::resolve_shard_id(&shard_id).ok()?;
    let shard = stream.shards.get(usize::try_from(index).ok()?)?;

    if let Some(limits) = &backend.read_limits
        && !limits.admit(&stream_name, &shard_id)
    {
        let message = format!("Rate exceeded for shard {shard_id} in stream {stream_name}.");
        return Some(error(StatusCode::BAD_REQUEST, "ProvisionedThroughputExceededException", &message));
    }
    let page = Page::read(backend, &stream, index, &from, limit, MAX_PAGE_BYTES).await;
    if let Some(limits) = &backend.read_limits {
        limits.spent(&stream_name, &shard_id, page.bytes);
    }

    let ended = has_ended(&page, &stream, index);
    let now = unix_ms::now();
    let output = Output {
        records: page.response_records(),
        millis_behind_latest: if ended { since_closing(shard, now) } else { page.millis_behind(now) },
        next_shard_iterator: (!ended)
            .then(|| shard_iterator::create_shard_iterator(&stream_name, &shard_id, &page.next(&from), now)),
        child_shards: if ended { children(&stream.shards, &shard_id) } else { Vec::new() },
    };
    Some(json(&output))
}

/// At the end of a closed shard a reader is as far behind as the shard's closing is ago.
fn since_closing(shard: &Shard, now_ms: u64) -> u64 {
    let closed_at = shard.sequence_number_range.ending_sequence_number.as_deref();
    let closed_at = closed_at.and_then(|end| sequence::parse_sequence(end).ok()).and_then(|end| end.seq_time);
    closed_at.map_or(0, |closed_at| now_ms.saturating_sub(closed_at))
}
