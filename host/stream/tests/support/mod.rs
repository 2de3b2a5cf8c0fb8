//! An emulated Kinesis on loopback, with a layer in front of it that fails as the service and the network do, and
//! that adds what the emulator lacks.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Region};
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use aws_smithy_types::retry::RetryConfig;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use ferrokinesis::store::StoreOptions;
use serde_json::{Value, json};
use shardmill_record::{Page, SequenceNumber, ShardId};
use shardmill_stream::polling::{Decoder, Options, Source};
use shardmill_stream::{
    Demand, Error, Kind, Kinesis, Metrics, PollingReader, ReadFrom, ReadPage, Reader, Shard, StreamInfo, StreamStatus,
};

/// What becomes of a call.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// An error of the service, HTTP status 400.
    Refused(&'static str),
    /// HTTP status 500 and no reason.
    Broken,
    /// The answer is cut in the middle, and the connection with it.
    Cut,
    /// The answer is whole for HTTP, and what is in it is not.
    Half,
    /// No answer for so long.
    Silent(Duration),
    /// The call is carried out, and its answer changed. Payloads are in base64, in whatever format it is.
    Changed(fn(&mut Value)),
}

/// The layer's plan and its memory. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Layer(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    faults: HashMap<String, VecDeque<Fault>>,
    calls: Vec<(String, Value)>,
    shards_per_answer: Option<usize>,
}

pub(crate) struct Backend {
    pub(crate) layer: Layer,
    pub(crate) client: Client,
    pub(crate) kinesis: Kinesis,
    pub(crate) metrics: Metrics,
    pub(crate) registry: prometheus_client::registry::Registry,
    /// What its readers decode answers with.
    pub(crate) decoder: Decoder,
}

/// How a request or an answer is written.
#[derive(Clone, Copy)]
enum Format {
    Json,
    Cbor,
}

// === impl Layer ===

impl Layer {
    /// The next calls of this operation fail so, in this order.
    pub(crate) fn fail(&self, operation: &str, faults: impl IntoIterator<Item = Fault>) {
        self.0.lock().unwrap().faults.entry(operation.into()).or_default().extend(faults);
    }

    /// Nothing fails any more.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap().faults.clear();
    }

    /// Answers ListShards in pages, with tokens, as the service does and the emulator does not.
    pub(crate) fn list_in_pages_of(&self, shards: usize) {
        self.0.lock().unwrap().shards_per_answer = Some(shards);
    }

    /// The requests of an operation that were made so far.
    pub(crate) fn calls(&self, operation: &str) -> Vec<Value> {
        let inner = self.0.lock().unwrap();
        inner.calls.iter().filter(|(called, _)| called == operation).map(|(_, request)| request.clone()).collect()
    }

    fn begin(&self, operation: &str, request: &Value) -> (Option<Fault>, Option<usize>) {
        let mut inner = self.0.lock().unwrap();
        inner.calls.push((operation.to_owned(), request.clone()));
        let fault = inner.faults.get_mut(operation).and_then(VecDeque::pop_front);
        (fault, inner.shards_per_answer)
    }
}

