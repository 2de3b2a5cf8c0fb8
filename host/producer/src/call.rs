//! One call of PutRecords, and what it brought.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use aws_smithy_types::Blob;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use bytes::Bytes;
use shardmill_cause::find_cause;
use shardmill_record::{HashKey, StreamArn};
use tokio::time::Instant;

use crate::answer::{self, Failure, Stored};
use crate::metrics::StreamMetrics;
use crate::{Permit, Stopped};

/// What became of one Kinesis record of a call.
pub(crate) type Outcome = Result<Stored, Arc<Failure>>;

/// Puts Kinesis records into one stream. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    client: Client,
    stream: Arc<str>,
    metrics: Arc<StreamMetrics>,
}

/// A Kinesis record as it is put.
pub(crate) fn entry(partition_key: String, explicit_hash_key: Option<HashKey>, data: Bytes) -> PutRecordsRequestEntry {
    PutRecordsRequestEntry::builder()
        .partition_key(partition_key)
        .set_explicit_hash_key(explicit_hash_key.map(|key| key.to_string()))
        // Without a copy where nobody else holds the bytes.
        .data(Blob::new(Vec::from(data)))
        .build()
        .expect("partition key and data are all that it asks for")
}

// === impl Caller ===

impl Caller {
    /// Takes the client's endpoint, credentials and connections, and neither its retries nor its timeouts: an answer
    /// that was lost must be seen here.
    pub(crate) fn new(client: &Client, stream: Arc<str>, timeout: Duration, metrics: Arc<StreamMetrics>) -> Self {
        let timeouts = TimeoutConfig::builder()
            .operation_timeout(timeout)
            .operation_attempt_timeout(timeout)
            .connect_timeout(timeout);
        let config = client.config().to_builder();
        let config = config.retry_config(RetryConfig::disabled()).timeout_config(timeouts.build()).build();
        Self { client: Client::from_conf(config), stream, metrics }
    }

    /// The client without retries.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The stream's name or ARN.
    pub(crate) fn stream(&self) -> &Arc<str> {
        &self.stream
    }

    /// One outcome for each entry.
    ///
    /// # Errors
    /// If the permit was withdrawn before the request was sent.
    pub(crate) async fn put(
        &self,
        entries: Vec<PutRecordsRequestEntry>,
        permit: &Permit,
    ) -> Result<Vec<Outcome>, Stopped> {
        let count = entries.len();
        let started = Instant::now();
        let put = self.client.put_records().set_records(Some(entries));
        let put = if StreamArn::is_meant(&self.stream) {
            put.stream_arn(&*self.stream)
        } else {
            put.stream_name(&*self.stream)
        };
        let answer = put.customize().interceptor(permit.clone()).send().await;
        self.metrics.answer(started.elapsed());
        if let Err(error) = &answer
            && let Some(stopped) = find_cause::<Stopped>(error)
        {
            return Err(*stopped);
        }
        let read = answer.map_err(|error| Failure::of_call(&error)).and_then(|answer| answer::read(count, &answer));
        Ok(match read {
            Ok(outcomes) => {
                for failure in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
                    self.metrics.error(failure.label);
                }
                outcomes.into_iter().map(|outcome| outcome.map_err(Arc::new)).collect()
            }
            Err(failure) => {
                self.metrics.error(failure.label);
                vec![Err(Arc::new(failure)); count]
            }
        })
    }
}
