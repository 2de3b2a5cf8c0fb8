//! The metrics of this room, all of them with the label `processor` where they are about one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::Failure;
use crate::guest_metrics::GuestMetrics;
use crate::machine::End;
use crate::threads::Kind;

/// What this room counts. Cheap to clone; clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// `shardmill_plugin_calls_total`: calls of guests, by `call` (`init`, `process-batch`, or a hook's name).
    calls: Family<CallLabels, Counter>,
    /// `shardmill_plugin_call_failures_total`: calls that gave no outcome, by `call` and `kind`.
    failures: Family<FailureLabels, Counter>,
    /// `shardmill_plugin_call_seconds`: how long calls take, by `call`.
    call_seconds: Family<CallLabels, Histogram, fn() -> Histogram>,
    /// `shardmill_plugin_wait_seconds`: how long calls wait for each of their turns on a thread of guests, by `class`:
    /// `short` for those that have just come or have waited for something else, `long` for those that compute.
    wait_seconds: Family<WaitLabels, Histogram, fn() -> Histogram>,
    /// `shardmill_plugin_instances`: instances that exist.
    instances: Family<ProcessorLabels, Gauge>,
    /// `shardmill_plugin_instances_created_total`: instances that were made.
    instances_created: Family<ProcessorLabels, Counter>,
    /// `shardmill_plugin_instances_retired_total`: instances that are gone, by `reason`.
    instances_retired: Family<RetiredLabels, Counter>,
    /// `shardmill_plugin_memory_high_water_bytes`: the most memory that one instance had.
    memory_high_water: Family<ProcessorLabels, Gauge>,
    /// `shardmill_plugin_log_lines_dropped_total`: lines that guests logged beyond their limit.
    log_lines_dropped: Family<ProcessorLabels, Counter>,
    /// `shardmill_plugin_guest_metrics_dropped_total`: guests' own measurements that were not kept.
    guest_metrics_dropped: Family<ProcessorLabels, Counter>,
    /// `shardmill_plugin_http_requests_total`: requests of guests over HTTP that are over, by `result`.
    http_requests: Family<HttpLabels, Counter>,
    /// `shardmill_plugin_http_request_seconds`: how long they take, until the guest has the whole answer.
    http_seconds: Family<ProcessorLabels, Histogram, fn() -> Histogram>,
    /// `shardmill_plugin_load_seconds`: how long loading a component takes, compiling included.
    load_seconds: Histogram,
    /// `shardmill_plugin_cache_hits_total`: components that were loaded from compiled code.
    cache_hits: Counter,
    /// `shardmill_plugin_cache_misses_total`: components that had to be compiled.
    cache_misses: Counter,
    /// `shardmill_guest_…`: what guests measure themselves.
    guest: GuestMetrics,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProcessorLabels {
    processor: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    processor: String,
    call: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    processor: String,
    call: &'static str,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    processor: String,
    class: &'static str,
}

