use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use shardmill_record::ShardId;
use tokio::time::Instant;

use crate::error::Kind;
use crate::polling::Condition;
use crate::retention::Left;

/// What readers did. Counters are kept by stream, because shards come and go; only the lag is kept by shard. Each by
/// processor too: two of them on one stream are two readers of each shard.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Whose readers these are.
    processor: String,
    reads: Family<StreamLabels, Counter>,
    records: Family<StreamLabels, Counter>,
    bytes: Family<StreamLabels, Counter>,
    throttles: Family<StreamLabels, Counter>,
    expired_iterators: Family<StreamLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    millis_behind_latest: Family<ShardLabels, Gauge>,
    gaps: Family<GapLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GapLabels {
    processor: String,
    stream: String,
    /// What the shard held.
    left: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamLabels {
    processor: String,
    stream: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    processor: String,
    stream: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ShardLabels {
    processor: String,
    stream: String,
    shard: String,
}

/// One reader's part of the metrics.
#[derive(Debug)]
pub(crate) struct ShardMetrics {
    metrics: Metrics,
    labels: StreamLabels,
    reads: Counter,
    records: Counter,
    bytes: Counter,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics that the registry shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("shardmill_stream_reads", "Answers of GetRecords that were used", metrics.reads.clone());
        registry.register("shardmill_stream_records", "Kinesis records that were read", metrics.records.clone());
        registry.register_with_unit(
            "shardmill_stream_read",
            "Partition keys and payloads that were read",
            Unit::Bytes,
            metrics.bytes.clone(),
        );
        registry.register(
            "shardmill_stream_throttles",
            "Reads that the service refused because a limit was used up",
            metrics.throttles.clone(),
        );
        registry.register(
            "shardmill_stream_expired_iterators",
            "Shard iterators that expired before they were used",
            metrics.expired_iterators.clone(),
        );
        registry.register(
            "shardmill_stream_errors",
            "Calls of readers that failed, by the kind of the error",
            metrics.errors.clone(),
        );
        registry.register(
            "shardmill_stream_millis_behind_latest",
            "How far the last page was behind the shard's tip, and the time since where reads are overdue, in milliseconds",
            metrics.millis_behind_latest.clone(),
        );
        registry.register(
            "shardmill_stream_gaps",
            "Shards that were resumed at a checkpoint whose record is out of the stream's retention, by what was left",
            metrics.gaps.clone(),
        );
        metrics
    }

    /// Counts a shard whose checkpoint is out of retention.
    pub fn gap(&self, stream: &str, left: Left) {
        let (processor, stream) = (self.processor.clone(), stream.to_owned());
        self.gaps.get_or_create(&GapLabels { processor, stream, left: left.as_str() }).inc();
    }

    /// The same metrics, for the readers of this processor.
    #[must_use]
    pub fn of_processor(&self, processor: &str) -> Self {
        Self { processor: processor.to_owned(), ..self.clone() }
    }

    /// What is shown of a shard that is held: its lag is in the metrics until this and its clones are dropped, also while
    /// it has no reader. See [`PollingReader::observed`](crate::PollingReader::observed).
    pub fn condition(&self, stream: &str, shard: &ShardId) -> Condition {
        let labels = ShardLabels {
            processor: self.processor.clone(),
            stream: stream.to_owned(),
            shard: shard.as_str().to_owned(),
        };
        Condition::new(self.clone(), labels, Instant::now())
    }

    pub(crate) fn set_lag(&self, labels: &ShardLabels, millis_behind: u64) {
        let lag = i64::try_from(millis_behind).unwrap_or(i64::MAX);
        self.millis_behind_latest.get_or_create(labels).set(lag);
    }

    pub(crate) fn remove_lag(&self, labels: &ShardLabels) {
        self.millis_behind_latest.remove(labels);
    }

    pub(crate) fn of_stream(&self, stream: &str) -> ShardMetrics {
        let labels = StreamLabels { processor: self.processor.clone(), stream: stream.to_owned() };
        ShardMetrics {
            metrics: self.clone(),
            reads: self.reads.get_or_create_owned(&labels),
            records: self.records.get_or_create_owned(&labels),
            bytes: self.bytes.get_or_create_owned(&labels),
            labels,
        }
    }
}

// === impl ShardMetrics ===

impl ShardMetrics {
    pub(crate) fn read(&self, records: u64, bytes: u64) {
        self.reads.inc();
        self.records.inc_by(records);
        self.bytes.inc_by(bytes);
    }

    pub(crate) fn failed(&self, kind: Kind) {
        let counted_apart = match kind {
            Kind::Throttled => Some(&self.metrics.throttles),
            Kind::ExpiredIterator => Some(&self.metrics.expired_iterators),
            _ => None,
        };
        if let Some(family) = counted_apart {
            family.get_or_create(&self.labels).inc();
        }
        let StreamLabels { processor, stream } = self.labels.clone();
        self.metrics.errors.get_or_create(&ErrorLabels { processor, stream, kind: kind.as_str() }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_shards_lag_goes_with_the_shard_and_counters_stay() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry).of_processor("delays");
        let shard = ShardId::parse("shardId-000000000001").unwrap();
        let of_shard = metrics.of_stream("flights");
        let condition = metrics.condition("flights", &shard);
        let others = metrics.of_processor("carriers").condition("flights", &shard);
        let now = Instant::now();
        others.read(Some(7), now, now);
        of_shard.read(3, 100);
        condition.read(Some(2_500), now, now);
        of_shard.failed(Kind::Throttled);
        of_shard.failed(Kind::Unavailable);

        let lag = r#"shardmill_stream_millis_behind_latest{processor="delays",stream="flights",shard="shardId-000000000001"} 2500"#;
        let counters = [
            r#"shardmill_stream_reads_total{processor="delays",stream="flights"} 1"#,
            r#"shardmill_stream_records_total{processor="delays",stream="flights"} 3"#,
            r#"shardmill_stream_read_bytes_total{processor="delays",stream="flights"} 100"#,
            r#"shardmill_stream_throttles_total{processor="delays",stream="flights"} 1"#,
            r#"shardmill_stream_errors_total{processor="delays",stream="flights",kind="throttled"} 1"#,
            r#"shardmill_stream_errors_total{processor="delays",stream="flights",kind="unavailable"} 1"#,
        ];
        let text = shown(&registry);
        assert!(text.contains(lag), "{text}");
        drop(of_shard);
        // One that never showed anything takes nothing away.
        drop(metrics.condition("flights", &shard));
        assert!(shown(&registry).contains(lag), "the shard is held, and has no reader");
        drop(condition);
        let text = shown(&registry);
        assert!(!text.contains(lag), "{text}");
        let others_lag = r#"{processor="carriers",stream="flights",shard="shardId-000000000001"} 7"#;
        assert!(text.contains(others_lag), "another processor's reader of the same shard goes on: {text}");
        for counter in counters {
            assert!(text.contains(counter), "{counter} in {text}");
        }
    }
}
