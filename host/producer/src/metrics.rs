//! The names of the producer's metrics.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::plan::{Request, Settled};

/// What producers did, by stream. User records by Kinesis record is the ratio of `records_sent` to
/// `kinesis_records_sent`. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Metrics {
    records_received: Family<StreamLabels, Counter>,
    records_sent: Family<StreamLabels, Counter>,
    records_acknowledged: Family<StreamLabels, Counter>,
    kinesis_records_sent: Family<StreamLabels, Counter>,
    bytes_sent: Family<StreamLabels, Counter>,
    requests: Family<StreamLabels, Counter>,
    retries: Family<StreamLabels, Counter>,
    possible_repeats: Family<StreamLabels, Counter>,
    misplaced: Family<StreamLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    request_seconds: Family<StreamLabels, Histogram, fn() -> Histogram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamLabels {
    stream: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    stream: String,
    code: &'static str,
}

/// One producer's part of the metrics.
#[derive(Debug)]
pub(crate) struct StreamMetrics {
    stream: String,
    records_received: Counter,
    records_sent: Counter,
    records_acknowledged: Counter,
    kinesis_records_sent: Counter,
    bytes_sent: Counter,
    requests: Counter,
    retries: Counter,
    possible_repeats: Counter,
    misplaced: Counter,
    errors: Family<ErrorLabels, Counter>,
    request_seconds: Histogram,
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self {
            records_received: Family::default(),
            records_sent: Family::default(),
            records_acknowledged: Family::default(),
            kinesis_records_sent: Family::default(),
            bytes_sent: Family::default(),
            requests: Family::default(),
            retries: Family::default(),
            possible_repeats: Family::default(),
            misplaced: Family::default(),
            errors: Family::default(),
            // 1 ms to 8 s.
            request_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 14))),
        }
    }
}

impl Metrics {
    /// Metrics that the registry shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let counters = [
            ("records_received", "User records that were given to producers", &metrics.records_received),
            ("records_sent", "User records in requests, each time they are sent", &metrics.records_sent),
            ("records_acknowledged", "User records that the service has stored", &metrics.records_acknowledged),
            (
                "kinesis_records_sent",
                "Kinesis records in requests, each time they are sent",
                &metrics.kinesis_records_sent,
            ),
            ("requests", "Calls of PutRecords", &metrics.requests),
            ("retries", "Kinesis records that had to be sent again", &metrics.retries),
            (
                "possible_repeats",
                "User records that were sent again after their answer was lost: readers may see them twice",
                &metrics.possible_repeats,
            ),
            (
                "misplaced_records",
                "User records that an aggregate took to another shard than their own, sent again",
                &metrics.misplaced,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("shardmill_producer_{name}"), help, counter.clone());
        }
        registry.register_with_unit(
            "shardmill_producer_sent",
            "Partition keys and payloads in requests, each time they are sent",
            Unit::Bytes,
            metrics.bytes_sent.clone(),
        );
        registry.register(
            "shardmill_producer_errors",
            "Requests and Kinesis records in them that failed, by the service's code",
            metrics.errors.clone(),
        );
        registry.register_with_unit(
            "shardmill_producer_request",
            "How long PutRecords took",
            Unit::Seconds,
            metrics.request_seconds.clone(),
        );
        metrics
    }

    pub(crate) fn of_stream(&self, stream: &str) -> StreamMetrics {
        let labels = StreamLabels { stream: stream.to_owned() };
        let counter = |family: &Family<StreamLabels, Counter>| family.get_or_create_owned(&labels);
        StreamMetrics {
            stream: stream.to_owned(),
            records_received: counter(&self.records_received),
            records_sent: counter(&self.records_sent),
            records_acknowledged: counter(&self.records_acknowledged),
            kinesis_records_sent: counter(&self.kinesis_records_sent),
            bytes_sent: counter(&self.bytes_sent),
            requests: counter(&self.requests),
            retries: counter(&self.retries),
            possible_repeats: counter(&self.possible_repeats),
            misplaced: counter(&self.misplaced),
            errors: self.errors.clone(),
            request_seconds: self.request_seconds.get_or_create_owned(&labels),
        }
    }
}

// === impl StreamMetrics ===

impl StreamMetrics {
    pub(crate) fn received(&self, records: usize) {
        self.records_received.inc_by(records as u64);
    }

    pub(crate) fn request(&self, request: &Request) {
        self.requests.inc();
        self.kinesis_records_sent.inc_by(request.entries.len() as u64);
        self.records_sent.inc_by(request.entries.iter().map(|entry| entry.len() as u64).sum());
        self.bytes_sent.inc_by(request.bytes as u64);
    }

    pub(crate) fn answer(&self, time: Duration) {
        self.request_seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn error(&self, code: &'static str) {
        self.errors.get_or_create(&ErrorLabels { stream: self.stream.clone(), code }).inc();
    }

    pub(crate) fn settled(&self, settled: &Settled) {
        self.records_acknowledged.inc_by(settled.acknowledged);
        self.retries.inc_by(settled.retries);
        self.possible_repeats.inc_by(settled.possible_repeats);
        self.misplaced.inc_by(settled.misplaced);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_names_are_what_operators_were_told() {
        let mut registry = Registry::default();
        let stream = Metrics::register(&mut registry).of_stream("clicks");
        stream.received(3);
        stream.request(&Request::new(tokio::time::Instant::now()));
        stream.answer(Duration::from_millis(3));
        stream.error("timeout");
        stream.settled(&Settled { acknowledged: 3, retries: 1, possible_repeats: 2, misplaced: 1, failing_for: None });
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "shardmill_producer_records_received_total{stream=\"clicks\"} 3",
            "shardmill_producer_records_sent_total{stream=\"clicks\"} 0",
            "shardmill_producer_records_acknowledged_total{stream=\"clicks\"} 3",
            "shardmill_producer_kinesis_records_sent_total{stream=\"clicks\"} 0",
            "shardmill_producer_sent_bytes_total{stream=\"clicks\"} 0",
            "shardmill_producer_requests_total{stream=\"clicks\"} 1",
            "shardmill_producer_retries_total{stream=\"clicks\"} 1",
            "shardmill_producer_possible_repeats_total{stream=\"clicks\"} 2",
            "shardmill_producer_misplaced_records_total{stream=\"clicks\"} 1",
            "shardmill_producer_errors_total{stream=\"clicks\",code=\"timeout\"} 1",
            "shardmill_producer_request_seconds_count{stream=\"clicks\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
