//! A Kinesis that takes everything and answers at once, without a network: inside the SDK's own client, in place of its
//! HTTP connections.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Shards of equal size, a power of two of them.
#[derive(Debug)]
struct Instant {
    shards: usize,
    sequence_number: AtomicU64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutRecords<'a> {
    #[serde(borrow)]
    records: Vec<Entry<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry<'a> {
    explicit_hash_key: Option<&'a str>,
    partition_key: &'a str,
    #[expect(dead_code, reason = "it has to be there")]
    data: IgnoredAny,
}

pub(super) fn client(shards: usize) -> Client {
    let service = SharedHttpConnector::new(Service(Arc::new(Instant { shards, sequence_number: AtomicU64::new(1) })));
    let config = aws_sdk_kinesis::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "bench"))
        .http_client(http_client_fn(move |_, _| service.clone()))
        .endpoint_url("http://127.0.0.1:1");
    Client::from_conf(config.build())
}

#[derive(Debug, Clone)]
struct Service(Arc<Instant>);

impl HttpConnector for Service {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().expect("bodies are in memory");
        let answer = match request.headers().get("x-amz-target") {
            Some("Kinesis_20131202.PutRecords") => self.0.put_records(body),
            Some("Kinesis_20131202.ListShards") => self.0.list_shards(),
            target => panic!("nobody asks for {target:?}"),
        };
        let status = StatusCode::try_from(200).expect("a status");
        HttpConnectorFuture::ready(Ok(HttpResponse::new(status, SdkBody::from(answer))))
    }
}

// === impl Instant ===

impl Instant {
    fn shard_of(&self, hash_key: u128) -> usize {
        (hash_key >> (128 - self.shards.trailing_zeros())) as usize
    }

    fn put_records(&self, body: &[u8]) -> String {
        let request: PutRecords<'_> = serde_json::from_slice(body).expect("a request");
        let mut answer = String::from("{\"FailedRecordCount\":0,\"Records\":[");
        for (index, entry) in request.records.iter().enumerate() {
            let hash_key = match entry.explicit_hash_key {
                Some(digits) => digits.parse().expect("a hash key"),
                None => shardmill_record::HashKey::of_partition_key(entry.partition_key).get(),
            };
            let number = self.sequence_number.fetch_add(1, Relaxed);
            let comma = if index > 0 { "," } else { "" };
            let shard = self.shard_of(hash_key);
            write!(answer, "{comma}{{\"ShardId\":\"shardId-{shard:012}\",\"SequenceNumber\":\"{number:056}\"}}")
                .expect("there is memory");
        }
        answer.push_str("]}");
        answer
    }

    fn list_shards(&self) -> String {
        let width = u128::MAX / self.shards as u128 + 1;
        let shard = |number: usize| {
            let start = number as u128 * width;
            format!(
                "{{\"ShardId\":\"shardId-{number:012}\",\"HashKeyRange\":{{\"StartingHashKey\":\"{start}\",\
                 \"EndingHashKey\":\"{}\"}},\"SequenceNumberRange\":{{\"StartingSequenceNumber\":\"0\"}}}}",
                start + (width - 1)
            )
        };
        format!("{{\"Shards\":[{}]}}", (0..self.shards).map(shard).collect::<Vec<_>>().join(","))
    }
}
