//! The decisions of a polling reader: what to ask next, and when. Pure: time and randomness come in as values.

use std::sync::Arc;
use std::time::Duration;

use shardmill_record::SequenceNumber;
use tokio::time::Instant;

use super::options::Options;
use crate::{Demand, ReadFrom, WHOLE_PAGE};

/// Until a page tells better, a record is expected to take so much memory.
const EXPECTED_RECORD: u64 = 1024;
/// A page of so many bytes ended at the service's limit of 10 MiB: what came next was a record that did not fit.
const FULL_PAGE: u64 = 9 << 20;
/// A page is never expected to take less than this: a shard that brings little may bring a little more.
const SMALLEST_PAGE: u64 = 256 << 10;
/// Where the pauses after failures stop growing: a shard may be that late when the service recovers.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before this time.
    Wait(Instant),
    /// Take an iterator from here.
    TakeIterator(ReadFrom),
    /// Ask for so many records.
    Read { iterator: Arc<str>, limit: u32 },
    /// The shard's end was reached.
    Ended,
}

/// What there is to do, before it is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing before this time.
    Wait(Instant),
    /// An iterator has to be taken.
    NoIterator,
    /// Records can be asked for, or the shard's end was reached.
    Ready,
}

/// A call that failed and is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// A limit is used up.
    Throttled,
    /// The service does not answer.
    Unavailable,
    /// The iterator is of no use: take another.
    Iterator,
    /// The answer was wrong: take another iterator, too.
    Invalid,
}

/// What a page says, apart from its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) records: u32,
    /// Partition keys and payloads, as the service counts them.
    pub(super) bytes: u64,
    /// The memory that the records take.
    pub(super) memory: u64,
    pub(super) last: Option<SequenceNumber>,
    /// `None` at the closed shard's end.
    pub(super) next_iterator: Option<String>,
    pub(super) millis_behind: Option<u64>,
}

/// Failures since the last page. They begin when the first of the calls was made: one may take half a minute to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) since: Instant,
    pub(super) failures: u32,
}

#[derive(Debug)]
pub(super) struct State {
    options: Options,
    /// Where the next iterator is taken: the start, or after the last record of the last page.
    from: ReadFrom,
    iterator: Option<Arc<str>>,
    ended: bool,
    /// The limit of the read that is under way.
    limit: u32,
    /// Pages in a row that brought nothing at the shard's tip.
    empty_pages: u32,
    /// When the call that is under way was made.
    asked_at: Instant,
    /// No read before this.
    read_at: Instant,
    /// No iterator is taken before this.
    iterator_at: Instant,
    /// What a record takes of memory: rises with a page at once, falls slowly.
    record_memory: u64,
    /// What the next page may take of memory: rises with a page at once, falls slowly.
    page_memory: u64,
    /// Whether the last answer was larger than that and was not received.
    refused: bool,
    trouble: Option<Trouble>,
}

// === impl State ===

impl State {
    pub(super) fn new(options: Options, from: ReadFrom, now: Instant) -> Self {
        Self {
            options,
            from,
            iterator: None,
            ended: false,
            limit: 0,
            empty_pages: 0,
            asked_at: now,
            read_at: now,
            iterator_at: now,
            record_memory: EXPECTED_RECORD,
            page_memory: WHOLE_PAGE,
            refused: false,
            trouble: None,
        }
    }

    /// Where a new reader would go on.
    pub(super) fn from(&self) -> &ReadFrom {
        &self.from
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// What is to be set aside for the next page: twice what the last ones took, because a shard may bring more in the
    /// same time.
    pub(super) fn expects(&self) -> u64 {
        self.page_memory
    }

    /// Whether the last answer was not received because of its size. The next one is, however large it is.
    pub(super) fn was_refused(&self) -> bool {
        self.refused
    }

    /// An answer is larger than what was set aside. It is asked for again, with room for any.
    pub(super) fn refused(&mut self, now: Instant, bytes: u64) {
        self.refused = true;
        self.page_memory = WHOLE_PAGE;
        // The service has counted it.
        self.read_at = self.read_at.max(now + self.options.time_for(bytes));
    }

    /// When the next page can be asked for.
    pub(super) fn due(&self) -> Instant {
        self.read_at
    }

    /// How long the next read will be waited for.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        if self.ended { Duration::ZERO } else { self.read_at.saturating_duration_since(now) }
    }