/// How long a processor's calls wait for their turns.
#[derive(Debug, Clone)]
pub(crate) struct Waits {
    short: Histogram,
    long: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetiredLabels {
    processor: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    processor: String,
    result: &'static str,
}

/// The metrics of one processor.
#[derive(Debug, Clone)]
pub(crate) struct ProcessorMetrics {
    all: Metrics,
    labels: ProcessorLabels,
}

// === impl Metrics ===

impl Metrics {
    /// Makes the metrics known to a registry.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics::default();
        let register = registry;
        register.register("shardmill_plugin_calls", "Calls of guests", metrics.calls.clone());
        let help = "Calls of guests that gave no outcome";
        register.register("shardmill_plugin_call_failures", help, metrics.failures.clone());
        let help = "How long calls of guests take";
        register.register_with_unit("shardmill_plugin_call", help, Unit::Seconds, metrics.call_seconds.clone());
        let help = "How long calls of guests wait for each of their turns on a thread of guests";
        register.register_with_unit("shardmill_plugin_wait", help, Unit::Seconds, metrics.wait_seconds.clone());
        register.register("shardmill_plugin_instances", "Instances that exist", metrics.instances.clone());
        let help = "Instances that were made";
        register.register("shardmill_plugin_instances_created", help, metrics.instances_created.clone());
        let help = "Instances that are gone";
        register.register("shardmill_plugin_instances_retired", help, metrics.instances_retired.clone());
        let help = "The most memory that one instance had";
        let memory = metrics.memory_high_water.clone();
        register.register_with_unit("shardmill_plugin_memory_high_water", help, Unit::Bytes, memory);
        let help = "Lines that guests logged beyond their limit";
        register.register("shardmill_plugin_log_lines_dropped", help, metrics.log_lines_dropped.clone());
        let help = "Measurements of guests that were not kept";
        register.register("shardmill_plugin_guest_metrics_dropped", help, metrics.guest_metrics_dropped.clone());
        let help = "Requests of guests over HTTP";
        register.register("shardmill_plugin_http_requests", help, metrics.http_requests.clone());
        let help = "How long requests of guests over HTTP take";
        let seconds = metrics.http_seconds.clone();
        register.register_with_unit("shardmill_plugin_http_request", help, Unit::Seconds, seconds);
        let help = "How long loading a component takes, compiling included";
        register.register_with_unit("shardmill_plugin_load", help, Unit::Seconds, metrics.load_seconds.clone());
        let help = "Components that were loaded from compiled code";
        register.register("shardmill_plugin_cache_hits", help, metrics.cache_hits.clone());
        let help = "Components that had to be compiled";
        register.register("shardmill_plugin_cache_misses", help, metrics.cache_misses.clone());
        register.register_collector(Box::new(metrics.guest.clone()));
        metrics
    }

    pub(crate) fn of_processor(&self, processor: &str) -> ProcessorMetrics {
        ProcessorMetrics { all: self.clone(), labels: ProcessorLabels { processor: processor.to_owned() } }
    }

    pub(crate) fn loaded(&self, took: Duration, from_cache: bool) {
        self.load_seconds.observe(took.as_secs_f64());
        let counter = if from_cache { &self.cache_hits } else { &self.cache_misses };
        counter.inc();
    }

    /// Components that were loaded from compiled code.
    pub fn cache_hits(&self) -> u64 {
        self.cache_hits.get()
    }

    /// Instances of a processor that exist.
    pub fn instances(&self, processor: &str) -> i64 {
        self.instances.get_or_create(&ProcessorLabels { processor: processor.to_owned() }).get()
    }

    /// Instances of a processor that are gone for this reason: `failed`, `calls`, `memory`, `idle` or `closed`.
    pub fn instances_retired(&self, processor: &str, reason: &str) -> u64 {
        let all = [End::Failed, End::Calls, End::Memory, End::Idle, End::Closed];
        let Some(end) = all.into_iter().find(|end| end.name() == reason) else { return 0 };
        let labels = RetiredLabels { processor: processor.to_owned(), reason: end.name() };
        self.instances_retired.get_or_create(&labels).get()
    }

    /// Requests over HTTP of a processor's guests that are over, with this result.
    pub fn http_requests(&self, processor: &str, result: &'static str) -> u64 {
        self.http_requests.get_or_create(&HttpLabels { processor: processor.to_owned(), result }).get()
    }

    /// Lines that a processor's guests logged beyond their limit.
    pub fn log_lines_dropped(&self, processor: &str) -> u64 {
        self.log_lines_dropped.get_or_create(&ProcessorLabels { processor: processor.to_owned() }).get()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            failures: Family::default(),
            call_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_01, 4.0, 12))),
            wait_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_01, 4.0, 12))),
            instances: Family::default(),
            instances_created: Family::default(),
            instances_retired: Family::default(),
            memory_high_water: Family::default(),
            log_lines_dropped: Family::default(),
            guest_metrics_dropped: Family::default(),
            http_requests: Family::default(),
            http_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            load_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            cache_hits: Counter::default(),
            cache_misses: Counter::default(),
            guest: GuestMetrics::default(),
        }
    }
}

// === impl ProcessorMetrics ===

impl ProcessorMetrics {
    pub(crate) fn guest(&self) -> &GuestMetrics {
        &self.all.guest
    }

