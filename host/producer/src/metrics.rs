//! The names of the producer's metrics.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

type Histograms = Family<StreamLabels, Histogram, fn() -> Histogram>;

/// What producers did, by stream: what the KPL counts, under names of Prometheus. User records by Kinesis record is the
/// ratio of `records_sent` to `kinesis_records_sent`. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Metrics {
    records_received: Family<StreamLabels, Counter>,
    records_pending: Family<StreamLabels, Gauge>,
    pending_bytes: Family<StreamLabels, Gauge>,
    records_sent: Family<StreamLabels, Counter>,
    records_acknowledged: Family<StreamLabels, Counter>,
    acknowledged_bytes: Family<StreamLabels, Counter>,
    records_failed: Family<ReasonLabels, Counter>,
    records_spooled: Family<StreamLabels, Counter>,
    queue_dropped: Family<StreamLabels, Counter>,
    kinesis_records_sent: Family<StreamLabels, Counter>,
    bytes_sent: Family<StreamLabels, Counter>,
    kinesis_records_acknowledged: Family<StreamLabels, Counter>,
    kinesis_acknowledged_bytes: Family<StreamLabels, Counter>,
    requests: Family<StreamLabels, Counter>,
    retries: Family<StreamLabels, Counter>,
    possible_repeats: Family<StreamLabels, Counter>,
    misplaced: Family<StreamLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    request_seconds: Histograms,
    buffering_seconds: Histograms,
    retries_per_record: Histograms,
    records_per_kinesis_record: Histograms,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    stream: String,
    reason: &'static str,
}

/// What answers brought, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// User records that are acknowledged.
    pub(crate) acknowledged: u64,
    /// Their partition keys and payloads.
    pub(crate) acknowledged_bytes: u64,
    /// Kinesis records that are stored.
    pub(crate) kinesis_records: u64,
    /// Their partition keys and payloads.
    pub(crate) kinesis_bytes: u64,
    /// Kinesis records that have to be sent again.
    pub(crate) retries: u64,
    /// User records that are sent again although they may be stored.
    pub(crate) possible_repeats: u64,
    /// User records that are stored in a shard whose range does not hold them, and have to be sent again.
    pub(crate) misplaced: u64,
}

/// One producer's part of the metrics.
#[derive(Debug)]
pub(crate) struct StreamMetrics {
    stream: String,
    records_received: Counter,
    records_pending: Gauge,
    pending_bytes: Gauge,
    records_sent: Counter,
    records_acknowledged: Counter,
    acknowledged_bytes: Counter,
    records_failed: Family<ReasonLabels, Counter>,
    records_spooled: Counter,
    queue_dropped: Counter,
    kinesis_records_sent: Counter,
    bytes_sent: Counter,
    kinesis_records_acknowledged: Counter,
    kinesis_acknowledged_bytes: Counter,
    requests: Counter,
    retries: Counter,
    possible_repeats: Counter,
    misplaced: Counter,
    errors: Family<ErrorLabels, Counter>,
    request_seconds: Histogram,
    buffering_seconds: Histogram,
    retries_per_record: Histogram,
    records_per_kinesis_record: Histogram,
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self {
            records_received: Family::default(),
            records_pending: Family::default(),
            pending_bytes: Family::default(),
            records_sent: Family::default(),
            records_acknowledged: Family::default(),
            acknowledged_bytes: Family::default(),
            records_failed: Family::default(),
            records_spooled: Family::default(),
            queue_dropped: Family::default(),
            kinesis_records_sent: Family::default(),
            bytes_sent: Family::default(),
            kinesis_records_acknowledged: Family::default(),
            kinesis_acknowledged_bytes: Family::default(),
            requests: Family::default(),
            retries: Family::default(),
            possible_repeats: Family::default(),
            misplaced: Family::default(),
            errors: Family::default(),
            // 1 ms to 8 s.
            request_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 14))),
            // 1 ms to 65 s: a record's time to live is 30 s.
            buffering_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 9))),
            retries_per_record: Family::new_with_constructor(|| Histogram::new([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0])),
            // 1 to 16,384.
            records_per_kinesis_record: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(1.0, 4.0, 8))
            }),
        }
    }
}

