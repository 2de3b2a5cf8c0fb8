//! `ferrokinesis`, with the answers of AWS where it gives others.
//!
//! A layer in front of its router answers the calls below from its store, or rewrites them; whatever the layer does not
//! understand (a malformed request, an unknown stream, an expired iterator) goes through unchanged, so that errors are
//! those of the emulator. It speaks the JSON protocol, and the CBOR protocol by way of it ([`cbor`]).
//!
//! | call | the emulator | with this layer |
//! |---|---|---|
//! | GetRecords | `MillisBehindLatest` 0, no `ChildShards`, pages of any size, an extra empty page at the end | [`get_records`] |
//! | GetRecords, with `enforce_limits` | no read limits | [`read_limits`] |
//! | SubscribeToShard | as GetRecords, and a `ContinuationSequenceNumber` after the end | [`subscribe`] |
//! | ListShards | paging broken, `ShardFilter` ignored | [`list_shards`] |
//! | positions `AT_TIMESTAMP` | everything, when no record is younger | [`position`] |
//! | CreateStream, on-demand | refused | [`on_demand`] |
//! | calls with `StreamARN` | several refuse it | [`stream_arn`] |
//! | trimming a shard at once | as AWS, none | [`trim`] |
//! | PutRecord(s) at once | readers pass records, or everything stands still | [`Backend::records`] |
//!
//! Left as they are: arrival times are whole seconds (so `MillisBehindLatest` can be up to 1 s high, and a position
//! `AT_TIMESTAMP` begins with its whole second); tokens of ListShards do not expire; subscriptions of a second reader
//! with the same consumer do not end the first.

mod cbor;
mod get_records;
mod list_shards;
mod on_demand;
mod page;
mod position;
mod read_limits;
mod stream_arn;
mod subscribe;
mod trim;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use ferrokinesis::store::{Store, StoreOptions};
use tokio::sync::RwLock;

use super::Options;
use on_demand::OnDemand;
use read_limits::ReadLimits;

/// The region in the ARNs of local streams.
pub(super) const REGION: &str = "us-east-1";

/// Above the largest request: PutRecords of 10 MiB in base64 is under 14 MiB.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// The JSON protocol's content type.
const JSON: &str = "application/x-amz-json-1.1";

/// What the layer works with.
#[derive(Clone)]
struct Backend {
    store: Store,
    /// Writes one at a time, and no read of records beside them. The emulator numbers records first and stores them
    /// later: two writers can store in the other order, and a reader passes the record that comes late. And its reader
    /// keeps a map locked while it waits for a writer that may wait, on a thread of the runtime, for that map: with as
    /// many writers as threads everything stands still.
    records: Arc<RwLock<()>>,
    /// `None`: reads are not throttled.
    read_limits: Option<Arc<ReadLimits>>,
}

/// The whole of the local Kinesis, ready to be served.
pub(super) fn router(options: &Options) -> Router {
    let (emulator, store) = ferrokinesis::create_app(StoreOptions {
        create_stream_ms: 0,
        delete_stream_ms: 0,
        update_stream_ms: 0,
        shard_limit: options.shard_limit,
        enforce_limits: options.enforce_limits,
        // Its durable mode writes the whole state at every change.
        durable: None,
        aws_region: REGION.to_string(),
        ..StoreOptions::default()
    });
    let backend = Backend {
        store,
        records: Arc::new(RwLock::new(())),
        read_limits: options.enforce_limits.then(|| Arc::new(ReadLimits::default())),
    };
    emulator.layer(from_fn_with_state(backend, answer)).layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
}

/// Answers a request here, rewrites it, or hands it on as it is, in the protocol in which it came.
async fn answer(State(backend): State<Backend>, request: Request, next: Next) -> Response {
    let operation = operation(request.headers());
    let is_cbor = cbor::is_spoken(request.headers());
    let (mut head, body) = request.into_parts();
    let Ok(mut body) = to_bytes(body, MAX_REQUEST_BYTES).await else {
        return error(StatusCode::PAYLOAD_TOO_LARGE, "SerializationException", "The request is larger than 16 MiB");
    };
    // The events of a subscription would be CBOR.
    let is_translated = is_cbor && operation.as_deref() != Some("SubscribeToShard");
    let Some(in_json) = is_translated.then(|| cbor::to_json(&body)).flatten() else {
        return answer_json(backend, operation, head, body, next).await;
    };
    body = in_json.into();
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    cbor::answer(answer_json(backend, operation, head, body, next).await).await
}

