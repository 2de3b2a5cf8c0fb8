//! Every metric of this crate. Names are part of what operators build on: a test pins them.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The lease metrics of a process, by application. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Leases that this process runs.
    pub(crate) held: Family<Application, Gauge>,
    /// Leases in the table that are not complete.
    pub(crate) incomplete: Family<Application, Gauge>,
    /// Rows of the last scan that cannot be read as leases.
    pub(crate) invalid_rows: Family<Application, Gauge>,
    /// Workers that live, this one included.
    pub(crate) live_workers: Family<Application, Gauge>,
    /// 1 on the worker that leads.
    pub(crate) leader: Family<Application, Gauge>,
    /// Open shards that nobody gets on with, as the leader sees it.
    pub(crate) unattended: Family<Application, Gauge>,
    pub(crate) created: Family<Application, Counter>,
    /// By why: unowned, expired, leaving, balance, child, reclaimed, forced.
    pub(crate) taken: Family<WithReason, Counter>,
    /// By why: expired, taken, evicted, deleted.
    pub(crate) lost: Family<WithReason, Counter>,
    pub(crate) released: Family<Application, Counter>,
    pub(crate) completed: Family<Application, Counter>,
    /// Rows deleted, by why: complete, garbage.
    pub(crate) cleared: Family<WithReason, Counter>,
    /// Writes by change and result.
    pub(crate) writes: Family<Write, Counter>,
    /// How long after it was due a lease was renewed.
    pub(crate) renew_late_seconds: Family<Application, Histogram, Late>,
    pub(crate) scans: Family<Application, Counter>,
    pub(crate) scan_errors: Family<Application, Counter>,
    pub(crate) scan_seconds: Family<Application, Histogram, Seconds>,
    pub(crate) sync_errors: Family<Application, Counter>,
}

/// The label of most metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Application {
    pub(crate) application: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WithReason {
    pub(crate) application: String,
    pub(crate) reason: &'static str,
}

/// A write's labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Write {
    pub(crate) application: String,
    pub(crate) change: &'static str,
    /// `ok`, or the store error's name.
    pub(crate) result: &'static str,
}

/// Makes histograms of seconds: from a quick read to one that takes as long as a lease lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds;

/// Makes histograms of how late something is: from a busy machine's millisecond to more than a lease lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Late;

// === impl Seconds ===

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
    }
}

// === impl Late ===

impl MetricConstructor<Histogram> for Late {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.001, 2.0, 15))
    }
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self {
            held: Family::default(),
            incomplete: Family::default(),
            invalid_rows: Family::default(),
            live_workers: Family::default(),
            leader: Family::default(),
            unattended: Family::default(),
            created: Family::default(),
            taken: Family::default(),
            lost: Family::default(),
            released: Family::default(),
            completed: Family::default(),
            cleared: Family::default(),
            writes: Family::default(),
            renew_late_seconds: Family::new_with_constructor(Late),
            scans: Family::default(),
            scan_errors: Family::default(),
            scan_seconds: Family::new_with_constructor(Seconds),
            sync_errors: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers all metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("shardmill_lease_held", "Leases that this process runs", metrics.held.clone());
        registry.register(
            "shardmill_lease_incomplete",
            "Leases in the table whose shard is not done",
            metrics.incomplete.clone(),
        );
        registry.register(
            "shardmill_lease_invalid_rows",
            "Rows of the last scan that cannot be read as leases",
            metrics.invalid_rows.clone(),
        );
        registry.register(
            "shardmill_lease_live_workers",
            "Workers of the fleet that live, as the last scan of this worker showed",
            metrics.live_workers.clone(),
        );
        registry.register("shardmill_lease_leader", "1 on the worker that leads the fleet", metrics.leader.clone());
        registry.register(
            "shardmill_lease_unattended_shards",
            "Open shards that no worker gets on with, as the leader sees it",
            metrics.unattended.clone(),
        );
        registry.register("shardmill_lease_created", "Leases created", metrics.created.clone());
        registry.register("shardmill_lease_taken", "Leases taken, by reason", metrics.taken.clone());
        registry.register("shardmill_lease_lost", "Leases lost against this worker's will", metrics.lost.clone());
        registry.register("shardmill_lease_released", "Leases released", metrics.released.clone());
        registry.register("shardmill_lease_completed", "Leases whose shard was finished", metrics.completed.clone());
        registry.register(
            "shardmill_lease_cleared",
            "Leases deleted that had served their time",
            metrics.cleared.clone(),
        );
        registry.register("shardmill_lease_writes", "Writes to leases, by change and result", metrics.writes.clone());
        registry.register_with_unit(
            "shardmill_lease_renew_late",
            "How long after it was due a lease was renewed, from when its renewal was due to the answer, or to its expiry",
            Unit::Seconds,
            metrics.renew_late_seconds.clone(),
        );
        registry.register("shardmill_lease_scans", "Scans of the lease table", metrics.scans.clone());
        registry.register("shardmill_lease_scan_errors", "Scans that failed", metrics.scan_errors.clone());
        registry.register_with_unit(
            "shardmill_lease_scan_duration",
            "How long a scan of the lease table took",
            Unit::Seconds,
            metrics.scan_seconds.clone(),
        );
        registry.register("shardmill_lease_sync_errors", "Shard syncs that failed", metrics.sync_errors.clone());
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_dashboards_use() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let application = Application { application: "orders".to_owned() };
        metrics.held.get_or_create(&application).set(3);
        metrics.scan_seconds.get_or_create(&application).observe(0.2);
        metrics.renew_late_seconds.get_or_create(&application).observe(0.2);
        let reason = WithReason { application: "orders".to_owned(), reason: "expired" };
        metrics.taken.get_or_create(&reason).inc();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "shardmill_lease_held{application=\"orders\"} 3",
            "shardmill_lease_taken_total{application=\"orders\",reason=\"expired\"} 1",
            "shardmill_lease_scan_duration_seconds_count{application=\"orders\"} 1",
            "shardmill_lease_renew_late_seconds_bucket{le=\"0.128\",application=\"orders\"} 0",
            "shardmill_lease_renew_late_seconds_bucket{le=\"0.256\",application=\"orders\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
