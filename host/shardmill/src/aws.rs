//! Clients for AWS, set up by the SDK's own environment variables and profiles.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::tls;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use shardmill_record::StreamArn;

use crate::config::Aws;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);

/// What the host calls. Leases have connections of their own, so that a renewal never queues behind a read.
#[derive(Debug, Clone)]
pub struct Clients {
    /// For reading and describing streams of the process' own region.
    pub kinesis: aws_sdk_kinesis::Client,
    /// For PutRecords to streams of the process' own region.
    pub producer: aws_sdk_kinesis::Client,
    /// For lease tables, which are in the process' own region.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// By other regions that streams are in: for reading, and for PutRecords.
    others: BTreeMap<String, (aws_sdk_kinesis::Client, aws_sdk_kinesis::Client)>,
}

/// Loads the SDK's configuration: region, credentials, endpoints.
pub async fn load(aws: &Aws) -> SdkConfig {
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http_client())
        .timeout_config(timeouts())
        .retry_config(RetryConfig::standard());
    if let Some(region) = &aws.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(profile) = &aws.profile {
        loader = loader.profile_name(profile);
    }
    loader.load().await
}

/// The SDK's configuration for services on this machine, whatever the environment says: the credentials are
/// placeholders, since requests have to be signed and nobody checks with what.
pub fn local() -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
            "local",
            "local",
            None,
            None,
            "local backend",
        )))
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .timeout_config(timeouts())
        .retry_config(RetryConfig::standard())
        .build()
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(OPERATION_TIMEOUT)
        .build()
}

// === impl Clients ===

impl Clients {
    /// Makes the clients for streams of the process' own region.
    pub fn new(sdk: &SdkConfig, aws: &Aws) -> Self {
        let mut dynamodb = aws_sdk_dynamodb::config::Builder::from(sdk).http_client(http_client());
        if let Some(endpoint) = &aws.dynamodb_endpoint {
            dynamodb = dynamodb.endpoint_url(endpoint);
        }
        let (kinesis, producer) = kinesis_clients(sdk, aws, None);
        let dynamodb = aws_sdk_dynamodb::Client::from_conf(dynamodb.build());
        Self { kinesis, producer, dynamodb, others: BTreeMap::new() }
    }

    /// With clients for the regions of these streams, which are names or ARNs: two for each region, which all of its
    /// streams share with their connections.
    #[must_use]
    pub fn for_streams<'a>(mut self, streams: impl IntoIterator<Item = &'a str>, sdk: &SdkConfig, aws: &Aws) -> Self {
        for region in streams.into_iter().filter_map(region_of) {
            if sdk.region().is_none_or(|own| own.as_ref() != region) && !self.others.contains_key(&region) {
                let clients = kinesis_clients(sdk, aws, Some(&region));
                self.others.insert(region, clients);
            }
        }
        self
    }

    /// For reading and describing a stream, which is one of [`Clients::for_streams`].
    pub fn kinesis_of(&self, stream: &str) -> &aws_sdk_kinesis::Client {
        self.of_region(stream).map_or(&self.kinesis, |(kinesis, _)| kinesis)
    }

    /// For PutRecords to a stream, which is one of [`Clients::for_streams`].
    pub fn producer_of(&self, stream: &str) -> &aws_sdk_kinesis::Client {
        self.of_region(stream).map_or(&self.producer, |(_, producer)| producer)
    }

    fn of_region(&self, stream: &str) -> Option<&(aws_sdk_kinesis::Client, aws_sdk_kinesis::Client)> {
        self.others.get(&region_of(stream)?)
    }
}

/// The region that a stream's ARN names.
fn region_of(stream: &str) -> Option<String> {
    StreamArn::parse(stream).ok().map(|arn| arn.region().to_owned())
}

/// For reading, and for PutRecords, each with connections of its own.
fn kinesis_clients(
    sdk: &SdkConfig,
    aws: &Aws,
    region: Option<&str>,
) -> (aws_sdk_kinesis::Client, aws_sdk_kinesis::Client) {
    let config = || {
        let mut config = aws_sdk_kinesis::config::Builder::from(sdk).http_client(http_client());
        if let Some(endpoint) = &aws.kinesis_endpoint {
            config = config.endpoint_url(endpoint);
        }
        if let Some(region) = region {
            config = config.region(Region::new(region.to_owned()));
        }
        config
    };
    let producer = config().retry_config(RetryConfig::disabled());
    (aws_sdk_kinesis::Client::from_conf(config().build()), aws_sdk_kinesis::Client::from_conf(producer.build()))
}

/// A client with its own connections.
fn http_client() -> aws_smithy_runtime_api::client::http::SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_region_picks_its_client_and_streams_of_a_region_share_it() {
        let arn = |region: &str, name: &str| format!("arn:aws:kinesis:{region}:123456789012:stream/{name}");
        let (own, here) = ("orders".to_owned(), arn("us-east-1", "orders"));
        let (there, as_well) = (arn("eu-west-1", "orders"), arn("eu-west-1", "returns"));
        let streams = [&own, &here, &there, &as_well].map(String::as_str);
        let (sdk, aws) = (local(), Aws::default());
        let clients = Clients::new(&sdk, &aws).for_streams(streams, &sdk, &aws);
        for (stream, region) in streams.into_iter().zip(["us-east-1", "us-east-1", "eu-west-1", "eu-west-1"]) {
            for client in [clients.kinesis_of(stream), clients.producer_of(stream)] {
                assert_eq!(client.config().region().map(AsRef::as_ref), Some(region), "{stream}");
            }
        }
        assert_eq!(clients.others.len(), 1, "one pool of connections for a region");
        assert!(std::ptr::eq(clients.kinesis_of(&there), clients.kinesis_of(&as_well)));
        assert_eq!(clients.dynamodb.config().region().map(AsRef::as_ref), Some("us-east-1"));
    }
}
