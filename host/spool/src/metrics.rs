//! The names of the spool's metrics.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

use crate::state::StreamDepth;

/// What is in the spool of this process, and what has become of its records, by stream. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    records: Family<StreamLabels, Gauge>,
    bytes: Family<StreamLabels, Gauge>,
    oldest: Family<StreamLabels, Age>,
    set_aside: Family<StreamLabels, Gauge>,
    stored: Family<StreamLabels, Counter>,
    sent: Family<StreamLabels, Counter>,
    dropped: Family<StreamLabels, Counter>,
    failures: Family<KindLabels, Counter>,
    commits: Counter,
    disk: Gauge,
    disk_limit: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamLabels {
    stream: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// How long something has been there, when it is asked for: it grows also while nothing happens. 0 if nothing is there.
#[derive(Debug, Clone, Default)]
struct Age(Arc<Mutex<Option<SystemTime>>>);

// === impl Metrics ===

impl Metrics {
    /// Metrics that the registry shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "shardmill_spool_records",
            "User records in the spool that wait for their stream",
            metrics.records.clone(),
        );
        registry.register_with_unit(
            "shardmill_spool",
            "Partition keys and payloads of the records that wait",
            Unit::Bytes,
            metrics.bytes.clone(),
        );
        registry.register_with_unit(
            "shardmill_spool_oldest",
            "How long the first of the records that wait has been in the spool",
            Unit::Seconds,
            metrics.oldest.clone(),
        );
        registry.register(
            "shardmill_spool_set_aside_records",
            "User records in the spool that cannot be sent: their stream refuses them for good, or they are damaged",
            metrics.set_aside.clone(),
        );
        registry.register(
            "shardmill_spool_stored",
            "User records that were stored in the spool",
            metrics.stored.clone(),
        );
        registry.register(
            "shardmill_spool_sent",
            "User records that were sent from the spool and removed from it",
            metrics.sent.clone(),
        );
        registry.register(
            "shardmill_spool_dropped",
            "User records that were dropped from the spool unsent, because it was full or somebody wanted it",
            metrics.dropped.clone(),
        );
        registry.register(
            "shardmill_spool_failures",
            "Calls of the spool that failed, by kind: full, disk_full, damaged, io, unavailable",
            metrics.failures.clone(),
        );
        registry.register(
            "shardmill_spool_commits",
            "Syncs of the disk for records that were stored; stored records by commit says how many share one",
            metrics.commits.clone(),
        );
        registry.register_with_unit(
            "shardmill_spool_disk",
            "What the spool's files take",
            Unit::Bytes,
            metrics.disk.clone(),
        );
        registry.register_with_unit(
            "shardmill_spool_disk_limit",
            "What the spool's files may take",
            Unit::Bytes,
            metrics.disk_limit.clone(),
        );
        metrics
    }

    pub(crate) fn may_take(&self, bytes: u64) {
        self.disk_limit.set(bytes.cast_signed());
    }

    /// How it is now with a stream.
    pub(crate) fn show(&self, stream: &str, depth: &StreamDepth) {
        let labels = StreamLabels { stream: stream.to_owned() };
        self.records.get_or_create_owned(&labels).set(depth.records.cast_signed());
        self.bytes.get_or_create_owned(&labels).set(depth.bytes.cast_signed());
        self.set_aside.get_or_create_owned(&labels).set(depth.set_aside.cast_signed());
        self.oldest.get_or_create_owned(&labels).begins(depth.oldest);
    }

    /// What the files take now.
    pub(crate) fn takes(&self, disk_bytes: u64) {
        self.disk.set(disk_bytes.cast_signed());
    }

    pub(crate) fn stored(&self, stream: &str, records: u64) {
        self.stored.get_or_create_owned(&StreamLabels { stream: stream.to_owned() }).inc_by(records);
    }

    pub(crate) fn committed(&self) {
        self.commits.inc();
    }

    pub(crate) fn sent(&self, stream: &str, records: u64) {
        self.sent.get_or_create_owned(&StreamLabels { stream: stream.to_owned() }).inc_by(records);
    }

    pub(crate) fn dropped(&self, stream: &str, records: u64) {
        self.dropped.get_or_create_owned(&StreamLabels { stream: stream.to_owned() }).inc_by(records);
    }

    pub(crate) fn failed(&self, kind: &'static str) {
        self.failures.get_or_create_owned(&KindLabels { kind }).inc();
    }
}

// === impl Age ===

impl Age {
    fn begins(&self, at: Option<SystemTime>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn at(&self, now: SystemTime) -> f64 {
        let oldest = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        oldest.and_then(|oldest| now.duration_since(oldest).ok()).unwrap_or_default().as_secs_f64()
    }
}

impl EncodeMetric for Age {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        ConstGauge::new(self.at(SystemTime::now())).encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Age {
    const TYPE: MetricType = MetricType::Gauge;
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_names_are_what_operators_were_told() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let depth = StreamDepth { records: 3, bytes: 400, set_aside: 1, oldest: None };
        metrics.show("orders", &depth);
        metrics.takes(8192);
        metrics.may_take(1 << 20);
        metrics.stored("orders", 9);
        metrics.sent("orders", 4);
        metrics.dropped("orders", 2);
        metrics.failed("full");
        metrics.committed();
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "shardmill_spool_records{stream=\"orders\"} 3",
            "shardmill_spool_bytes{stream=\"orders\"} 400",
            "shardmill_spool_oldest_seconds{stream=\"orders\"} 0.0",
            "shardmill_spool_set_aside_records{stream=\"orders\"} 1",
            "shardmill_spool_stored_total{stream=\"orders\"} 9",
            "shardmill_spool_sent_total{stream=\"orders\"} 4",
            "shardmill_spool_dropped_total{stream=\"orders\"} 2",
            "shardmill_spool_failures_total{kind=\"full\"} 1",
            "shardmill_spool_commits_total 1",
            "shardmill_spool_disk_bytes 8192",
            "shardmill_spool_disk_limit_bytes 1048576",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn an_age_grows_while_nothing_happens_and_is_never_below_zero() {
        let age = Age::default();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(age.at(at(100)), 0.0);
        age.begins(Some(at(90)));
        assert_eq!((age.at(at(100)), age.at(at(130)), age.at(at(80))), (10.0, 40.0, 0.0));
    }
}
