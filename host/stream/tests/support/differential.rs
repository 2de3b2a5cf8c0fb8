//! Our decoders and the SDK's on the same bytes. The property tests and the fuzz target share it.

#![allow(dead_code, reason = "each user takes its part")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Region};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::RetryConfig;
use shardmill_record::ShardId;
use shardmill_stream::polling::{Decoded, Decoder};
use shardmill_stream::{Call, ChildShard, Error, Kinesis, ReadFrom};

pub(crate) const JSON: &str = "application/x-amz-json-1.1";
pub(crate) const CBOR: &str = "application/x-amz-cbor-1.1";

/// Answers each request with what it was given, and keeps the requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Canned(Arc<Mutex<Exchange>>);

#[derive(Debug, Default)]
struct Exchange {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// The next answer takes the body away, so that nothing is copied.
    hand_over: bool,
    requests: Vec<HttpRequest>,
}

/// Reads answers that it is given, with any decoder.
pub(crate) struct Bench {
    pub(crate) canned: Canned,
    kinesis: Kinesis,
    call: Call,
    runtime: tokio::runtime::Runtime,
}

/// What an answer holds, to be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Sequence number, partition key, data, arrival.
    pub(crate) records: Vec<(String, String, Vec<u8>, u64)>,
    pub(crate) bytes: u64,
    pub(crate) next_iterator: Option<String>,
    pub(crate) millis_behind: Option<u64>,
    pub(crate) children: Option<Vec<ChildShard>>,
}

// === impl Canned ===

impl Canned {
    pub(crate) fn answer(&self, status: u16, headers: &[(&'static str, &str)], body: &[u8]) {
        let mut exchange = self.0.lock().unwrap();
        exchange.status = status;
        exchange.headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        exchange.body = body.to_vec();
        exchange.hand_over = false;
    }

    /// The answer is given once, and its body with it: whoever reads it holds it alone.
    pub(crate) fn hand_over(&self) {
        self.0.lock().unwrap().hand_over = true;
    }

    /// The requests that were made since this was asked for.
    pub(crate) fn requests(&self) -> Vec<HttpRequest> {
        std::mem::take(&mut self.0.lock().unwrap().requests)
    }

    /// A client that tries so often.
    pub(crate) fn client(&self, attempts: u32) -> Client {
        let retries = RetryConfig::standard().with_max_attempts(attempts);
        let config = aws_sdk_kinesis::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .region(Region::new("eu-central-1"))
            .http_client(self.clone())
            .retry_config(retries.with_initial_backoff(Duration::from_millis(1)))
            .build();
        Client::from_conf(config)
    }
}

impl HttpConnector for Canned {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut exchange = self.0.lock().unwrap();
        let status: StatusCode = exchange.status.try_into().expect("a status");
        let body = if exchange.hand_over { std::mem::take(&mut exchange.body) } else { exchange.body.clone() };
        let mut response = HttpResponse::new(status, SdkBody::from(body));
        for (name, value) in &exchange.headers {
            response.headers_mut().insert(*name, value.clone());
        }
        exchange.requests.push(request);
        HttpConnectorFuture::ready(Ok(response))
    }
}

impl HttpClient for Canned {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

// === impl Bench ===

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_attempts(1)
    }

    pub(crate) fn with_attempts(attempts: u32) -> Self {
        let canned = Canned::default();
        let shard = ShardId::parse("shardId-000000000000").unwrap();
        Self {
            kinesis: Kinesis::new(canned.client(attempts)),
            canned,
            call: Call { operation: "GetRecords", stream: "flights".into(), shard: Some(shard) },
            runtime: tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap(),
        }
    }

    pub(crate) fn read(
        &self,
        decoder: Decoder,
        content_type: &str,
        body: &[u8],
        from: &ReadFrom,
    ) -> Result<Decoded, Error> {
        self.canned.answer(200, &[("content-type", content_type)], body);
        let read = self.again(decoder, from);
        self.canned.requests();
        read
    }

    /// Reads the same answer once more.
    pub(crate) fn again(&self, decoder: Decoder, from: &ReadFrom) -> Result<Decoded, Error> {
        self.runtime.block_on(self.kinesis.get_records(&self.call, "iterator", 10_000, decoder, from))
    }

    /// What our JSON decoder makes of the bytes, after the SDK has made the same of them.
    ///
    /// # Panics
    /// If it made anything else of them.
    pub(crate) fn check_json(&self, body: &[u8]) -> Result<Seen, String> {
        let ours = self.read(Decoder::Json, JSON, body, &ReadFrom::TrimHorizon);
        let sdk = self.again(Decoder::Sdk, &ReadFrom::TrimHorizon);
        let text = || String::from_utf8_lossy(body).into_owned();
        match (ours, sdk) {
            (Ok(ours), Ok(sdk)) => {
                let (ours, sdk) = (Seen::of(&ours), Seen::of(&sdk));
                assert_eq!(ours, sdk, "ours, then the SDK's, of {}", text());
                Ok(ours)
            }
            (Err(Error::InvalidAnswer { reason, .. }), Err(Error::InvalidAnswer { .. })) => Err(reason),
            // The one difference on purpose.
            (Err(Error::InvalidAnswer { reason, .. }), Ok(sdk)) if reason.starts_with("there are no `Records`") => {
                assert!(sdk.page.is_empty(), "{reason}, and the SDK found some in {}", text());
                Err(reason)
            }
            (ours, sdk) => panic!("ours: {ours:?}\nthe SDK's: {sdk:?}\nof {}", text()),
        }
    }

    /// What our CBOR decoder makes of the bytes: anything but a panic.
    pub(crate) fn check_cbor(&self, body: &[u8]) -> Result<Seen, String> {
        match self.read(Decoder::Cbor, CBOR, body, &ReadFrom::TrimHorizon) {
            Ok(decoded) => Ok(Seen::of(&decoded)),
            Err(Error::InvalidAnswer { reason, .. }) => Err(reason),
            Err(other) => panic!("{other:?} of {body:x?}"),
        }
    }
}

// === impl Seen ===

impl Seen {
    pub(crate) fn of(decoded: &Decoded) -> Self {
        let page = &decoded.page;
        let record = |index| {
            let number = page.sequence_number_digits(index).to_owned();
            let key = page.partition_key(index).to_owned();
            (number, key, page.data(index).to_vec(), page.approximate_arrival(index))
        };
        Self {
            records: (0..page.len()).map(record).collect(),
            bytes: decoded.bytes,
            next_iterator: decoded.next_iterator.clone(),
            millis_behind: decoded.millis_behind,
            children: decoded.children.clone(),
        }
    }
}
