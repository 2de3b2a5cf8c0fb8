//! How a command that is about one stream reaches AWS.

use aws_config::SdkConfig;
use aws_sdk_kinesis::Client;
use clap::Args;
use shardmill_cause::code;
use shardmill_record::StreamArn;
use shardmill_stream::Kinesis;
use tokio_util::sync::CancellationToken;

use super::Failure;
use crate::aws::{self, Clients};
use crate::config::{self, Log, LogFormat};
use crate::telemetry;

/// What is not named here comes from the environment variables and profiles of every AWS SDK.
#[derive(Debug, Args)]
#[command(next_help_heading = "AWS")]
pub(super) struct Arguments {
    /// The region, in place of AWS_REGION and the profile's.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// A profile of the shared configuration files, in place of AWS_PROFILE.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Where Kinesis is, in place of AWS' own endpoint.
    #[arg(long, value_name = "URL", value_parser = url)]
    endpoint_url: Option<String>,
}

/// One stream, and the clients for it.
#[derive(Debug, Clone)]
pub(super) struct Access {
    /// Its name or ARN, as it was given.
    pub(super) stream: String,
    /// For reading and describing it.
    pub(super) kinesis: Kinesis,
    /// For what is done to it.
    pub(super) client: Client,
    /// For PutRecords: without retries of its own.
    pub(super) producer: Client,
    /// Somebody wants an end.
    pub(super) stop: CancellationToken,
}

// === impl Arguments ===

impl Arguments {
    /// For this stream, by its name or ARN. From now on signals and the log are looked after.
    pub(super) async fn open(&self, stream: &str) -> Result<Access, Failure> {
        let (sdk, aws, stop) = self.load().await?;
        check_region(&sdk, stream)?;
        let clients = Clients::new(&sdk, &aws).for_streams([stream], &sdk, &aws);
        let client = clients.kinesis_of(stream).clone();
        Ok(Access {
            stream: stream.to_owned(),
            kinesis: Kinesis::new(client.clone()),
            client,
            producer: clients.producer_of(stream).clone(),
            stop,
        })
    }

    /// For the streams of the account in its region. From now on signals and the log are looked after.
    pub(super) async fn open_region(&self) -> Result<(Client, CancellationToken), Failure> {
        let (sdk, aws, stop) = self.load().await?;
        if !has_region(&sdk) {
            return Err(no_region("name it with --region, AWS_REGION or a profile"));
        }
        Ok((Clients::new(&sdk, &aws).kinesis_of("").clone(), stop))
    }

    async fn load(&self) -> Result<(SdkConfig, config::Aws, CancellationToken), Failure> {
        telemetry::init(&Log { format: LogFormat::Human, filter: "warn".to_owned() })?;
        let stop = super::stop_at_signal()?;
        let (sdk, aws) = self.sdk().await;
        Ok((sdk, aws, stop))
    }

    /// The SDK's settings, and what they were made of.
    pub(super) async fn sdk(&self) -> (SdkConfig, config::Aws) {
        let aws = config::Aws {
            region: self.region.clone(),
            profile: self.profile.clone(),
            kinesis_endpoint: self.endpoint_url.clone(),
            dynamodb_endpoint: None,
        };
        (aws::load(&aws).await, aws)
    }
}

/// Whether it is known in which region a stream is, by its name or ARN.
pub(super) fn check_region(sdk: &SdkConfig, stream: &str) -> Result<(), Failure> {
    if has_region(sdk) || StreamArn::parse(stream).is_ok() {
        return Ok(());
    }
    Err(no_region("name it with --region, AWS_REGION or a profile, or name the stream by its ARN"))
}

fn has_region(sdk: &SdkConfig) -> bool {
    sdk.region().is_some_and(|region| !region.as_ref().is_empty())
}

fn no_region(help: &str) -> Failure {
    Failure::configuration("no AWS region is set").code(code::config::NO_REGION).help(help)
}

// === impl Access ===

impl Access {
    /// The output of a future, or `None` when somebody wants an end first.
    pub(super) async fn unless_stopped<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            output = future => Some(output),
        }
    }
}

/// A stream's name or ARN.
pub(super) fn stream(text: &str) -> Result<String, String> {
    if StreamArn::is_meant(text) {
        return StreamArn::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string());
    }
    name(text)
}

/// A stream's name.
pub(super) fn name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if (1..=128).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    Err("the name of a stream is expected: 1 to 128 letters, digits, `_`, `.` or `-`".to_owned())
}

fn url(text: &str) -> Result<String, String> {
    let uri: Option<hyper::Uri> = text.parse().ok();
    let is_url = |uri: &hyper::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    match uri {
        Some(uri) if is_url(&uri) => Ok(text.to_owned()),
        _other => Err("a URL is expected, such as http://127.0.0.1:4567".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_name_or_an_arn_and_an_endpoint_a_url() {
        let arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders";
        for text in ["orders", "a.b_c-1", arn] {
            assert_eq!(stream(text).as_deref(), Ok(text));
        }
        assert!(name(arn).is_err());
        let long = "x".repeat(129);
        for text in ["", "a b", "a/b", &long, "arn:aws:kinesis:eu-west-1:123456789012:stream/"] {
            assert!(stream(text).is_err(), "{text}");
        }
        assert!(url("http://127.0.0.1:4567").is_ok() && url("https://kinesis.eu-west-1.amazonaws.com").is_ok());
        for text in ["", "127.0.0.1:4567", "localhost", "ftp://a", "http://", "/x"] {
            assert!(url(text).is_err(), "{text}");
        }
    }
}