async fn intercept(State(layer): State<Layer>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let target = parts.headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let operation = target.rsplit('.').next().unwrap().to_owned();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let format = Format::of(&parts.headers);
    let mut document = format.read(&body);
    let (fault, shards_per_answer) = layer.begin(&operation, &document);

    match fault {
        Some(Fault::Refused(code)) => {
            let answer = json!({ "__type": code, "message": format!("{code} by the test's layer") });
            let content_type = [(header::CONTENT_TYPE, format.content_type())];
            return (StatusCode::BAD_REQUEST, content_type, format.write(&answer)).into_response();
        }
        Some(Fault::Broken) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Some(Fault::Silent(duration)) => tokio::time::sleep(duration).await,
        _ => {}
    }
    let body = match shards_per_answer {
        Some(shards) if operation == "ListShards" => {
            document["MaxResults"] = json!(shards);
            // The emulator's token is the last shard's id, and it wants it together with the stream's name.
            if let Some(token) = document["NextToken"].as_str() {
                let (stream, shard) = token.split_once('/').unwrap();
                document = json!({ "StreamName": stream, "ExclusiveStartShardId": shard, "MaxResults": shards });
            }
            Bytes::from(document.to_string())
        }
        _ => body,
    };
    let mut parts = parts;
    parts.headers.remove(header::CONTENT_LENGTH);
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;

    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let format = Format::of(&parts.headers);
    let body = match fault {
        Some(Fault::Cut) => {
            // The header promises the whole.
            let half = Ok(body.slice(..body.len() / 2));
            let end = Err(std::io::Error::other("cut"));
            parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
            return Response::from_parts(parts, Body::from_stream(futures::stream::iter([half, end])));
        }
        Some(Fault::Half) => body.slice(..body.len() / 2),
        Some(Fault::Changed(change)) => {
            let mut answer = format.read(&body);
            change(&mut answer);
            format.write(&answer).into()
        }
        _ if operation == "ListShards" && parts.status.is_success() => {
            let mut answer: Value = serde_json::from_slice(&body).unwrap();
            if let Some(token) = answer["NextToken"].as_str() {
                answer["NextToken"] = json!(format!("{}/{token}", document["StreamName"].as_str().unwrap()));
            }
            answer.to_string().into()
        }
        _ => body,
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

// === impl Format ===

impl Format {
    fn of(headers: &HeaderMap) -> Self {
        match headers.get(header::CONTENT_TYPE) {
            Some(content_type) if content_type == Self::Cbor.content_type() => Self::Cbor,
            _ => Self::Json,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/x-amz-json-1.1",
            Self::Cbor => "application/x-amz-cbor-1.1",
        }
    }

    fn read(self, body: &[u8]) -> Value {
        match self {
            Self::Json => serde_json::from_slice(body).unwrap(),
            Self::Cbor => from_cbor(ciborium::from_reader(body).unwrap()),
        }
    }

    fn write(self, value: &Value) -> Vec<u8> {
        match self {
            Self::Json => value.to_string().into(),
            Self::Cbor => {
                let mut body = Vec::new();
                ciborium::into_writer(&to_cbor(value), &mut body).unwrap();
                body
            }
        }
    }
}

fn from_cbor(value: ciborium::Value) -> Value {
    match value {
        ciborium::Value::Bytes(bytes) => base64_simd::STANDARD.encode_to_string(bytes).into(),
        ciborium::Value::Array(values) => values.into_iter().map(from_cbor).collect(),
        ciborium::Value::Map(fields) => {
            let field = |(name, value): (ciborium::Value, _)| (name.into_text().unwrap(), from_cbor(value));
            Value::Object(fields.into_iter().map(field).collect())
        }
        other => other.deserialized().unwrap(),
    }
}

fn to_cbor(value: &Value) -> ciborium::Value {
    match value {
        Value::Array(values) => ciborium::Value::Array(values.iter().map(to_cbor).collect()),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let value = match value {
                    Value::String(data) if name == "Data" => {
                        ciborium::Value::Bytes(base64_simd::STANDARD.decode_to_vec(data).unwrap())
                    }
                    other => to_cbor(other),
                };
                (ciborium::Value::Text(name.clone()), value)
            };
            ciborium::Value::Map(fields.iter().map(field).collect())
        }
        other => ciborium::Value::serialized(other).unwrap(),
    }
}

// === impl Backend ===

impl Backend {
    pub(crate) async fn start() -> Self {
        Self::start_with(StoreOptions::default(), Decoder::default()).await
    }

    pub(crate) async fn start_for(decoder: Decoder) -> Self {
        Self::start_with(StoreOptions::default(), decoder).await
    }

