//! Kinesis and DynamoDB of a test's own: those of `shardmill local`, or emulators that others have made.

mod emulators;
mod local;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_kinesis::config::SharedHttpClient;
use aws_sdk_kinesis::types::{Shard, StreamStatus};
use aws_smithy_http_client::tls;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use shardmill_record::{HashKey, HashKeyRange, SequenceNumber};
use tempfile::TempDir;

use crate::process::Process;
use crate::wait::eventually;

/// Services on this machine, which end with this.
#[derive(Debug)]
pub struct Services {
    /// For streams.
    pub kinesis: aws_sdk_kinesis::Client,
    /// For lease tables.
    pub dynamodb: aws_sdk_dynamodb::Client,
    environment: BTreeMap<String, String>,
    processes: Vec<Process>,
    _folder: TempDir,
}

/// What tells a child process where its services are: the variables of an AWS SDK.
pub trait Environment {
    /// The variables.
    fn environment(&self) -> &BTreeMap<String, String>;
}

// === impl Services ===

impl Services {
    /// Clients for services at these endpoints, which is what [`Services::environment`] says.
    fn new(environment: BTreeMap<String, String>, processes: Vec<Process>, folder: TempDir) -> Services {
        let endpoint = |name: &str| environment.get(name).unwrap_or_else(|| panic!("{name} is in {environment:?}"));
        let timeouts = TimeoutConfig::builder().operation_timeout(Duration::from_secs(20)).build();
        let credentials = Credentials::new("local", "local", None, None, "tests");
        let kinesis = aws_sdk_kinesis::Config::builder()
            .behavior_version(aws_sdk_kinesis::config::BehaviorVersion::latest())
            .endpoint_url(endpoint("AWS_ENDPOINT_URL_KINESIS"))
            .region(aws_sdk_kinesis::config::Region::new("us-east-1"))
            .credentials_provider(credentials.clone())
            .timeout_config(timeouts.clone())
            // Throttled reads of a test are repeated.
            .retry_config(RetryConfig::standard().with_max_attempts(10))
            .http_client(http_client());
        let dynamodb = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
            .endpoint_url(endpoint("AWS_ENDPOINT_URL_DYNAMODB"))
            .region(aws_sdk_dynamodb::config::Region::new("us-east-1"))
            .credentials_provider(credentials)
            .timeout_config(timeouts)
            .http_client(http_client());
        Services {
            kinesis: aws_sdk_kinesis::Client::from_conf(kinesis.build()),
            dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb.build()),
            environment,
            processes,
            _folder: folder,
        }
    }

    /// With a stream `input` and a stream `output` of so many shards.
    #[must_use = "the services end when they are dropped"]
    pub async fn and_streams(self, input_shards: i32, output_shards: i32) -> Services {
        self.create_stream("input", input_shards).await;
        self.create_stream("output", output_shards).await;
        self
    }

    /// What sends a child process to these services.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// The ids of the processes that play them.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// Lets nothing be answered for so long.
    pub async fn pause(&mut self, time: Duration) {
        self.processes.iter_mut().for_each(Process::suspend);
        tokio::time::sleep(time).await;
        self.processes.iter_mut().for_each(Process::resume);
    }

    /// Creates a stream and waits until it can be used.
    pub async fn create_stream(&self, name: &str, shards: i32) {
        self.kinesis.create_stream().stream_name(name).shard_count(shards).send().await.expect("a new stream");
        self.until_active(name).await;
    }

    /// Splits an open shard in the middle of its range.
    pub async fn split(&self, stream: &str, shard: &str) {
        let shards = self.shards(stream).await;
        let found = shards.iter().find(|candidate| candidate.shard_id() == shard).expect("the shard to split");
        let range = hash_key_range(found);
        let middle = range.start.get() + (range.end.get() - range.start.get()) / 2 + 1;
        let split = self.kinesis.split_shard().stream_name(stream).shard_to_split(shard);
        split.new_starting_hash_key(middle.to_string()).send().await.expect("a split");
        self.until_active(stream).await;
    }

    /// Merges two adjacent open shards.
    pub async fn merge(&self, stream: &str, shard: &str, adjacent: &str) {
        let merge = self.kinesis.merge_shards().stream_name(stream).shard_to_merge(shard);
        merge.adjacent_shard_to_merge(adjacent).send().await.expect("a merge");
        self.until_active(stream).await;
    }

    /// Changes the number of open shards.
    pub async fn scale(&self, stream: &str, shards: i32) {
        let update = self.kinesis.update_shard_count().stream_name(stream).target_shard_count(shards);
        let uniform = aws_sdk_kinesis::types::ScalingType::UniformScaling;
        update.scaling_type(uniform).send().await.expect("a new number of shards");
        self.until_active(stream).await;
    }

    /// All shards of a stream, closed ones included.
    pub async fn shards(&self, stream: &str) -> Vec<Shard> {
        let listed = self.kinesis.list_shards().stream_name(stream).send().await.expect("a listing of shards");
        assert!(listed.next_token().is_none(), "a test's stream has few shards");
        listed.shards().to_vec()
    }

    /// Trims a shard of the built-in services as if the retention of what stands before a record were over; without one,
    /// of all that it holds. How many records went.
    pub async fn trim(&self, stream: &str, shard: &str, before: Option<&SequenceNumber>) -> u64 {
        let mut input = serde_json::json!({ "StreamName": stream, "ShardId": shard });
        if let Some(before) = before {
            input["SequenceNumber"] = before.as_str().into();
        }
        let request = reqwest::Client::new()
            .post(&self.environment["AWS_ENDPOINT_URL_KINESIS"])
            .header("x-amz-target", "Shardmill.TrimShard")
            .header("content-type", "application/x-amz-json-1.1")
            .body(input.to_string());
        let answer = request.send().await.expect("an answer").text().await.expect("a body");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        answer["TrimmedRecords"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    }

    /// The ARN of a stream.
    pub async fn arn(&self, stream: &str) -> String {
        let described = self.kinesis.describe_stream_summary().stream_name(stream).send().await;
        described.expect("a description").stream_description_summary.expect("a summary").stream_arn
    }

    /// Deletes a stream and waits until it is gone.
    pub async fn delete_stream(&self, name: &str) {
        self.kinesis.delete_stream().stream_name(name).send().await.expect("a stream to delete");
        eventually(Duration::from_secs(20), "the stream's end", async || {
            let described = self.kinesis.describe_stream_summary().stream_name(name).send().await;
            described.is_err_and(|error| error.into_service_error().is_resource_not_found_exception()).then_some(())
        })
        .await;
    }

    async fn until_active(&self, stream: &str) {
        eventually(Duration::from_secs(20), "an active stream", async || {
            let described = self.kinesis.describe_stream_summary().stream_name(stream).send().await;
            let summary = described.expect("a description").stream_description_summary.expect("a summary");
            (summary.stream_status == StreamStatus::Active).then_some(())
        })
        .await;
    }
}

impl Environment for Services {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }
}

/// The hash keys that a shard takes.
pub(crate) fn hash_key_range(shard: &Shard) -> HashKeyRange {
    let range = shard.hash_key_range().expect("a shard has a range");
    let key = |text: &str| text.parse::<HashKey>().expect("a hash key");
    HashKeyRange { start: key(range.starting_hash_key()), end: key(range.ending_hash_key()) }
}

fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https()
}
