//! The names of the engine's metrics.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::invariant;

/// Why a filter keeps records out: no pattern matches, or they are not the JSON that it asks for.
const NO_MATCH: &str = "no-match";
const INVALID_JSON: &str = "invalid-json";

/// Which records a filter has kept out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FilteredLabels {
    /// The processor's name.
    pub(crate) processor: String,
    /// The stream's name.
    pub(crate) stream: String,
    /// Why.
    pub(crate) reason: &'static str,
}

/// Which consumer a number is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ConsumerLabels {
    /// The processor's name.
    pub(crate) processor: String,
    /// The stream's name.
    pub(crate) stream: String,
}

/// Which processor a number is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProcessorLabels {
    /// The processor's name.
    pub(crate) processor: String,
}

/// Which shard of a consumer a number is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ShardLabels {
    /// The processor's name.
    pub(crate) processor: String,
    /// The stream's name.
    pub(crate) stream: String,
    /// The shard's id.
    pub(crate) shard: String,
}

/// Which shard makes no progress, and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StalledLabels {
    /// The processor's name.
    pub(crate) processor: String,
    /// The stream's name.
    pub(crate) stream: String,
    /// The shard's id.
    pub(crate) shard: String,
    /// A word for the reason.
    pub(crate) reason: String,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FailureLabels {
    /// The processor's name.
    pub(crate) processor: String,
    /// A word for the kind of failure.
    pub(crate) kind: &'static str,
}

/// What became of records that were given up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct GivenUpLabels {
    /// The processor's name.
    pub(crate) processor: String,
    /// The stream's name.
    pub(crate) stream: String,
    /// Why they get no further attempt.
    pub(crate) why: &'static str,
    /// What the failure policy has done.
    pub(crate) then: &'static str,
}

/// A number of each processor.
pub(crate) type OfProcessor = Family<ProcessorLabels, Gauge>;