    pub(crate) fn called<T>(&self, call: &'static str, took: Duration, result: &Result<T, Failure>) {
        let processor = self.labels.processor.clone();
        let labels = CallLabels { processor, call };
        self.all.calls.get_or_create(&labels).inc();
        self.all.call_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        if let Err(failure) = result {
            let labels = FailureLabels { processor: labels.processor, call, kind: failure.kind() };
            self.all.failures.get_or_create(&labels).inc();
        }
    }

    pub(crate) fn waits(&self) -> Waits {
        let of = |class| {
            let labels = WaitLabels { processor: self.labels.processor.clone(), class };
            self.all.wait_seconds.get_or_create_owned(&labels)
        };
        Waits { short: of("short"), long: of("long") }
    }

    pub(crate) fn instance_created(&self) {
        self.all.instances_created.get_or_create(&self.labels).inc();
        self.all.instances.get_or_create(&self.labels).inc();
    }

    pub(crate) fn instance_dropped(&self, end: End) {
        self.all.instances.get_or_create(&self.labels).dec();
        let labels = RetiredLabels { processor: self.labels.processor.clone(), reason: end.name() };
        self.all.instances_retired.get_or_create(&labels).inc();
    }

    pub(crate) fn memory(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.all.memory_high_water.get_or_create(&self.labels).inner().fetch_max(bytes, Ordering::Relaxed);
    }

    pub(crate) fn log_line_dropped(&self) {
        self.all.log_lines_dropped.get_or_create(&self.labels).inc();
    }

    pub(crate) fn http_request(&self, result: &'static str, took: Duration) {
        let labels = HttpLabels { processor: self.labels.processor.clone(), result };
        self.all.http_requests.get_or_create(&labels).inc();
        self.all.http_seconds.get_or_create(&self.labels).observe(took.as_secs_f64());
    }

    pub(crate) fn guest_metric_dropped(&self) {
        self.all.guest_metrics_dropped.get_or_create(&self.labels).inc();
    }
}

// === impl Waits ===

impl Waits {
    pub(crate) fn observe(&self, kind: Kind, time: Duration) {
        let histogram = match kind {
            Kind::Come => &self.short,
            Kind::GivenWay => &self.long,
        };
        histogram.observe(time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn names_are_what_dashboards_rely_on() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let processor = metrics.of_processor("flights");
        processor.instance_created();
        processor.instance_created();
        processor.instance_dropped(End::Calls);
        processor.waits().observe(Kind::Come, Duration::from_millis(1));
        (0..2).for_each(|_| processor.waits().observe(Kind::GivenWay, Duration::from_millis(1)));
        processor.memory(7);
        processor.memory(5);
        processor.log_line_dropped();
        processor.guest_metric_dropped();
        processor.http_request("answered", Duration::from_millis(1));
        let failed = Err::<(), _>(Failure::Host("no room".into()));
        processor.called("process-batch", Duration::from_millis(1), &failed);
        metrics.loaded(Duration::from_millis(1), true);
        metrics.loaded(Duration::from_millis(1), false);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"shardmill_plugin_calls_total{processor="flights",call="process-batch"} 1"#,
            r#"shardmill_plugin_call_failures_total{processor="flights",call="process-batch",kind="host"} 1"#,
            r#"shardmill_plugin_call_seconds_count{processor="flights",call="process-batch"} 1"#,
            r#"shardmill_plugin_wait_seconds_count{processor="flights",class="short"} 1"#,
            r#"shardmill_plugin_wait_seconds_count{processor="flights",class="long"} 2"#,
            r#"shardmill_plugin_instances{processor="flights"} 1"#,
            r#"shardmill_plugin_instances_created_total{processor="flights"} 2"#,
            r#"shardmill_plugin_instances_retired_total{processor="flights",reason="calls"} 1"#,
            r#"shardmill_plugin_memory_high_water_bytes{processor="flights"} 7"#,
            r#"shardmill_plugin_log_lines_dropped_total{processor="flights"} 1"#,
            r#"shardmill_plugin_guest_metrics_dropped_total{processor="flights"} 1"#,
            r#"shardmill_plugin_http_requests_total{processor="flights",result="answered"} 1"#,
            r#"shardmill_plugin_http_request_seconds_count{processor="flights"} 1"#,
            "shardmill_plugin_load_seconds_count 2",
            "shardmill_plugin_cache_hits_total 1",
            "shardmill_plugin_cache_misses_total 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
    }
}