    /// What there is to do, without beginning it.
    pub(super) fn look(&self, now: Instant) -> Look {
        let next = match &self.iterator {
            _ if self.ended => return Look::Ready,
            Some(_) => self.read_at,
            None => self.iterator_at,
        };
        match &self.iterator {
            _ if now < next => Look::Wait(next),
            Some(_) => Look::Ready,
            None => Look::NoIterator,
        }
    }

    /// What to do. A call counts as made from here on, even if its answer is never seen.
    pub(super) fn step(&mut self, now: Instant, demand: Demand) -> Step {
        if self.ended {
            return Step::Ended;
        }
        let Some(iterator) = &self.iterator else {
            if now < self.iterator_at {
                return Step::Wait(self.iterator_at);
            }
            // GetShardIterator takes 5 calls a second of a shard, too.
            self.iterator_at = now + self.options.interval();
            self.asked_at = now;
            return Step::TakeIterator(self.from.clone());
        };
        if now < self.read_at {
            return Step::Wait(self.read_at);
        }
        self.read_at = now + self.options.interval();
        self.asked_at = now;
        let iterator = Arc::clone(iterator);
        self.limit = self.limit_for(demand);
        Step::Read { iterator, limit: self.limit }
    }

    fn limit_for(&self, demand: Demand) -> u32 {
        let by_bytes = u32::try_from(demand.bytes / self.record_memory.max(1)).unwrap_or(u32::MAX);
        by_bytes.min(demand.records).min(self.options.max_records).max(1)
    }

    pub(super) fn took_iterator(&mut self, iterator: String) {
        self.iterator = Some(iterator.into());
    }

    /// Moves on behind the page. What trouble there was is over, and is returned.
    pub(super) fn answered(&mut self, now: Instant, answer: Answer) -> Option<Trouble> {
        if answer.records > 0 {
            let mean = answer.memory / u64::from(answer.records);
            self.record_memory = mean.max((self.record_memory * 3 + mean) / 4).max(1);
        }
        self.refused = false;
        let twice = answer.memory.saturating_mul(2);
        self.page_memory = twice.max(self.page_memory - self.page_memory / 4).clamp(SMALLEST_PAGE, WHOLE_PAGE);
        if let Some(last) = answer.last {
            self.from = ReadFrom::After(last);
        }
        // A full page means that there is more, also where the service always reports no lag.
        let is_full = answer.records >= self.limit || answer.bytes >= FULL_PAGE;
        let behind = is_full || answer.millis_behind.is_some_and(|behind| behind > 0);
        let is_idle = !behind && answer.records == 0;
        self.empty_pages = if is_idle { self.empty_pages.saturating_add(1) } else { 0 };
        let pause = self.options.time_for(answer.bytes);
        let pause = if behind { pause } else { pause.max(self.options.idle(self.empty_pages)) };
        self.read_at = self.read_at.max(now + pause);
        self.ended = answer.next_iterator.is_none();
        self.iterator = answer.next_iterator.map(Into::into);
        self.trouble.take()
    }

    /// Counts a failure and sets the time of the next attempt; `jitter` is in 0..1.
    pub(super) fn failed(&mut self, now: Instant, failure: Failure, jitter: f64) -> Trouble {
        let trouble = self.trouble.get_or_insert(Trouble { since: self.asked_at, failures: 0 });
        trouble.failures += 1;
        let trouble = *trouble;
        let first_pause = match failure {
            Failure::Throttled => Duration::from_millis(500),
            Failure::Unavailable | Failure::Invalid => Duration::from_millis(200),
            // An iterator expires when a page took minutes to process: no reason to wait, unless it happens again.
            Failure::Iterator if trouble.failures == 1 => Duration::ZERO,
            Failure::Iterator => Duration::from_millis(200),
        };
        let doubled = first_pause.saturating_mul(1 << (trouble.failures - 1).min(10));
        let pause = doubled.min(LONGEST_PAUSE).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        self.read_at = self.read_at.max(now + pause);
        self.iterator_at = self.iterator_at.max(now + pause);
        if matches!(failure, Failure::Iterator | Failure::Invalid) {
            self.iterator = None;
        }
        trouble
    }
}

#[cfg(test)]
mod tests;
