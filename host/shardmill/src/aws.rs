//! Clients for AWS, set up by the SDK's own environment variables and profiles.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::tls;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;

use crate::config::Aws;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);

/// What the host calls. Leases have connections of their own, so that a renewal never queues behind a read.
#[derive(Debug, Clone)]
pub struct Clients {
    /// For reading and describing streams.
    pub kinesis: aws_sdk_kinesis::Client,
    /// For PutRecords.
    pub producer: aws_sdk_kinesis::Client,
    /// For lease tables.
    pub dynamodb: aws_sdk_dynamodb::Client,
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
    /// Makes the clients.
    pub fn new(sdk: &SdkConfig, aws: &Aws) -> Self {
        let kinesis = |client| {
            let mut config = aws_sdk_kinesis::config::Builder::from(sdk).http_client(client);
            if let Some(endpoint) = &aws.kinesis_endpoint {
                config = config.endpoint_url(endpoint);
            }
            config
        };
        let mut dynamodb = aws_sdk_dynamodb::config::Builder::from(sdk).http_client(http_client());
        if let Some(endpoint) = &aws.dynamodb_endpoint {
            dynamodb = dynamodb.endpoint_url(endpoint);
        }
        Self {
            kinesis: aws_sdk_kinesis::Client::from_conf(kinesis(http_client()).build()),
            producer: aws_sdk_kinesis::Client::from_conf(
                kinesis(http_client()).retry_config(RetryConfig::disabled()).build(),
            ),
            dynamodb: aws_sdk_dynamodb::Client::from_conf(dynamodb.build()),
        }
    }
}

/// A client with its own connections.
fn http_client() -> aws_smithy_runtime_api::client::http::SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https()
}
