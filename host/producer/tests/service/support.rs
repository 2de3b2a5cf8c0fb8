//! A Kinesis service inside this process, with a layer in front that fails as it is told.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_kinesis::types::{Shard, ShardIteratorType};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use shardmill_record::{
    BatchBuilder, BatchLimits, HashKeyRange, OutOfRange, PageBuilder, Position, ShardId, Unpacker, UserRecord,
};
use tokio::sync::Barrier;

pub(crate) const STREAM: &str = "outputs";
const MAX_BODY: usize = 16 << 20;

/// What happens to one call of PutRecords.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Nothing.
    Pass,
    /// These entries fail with this code (indexes past the end are left out).
    Entries(Vec<usize>, &'static str),
    /// The whole call fails with this status and code, and nothing is stored.
    Call(u16, &'static str),
    /// Everything is stored, and the answer breaks off.
    AnswerBroken,
    /// Everything is stored, and the answer does not come in time.
    AnswerLate(Duration),
    /// Everything is stored, and the answer has one entry less.
    AnswerShort,
    /// Nothing, and the answer comes when so many calls are there.
    Together(Arc<Barrier>),
}

/// What the layer is to do, call by call, and how many calls it saw.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    inner: Arc<Mutex<(VecDeque<Fault>, usize)>>,
    /// How many listings of the shards came in, and how many more are to fail.
    listings: Arc<Mutex<(usize, usize)>>,
    /// Whether listings come shard by shard, with an empty page between two.
    paged: Arc<std::sync::atomic::AtomicBool>,
    /// No request may have a record with this data.
    refused: Arc<Mutex<Option<Vec<u8>>>>,
}

/// The service and a client of it.
pub(crate) struct Service {
    pub client: Client,
    pub faults: Faults,
}

/// A user record as a reader meets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub shard: ShardId,
    pub position: Position,
    pub key: String,
    pub data: Vec<u8>,
}

pub(crate) fn client(endpoint: String) -> Client {
    let config = aws_sdk_kinesis::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint);
    Client::from_conf(config.build())
}

// === impl Faults ===

impl Faults {
    pub(crate) fn set(&self, faults: impl IntoIterator<Item = Fault>) {
        self.inner.lock().unwrap().0 = faults.into_iter().collect();
    }

    /// Whether listings come shard by shard from now on.
    pub(crate) fn page(&self, paged: bool) {
        self.paged.store(paged, std::sync::atomic::Ordering::SeqCst);
    }

    /// Refuses requests with a record that has this data.
    pub(crate) fn refuse(&self, data: Vec<u8>) {
        *self.refused.lock().unwrap() = Some(data);
    }

    fn refuses(&self, body: &[u8]) -> bool {
        let Some(data) = self.refused.lock().unwrap().clone() else { return false };
        let body: Value = serde_json::from_slice(body).unwrap();
        let blob = aws_smithy_types::base64::encode(data);
        body["Records"].as_array().unwrap().iter().any(|record| record["Data"] == blob.as_str())
    }

    /// How many calls of PutRecords came in.
    pub(crate) fn calls(&self) -> usize {
        self.inner.lock().unwrap().1
    }

    /// So many of the next listings of the shards fail.
    pub(crate) fn fail_listings(&self, count: usize) {
        self.listings.lock().unwrap().1 = count;
    }

    /// How many listings of the shards came in.
    pub(crate) fn listings(&self) -> usize {
        self.listings.lock().unwrap().0
    }

    /// Whether this one fails.
    fn next_listing(&self) -> bool {
        let mut listings = self.listings.lock().unwrap();
        listings.0 += 1;
        let fails = listings.1 > 0;
        listings.1 = listings.1.saturating_sub(1);
        fails
    }

    fn next(&self) -> Fault {
        let mut inner = self.inner.lock().unwrap();
        inner.1 += 1;
        inner.0.pop_front().unwrap_or(Fault::Pass)
    }
}

