use std::time::Duration;

use super::Rates;
use crate::options::HIGHEST_RATE_PERCENT;
use crate::{Options, Ordering};

/// What the plan keeps to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(super) ordering: Ordering,
    /// The largest aggregate, if there are to be any.
    pub(super) aggregate_max_bytes: Option<usize>,
    pub(super) request_max_records: usize,
    pub(super) request_max_bytes: usize,
    pub(super) record_max_bytes: usize,
    pub(super) max_requests: usize,
    pub(super) buffer_time: Duration,
    /// `None` for ever.
    pub(super) ttl: Option<Duration>,
    /// In parts of what a shard takes; `None` for no limit.
    pub(super) rate: Option<f64>,
    pub(super) fail_if_throttled: bool,
}

// === impl Rules ===

impl Rules {
    /// For a producer. Of options that are within their bounds.
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            ordering: options.ordering,
            aggregate_max_bytes: options.aggregate.then_some(options.aggregate_max_bytes),
            request_max_records: options.request_max_records,
            request_max_bytes: options.request_max_bytes,
            record_max_bytes: options.record_max_bytes,
            max_requests: options.max_requests,
            buffer_time: options.buffer_time,
            ttl: Some(options.record_ttl),
            rate: (options.rate_limit_percent < HIGHEST_RATE_PERCENT)
                .then(|| f64::from(options.rate_limit_percent) / 100.0),
            fail_if_throttled: options.fail_if_throttled,
        }
    }

    /// For batches: nothing waits for more records, and nothing is given up that may be stored later.
    pub(crate) fn of_batches(options: &Options) -> Self {
        Self { buffer_time: Duration::ZERO, ttl: None, fail_if_throttled: false, ..Self::new(options) }
    }

    /// The rates that plans with these rules have in common.
    pub(crate) fn rates(&self) -> Rates {
        Rates::new(self.rate)
    }
}
