//! How a producer sends. In code and in TOML the same, with the same bounds.

mod batch;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shardmill_units as units;

pub use batch::BatchOptions;

use crate::limits::{HIGHEST_RECORD_BYTES, HIGHEST_REQUEST_BYTES, MAX_ENTRIES, MAX_RECORD_BYTES, MAX_REQUEST_BYTES};

/// The largest aggregate: readers of every stream take 1 MiB, of which its partition key has one byte.
const HIGHEST_AGGREGATE_BYTES: usize = MAX_RECORD_BYTES - 1;
/// Ten thousand times what a shard takes, which counts as no limit.
pub(crate) const HIGHEST_RATE_PERCENT: u32 = 1_000_000;

/// What order records keep within one [`send`](crate::BatchSender::send), or among the records that were put into one
/// [`Producer`](crate::Producer) one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ordering {
    /// Records of one partition key and explicit hash key are stored in the order in which they were given, whatever
    /// fails on the way: one Kinesis record for each shard in a request, and one of a shard on its way at a time.
    #[default]
    Key,
    /// None: a request holds as many records as fit, and many of a shard are on their way at a time.
    None,
}

/// How a [`Producer`](crate::Producer) sends. In TOML keys are in kebab-case, durations and sizes are written with their
/// units (`"100ms"`, `"50 KiB"`; a size may be a number of bytes), and everything has a default: the KPL's, where it has
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Options {
    /// What order records keep. Default: `key`.
    pub ordering: Ordering,
    /// Whether records for one shard are put together in KPL aggregates. Readers must take them apart: the KCL and this
    /// project do. A record alone is sent as it is, unless its data look like an aggregate themselves. Default: true.
    pub aggregate: bool,
    /// How large an aggregate may be, in bytes: 64 to 1,048,575. A record that is larger goes alone. Default: 51,200.
    #[serde(with = "units::size")]
    pub aggregate_max_bytes: usize,
    /// How many Kinesis records a request may hold: 1 to 500. Default: 500.
    pub request_max_records: usize,
    /// How large a request may be, partition keys included, in bytes: 64 KiB to 10 MiB. AWS takes 10 MiB since 2025, but not
    /// every service in its place. A record that is larger goes in a request of its own. Default: 5 MiB.
    #[serde(with = "units::size")]
    pub request_max_bytes: usize,
    /// How large a record may be, partition key included, in bytes: 1 MiB to 10 MiB. Above 1 MiB the stream is asked for its
    /// own `MaxRecordSize`, which needs the permission `kinesis:DescribeStreamSummary`. Default: 1 MiB.
    #[serde(with = "units::size")]
    pub record_max_bytes: usize,
    /// How long a record may wait for others, to be sent together: 0 to 1 minute, and less than `record-ttl`. Default:
    /// 100 ms.
    #[serde(with = "units::time")]
    pub buffer_time: Duration,
    /// How long a record is tried, from when it was accepted: 100 ms to 7 days. Then it has failed. Default: 30 s.
    #[serde(with = "units::time")]
    pub record_ttl: Duration,
    /// For a producer with a spool: how long nothing may have been stored, although it was tried and not only throttled, before
    /// records go to the disk: 100 ms to 10 minutes. At the latest they go when their time is over. Default: 5 s.
    #[serde(with = "units::time")]
    pub spool_after: Duration,
    /// How much of what a shard takes (1,000 Kinesis records and 1 MiB a second) this producer sends to it, in percent: 1 to
    /// 1,000,000, which is no limit. Throttles lower it for a while. More than 100 uses what others leave. Default: 150.
    pub rate_limit_percent: u32,
    /// Whether a record that is throttled has failed, in place of being sent again. Default: false.
    pub fail_if_throttled: bool,
    /// How long one request may take: 100 ms to 10 minutes. Then its outcome counts as unknown. Default: 6 s.
    #[serde(with = "units::time")]
    pub request_timeout: Duration,
    /// How many requests may be on their way at once: 1 to 256. Default: 24.
    pub max_requests: usize,
    /// How many records may be accepted and neither acknowledged nor given up: 1 to 100,000,000. Default: 100,000.
    pub pending_max_records: usize,
    /// How many bytes of partition keys and payloads they may have together: `record-max-bytes` to 1 TiB. Default: 64 MiB.
    #[serde(with = "units::size")]
    pub pending_max_bytes: usize,
    /// About how long a shard is left alone after its first failure, twice as long after each further one: 1 ms to 1 minute.
    /// Default: 50 ms.
    #[serde(with = "units::time")]
    pub backoff_min: Duration,
    /// How long a shard is left alone at most: `backoff-min` to 10 minutes. Default: 5 s.
    #[serde(with = "units::time")]
    pub backoff_max: Duration,
}

/// An option that is out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {value}; {least} to {most} is allowed")]
pub struct InvalidOption {
    /// The option's name in TOML.
    pub key: &'static str,
    /// What it is.
    pub value: String,
    /// The least that is allowed.
    pub least: String,
    /// The most that is allowed.
    pub most: String,
}