async fn fail(State(faults): State<Faults>, request: Request, next: Next) -> Response {
    let target = request.headers().get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    if target == "Kinesis_20131202.DescribeStreamSummary" {
        // What AWS says of a stream that was not configured for more.
        let (parts, mut answer) = split(next.run(request).await).await;
        answer["StreamDescriptionSummary"]["MaxRecordSizeInKiB"] = 1_024.into();
        return join(parts, &answer);
    }
    if target == "Kinesis_20131202.ListShards" && faults.next_listing() {
        return refusal(500, "InternalFailure");
    }
    if target == "Kinesis_20131202.ListShards" && faults.paged.load(std::sync::atomic::Ordering::SeqCst) {
        return page(request, next).await;
    }
    if target != "Kinesis_20131202.PutRecords" {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_BODY).await.unwrap();
    let next_fault = if faults.refuses(&body) { Fault::Call(400, "ValidationException") } else { faults.next() };
    let request = Request::from_parts(parts, Body::from(body));
    match next_fault {
        Fault::Pass => next.run(request).await,
        Fault::Call(status, code) => refusal(status, code),
        Fault::Together(barrier) => {
            let answer = next.run(request).await;
            barrier.wait().await;
            answer
        }
        Fault::AnswerBroken => {
            next.run(request).await;
            let broken = futures::stream::iter([Ok("{\"FailedRecordCount\":"), Err(std::io::Error::other("broken"))]);
            Body::from_stream(broken).into_response()
        }
        Fault::AnswerLate(time) => {
            let answer = next.run(request).await;
            tokio::time::sleep(time).await;
            answer
        }
        Fault::AnswerShort => {
            let (parts, mut answer) = split(next.run(request).await).await;
            answer["Records"].as_array_mut().unwrap().pop();
            join(parts, &answer)
        }
        Fault::Entries(failing, code) => {
            let (parts, body) = request.into_parts();
            let mut body: Value = serde_json::from_slice(&to_bytes(body, MAX_BODY).await.unwrap()).unwrap();
            let entries = std::mem::take(body["Records"].as_array_mut().unwrap());
            let count = entries.len();
            let kept = entries.into_iter().enumerate().filter(|(index, _)| !failing.contains(index));
            body["Records"] = kept.map(|(_, entry)| entry).collect();
            let failed = || json!({"ErrorCode": code, "ErrorMessage": "as the test wants it"});
            let (parts, mut answer) = if body["Records"].as_array().unwrap().is_empty() {
                (Response::new(()).into_parts().0, json!({"Records": []}))
            } else {
                let body = body.to_string();
                let mut request = Request::from_parts(parts, Body::from(body.clone()));
                request.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
                split(next.run(request).await).await
            };
            let stored = std::mem::take(answer["Records"].as_array_mut().unwrap());
            let mut stored = stored.into_iter();
            let merged =
                (0..count).map(|index| if failing.contains(&index) { failed() } else { stored.next().unwrap() });
            answer["Records"] = merged.collect();
            answer["FailedRecordCount"] = failing.iter().filter(|index| **index < count).count().into();
            join(parts, &answer)
        }
    }
}

fn refusal(status: u16, code: &str) -> Response {
    let body = json!({"__type": code, "message": "as the test wants it"}).to_string();
    let json = [(header::CONTENT_TYPE, "application/x-amz-json-1.1")];
    (StatusCode::from_u16(status).unwrap(), json, body).into_response()
}

/// One page of a listing: a token is the page's number.
async fn page(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let body: Value = serde_json::from_slice(&to_bytes(body, MAX_BODY).await.unwrap()).unwrap();
    let number: usize = body["NextToken"].as_str().map_or(0, |token| token.parse().unwrap());
    let body = json!({ "StreamName": STREAM }).to_string();
    parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
    let (parts, mut answer) = split(next.run(Request::from_parts(parts, Body::from(body))).await).await;
    let shards = answer["Shards"].as_array().unwrap().clone();
    let pages: Vec<Vec<Value>> = shards.into_iter().flat_map(|shard| [vec![shard], Vec::new()]).collect();
    answer["NextToken"] = if number + 1 < pages.len() { (number + 1).to_string().into() } else { Value::Null };
    answer["Shards"] = pages[number].clone().into();
    join(parts, &answer)
}

async fn split(answer: Response) -> (axum::http::response::Parts, Value) {
    let (parts, body) = answer.into_parts();
    assert!(parts.status.is_success(), "{parts:?}");
    (parts, serde_json::from_slice(&to_bytes(body, MAX_BODY).await.unwrap()).unwrap())
}

fn join(mut parts: axum::http::response::Parts, answer: &Value) -> Response {
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(answer.to_string()))
}

// === impl Service ===

impl Service {
    /// With one stream.
    pub(crate) async fn start(shards: i32) -> Self {
        let options = ferrokinesis::store::StoreOptions {
            create_stream_ms: 0,
            update_stream_ms: 0,
            shard_limit: 500,
            ..ferrokinesis::store::StoreOptions::default()
        };
        let (app, _store) = ferrokinesis::create_app(options);
        let faults = Faults::default();
        let app: Router = app.layer(from_fn_with_state(faults.clone(), fail)).layer(DefaultBodyLimit::max(MAX_BODY));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client(format!("http://{}", listener.local_addr().unwrap()));
        tokio::spawn(async move { axum::serve(listener, app).await });
        client.create_stream().stream_name(STREAM).shard_count(shards).send().await.unwrap();
        let service = Self { client, faults };
        service.until_active().await;
        service
    }

