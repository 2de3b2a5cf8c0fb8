//! What one shard's failure policy asks of its whole consumer, and how long a stop may take.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shardmill_record::ShardId;
use tokio::sync::watch;
use tokio::time::Instant;

/// Why a consumer is to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StopReason {
    pub(crate) stream: Arc<str>,
    pub(crate) shard: ShardId,
    pub(crate) reason: String,
    /// Whether the process is to end with it.
    pub(crate) process: bool,
}

/// Where a shard's task asks for its consumer's stop. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopRequest(Arc<watch::Sender<Option<StopReason>>>);

/// When a stop gives up what is in flight. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deadline(Arc<OnceLock<Instant>>);

// === impl StopRequest ===

impl StopRequest {
    /// The first one counts, unless a later one wants the whole process to end.
    pub(crate) fn ask(&self, reason: StopReason) {
        self.0.send_if_modified(|asked| {
            let counts = asked.as_ref().is_none_or(|asked| reason.process && !asked.process);
            if counts {
                *asked = Some(reason);
            }
            counts
        });
    }

    /// Why the consumer is to stop, once it is.
    pub(crate) async fn asked(&self) -> StopReason {
        let mut asked = self.0.subscribe();
        match asked.wait_for(Option::is_some).await.ok().and_then(|asked| asked.clone()) {
            Some(reason) => reason,
            // The sender is in `self`, so that this is never reached.
            None => std::future::pending().await,
        }
    }

    /// Why the consumer is to stop, as far as that is known now.
    pub(crate) fn get(&self) -> Option<StopReason> {
        self.0.borrow().clone()
    }
}

// === impl Deadline ===

impl Deadline {
    /// Says that a stop has begun which ends then.
    pub(crate) fn set(&self, at: Instant) {
        // There is one stop.
        let _first = self.0.set(at);
    }

    /// How long there is still time, at most `longest`.
    pub(crate) fn left(&self, longest: Duration) -> Duration {
        self.0.get().map_or(longest, |at| longest.min(at.saturating_duration_since(Instant::now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(reason: &str, process: bool) -> StopReason {
        let shard = ShardId::parse("shardId-000000000000").unwrap();
        StopReason { stream: "s".into(), shard, reason: reason.to_owned(), process }
    }

    #[tokio::test]
    async fn the_first_reason_counts_unless_a_later_one_wants_more() {
        let request = StopRequest::default();
        assert_eq!(request.get(), None);
        let (first, second, last) = (reason("a", false), reason("b", false), reason("c", true));
        request.ask(first.clone());
        request.ask(second);
        assert_eq!(request.asked().await, first);
        request.ask(last.clone());
        request.ask(reason("d", true));
        assert_eq!(request.get(), Some(last));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_is_left_runs_once_a_stop_has_begun() {
        let deadline = Deadline::default();
        let seconds = Duration::from_secs;
        assert_eq!(deadline.left(seconds(10)), seconds(10));
        deadline.set(Instant::now() + seconds(25));
        assert_eq!(deadline.left(seconds(10)), seconds(10));
        tokio::time::advance(seconds(19)).await;
        assert_eq!(deadline.left(seconds(10)), seconds(6));
        tokio::time::advance(seconds(19)).await;
        assert_eq!(deadline.left(seconds(10)), Duration::ZERO);
    }
}