async fn answer_json(
    backend: Backend,
    operation: Option<String>,
    head: Parts,
    mut body: Bytes,
    next: Next,
) -> Response {
    let json = has_json_body(&head.headers);
    let mut on_demand = None;
    match operation.as_deref() {
        Some("CreateStream") if json => {
            if let Some(OnDemand { name, request }) = on_demand::rewrite(&body) {
                (on_demand, body) = (Some(name), request.into());
            }
        }
        Some("GetRecords") if json => {
            if let Some(response) = get_records::answer(&backend, &body).await {
                return response;
            }
        }
        Some("TrimShard") if json => return trim::answer(&backend, &body).await,
        Some("SubscribeToShard") if !json => {
            let message = "the local Kinesis answers SubscribeToShard in the JSON protocol only";
            return error(StatusCode::BAD_REQUEST, "InvalidArgumentException", message);
        }
        Some(operation) if json => {
            if let Some(rewritten) = stream_arn::rewrite(operation, &body) {
                body = rewritten.into();
            }
            let response = match operation {
                "ListShards" => list_shards::answer(&backend, &body).await,
                "SubscribeToShard" => subscribe::answer(&backend, &body).await,
                _ => None,
            };
            if let Some(response) = response {
                return response;
            }
            if operation == "GetShardIterator"
                && let Some(rewritten) = position::rewrite_get_shard_iterator(&backend, &body).await
            {
                body = rewritten.into();
            }
        }
        _ => {}
    }
    let mut request = Request::from_parts(head, Body::from(body));
    // Of the body as it came; the emulator reads the one that it gets.
    request.headers_mut().remove(header::CONTENT_LENGTH);
    match operation.as_deref() {
        Some("PutRecord" | "PutRecords") => {
            let _alone = backend.records.write().await;
            next.run(request).await
        }
        Some("GetRecords" | "GetShardIterator") => {
            let _no_write_under_way = backend.records.read().await;
            next.run(request).await
        }
        _ => {
            let response = next.run(request).await;
            if let Some(name) = on_demand.filter(|_| response.status().is_success()) {
                on_demand::mark(&backend, &name).await;
            }
            response
        }
    }
}

/// `GetRecords` of `X-Amz-Target: Kinesis_20131202.GetRecords`.
fn operation(headers: &HeaderMap) -> Option<String> {
    let (_, operation) = headers.get("x-amz-target")?.to_str().ok()?.split_once('.')?;
    Some(operation.to_string())
}

fn has_json_body(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(JSON.as_bytes()))
}

/// An answer in the JSON protocol.
fn json(body: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => ([(header::CONTENT_TYPE, JSON)], body).into_response(),
        Err(failure) => error(StatusCode::INTERNAL_SERVER_ERROR, "InternalFailure", &failure.to_string()),
    }
}

/// An error in the JSON protocol, e.g. `InvalidArgumentException`.
fn error(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = serde_json::json!({ "__type": kind, "message": message }).to_string();
    (status, [(header::CONTENT_TYPE, JSON), (header::HeaderName::from_static("x-amzn-errortype"), kind)], body)
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_read_from_the_target_header() {
        let mut headers = HeaderMap::new();
        assert_eq!(operation(&headers), None);
        headers.insert("x-amz-target", "Kinesis_20131202.GetRecords".parse().unwrap());
        assert_eq!(operation(&headers).as_deref(), Some("GetRecords"));
    }

    #[test]
    fn only_json_requests_are_answered_here() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "application/x-amz-json-1.1; charset=utf-8".parse().unwrap());
        assert!(has_json_body(&headers));
        headers.insert(header::CONTENT_TYPE, "application/x-amz-cbor-1.1".parse().unwrap());
        assert!(!has_json_body(&headers));
    }
}
