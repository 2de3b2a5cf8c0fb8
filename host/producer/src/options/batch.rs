use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{HIGHEST_RATE_PERCENT, InvalidOption, Options, Ordering, units};

/// How a [`BatchSender`](crate::BatchSender) sends: those of [`Options`] that batches have, with the same names, forms and
/// bounds. A batch waits for no more records, its records have no time to live, and nothing is accepted beforehand.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BatchOptions {
    /// See [`Options::ordering`].
    pub ordering: Ordering,
    /// See [`Options::aggregate`].
    pub aggregate: bool,
    /// See [`Options::aggregate_max_bytes`].
    #[serde(with = "units::size")]
    pub aggregate_max_bytes: usize,
    /// See [`Options::request_max_records`].
    pub request_max_records: usize,
    /// See [`Options::request_max_bytes`].
    #[serde(with = "units::size")]
    pub request_max_bytes: usize,
    /// See [`Options::record_max_bytes`].
    #[serde(with = "units::size")]
    pub record_max_bytes: usize,
    /// See [`Options::rate_limit_percent`]; all batches of a sender together. Default: 1,000,000, no limit.
    pub rate_limit_percent: u32,
    /// See [`Options::request_timeout`].
    #[serde(with = "units::time")]
    pub request_timeout: Duration,
    /// How many requests of one batch may be on their way at once: 1 to 256. Default: 4.
    pub max_requests: usize,
    /// See [`Options::backoff_min`].
    #[serde(with = "units::time")]
    pub backoff_min: Duration,
    /// See [`Options::backoff_max`].
    #[serde(with = "units::time")]
    pub backoff_max: Duration,
}

// === impl BatchOptions ===

impl Default for BatchOptions {
    fn default() -> Self {
        Self { rate_limit_percent: HIGHEST_RATE_PERCENT, max_requests: 4, ..Self::from(Options::default()) }
    }
}

/// Batches that are sent as a producer with these options sends.
impl From<Options> for BatchOptions {
    fn from(options: Options) -> Self {
        Self {
            ordering: options.ordering,
            aggregate: options.aggregate,
            aggregate_max_bytes: options.aggregate_max_bytes,
            request_max_records: options.request_max_records,
            request_max_bytes: options.request_max_bytes,
            record_max_bytes: options.record_max_bytes,
            rate_limit_percent: options.rate_limit_percent,
            request_timeout: options.request_timeout,
            max_requests: options.max_requests,
            backoff_min: options.backoff_min,
            backoff_max: options.backoff_max,
        }
    }
}

impl BatchOptions {
    /// Whether every option is within its bounds.
    ///
    /// # Errors
    /// The first option that is not, and what is allowed.
    pub fn check(&self) -> Result<(), InvalidOption> {
        self.options().check()
    }

    /// What a producer has besides is at its default.
    pub(crate) fn options(&self) -> Options {
        Options {
            ordering: self.ordering,
            aggregate: self.aggregate,
            aggregate_max_bytes: self.aggregate_max_bytes,
            request_max_records: self.request_max_records,
            request_max_bytes: self.request_max_bytes,
            record_max_bytes: self.record_max_bytes,
            rate_limit_percent: self.rate_limit_percent,
            request_timeout: self.request_timeout,
            max_requests: self.max_requests,
            backoff_min: self.backoff_min,
            backoff_max: self.backoff_max,
            ..Options::default()
        }
    }
}
