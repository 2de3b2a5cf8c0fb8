//! The configuration as a user writes it. Every setting that has a default is optional here.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Visitor};
use shardmill_engine::{CheckpointBy, Delivery, Then, Tolerance};
use shardmill_filter::OnInvalidJson;
use shardmill_lease::Takeover;
use shardmill_producer::Ordering;
use shardmill_record::OutOfRange;
use shardmill_stream::StartPosition;
use shardmill_stream::polling::Decoder;
use shardmill_stream::retention::Reset;
use shardmill_stream::start::ShardStart;

use super::grants::Written as Grants;
use super::units::{Count, Size, Time};
use super::{Balance, LogFormat};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) application: String,
    pub(super) worker_id: Option<String>,
    #[serde(default)]
    pub(super) worker_runs_once: bool,
    pub(super) memory: Option<Size>,
    pub(super) guest_threads: Option<Count>,
    pub(super) shutdown_timeout: Option<Time>,
    pub(super) cache_dir: Option<CacheDir>,
    pub(super) max_hops: Option<Count>,
    #[serde(default)]
    pub(super) aws: Aws,
    #[serde(default)]
    pub(super) admin: Admin,
    #[serde(default)]
    pub(super) log: Log,
    #[serde(default)]
    pub(super) watchdog: Watchdog,
    #[serde(default)]
    pub(super) leases: Leases,
    #[serde(default)]
    pub(super) reload: Reload,
    #[serde(default)]
    pub(super) defaults: Defaults,
    #[serde(default)]
    pub(super) streams: BTreeMap<String, Stream>,
    #[serde(default)]
    pub(super) processors: BTreeMap<String, Processor>,
}

