use std::time::Duration;

use crate::Ordering;

/// How a [`BatchSender`](crate::BatchSender) sends.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchOptions {
    /// What order records keep.
    pub ordering: Ordering,
    /// Whether records for one shard are put together in KPL aggregates. Readers must take them apart: the KCL and
    /// this project do.
    pub aggregate: bool,
    /// How large an aggregate may be, in bytes; at most 1 MiB less its key of one byte (more counts as that). A user
    /// record that is larger goes alone.
    pub aggregate_max_bytes: usize,
    /// How long one request may take. Then its outcome counts as unknown and it is sent again.
    pub request_timeout: Duration,
    /// About how long a shard is left alone after its first failure; twice as long after each further one.
    pub backoff_min: Duration,
    /// How long a shard is left alone at most.
    pub backoff_max: Duration,
}

// === impl BatchOptions ===

impl Default for BatchOptions {
    /// The KPL's defaults where it has them (aggregates of 51,200 bytes, 6 s for a request).
    fn default() -> Self {
        Self {
            ordering: Ordering::Key,
            aggregate: true,
            aggregate_max_bytes: 51_200,
            request_timeout: Duration::from_secs(6),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
        }
    }
}
