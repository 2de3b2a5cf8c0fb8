use std::collections::VecDeque;

use shardmill_record::HashKeyRange;
use tokio::time::Instant;

use super::Rules;
use super::item::Item;
use super::rate::SharedRate;
use crate::Ordering;
use crate::limits::size;

/// About what an aggregate adds to a record's key and payload.
const OVERHEAD: usize = 8;

/// What waits for one shard, in order.
#[derive(Debug)]
pub(super) struct Lane<T> {
    /// No other lane has it, nor had it under an earlier map.
    pub(super) number: u64,
    /// Its shard's; `None` for records whose hash key is in no shard's range that is known.
    pub(super) range: Option<HashKeyRange>,
    pub(super) waiting: VecDeque<Item<T>>,
    /// About what they take in an aggregate.
    bytes: usize,
    /// Kinesis records that are on their way, or of which it is not decided whether they are in the right shard.
    pub(super) in_flight: usize,
    /// Failures since the last success.
    pub(super) failures: u32,
    /// When the first of them was sent, and the last.
    pub(super) failing_since: Option<Instant>,
    pub(super) failed_last: Option<Instant>,
    pub(super) not_before: Option<Instant>,
    pub(super) rate: Option<SharedRate>,
}

fn weight<T>(item: &Item<T>) -> usize {
    size(&item.record) + OVERHEAD
}

// === impl Lane ===

impl<T> Lane<T> {
    pub(super) fn new(number: u64, range: Option<HashKeyRange>, rate: Option<SharedRate>) -> Self {
        Self {
            number,
            range,
            waiting: VecDeque::new(),
            bytes: 0,
            in_flight: 0,
            failures: 0,
            failing_since: None,
            failed_last: None,
            not_before: None,
            rate,
        }
    }

    /// Takes a record in at its place: at the end if it is new, near the front if it comes back.
    pub(super) fn put(&mut self, item: Item<T>) {
        self.bytes += weight(&item);
        match self.waiting.back() {
            Some(last) if last.id > item.id => {
                let place = self.waiting.partition_point(|waiting| waiting.id < item.id);
                self.waiting.insert(place, item);
            }
            _ => self.waiting.push_back(item),
        }
    }

    /// Gives so many records away from the front.
    pub(super) fn take(&mut self, count: usize) -> Vec<Item<T>> {
        let taken: Vec<_> = self.waiting.drain(..count).collect();
        self.bytes -= taken.iter().map(weight).sum::<usize>();
        taken
    }

    /// About what they take, keys and payloads.
    pub(super) fn bytes(&self) -> usize {
        self.bytes - self.waiting.len() * OVERHEAD
    }

    /// From when on something of this lane may be sent, if nothing else happens before; `None` if nothing may.
    pub(super) fn may_send_at(&self, rules: &Rules) -> Option<Instant> {
        let first = self.waiting.front()?;
        if rules.ordering == Ordering::Key && self.in_flight > 0 {
            return None;
        }
        let rate = self.rate.as_ref().map(SharedRate::ready_at);
        [self.not_before, rate].into_iter().flatten().max().or(Some(first.accepted))
    }

    /// From when on the lane need not wait for more records; `None` if it is empty.
    pub(super) fn due_at(&self, rules: &Rules, flush_below: u64) -> Option<Instant> {
        let first = self.waiting.front()?;
        let is_full = rules.aggregate_max_bytes.is_some_and(|most| self.bytes >= most);
        let is_due = is_full || first.attempts > 0 || first.id < flush_below;
        // One that waits for all of its time would be given up unsent.
        let buffer_time = rules.ttl.map_or(rules.buffer_time, |ttl| rules.buffer_time.min(ttl / 2));
        Some(if is_due { first.accepted } else { first.accepted + buffer_time })
    }

    /// Whether the lane sends something where something is sent anyway: requests that are made for one lane each would
    /// be many.
    pub(super) fn goes_along(&self, rules: &Rules, flush_below: u64, now: Instant) -> bool {
        self.due_at(rules, flush_below).is_some_and(|due| due <= now + rules.buffer_time / 2)
    }

    /// Something failed that was sent then.
    pub(super) fn fails(&mut self, sent: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert(sent);
        self.failed_last = self.failed_last.max(Some(sent));
    }

    /// Everything was stored that was sent then; what was sent later may have failed.
    pub(super) fn works(&mut self, sent: Instant) {
        if self.failed_last.is_some_and(|failed| failed > sent) {
            return;
        }
        self.failures = 0;
        self.failing_since = None;
        self.failed_last = None;
        self.not_before = None;
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0 && (self.in_flight > 0 || !self.waiting.is_empty())
    }
}
