use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Reason;

/// When nothing was lost for so long, it is over.
const QUIET: Duration = Duration::from_secs(10);

/// Records that are given up and whose results nobody waits for: told in the log when it begins and when it is over.
#[derive(Debug)]
pub(super) struct Losses {
    stream: Arc<str>,
    quiet: Quiet,
}

/// Something that happens record by record, and is to be told when it begins and when it is over.
#[derive(Debug, Default)]
pub(super) struct Quiet(Option<Current>);

#[derive(Debug)]
struct Current {
    records: u64,
    last: Instant,
}

// === impl Losses ===

impl Losses {
    pub(super) fn new(stream: Arc<str>) -> Self {
        Self { stream, quiet: Quiet::default() }
    }

    /// A record was given up.
    pub(super) fn lost(&mut self, reason: &Reason, now: Instant) {
        if self.quiet.begins(now) {
            tracing::warn!(
                stream = &*self.stream,
                %reason,
                "records are given up that were put without waiting for their results"
            );
        }
    }

    /// Something was stored.
    pub(super) fn stored(&mut self, now: Instant) {
        if let Some(records) = self.quiet.ends(now) {
            tracing::info!(stream = &*self.stream, records, "no more records are given up; so many were");
        }
    }
}

// === impl Quiet ===

impl Quiet {
    /// It happens to a record. Whether it begins with this one.
    pub(super) fn begins(&mut self, now: Instant) -> bool {
        let begins = self.0.is_none();
        let current = self.0.get_or_insert(Current { records: 0, last: now });
        current.records += 1;
        current.last = now;
        begins
    }

    /// It does not happen. To how many records it has, if it is over now.
    pub(super) fn ends(&mut self, now: Instant) -> Option<u64> {
        let is_over = |current: &mut Current| now.saturating_duration_since(current.last) >= QUIET;
        self.0.take_if(is_over).map(|current| current.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_when_it_begins_and_when_it_has_been_over_for_a_while() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut quiet = Quiet::default();
        assert_eq!(quiet.ends(start), None);
        assert!(quiet.begins(at(0)));
        assert_eq!(quiet.ends(at(9)), None, "records come and go");
        assert!(!quiet.begins(at(9)));
        assert_eq!(quiet.ends(at(18)), None);
        assert_eq!(quiet.ends(at(19)), Some(2));
        assert_eq!(quiet.ends(at(40)), None);
        assert!(quiet.begins(at(50)));
    }
}