/// A folder, or `false` for none.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a folder in quotes, or false to keep no compiled code")]
pub(super) enum CacheDir {
    Folder(PathBuf),
    Off(bool),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Aws {
    pub(super) region: Option<String>,
    pub(super) profile: Option<String>,
    pub(super) kinesis_endpoint: Option<String>,
    pub(super) dynamodb_endpoint: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Admin {
    pub(super) enabled: Option<bool>,
    pub(super) listen: Option<String>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) token_env: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Watchdog {
    pub(super) stall_after: Option<Time>,
    pub(super) lag_alarm: Option<Count>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Log {
    pub(super) format: Option<LogFormat>,
    pub(super) filter: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Leases {
    pub(super) renew: Option<Time>,
    pub(super) expiry: Option<Time>,
    pub(super) scan: Option<Time>,
    pub(super) sync: Option<Time>,
    pub(super) write_timeout: Option<Time>,
    pub(super) max_per_worker: Option<Count>,
    pub(super) balance: Balance,
    pub(super) settle: Option<Time>,
    pub(super) moves: Option<Count>,
    pub(super) hand_off: Option<Time>,
    pub(super) leave: Option<Time>,
    pub(super) keep_completed: Option<Time>,
    pub(super) keep_garbage: Option<Time>,
    pub(super) takeover: Takeover,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Reload {
    pub(super) watch: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ProcessorReload {
    pub(super) trial: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Defaults {
    pub(super) stream: StreamSettings,
    pub(super) processor: ProcessorSettings,
    pub(super) output: OutputSettings,
}

// `serde(flatten)` cannot be combined with `deny_unknown_fields`, so the named sections repeat the fields of the
// settings that `defaults` may hold; the macro keeps the two in step.
macro_rules! section {
    ($settings:ident, $section:ident { $($(#[$own_attribute:meta])* $own:ident: $own_type:ty),* $(,)? } { $($field:ident: $type:ty),* $(,)? }) => {
        #[derive(Debug, Default, Clone, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub(super) struct $settings {
            $(pub(super) $field: Option<$type>,)*
        }

        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub(super) struct $section {
            $($(#[$own_attribute])* pub(super) $own: $own_type,)*
            $(pub(super) $field: Option<$type>,)*
        }

        impl $section {
            /// The section's own settings over the defaults.
            pub(super) fn settings(&self, defaults: &$settings) -> $settings {
                $settings { $($field: self.$field.clone().or_else(|| defaults.$field.clone()),)* }
            }
        }
    };
}

section!(StreamSettings, Stream {
    name: Option<String>,
    arn: Option<String>,
    #[serde(default)]
    start_shards: BTreeMap<String, ShardStart>,
} {
    start: StartPosition,
    reset: Reset,
    idle: Time,
    idle_max: Time,
    reads_per_second: Count,
    bytes_per_second: Size,
    decoder: Decoder,
});

section!(ProcessorSettings, Processor {
    stream: Option<String>,
    streams: Option<Vec<String>>,
    plugin: PathBuf,
    lease_table: Option<String>,
    #[serde(default)]
    config: toml::Table,
    #[serde(default)]
    outputs: BTreeMap<String, Output>,
    filter: Option<Filter>,
    #[serde(default, deserialize_with = "batchers")]
    batchers: Vec<Batcher>,
    #[serde(default)]
    reload: ProcessorReload,
} {
    parallelism: Count,
    partition_by: String,
    batch: Batch,
    prefetch: Prefetch,
    retry: Retry,
    failure: Failure,
    limits: Limits,
    grants: Grants,
    delivery: Delivery,
    checkpoint: CheckpointBy,
    checkpoint_interval: Time,
    checkpoint_count: Count,
    out_of_range: OutOfRange,
    dead_letters: DeadLetters,
});

section!(OutputSettings, Output {
    stream: Option<String>,
    to: Option<String>,
} {
    ordering: Ordering,
    aggregate: bool,
    aggregate_max_bytes: Size,
    request_max_records: Count,
    request_max_bytes: Size,
    rate_limit_percent: Count,
    request_timeout: Time,
    max_requests: Count,
    backoff_min: Time,
    backoff_max: Time,
});

/// One of the three places, and what goes with it. A processor's own table takes the place of the whole one in `defaults`:
/// a place that is named there and another one here would be two.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct DeadLetters {
    pub(super) folder: Option<PathBuf>,
    pub(super) stream: Option<String>,
    pub(super) output: Option<String>,
    pub(super) file_bytes: Option<Size>,
    pub(super) aggregate: Option<bool>,
}

/// Patterns stay as they were written until it is known whose they are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Filter {
    pub(super) patterns: Vec<toml::Value>,
    pub(super) on_invalid_json: Option<OnInvalidJson>,
}

/// A list and not tables by their names: the first that matches takes a record, and tables of TOML have no order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Batcher {
    pub(super) name: String,
    pub(super) when: Option<Vec<toml::Value>>,
    pub(super) records: Option<Count>,
    pub(super) bytes: Option<Size>,
    pub(super) wait: Option<Time>,
    pub(super) window: Option<Time>,
    pub(super) empty: Option<bool>,
}

/// The list of batchers, with a word for who has written tables by their names.
fn batchers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Batcher>, D::Error> {
    struct ListVisitor;

    impl<'de> Visitor<'de> for ListVisitor {
        type Value = Vec<Batcher>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(
                "a list, because the first batcher that matches takes a record: [[processors.NAME.batchers]] with a \
                 `name` for each",
            )
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<Batcher>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    deserializer.deserialize_any(ListVisitor)
}

// === impl Processor ===

impl Processor {
    /// The streams that it reads, as they are written.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &str> {
        self.stream.iter().chain(self.streams.iter().flatten()).map(String::as_str)
    }

    /// The keys that it has, and that are about reading a stream and its leases.
    pub(super) fn reading_keys(&self) -> Vec<&'static str> {
        let keys = [
            ("lease-table", self.lease_table.is_some()),
            ("delivery", self.delivery.is_some()),
            ("checkpoint", self.checkpoint.is_some()),
            ("checkpoint-interval", self.checkpoint_interval.is_some()),
            ("checkpoint-count", self.checkpoint_count.is_some()),
            ("out-of-range", self.out_of_range.is_some()),
        ];
        given(keys)
    }
}

// === impl Output ===

impl Output {
    /// The keys that it has, and that are about sending to a stream.
    pub(super) fn sending_keys(&self) -> Vec<&'static str> {
        let Self {
            stream: _,
            to: _,
            ordering,
            aggregate,
            aggregate_max_bytes,
            request_max_records,
            request_max_bytes,
            rate_limit_percent,
            request_timeout,
            max_requests,
            backoff_min,
            backoff_max,
        } = self;
        let keys = [
            ("ordering", ordering.is_some()),
            ("aggregate", aggregate.is_some()),
            ("aggregate-max-bytes", aggregate_max_bytes.is_some()),
            ("request-max-records", request_max_records.is_some()),
            ("request-max-bytes", request_max_bytes.is_some()),
            ("rate-limit-percent", rate_limit_percent.is_some()),
            ("request-timeout", request_timeout.is_some()),
            ("max-requests", max_requests.is_some()),
            ("backoff-min", backoff_min.is_some()),
            ("backoff-max", backoff_max.is_some()),
        ];
        given(keys)
    }
}

fn given<const N: usize>(keys: [(&'static str, bool); N]) -> Vec<&'static str> {
    keys.into_iter().filter(|(_, is_given)| *is_given).map(|(key, _)| key).collect()
}

// Tables inside a section are replaced key by key too: `over` puts one over another.
macro_rules! table {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        #[derive(Debug, Default, Clone, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub(super) struct $name {
            $(pub(super) $field: Option<$type>,)*
        }

        impl $name {
            pub(super) fn over(own: Option<&Self>, defaults: Option<&Self>) -> Self {
                let empty = Self::default();
                let (own, defaults) = (own.unwrap_or(&empty), defaults.unwrap_or(&empty));
                Self { $($field: own.$field.clone().or_else(|| defaults.$field.clone()),)* }
            }
        }
    };
}

table!(Batch { records: Count, bytes: Size, wait: Time, window: Time, empty: bool });
table!(Prefetch { pages: Count, records: Count, bytes: Size });
table!(Retry { attempts: Count, backoff: Time, max_backoff: Time });
table!(Failure { bisect: bool, tolerance: Tolerance, max_age: Time, then: Then });
table!(Limits {
    memory: Size,
    batch_timeout: Time,
    start_timeout: Time,
    outcome: Size,
    instances: Count,
    log_lines_per_second: Count,
    cpu_time: Time,
    outputs: Count,
    log_line: Size,
    metric_series: Count,
    instance_calls: Count,
    retire_above: Count,
    keep_idle: Time,
    plugin_size: Size,
    compile_timeout: Time,
    compile_memory: Size,
});
