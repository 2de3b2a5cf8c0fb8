//! A shard's read limits: 5 GetRecords a second and 2 MiB a second, shared by all readers of the shard.
//!
//! A call that returns more than 2 MiB is paid for by the seconds after it: 10 MiB close the shard for 5 s (API
//! reference, GetRecords).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const CALLS_PER_SECOND: u32 = 5;
const BYTES_PER_SECOND: u64 = 2 << 20;

/// What all shards have spent.
#[derive(Default)]
pub(super) struct ReadLimits {
    /// By stream and shard.
    shards: Mutex<HashMap<(String, String), Spent>>,
}

/// What one shard's readers have spent since a window began.
#[derive(Debug, Clone, Copy)]
struct Spent {
    since: Instant,
    calls: u32,
    bytes: u64,
}

// === impl ReadLimits ===

impl ReadLimits {
    /// Whether a call may be made now; counts it if so.
    pub(super) fn admit(&self, stream: &str, shard: &str) -> bool {
        let now = Instant::now();
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        shards.entry((stream.to_string(), shard.to_string())).or_insert_with(|| Spent::new(now)).admit(now)
    }

    /// What an admitted call returned.
    pub(super) fn spent(&self, stream: &str, shard: &str, bytes: usize) {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spent) = shards.get_mut(&(stream.to_string(), shard.to_string())) {
            spent.bytes += bytes as u64;
        }
    }
}

// === impl Spent ===

impl Spent {
    fn new(since: Instant) -> Spent {
        Spent { since, calls: 0, bytes: 0 }
    }

    fn admit(&mut self, now: Instant) -> bool {
        let paid_after = Duration::from_secs(self.bytes.div_ceil(BYTES_PER_SECOND).max(1));
        if now >= self.since + paid_after {
            *self = Spent::new(now);
        }
        let admitted = self.calls < CALLS_PER_SECOND && self.bytes < BYTES_PER_SECOND;
        self.calls += u32::from(admitted);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sixth_call_within_a_second_is_refused() {
        let start = Instant::now();
        let mut spent = Spent::new(start);
        assert!((0..5).all(|_| spent.admit(start + Duration::from_millis(999))));
        assert!(!spent.admit(start + Duration::from_millis(999)));
        assert!(spent.admit(start + Duration::from_secs(1)));
    }

    #[test]
    fn ten_mebibytes_close_the_shard_for_five_seconds() {
        let start = Instant::now();
        let mut spent = Spent::new(start);
        assert!(spent.admit(start));
        spent.bytes += 10 << 20;
        assert!(!spent.admit(start + Duration::from_millis(4_999)));
        assert!(spent.admit(start + Duration::from_secs(5)));
    }
}