/// The engine's numbers. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) records_done: Family<ConsumerLabels, Counter>,
    pub(crate) records_skipped: Family<ConsumerLabels, Counter>,
    pub(crate) records_filtered: Family<FilteredLabels, Counter>,
    pub(crate) records_failed: Family<ConsumerLabels, Counter>,
    pub(crate) records_given_up: Family<GivenUpLabels, Counter>,
    pub(crate) records_out_of_range: Family<ConsumerLabels, Counter>,
    pub(crate) aggregates: Family<ConsumerLabels, Counter>,
    pub(crate) broken_aggregates: Family<ConsumerLabels, Counter>,
    pub(crate) batches: Family<ConsumerLabels, Counter>,
    pub(crate) batches_split: Family<ConsumerLabels, Counter>,
    pub(crate) attempts_failed: Family<FailureLabels, Counter>,
    pub(crate) outputs: Family<ConsumerLabels, Counter>,
    pub(crate) outputs_dropped: Family<ConsumerLabels, Counter>,
    pub(crate) checkpoints: Family<ConsumerLabels, Counter>,
    pub(crate) shards: Family<ConsumerLabels, Gauge>,
    pub(crate) shards_stopped: Family<ConsumerLabels, Gauge>,
    pub(crate) shards_paused: Family<ConsumerLabels, Gauge>,
    pub(crate) shard_stalled: Family<StalledLabels, Gauge>,
    pub(crate) retention_used: Family<ShardLabels, Gauge<f64, AtomicU64>>,
    pub(crate) lag_alarms: Family<ShardLabels, Gauge>,
    pub(crate) lease_table_failing: Family<ProcessorLabels, Gauge>,
    pub(crate) batch_seconds: Family<ConsumerLabels, Histogram, fn() -> Histogram>,
    pub(crate) memory_budget: Gauge,
    pub(crate) memory_reserved: Gauge,
    pub(crate) processor_memory: OfProcessor,
    pub(crate) memory_waiting: OfProcessor,
}

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self {
            records_done: Family::default(),
            records_skipped: Family::default(),
            records_filtered: Family::default(),
            records_failed: Family::default(),
            records_given_up: Family::default(),
            records_out_of_range: Family::default(),
            aggregates: Family::default(),
            broken_aggregates: Family::default(),
            batches: Family::default(),
            batches_split: Family::default(),
            attempts_failed: Family::default(),
            outputs: Family::default(),
            outputs_dropped: Family::default(),
            checkpoints: Family::default(),
            shards: Family::default(),
            shards_stopped: Family::default(),
            shards_paused: Family::default(),
            shard_stalled: Family::default(),
            retention_used: Family::default(),
            lag_alarms: Family::default(),
            lease_table_failing: Family::default(),
            // 100 µs to 52 s.
            batch_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0001, 3.0, 13))),
            memory_budget: Gauge::default(),
            memory_reserved: Gauge::default(),
            processor_memory: Family::default(),
            memory_waiting: Family::default(),
        }
    }
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mut add = |name: &str, help: &str, family: &Family<ConsumerLabels, Counter>| {
            registry.register(name, help, family.clone());
        };
        add("shardmill_records_done", "User records that guests have processed", &metrics.records_done);
        add("shardmill_records_skipped", "User records that guests passed over on purpose", &metrics.records_skipped);
        add("shardmill_records_failed", "Attempts at single user records that failed", &metrics.records_failed);
        add(
            "shardmill_records_out_of_range",
            "User records whose hash key is outside their shard's range",
            &metrics.records_out_of_range,
        );
        add("shardmill_aggregates", "KPL aggregates that were taken apart", &metrics.aggregates);
        add(
            "shardmill_aggregates_broken",
            "Payloads that begin like an aggregate and are none, handed over unchanged",
            &metrics.broken_aggregates,
        );
        add("shardmill_batches", "Calls of guests with a batch or a part of one", &metrics.batches);
        add(
            "shardmill_batches_split",
            "Batches and parts of them that failed as a whole and were split",
            &metrics.batches_split,
        );
        add("shardmill_outputs", "Outputs that their destinations acknowledged", &metrics.outputs);
        add(
            "shardmill_outputs_dropped",
            "Outputs dropped because the record that caused them failed",
            &metrics.outputs_dropped,
        );
        add("shardmill_checkpoints", "Checkpoints written", &metrics.checkpoints);
        registry.register(
            "shardmill_records_filtered",
            "User records that a filter has kept from their guest, by reason",
            metrics.records_filtered.clone(),
        );
        registry.register(
            "shardmill_attempts_failed",
            "Attempts at a batch that failed, by kind",
            metrics.attempts_failed.clone(),
        );
        registry.register(
            "shardmill_records_given_up",
            "User records that get no further attempt, by why, and by what the failure policy has done then",
            metrics.records_given_up.clone(),
        );
        registry.register("shardmill_shards", "Shards whose lease this worker holds", metrics.shards.clone());
        registry.register(
            "shardmill_shards_stopped",
            "Shards that the failure policy has stopped",
            metrics.shards_stopped.clone(),
        );
        registry.register(
            "shardmill_shards_paused",
            "Shards that an operator lets rest",
            metrics.shards_paused.clone(),
        );
        registry.register_with_unit(
            "shardmill_shard_stalled",
            "For how long a shard with work has made no progress, by the reason; only shards that are stalled",
            Unit::Seconds,
            metrics.shard_stalled.clone(),
        );
        registry.register_with_unit(
            "shardmill_shard_retention_used",
            "How old a shard's oldest record is that is not done, as a part of its stream's retention: at 1 records are lost",
            Unit::Other("ratio".to_owned()),
            metrics.retention_used.clone(),
        );
        registry.register(
            "shardmill_shard_lag_alarm",
            "1 for a shard whose oldest record that is not done comes near its stream's retention; only such shards",
            metrics.lag_alarms.clone(),
        );
        registry.register_with_unit(
            "shardmill_lease_table_failing",
            "For how long a processor's lease table cannot be used; only where it cannot",
            Unit::Seconds,
            metrics.lease_table_failing.clone(),
        );
        registry.register_with_unit(
            "shardmill_batch",
            "Time from a batch's first attempt to the acknowledgement of its outputs",
            Unit::Seconds,
            metrics.batch_seconds.clone(),
        );
        registry.register_with_unit(
            "shardmill_memory_budget",
            "What records may take from before they are read until they are processed",
            Unit::Bytes,
            metrics.memory_budget.clone(),
        );
        registry.register_with_unit(
            "shardmill_memory_reserved",
            "What of the budget is taken",
            Unit::Bytes,
            metrics.memory_reserved.clone(),
        );
        registry.register_with_unit(
            "shardmill_processor_memory_reserved",
            "What of the budget a processor has taken",
            Unit::Bytes,
            metrics.processor_memory.clone(),
        );
        registry.register(
            "shardmill_shards_waiting_for_memory",
            "Shards that are not read until memory is free for them",
            metrics.memory_waiting.clone(),
        );
        registry.register(
            "shardmill_invariants_broken",
            "Promises of this program that were found broken, by name: a defect, to be reported",
            invariant::broken(),
        );
        metrics
    }

    pub(crate) fn give_up(&self, consumer: &ConsumerLabels, why: &'static str, then: &'static str) {
        let ConsumerLabels { processor, stream } = consumer.clone();
        self.records_given_up.get_or_create(&GivenUpLabels { processor, stream, why, then }).inc();
    }

    /// Counts records that a filter has kept out, and of these those that it could not read.
    pub(crate) fn filtered(&self, consumer: &ConsumerLabels, records: usize, invalid: usize) {
        for (reason, count) in [(NO_MATCH, records - invalid), (INVALID_JSON, invalid)] {
            if count > 0 {
                let ConsumerLabels { processor, stream } = consumer.clone();
                let labels = FilteredLabels { processor, stream, reason };
                self.records_filtered.get_or_create(&labels).inc_by(count as u64);
            }
        }
    }

    /// User records of a consumer that are done, skipped or filtered out.
    pub fn records_settled(&self, processor: &str, stream: &str) -> u64 {
        let labels = ConsumerLabels { processor: processor.to_owned(), stream: stream.to_owned() };
        let count = |family: &Family<ConsumerLabels, Counter>| family.get_or_create(&labels).get();
        let filtered = |reason| {
            let ConsumerLabels { processor, stream } = labels.clone();
            self.records_filtered.get_or_create(&FilteredLabels { processor, stream, reason }).get()
        };
        count(&self.records_done) + count(&self.records_skipped) + filtered(NO_MATCH) + filtered(INVALID_JSON)
    }
}