impl Metrics {
    /// Metrics that the registry shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.register_counters(registry);
        registry.register(
            "shardmill_producer_records_pending",
            "User records that are accepted and neither acknowledged nor given up",
            metrics.records_pending.clone(),
        );
        registry.register_with_unit(
            "shardmill_producer_pending",
            "Partition keys and payloads of the user records that are pending",
            Unit::Bytes,
            metrics.pending_bytes.clone(),
        );
        registry.register(
            "shardmill_producer_errors",
            "Requests and Kinesis records in them that failed, by the service's code",
            metrics.errors.clone(),
        );
        registry.register(
            "shardmill_producer_records_failed",
            "User records that were given up, by reason",
            metrics.records_failed.clone(),
        );
        registry.register_with_unit(
            "shardmill_producer_request",
            "How long PutRecords took",
            Unit::Seconds,
            metrics.request_seconds.clone(),
        );
        registry.register_with_unit(
            "shardmill_producer_buffering",
            "How long user records waited before they were first sent",
            Unit::Seconds,
            metrics.buffering_seconds.clone(),
        );
        registry.register(
            "shardmill_producer_retries_per_record",
            "How often a user record was sent again before it was acknowledged or given up",
            metrics.retries_per_record.clone(),
        );
        registry.register(
            "shardmill_producer_records_per_kinesis_record",
            "User records in a Kinesis record, each time it is sent",
            metrics.records_per_kinesis_record.clone(),
        );
        metrics
    }

    fn register_counters(&self, registry: &mut Registry) {
        let counters = [
            ("records_received", "User records that were given to producers", &self.records_received),
            ("records_sent", "User records in requests, each time they are sent", &self.records_sent),
            ("records_acknowledged", "User records that the service has stored", &self.records_acknowledged),
            ("records_spooled", "User records that went to the spool on the disk", &self.records_spooled),
            ("queue_dropped", "User records that a queue before a producer had no room for", &self.queue_dropped),
            (
                "kinesis_records_sent",
                "Kinesis records in requests, each time they are sent",
                &self.kinesis_records_sent,
            ),
            (
                "kinesis_records_acknowledged",
                "Kinesis records that the service has stored",
                &self.kinesis_records_acknowledged,
            ),
            ("requests", "Calls of PutRecords", &self.requests),
            ("retries", "Kinesis records that had to be sent again", &self.retries),
            (
                "possible_repeats",
                "User records that were sent again after their answer was lost: readers may see them twice",
                &self.possible_repeats,
            ),
            (
                "misplaced_records",
                "User records that an aggregate took to another shard than their own, sent again",
                &self.misplaced,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("shardmill_producer_{name}"), help, counter.clone());
        }
        let sizes = [
            ("sent", "Partition keys and payloads in requests, each time they are sent", &self.bytes_sent),
            ("acknowledged", "Partition keys and payloads of acknowledged user records", &self.acknowledged_bytes),
            (
                "kinesis_acknowledged",
                "Partition keys and payloads of stored Kinesis records",
                &self.kinesis_acknowledged_bytes,
            ),
        ];
        for (name, help, counter) in sizes {
            registry.register_with_unit(format!("shardmill_producer_{name}"), help, Unit::Bytes, counter.clone());
        }
    }

    pub(crate) fn of_stream(&self, stream: &str) -> StreamMetrics {
        let labels = StreamLabels { stream: stream.to_owned() };
        let counter = |family: &Family<StreamLabels, Counter>| family.get_or_create_owned(&labels);
        let histogram = |family: &Histograms| family.get_or_create_owned(&labels);
        StreamMetrics {
            stream: stream.to_owned(),
            records_received: counter(&self.records_received),
            records_pending: self.records_pending.get_or_create_owned(&labels),
            pending_bytes: self.pending_bytes.get_or_create_owned(&labels),
            records_sent: counter(&self.records_sent),
            records_acknowledged: counter(&self.records_acknowledged),
            acknowledged_bytes: counter(&self.acknowledged_bytes),
            records_failed: self.records_failed.clone(),
            records_spooled: counter(&self.records_spooled),
            queue_dropped: counter(&self.queue_dropped),
            kinesis_records_sent: counter(&self.kinesis_records_sent),
            bytes_sent: counter(&self.bytes_sent),
            kinesis_records_acknowledged: counter(&self.kinesis_records_acknowledged),
            kinesis_acknowledged_bytes: counter(&self.kinesis_acknowledged_bytes),
            requests: counter(&self.requests),
            retries: counter(&self.retries),
            possible_repeats: counter(&self.possible_repeats),
            misplaced: counter(&self.misplaced),
            errors: self.errors.clone(),
            request_seconds: histogram(&self.request_seconds),
            buffering_seconds: histogram(&self.buffering_seconds),
            retries_per_record: histogram(&self.retries_per_record),
            records_per_kinesis_record: histogram(&self.records_per_kinesis_record),
        }
    }
}

// === impl StreamMetrics ===