    pub(crate) async fn start_with(options: StoreOptions, decoder: Decoder) -> Self {
        let layer = Layer::default();
        let options =
            StoreOptions { create_stream_ms: 0, delete_stream_ms: 0, update_stream_ms: 0, shard_limit: 500, ..options };
        let (app, _store) = ferrokinesis::create_app(options);
        let app = app.layer(DefaultBodyLimit::max(16 << 20)).layer(from_fn_with_state(layer.clone(), intercept));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client(listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = Metrics::register(&mut registry).of_processor("delays");
        let kinesis = Kinesis::new(client.clone()).with_call_timeout(Duration::from_secs(2));
        Self { layer, client, kinesis, metrics, registry, decoder }
    }

    pub(crate) async fn create(&self, stream: &str, shards: i32) -> StreamInfo {
        self.client.create_stream().stream_name(stream).shard_count(shards).send().await.unwrap();
        self.kinesis.wait_until_created(stream).await.unwrap()
    }

    /// Waits until the shards of a stream are not being changed any more.
    pub(crate) async fn until_active(&self, stream: &str) {
        self.until(stream, |found| found.is_ok_and(|info| info.status == StreamStatus::Active)).await;
    }

    /// Waits until a stream has gone.
    pub(crate) async fn until_gone(&self, stream: &str) {
        self.until(stream, |found| found.is_err_and(|error| error.kind() == Kind::NotFound)).await;
    }

    async fn until(&self, stream: &str, holds: impl Fn(Result<StreamInfo, Error>) -> bool) {
        for _ in 0..3_000 {
            if holds(self.kinesis.describe(stream).await) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain for the stream `{stream}`");
    }

    /// Puts numbered records, their partition keys spread over the shards.
    pub(crate) async fn put(&self, stream: &str, numbers: std::ops::Range<u32>) {
        let numbers: Vec<u32> = numbers.collect();
        for numbers in numbers.chunks(500) {
            let entry = |number: &u32| {
                let data = Blob::new(number.to_string());
                PutRecordsRequestEntry::builder().partition_key(format!("key-{number}")).data(data).build().unwrap()
            };
            let entries = numbers.iter().map(entry).collect();
            let put = self.client.put_records().stream_name(stream).set_records(Some(entries)).send().await.unwrap();
            assert_eq!(put.failed_record_count(), Some(0));
        }
    }

    pub(crate) fn reader(&self, info: &StreamInfo, shard: &Shard, from: ReadFrom) -> PollingReader {
        let source = source(info, &shard.id);
        let options = Options { decoder: self.decoder, ..Options::unlimited() };
        PollingReader::new(self.kinesis.clone(), source, from, &options, &self.metrics, 1)
    }

    pub(crate) fn shown(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

/// A client that tries once.
pub(crate) fn client(address: SocketAddr) -> Client {
    let config = aws_sdk_kinesis::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(Credentials::for_tests())
        .region(Region::new("eu-central-1"))
        .endpoint_url(format!("http://{address}"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .retry_config(RetryConfig::disabled())
        .build();
    Client::from_conf(config)
}

pub(crate) fn source(info: &StreamInfo, shard: &ShardId) -> Source {
    Source { stream: info.name.clone(), shard: shard.clone(), creation_time_ms: info.creation_time_ms }
}

pub(crate) const WIDE: Demand = Demand { records: 10_000, bytes: 64 << 20 };

/// The numbers of a page's records.
pub(crate) fn numbers(page: &Page) -> Vec<u32> {
    (0..page.len()).map(|index| std::str::from_utf8(page.data(index)).unwrap().parse().unwrap()).collect()
}

pub(crate) fn sequence_numbers(page: &Page) -> Vec<SequenceNumber> {
    (0..page.len()).map(|index| SequenceNumber::parse(page.sequence_number_digits(index)).unwrap()).collect()
}

/// Reads until so many records came.
pub(crate) async fn read(reader: &mut dyn Reader, records: usize, demand: Demand) -> Vec<u32> {
    let mut read = Vec::new();
    while read.len() < records {
        let ReadPage { page, end, .. } = reader.next(demand).await.unwrap();
        read.extend(numbers(&page));
        assert!(!end, "the shard ended after {} of {records} records", read.len());
    }
    read
}
