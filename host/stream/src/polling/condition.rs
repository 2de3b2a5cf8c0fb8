//! What a reader is about, for whoever asks why nothing comes, and how far its shard is behind.
//!
//! A reader says what it begins and what it has read; whoever watches it reads that at any time. The shard's lag is kept
//! here too and outlives the reader: a shard that is not read falls behind all the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::state;
use crate::error::{Error, Kind};
use crate::metrics::{Metrics, ShardLabels};

/// A read that is late by less is still to come: it takes its time, as do memory and the service's limits.
const LATE: Duration = Duration::from_secs(5);

/// What a reader is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has been begun.
    #[default]
    Starting,
    /// An iterator is taken, or waited for.
    Iterator,
    /// The service's limits let no read yet, or the pause at the shard's tip lasts.
    Pause,
    /// It is the turn of another reader of the same shard in this process.
    Turn,
    /// Memory is waited for.
    Memory,
    /// Records are asked for.
    Records,
    /// A page is there, and is not taken yet.
    Full,
    /// The stream is gone or another one, or is asked whether it is.
    Stream,
    /// The lease table's store is asked, or is to note something.
    Store,
}

/// Failures since the last page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// When the first of the calls that failed was made.
    pub since: Instant,
    /// How many there were.
    pub failures: u32,
    /// What kind the last one was.
    pub kind: Kind,
    /// What it said.
    pub reason: String,
    /// Whether it was an iterator that could not be taken.
    pub at_iterator: bool,
}

/// What is known of a reader at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it is about.
    pub phase: Phase,
    /// Since when.
    pub since: Instant,
    /// What fails.
    pub trouble: Option<Trouble>,
    /// Whether a page has come since the shard was taken.
    pub has_read: bool,
    /// How far the shard is behind its tip in milliseconds: what the last page said, and all the time since while reads
    /// are overdue. `None` where nothing is known.
    pub millis_behind: Option<u64>,
}

/// Where a reader says what it is about. Cheap to clone; all clones are one. The shard's lag is shown in the metrics until
/// the last one is dropped.
#[derive(Debug, Clone)]
pub struct Condition {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    metrics: Metrics,
    labels: ShardLabels,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    trouble: Option<Trouble>,
    last: Option<Last>,
    /// Whether the metrics show it.
    is_shown: bool,
}

/// The last page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Last {
    millis_behind: Option<u64>,
    read_at: Instant,
    /// When the next one was to be asked for.
    due: Instant,
}

// === impl Last ===

impl Last {
    /// How far the shard is behind now. What comes in while nobody reads is not seen, so that all of the time may hold
    /// records.
    fn lag(&self, now: Instant) -> Option<u64> {
        if now < self.due + LATE {
            return self.millis_behind;
        }
        let since = u64::try_from(now.saturating_duration_since(self.read_at).as_millis()).unwrap_or(u64::MAX);
        Some(self.millis_behind.unwrap_or(0).saturating_add(since))
    }
}

// === impl Condition ===

impl Condition {
    pub(crate) fn new(metrics: Metrics, labels: ShardLabels, now: Instant) -> Self {
        let state = State { phase: Phase::default(), since: now, trouble: None, last: None, is_shown: false };
        Self { inner: Arc::new(Inner { metrics, labels, state: Mutex::new(state) }) }
    }

    /// What is known now.
    pub fn seen(&self, now: Instant) -> Seen {
        let state = self.lock();
        Seen {
            phase: state.phase,
            since: state.since,
            trouble: state.trouble.clone(),
            has_read: state.last.is_some(),
            millis_behind: state.last.and_then(|last| last.lag(now)),
        }
    }

    /// Shows in the metrics how far the shard is behind now. Pages show it by themselves; this is for when none come.
    pub fn show(&self, now: Instant) {
        let mut state = self.lock();
        if let Some(lag) = state.last.and_then(|last| last.lag(now)) {
            state.is_shown = true;
            self.inner.metrics.set_lag(&self.inner.labels, lag);
        }
    }

    /// Says what is begun.
    pub fn enter(&self, phase: Phase, now: Instant) {
        let mut state = self.lock();
        if state.phase != phase {
            (state.phase, state.since) = (phase, now);
        }
    }

    pub(crate) fn read(&self, millis_behind: Option<u64>, now: Instant, due: Instant) {
        {
            let mut state = self.lock();
            (state.phase, state.since, state.trouble) = (Phase::Pause, now, None);
            state.last = Some(Last { millis_behind, read_at: now, due });
        }
        self.show(now);
    }

    pub(super) fn failed(&self, trouble: state::Trouble, error: &Error, at_iterator: bool) {
        let state::Trouble { since, failures } = trouble;
        let (kind, reason) = (error.kind(), error.to_string());
        self.lock().trouble = Some(Trouble { since, failures, kind, reason, at_iterator });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values: a panic elsewhere cannot leave them half-changed.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.state.get_mut().unwrap_or_else(PoisonError::into_inner).is_shown {
            self.metrics.remove_lag(&self.labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use shardmill_record::ShardId;

    use super::*;

    fn condition() -> Condition {
        Metrics::default().condition("flights", &ShardId::parse("shardId-000000000001").unwrap())
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_lag_is_the_last_page_s_and_grows_with_time_once_a_read_is_overdue() {
        let (condition, now) = (condition(), Instant::now());
        let lag = |after| condition.seen(now + ms(after)).millis_behind;
        assert_eq!((lag(0), condition.seen(now).has_read), (None, false), "nothing was read");
        condition.read(Some(2_000), now, now + ms(1_000));
        assert_eq!([lag(0), lag(1_000), lag(5_999)], [Some(2_000); 3]);
        assert_eq!([lag(6_000), lag(3_600_000)], [Some(8_000), Some(3_602_000)]);
        // A pause of minutes at the tip is no lag.
        condition.read(Some(0), now, now + ms(300_000));
        assert_eq!([lag(300_000), lag(305_000)], [Some(0), Some(305_000)]);
        condition.read(None, now, now);
        assert_eq!([lag(4_999), lag(5_000)], [None, Some(5_000)], "where the service tells none");
    }

    #[test]
    fn a_phase_counts_from_when_it_was_entered_and_a_page_ends_all_trouble() {
        let (condition, now) = (condition(), Instant::now());
        condition.enter(Phase::Iterator, now);
        condition.enter(Phase::Iterator, now + ms(500));
        assert_eq!((condition.seen(now).phase, condition.seen(now).since), (Phase::Iterator, now));
        let error = Error::StreamGone { stream: "flights".into(), shard: ShardId::parse("s").unwrap() };
        condition.failed(state::Trouble { since: now, failures: 3 }, &error, true);
        let trouble = condition.seen(now).trouble.unwrap();
        assert_eq!((trouble.since, trouble.failures, trouble.kind), (now, 3, Kind::StreamGone));
        condition.read(Some(0), now + ms(700), now + ms(900));
        let seen = condition.seen(now + ms(800));
        assert_eq!((seen.phase, seen.since, seen.trouble), (Phase::Pause, now + ms(700), None));
    }
}