/// One option, its bounds and what to do about it.
struct Bounded<'a> {
    key: &'static str,
    value: Value<'a>,
}

enum Value<'a> {
    Count(&'a mut usize, usize, usize),
    Percent(&'a mut u32, u32, u32),
    Size(&'a mut usize, usize, usize),
    Time(&'a mut Duration, Duration, Duration),
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            ordering: Ordering::Key,
            aggregate: true,
            aggregate_max_bytes: 51_200,
            request_max_records: MAX_ENTRIES,
            request_max_bytes: MAX_REQUEST_BYTES,
            record_max_bytes: MAX_RECORD_BYTES,
            buffer_time: Duration::from_millis(100),
            record_ttl: Duration::from_secs(30),
            spool_after: Duration::from_secs(5),
            rate_limit_percent: 150,
            fail_if_throttled: false,
            request_timeout: Duration::from_secs(6),
            max_requests: 24,
            pending_max_records: 100_000,
            pending_max_bytes: 64 << 20,
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// Whether every option is within its bounds.
    ///
    /// # Errors
    /// The first option that is not, and what is allowed.
    pub fn check(&self) -> Result<(), InvalidOption> {
        let mut options = self.clone();
        options.bounded().iter().try_for_each(Bounded::check)
    }

    /// With each option that is out of its bounds at the nearest one.
    #[must_use]
    pub(crate) fn within_bounds(mut self) -> Self {
        // Some bounds are other options, which stand before them.
        while let Some(outside) = self.bounded().iter_mut().find(|option| option.check().is_err()) {
            outside.clamp();
        }
        self
    }

    fn bounded(&mut self) -> Vec<Bounded<'_>> {
        use Value::{Count, Percent, Size, Time};
        let (minute, millisecond) = (Duration::from_secs(60), Duration::from_millis(1));
        let (record_max_bytes, backoff_min) = (self.record_max_bytes, self.backoff_min);
        let longest_buffering = self.record_ttl.min(minute);
        [
            ("aggregate-max-bytes", Size(&mut self.aggregate_max_bytes, 64, HIGHEST_AGGREGATE_BYTES)),
            ("request-max-records", Count(&mut self.request_max_records, 1, MAX_ENTRIES)),
            ("request-max-bytes", Size(&mut self.request_max_bytes, 64 << 10, HIGHEST_REQUEST_BYTES)),
            ("record-max-bytes", Size(&mut self.record_max_bytes, MAX_RECORD_BYTES, HIGHEST_RECORD_BYTES)),
            ("record-ttl", Time(&mut self.record_ttl, 100 * millisecond, 7 * 24 * 60 * minute)),
            ("buffer-time", Time(&mut self.buffer_time, Duration::ZERO, longest_buffering)),
            ("rate-limit-percent", Percent(&mut self.rate_limit_percent, 1, HIGHEST_RATE_PERCENT)),
            ("spool-after", Time(&mut self.spool_after, 100 * millisecond, 10 * minute)),
            ("request-timeout", Time(&mut self.request_timeout, 100 * millisecond, 10 * minute)),
            ("max-requests", Count(&mut self.max_requests, 1, 256)),
            ("pending-max-records", Count(&mut self.pending_max_records, 1, 100_000_000)),
            ("pending-max-bytes", Size(&mut self.pending_max_bytes, record_max_bytes, 1 << 40)),
            ("backoff-min", Time(&mut self.backoff_min, millisecond, minute)),
            ("backoff-max", Time(&mut self.backoff_max, backoff_min, 10 * minute)),
        ]
        .map(|(key, value)| Bounded { key, value })
        .into()
    }
}

// === impl Bounded ===

impl Bounded<'_> {
    fn check(&self) -> Result<(), InvalidOption> {
        let key = self.key;
        match &self.value {
            Value::Count(value, least, most) => within(key, **value, *least, *most),
            Value::Percent(value, least, most) => within(key, **value, *least, *most),
            Value::Size(value, least, most) => {
                within(key, units::Size(**value as u64), units::Size(*least as u64), units::Size(*most as u64))
            }
            Value::Time(value, least, most) => {
                within(key, units::Time(**value), units::Time(*least), units::Time(*most))
            }
        }
    }

    fn clamp(&mut self) {
        match &mut self.value {
            Value::Count(value, least, most) | Value::Size(value, least, most) => {
                **value = (**value).clamp(*least, *most)
            }
            Value::Percent(value, least, most) => **value = (**value).clamp(*least, *most),
            Value::Time(value, least, most) => **value = (**value).clamp(*least, *most),
        }
    }
}

fn within<T: Ord + fmt::Display>(key: &'static str, value: T, least: T, most: T) -> Result<(), InvalidOption> {
    if (&least..=&most).contains(&&value) {
        return Ok(());
    }
    Err(InvalidOption { key, value: value.to_string(), least: least.to_string(), most: most.to_string() })
}

impl fmt::Display for Ordering {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Key => "key",
            Self::None => "none",
        })
    }
}

#[cfg(test)]
mod tests;