impl StreamMetrics {
    pub(crate) fn received(&self, records: usize) {
        self.records_received.inc_by(records as u64);
    }

    /// So many more user records with so many bytes are pending.
    pub(crate) fn pends(&self, records: usize, bytes: usize) {
        self.records_pending.inc_by(records as i64);
        self.pending_bytes.inc_by(bytes as i64);
    }

    /// So many fewer.
    pub(crate) fn pends_no_more(&self, records: usize, bytes: usize) {
        self.records_pending.dec_by(records as i64);
        self.pending_bytes.dec_by(bytes as i64);
    }

    /// For each Kinesis record, how many user records are inside and how large it is.
    pub(crate) fn request(&self, kinesis_records: impl IntoIterator<Item = (usize, usize)>) {
        self.requests.inc();
        for (records, bytes) in kinesis_records {
            self.kinesis_records_sent.inc();
            self.records_sent.inc_by(records as u64);
            self.bytes_sent.inc_by(bytes as u64);
            self.records_per_kinesis_record.observe(records as f64);
        }
    }

    pub(crate) fn answer(&self, time: Duration) {
        self.request_seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn buffered(&self, time: Duration) {
        self.buffering_seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn retried(&self, times: u32) {
        self.retries_per_record.observe(f64::from(times));
    }

    pub(crate) fn error(&self, code: &'static str) {
        self.errors.get_or_create(&ErrorLabels { stream: self.stream.clone(), code }).inc();
    }

    pub(crate) fn failed(&self, reason: &'static str) {
        self.records_failed.get_or_create(&ReasonLabels { stream: self.stream.clone(), reason }).inc();
    }

    pub(crate) fn spooled(&self, records: usize) {
        self.records_spooled.inc_by(records as u64);
    }

    pub(crate) fn dropped(&self) {
        self.queue_dropped.inc();
    }

    pub(crate) fn settled(&self, counts: &Counts) {
        self.records_acknowledged.inc_by(counts.acknowledged);
        self.acknowledged_bytes.inc_by(counts.acknowledged_bytes);
        self.kinesis_records_acknowledged.inc_by(counts.kinesis_records);
        self.kinesis_acknowledged_bytes.inc_by(counts.kinesis_bytes);
        self.retries.inc_by(counts.retries);
        self.possible_repeats.inc_by(counts.possible_repeats);
        self.misplaced.inc_by(counts.misplaced);
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
        stream.pends(3, 300);
        stream.pends_no_more(1, 100);
        stream.request([(2, 230), (1, 100)]);
        stream.answer(Duration::from_millis(3));
        stream.buffered(Duration::from_millis(100));
        stream.retried(2);
        stream.error("timeout");
        stream.failed("expired");
        stream.spooled(2);
        stream.dropped();
        stream.settled(&Counts {
            acknowledged: 3,
            acknowledged_bytes: 300,
            kinesis_records: 2,
            kinesis_bytes: 330,
            retries: 1,
            possible_repeats: 2,
            misplaced: 1,
        });
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "records_received_total{stream=\"clicks\"} 3",
            "records_pending{stream=\"clicks\"} 2",
            "pending_bytes{stream=\"clicks\"} 200",
            "records_sent_total{stream=\"clicks\"} 3",
            "records_acknowledged_total{stream=\"clicks\"} 3",
            "acknowledged_bytes_total{stream=\"clicks\"} 300",
            "records_failed_total{stream=\"clicks\",reason=\"expired\"} 1",
            "records_spooled_total{stream=\"clicks\"} 2",
            "queue_dropped_total{stream=\"clicks\"} 1",
            "kinesis_records_sent_total{stream=\"clicks\"} 2",
            "sent_bytes_total{stream=\"clicks\"} 330",
            "kinesis_records_acknowledged_total{stream=\"clicks\"} 2",
            "kinesis_acknowledged_bytes_total{stream=\"clicks\"} 330",
            "requests_total{stream=\"clicks\"} 1",
            "retries_total{stream=\"clicks\"} 1",
            "possible_repeats_total{stream=\"clicks\"} 2",
            "misplaced_records_total{stream=\"clicks\"} 1",
            "errors_total{stream=\"clicks\",code=\"timeout\"} 1",
            "request_seconds_count{stream=\"clicks\"} 1",
            "buffering_seconds_count{stream=\"clicks\"} 1",
            "retries_per_record_sum{stream=\"clicks\"} 2.0",
            "records_per_kinesis_record_sum{stream=\"clicks\"} 3.0",
        ] {
            let line = format!("shardmill_producer_{line}");
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
