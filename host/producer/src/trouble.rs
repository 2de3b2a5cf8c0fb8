//! Tells in the log when a stream does not take records, and when it does again: one line each, however many senders
//! meet it.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use shardmill_cause::code;

use crate::answer::Failure;

/// Throttles belong to ordinary operation; those that last so long are told.
const THROTTLED_FOR: Duration = Duration::from_secs(10);
/// Whatever else goes wrong is told if it has not passed by itself within this time.
const FAILING_FOR: Duration = Duration::from_secs(1);

/// The troubles of a stream.
#[derive(Debug)]
pub(crate) struct Troubles {
    stream: String,
    /// Senders whose trouble has been told and is not over.
    told: AtomicUsize,
}

/// One sender's trouble, if it has any.
#[derive(Debug)]
pub(crate) struct Trouble<'a> {
    troubles: &'a Troubles,
    is_told: bool,
}

/// Whether a failure that has lasted so long is worth a line.
fn is_worth_telling(failure: &Failure, lasted: Duration) -> bool {
    let passable = if failure.is_throttle() { THROTTLED_FOR } else { FAILING_FOR };
    lasted >= passable
}

// === impl Troubles ===

impl Troubles {
    pub(crate) fn new(stream: String) -> Self {
        Self { stream, told: AtomicUsize::new(0) }
    }

    /// Of a sender that has met none yet.
    pub(crate) fn of_sender(&self) -> Trouble<'_> {
        Trouble { troubles: self, is_told: false }
    }
}

// === impl Trouble ===

impl Trouble<'_> {
    /// Something has failed again, and has been failing for so long.
    pub(crate) fn lasts(&mut self, lasted: Duration, failure: &Failure) {
        if self.is_told || !is_worth_telling(failure, lasted) {
            return;
        }
        self.is_told = true;
        if self.troubles.told.fetch_add(1, SeqCst) == 0 {
            let lasted_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                stream = self.troubles.stream,
                service_code = failure.code,
                code = %code::producer::NOT_TAKEN,
                reason = failure.reason,
                lasted_ms,
                "records cannot be stored; trying on. {}",
                failure.hint()
            );
        }
    }

    /// Nothing is failing any more.
    pub(crate) fn ends(&mut self) {
        if self.leave() {
            tracing::info!(stream = self.troubles.stream, "records are stored again");
        }
    }

    /// Whether this was the last sender in trouble.
    fn leave(&mut self) -> bool {
        std::mem::take(&mut self.is_told) && self.troubles.told.fetch_sub(1, SeqCst) == 1
    }
}

impl Drop for Trouble<'_> {
    /// A sender that gives up knows nothing of the trouble's end.
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Kind;

    fn failure(label: &'static str) -> Failure {
        Failure { kind: Kind::Refused, label, code: label.to_owned(), reason: String::new() }
    }

    #[test]
    fn what_passes_soon_is_not_told_and_throttles_may_last_longer() {
        let cases = [("connection", 900, false), ("connection", 1_000, true), ("Throttling", 9_999, false)];
        for (label, lasted, told) in cases.into_iter().chain([("ProvisionedThroughputExceededException", 10_000, true)])
        {
            assert_eq!(is_worth_telling(&failure(label), Duration::from_millis(lasted)), told, "{label} {lasted}");
        }
    }

    #[test]
    fn troubles_begin_with_the_first_sender_and_end_with_the_last() {
        let troubles = Troubles::new("outputs".to_owned());
        let told = || troubles.told.load(SeqCst);
        let (mut one, mut other, mut third) = (troubles.of_sender(), troubles.of_sender(), troubles.of_sender());
        one.ends();
        for _again in 0..2 {
            for sender in [&mut one, &mut other, &mut third] {
                sender.lasts(Duration::from_secs(60), &failure("connection"));
            }
        }
        assert_eq!(told(), 3);
        drop(third);
        assert!(!one.leave() && !one.leave());
        assert_eq!(told(), 1);
        assert!(other.leave());
        assert_eq!(told(), 0);
    }
}
