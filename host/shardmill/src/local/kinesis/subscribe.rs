//! SubscribeToShard: events of at most 1 MiB, an end that is said as AWS says it.
//!
//! At a closed shard's end the last event carries the children and no continuation; the emulator sends both with every
//! event once the shard is closed, so that a reader cannot tell the end from the way there.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use ferrokinesis::types::{ConsumerStatus, ResponseRecord, Stream, StreamStatus};
use ferrokinesis::{event_stream, sequence};
use futures::stream;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::page::{ChildShard, Page, children, has_ended};
use super::{Backend, position, stream_arn};
use crate::unix_ms;

/// How often an idle subscription looks for records.
const POLL: Duration = Duration::from_millis(50);
/// How often it sends an event without records, which tells the reader that it has caught up.
const IDLE_EVENT: Duration = Duration::from_secs(1);
/// One event's decoded data and keys.
const MAX_EVENT_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Input {
    #[serde(rename = "ConsumerARN")]
    consumer_arn: String,
    shard_id: String,
    starting_position: StartingPosition,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StartingPosition {
    r#type: String,
    sequence_number: Option<String>,
    timestamp: Option<f64>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Event<'a> {
    records: Vec<ResponseRecord<'a>>,
    millis_behind_latest: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_sequence_number: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    child_shards: Vec<ChildShard<'a>>,
}

/// One reader's subscription to one shard.
struct Subscription {
    backend: Backend,
    stream: String,
    shard: String,
    index: i64,
    /// Where the next event's records begin.
    from: String,
    /// AWS ends a subscription after 5 minutes.
    until: Instant,
    /// When an event without records is due: at once, so that the reader learns where it is.
    idle_event_at: Instant,
    ended: bool,
}

/// `None` when the request is not in order: the emulator says why.
pub(super) async fn answer(backend: &Backend, body: &[u8]) -> Option<Response> {
    let input: Input = serde_json::from_slice(body).ok()?;
    let name = stream_arn::stream_name(&input.consumer_arn)?;
    let consumer = backend.store.get_consumer(&input.consumer_arn).await?;
    let stream = backend.store.get_stream(name).await.ok()?;
    if consumer.consumer_status != ConsumerStatus::Active || stream.stream_status != StreamStatus::Active {
        return None;
    }
    let (shard, index) = sequence::resolve_shard_id(&input.shard_id).ok()?;
    let start = position::Start {
        kind: &input.starting_position.r#type,
        sequence_number: input.starting_position.sequence_number.as_deref(),
        timestamp: input.starting_position.timestamp,
    };
    let from = position::resolve(backend, &stream, index, &start).await?;
    let now = Instant::now();
    let subscription = Subscription {
        backend: backend.clone(),
        stream: name.to_string(),
        shard,
        index,
        from,
        until: now + Duration::from_millis(backend.store.options.subscribe_to_shard_session_ms),
        idle_event_at: now,
        ended: false,
    };
    let first = stream::iter([Ok::<_, Infallible>(Bytes::from(event_stream::encode_initial_response()))]);
    let events = stream::unfold(subscription, |mut subscription| async {
        let event = subscription.next_event().await?;
        Some((Ok(event), subscription))
    });
    let body = Body::from_stream(futures::StreamExt::chain(first, events));
    Some(([(header::CONTENT_TYPE, "application/vnd.amazon.eventstream")], body).into_response())
}

// === impl Subscription ===

impl Subscription {
    /// The next frame; `None` ends the response.
    async fn next_event(&mut self) -> Option<Bytes> {
        while !self.ended && Instant::now() < self.until {
            // Gone when the stream was deleted.
            let stream = self.backend.store.get_stream(&self.stream).await.ok()?;
            let page =
                Page::read(&self.backend, &stream, self.index, &self.from, usize::MAX - 1, MAX_EVENT_BYTES).await;
            self.ended = has_ended(&page, &stream, self.index);
            if !page.is_empty() || self.ended || Instant::now() >= self.idle_event_at {
                self.from = page.next(&self.from);
                self.idle_event_at = Instant::now() + IDLE_EVENT;
                return self.encode(&page, &stream);
            }
            sleep(POLL).await;
        }
        None
    }

    fn encode(&self, page: &Page, stream: &Stream) -> Option<Bytes> {
        let event = Event {
            records: page.response_records(),
            millis_behind_latest: page.millis_behind(unix_ms::now()),
            continuation_sequence_number: (!self.ended).then_some(&self.from),
            child_shards: if self.ended { children(&stream.shards, &self.shard) } else { Vec::new() },
        };
        let payload = serde_json::to_vec(&event).ok()?;
        Some(event_stream::encode_subscribe_event(&payload, "application/json").into())
    }
}
