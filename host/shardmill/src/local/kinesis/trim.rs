//! A call that AWS does not have: it trims a shard now, and not when its records' retention is over, so that what
//! becomes of readers can be seen and tested.
//!
//! `X-Amz-Target: Shardmill.TrimShard`, in the JSON protocol: `{ "StreamName", "ShardId", "SequenceNumber" }` removes the
//! records before that number, and all of the shard's without one. What is read afterwards is as on AWS: an iterator at a
//! number that is gone begins with the oldest record there is.

use axum::http::StatusCode;
use axum::response::Response;
use ferrokinesis::sequence;
use serde::Deserialize;
use shardmill_record::SequenceNumber;

use super::{Backend, error, json};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Input {
    stream_name: String,
    shard_id: String,
    sequence_number: Option<String>,
}

pub(super) async fn answer(backend: &Backend, body: &[u8]) -> Response {
    let invalid = |message: &str| error(StatusCode::BAD_REQUEST, "InvalidArgumentException", message);
    let Ok(input) = serde_json::from_slice::<Input>(body) else {
        return invalid("StreamName, ShardId and, if not all is to be trimmed, SequenceNumber are expected");
    };
    let Ok((_, index)) = sequence::resolve_shard_id(&input.shard_id) else { return invalid("the ShardId is none") };
    let before = match input.sequence_number.as_deref().map(SequenceNumber::parse).transpose() {
        Ok(before) => before,
        Err(failure) => return invalid(&failure.to_string()),
    };
    let of_shard = format!("{}/", sequence::shard_ix_to_hex(index));
    let _alone = backend.records.write().await;
    let records = backend.store.get_record_store(&input.stream_name).await;
    let is_old = |key: &&String| {
        let number = key.strip_prefix(&of_shard).and_then(|number| SequenceNumber::parse(number).ok());
        number.is_some_and(|number| before.as_ref().is_none_or(|before| number < *before))
    };
    let old: Vec<String> = records.keys().filter(is_old).cloned().collect();
    backend.store.delete_record_keys(&input.stream_name, &old).await;
    json(&serde_json::json!({ "TrimmedRecords": old.len() }))
}