    async fn until_active(&self) {
        for _ in 0..500 {
            let summary = self.client.describe_stream_summary().stream_name(STREAM).send().await.unwrap();
            if summary.stream_description_summary().unwrap().stream_status().as_str() == "ACTIVE" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the stream did not become active");
    }

    /// Splits every open shard in the middle.
    pub(crate) async fn split_all(&self) {
        for shard in self.shards().await {
            if shard.sequence_number_range().unwrap().ending_sequence_number().is_none() {
                let range = range(&shard);
                let middle = range.start.get() + (range.end.get() - range.start.get()) / 2 + 1;
                let split = self.client.split_shard().stream_name(STREAM).shard_to_split(shard.shard_id());
                split.new_starting_hash_key(middle.to_string()).send().await.unwrap();
                self.until_active().await;
            }
        }
    }

    /// Merges the first two of the open shards that lie side by side.
    pub(crate) async fn merge_first(&self) {
        let mut open = self.shards().await;
        open.retain(|shard| shard.sequence_number_range().unwrap().ending_sequence_number().is_none());
        open.sort_by_key(|shard| range(shard).start);
        let merge = self.client.merge_shards().stream_name(STREAM).shard_to_merge(open[0].shard_id());
        merge.adjacent_shard_to_merge(open[1].shard_id()).send().await.unwrap();
        self.until_active().await;
    }

    async fn shards(&self) -> Vec<Shard> {
        let listing = self.client.list_shards().stream_name(STREAM).send().await.unwrap();
        listing.shards().to_vec()
    }

    /// Everything in the stream, shard by shard, parents first.
    pub(crate) async fn read(&self, out_of_range: OutOfRange) -> Vec<Read> {
        let mut read = Vec::new();
        for shard in self.shards().await {
            let mut unpacker = Unpacker::new(None, range(&shard), out_of_range);
            let iterator = self.client.get_shard_iterator().stream_name(STREAM).shard_id(shard.shard_id());
            let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.unwrap();
            let mut iterator = iterator.shard_iterator;
            while let Some(at) = iterator {
                let answer = self.client.get_records().shard_iterator(at).send().await.unwrap();
                let mut page = PageBuilder::default();
                for record in answer.records() {
                    page.push(record.sequence_number(), record.partition_key().unwrap(), record.data().as_ref(), 0)
                        .unwrap();
                }
                unpacker.push(page.build());
                iterator = answer.next_shard_iterator.filter(|_| !answer.records.is_empty());
            }
            let mut batch = BatchBuilder::default();
            unpacker.fill(&mut batch, &BatchLimits { records: usize::MAX, bytes: usize::MAX });
            let batch = batch.build();
            let id = ShardId::parse(shard.shard_id()).unwrap();
            read.extend(batch.iter().enumerate().map(|(index, record)| Read {
                shard: id.clone(),
                position: batch.position(index),
                key: record.partition_key.to_owned(),
                data: record.data.to_vec(),
            }));
        }
        read
    }
}

/// The key and the payload of each record.
pub(crate) fn pairs(read: &[Read]) -> Vec<(String, Vec<u8>)> {
    read.iter().map(|read| (read.key.clone(), read.data.clone())).collect()
}

/// The same of records that are put.
pub(crate) fn given(records: &[UserRecord]) -> Vec<(String, Vec<u8>)> {
    records.iter().map(|record| (record.partition_key.clone(), record.data.to_vec())).collect()
}

/// The sum of a producer's counter or gauge over its labels.
pub(crate) fn metric(registry: &Registry, name: &str) -> u64 {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let name = format!("shardmill_producer_{name}{{");
    let lines = text.lines().filter(|line| line.starts_with(&name));
    lines.filter_map(|line| line.rsplit(' ').next()).map(|number| number.parse::<u64>().unwrap()).sum()
}

fn range(shard: &Shard) -> HashKeyRange {
    let range = shard.hash_key_range().unwrap();
    HashKeyRange { start: range.starting_hash_key().parse().unwrap(), end: range.ending_hash_key().parse().unwrap() }
}

/// Records whose data begin with their number.
pub(crate) fn records(numbers: std::ops::Range<usize>, keys: usize, length: usize) -> Vec<UserRecord> {
    let record = |number: usize| {
        let mut data = number.to_be_bytes().to_vec();
        data.resize(length.max(8), b'.');
        UserRecord { partition_key: format!("key-{}", number % keys), explicit_hash_key: None, data: data.into() }
    };
    numbers.map(record).collect()
}

/// The numbers of records by their keys, in the order in which they come.
pub(crate) fn by_key(records: impl IntoIterator<Item = (String, Vec<u8>)>) -> HashMap<String, Vec<usize>> {
    let mut by_key: HashMap<_, Vec<usize>> = HashMap::new();
    for (key, data) in records {
        by_key.entry(key).or_default().push(usize::from_be_bytes(data[..8].try_into().unwrap()));
    }
    by_key
}
