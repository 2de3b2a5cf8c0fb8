//! What is sent next and when, and what an answer means for it, of a producer that lives long and of one batch alike. Pure:
//! time, answers and delays are handed in; what plans of one stream may have in common is the rates of its shards.
//!
//! `rules` are what a plan keeps to; `lane` holds what waits for a shard, `rate` how fast it is written to,
//! `kinesis_record` what is put together; `settle` takes answers in and `reshard` new shard maps.

mod item;
mod kinesis_record;
mod lane;
mod rate;
mod reshard;
mod rules;
mod settle;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{HashKeyRange, UserRecord};
use tokio::time::Instant;

use item::Company;
pub(crate) use item::{Item, Resolved};
pub(crate) use kinesis_record::KinesisRecord;
use kinesis_record::{Packing, check_packed};
use lane::Lane;
pub(crate) use rate::Rates;
pub(crate) use rules::Rules;
use settle::Undecided;

use crate::answer::Failure;
use crate::limits::validate;
use crate::metrics::Counts;
use crate::shard_map::ShardMap;
use crate::{InvalidRecord, Ordering, Reason};

/// By what a request is known.
pub(crate) type RequestId = u64;

/// What to do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this and [`Plan::settle`] it.
    Send(Request),
    /// Nothing before this time, unless something happens.
    Wait(Option<Instant>),
}

/// One call of PutRecords.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) kinesis_records: Vec<KinesisRecord>,
    /// How long the user records waited that are sent for the first time.
    pub(crate) buffered: Vec<Duration>,
    bytes: usize,
    /// Whether nothing more may come in.
    is_closed: bool,
}

/// Whether a new shard map is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MapWanted {
    /// The map is old; what it misleads is corrected.
    Sometime,
    /// Records wait for it.
    Now,
}

/// User records on their way to a stream, as they come and go.
///
/// There is one lane for each shard that the map knows, and one for hash keys whose shard is unknown: all of them, before
/// there is a map. A lane gives its records away from the front and takes back what failed to its place, so with
/// [`Ordering::Key`], where one Kinesis record of a lane is on its way at a time, records leave each lane in order. A
/// key is always in one lane: when the map changes, what waits in lanes that are gone is laid out anew in the order in
/// which it came, and lanes that take over the range of one that is gone wait until what it has sent is settled.
#[derive(Debug)]
pub(crate) struct Plan<T> {
    rules: Rules,
    /// How large the stream's records may be.
    record_max_bytes: usize,
    rates: Rates,
    /// Empty before the first listing.
    map: Arc<ShardMap>,
    map_wanted: Option<MapWanted>,
    /// One for each shard of the map by its index, then the one of the unknown.
    lanes: Vec<Lane<T>>,
    /// Their numbers, sorted, and where each is.
    indexes: Vec<(u64, usize)>,
    next_lane: u64,
    /// Lanes that are gone, with something on its way.
    leaving: Vec<Leaving>,
    in_flight: HashMap<RequestId, InFlight<T>>,
    next_request: RequestId,
    undecided: Vec<Undecided<T>>,
    /// Why there is no map yet, if that was tried.
    map_failure: Option<Arc<Failure>>,
    /// Who comes first in the next request, so that no lane starves when requests are full.
    first_lane: usize,
    /// Records below it wait for no others.
    flush_below: u64,
    resolved: Vec<Resolved<T>>,
    counts: Counts,
}

#[derive(Debug)]
struct Leaving {
    number: u64,
    /// `None` for any.
    range: Option<HashKeyRange>,
    in_flight: usize,
}

#[derive(Debug)]
struct InFlight<T> {
    made: Instant,
    sent: Vec<Sent<T>>,
}

/// The user records of a Kinesis record that is on its way.
#[derive(Debug)]
struct Sent<T> {
    /// The lane's number.
    lane: u64,
    items: Vec<Item<T>>,
    bytes: usize,
}

// === impl Plan ===

impl<T> Plan<T> {
    /// Sends nothing before it has a map. Has its shards' rates for itself.
    pub(crate) fn new(rules: Rules) -> Self {
        Self::with_rates(rules, rules.rates())
    }

    /// The same, with rates that other plans have too.
    pub(crate) fn with_rates(rules: Rules, rates: Rates) -> Self {
        Self {
            rules,
            record_max_bytes: rules.record_max_bytes,
            rates,
            map: Arc::default(),
            map_wanted: Some(MapWanted::Now),
            lanes: vec![Lane::new(0, None, None)],
            indexes: vec![(0, 0)],
            next_lane: 1,
            leaving: Vec::new(),
            in_flight: HashMap::new(),
            next_request: 0,
            undecided: Vec::new(),
            map_failure: None,
            first_lane: 0,
            flush_below: 0,
            resolved: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Whether a record is none that the stream will never take.
    pub(crate) fn takes(&self, record: &UserRecord) -> bool {
        self.check(record).is_ok()
    }

    /// Whether requests are on their way.
    pub(crate) fn is_waiting_for_answers(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Takes in a record, with an id above those of all before it.
    pub(crate) fn push(&mut self, item: Item<T>) {
        match self.check(&item.record) {
            Ok(()) => self.lay(item),
            Err(invalid) => {
                if self.record_max_bytes < self.rules.record_max_bytes {
                    // The stream may take more by now.
                    self.map_wanted = self.map_wanted.max(Some(MapWanted::Sometime));
                }
                self.resolved.push(Resolved { item, result: Err(Reason::Invalid(invalid)) });
            }
        }
    }

    /// Whether a record is one that the stream can take.
    fn check(&self, record: &UserRecord) -> Result<(), InvalidRecord> {
        validate(record, self.record_max_bytes)?;
        if self.rules.aggregate_max_bytes.is_some() { check_packed(record, self.record_max_bytes) } else { Ok(()) }
    }

    /// Nothing with an id below this waits for others any more.
    pub(crate) fn flush(&mut self, below: u64) {
        self.flush_below = self.flush_below.max(below);
    }

    /// The next request, if it is time for one.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        self.expire(now);
        match self.gather(now) {
            Some(request) => Next::Send(request),
            None => Next::Wait(self.wakes_at()),
        }
    }

    /// What is done with since this was last asked.
    pub(crate) fn take_resolved(&mut self) -> Vec<Resolved<T>> {
        std::mem::take(&mut self.resolved)
    }

    /// What happened since this was last asked.
    pub(crate) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Whether a newer map is wanted. Before the first record is there none is.
    pub(crate) fn map_wanted(&self) -> Option<MapWanted> {
        let is_idle = !self.has_map() && self.lanes.iter().all(|lane| lane.waiting.is_empty());
        self.map_wanted.filter(|_| !is_idle)
    }

    /// Since when something has been failing all the time, if there is such a thing.
    pub(crate) fn failing_since(&self) -> Option<Instant> {
        let failing = self.lanes.iter().filter(|lane| lane.is_failing());
        failing.filter_map(|lane| lane.failing_since).min()
    }

    pub(crate) fn has_map(&self) -> bool {
        self.map.len() > 0
    }

    /// Where the lane of this number is, if it is not gone.
    fn index_of(&self, lane: u64) -> Option<usize> {
        let place = self.indexes.binary_search_by_key(&lane, |(number, _)| *number).ok()?;
        Some(self.indexes[place].1)
    }

    /// Puts a record into its lane.
    fn lay(&mut self, item: Item<T>) {
        let lane = self.map.predict(item.hash_key).unwrap_or_else(|| {
            self.map_wanted = self.map_wanted.max(Some(MapWanted::Sometime));
            self.map.len()
        });
        self.lanes[lane].put(item);
    }

    /// From when on a lane may send something; `None` if nothing may be sent of it before something else happens.
    fn may_send_at(&self, lane: &Lane<T>) -> Option<Instant> {
        let is_held = self.rules.ordering == Ordering::Key && self.leaving.iter().any(|gone| gone.holds(lane));
        if is_held { None } else { lane.may_send_at(&self.rules) }
    }

    fn may_send(&self, lane: &Lane<T>, now: Instant) -> bool {
        self.may_send_at(lane).is_some_and(|at| at <= now)
    }

    fn gather(&mut self, now: Instant) -> Option<Request> {
        if !self.has_map() || self.in_flight.len() >= self.rules.max_requests {
            return None;
        }
        let is_full = self.fills_a_request(now);
        let is_due = |lane: &Lane<T>| {
            lane.due_at(&self.rules, self.flush_below).is_some_and(|due| due <= now) && self.may_send(lane, now)
        };
        if !is_full && !self.lanes.iter().any(is_due) {
            return None;
        }
        let mut request = Request::new(self.next_request);
        let mut sent = Vec::new();
        let count = self.lanes.len();
        for index in (self.first_lane..count).chain(0..self.first_lane) {
            if !self.fill(&mut request, &mut sent, index, is_full, now) {
                self.first_lane = index;
                break;
            }
        }
        if sent.is_empty() {
            return None;
        }
        self.next_request += 1;
        self.in_flight.insert(request.id, InFlight { made: now, sent });
        Some(request)
    }

    /// Whether what may be sent fills a request, where records go one by one and wait for each other only for this.
    fn fills_a_request(&self, now: Instant) -> bool {
        if self.rules.ordering == Ordering::Key || self.rules.aggregate_max_bytes.is_some() {
            return false;
        }
        let (mut records, mut bytes) = (0, 0);
        for lane in self.lanes.iter().filter(|lane| self.may_send(lane, now)) {
            records += lane.waiting.len();
            bytes += lane.bytes();
        }
        records >= self.rules.request_max_records || bytes >= self.rules.request_max_bytes
    }

    /// Moves records of a lane into the request; whether they had room.
    fn fill(
        &mut self,
        request: &mut Request,
        sent: &mut Vec<Sent<T>>,
        index: usize,
        is_full: bool,
        now: Instant,
    ) -> bool {
        loop {
            let lane = &self.lanes[index];
            let goes = is_full || lane.goes_along(&self.rules, self.flush_below, now);
            if !goes || !self.may_send(lane, now) {
                return true;
            }
            let Some(room) = request.room(&self.rules) else { return false };
            let company = lane.waiting.front().map_or(Company::Any, |item| item.company);
            if company == Company::OwnRequest && !request.kinesis_records.is_empty() {
                return false;
            }
            let packing = match self.rules.aggregate_max_bytes {
                None => Packing::AsItIs,
                // Of records whose shard is unknown nobody knows whether they belong together.
                Some(_) if lane.range.is_none() || company != Company::Any => Packing::OneByOne,
                Some(most) => Packing::Together(most),
            };
            let records = lane.waiting.iter().take_while(|item| item.company == company).map(|item| &item.record);
            let Some(kinesis_record) = KinesisRecord::of(records, packing, room) else { return false };
            sent.push(self.send(index, &kinesis_record, request, now));
            request.bytes += kinesis_record.bytes();
            request.kinesis_records.push(kinesis_record);
            request.is_closed = company == Company::OwnRequest;
        }
    }

    /// Takes out of a lane what goes.
    fn send(&mut self, index: usize, kinesis_record: &KinesisRecord, request: &mut Request, now: Instant) -> Sent<T> {
        let lane = &mut self.lanes[index];
        let bytes = kinesis_record.bytes();
        lane.in_flight += 1;
        if let Some(rate) = &lane.rate {
            rate.take(bytes, now);
        }
        let mut items = lane.take(kinesis_record.count);
        for item in &mut items {
            if item.attempts == 0 {
                request.buffered.push(now.saturating_duration_since(item.accepted));
            }
            item.attempts += 1;
            if std::mem::take(&mut item.was_lost) {
                item.may_be_repeated = true;
                self.counts.possible_repeats += 1;
            }
        }
        Sent { lane: lane.number, items, bytes }
    }

    /// When the next thing is to be done, if nothing happens before.
    fn wakes_at(&self) -> Option<Instant> {
        let expires = |item: &Item<T>| Some(item.accepted + self.rules.ttl?);
        let undecided = self.undecided.iter().filter_map(|undecided| undecided.sent.items.last()).filter_map(expires);
        let waiting = self.lanes.iter().filter_map(|lane| lane.waiting.front()).filter_map(expires);
        let sends = self.lanes.iter().filter_map(|lane| {
            let due = lane.due_at(&self.rules, self.flush_below)?;
            Some(self.may_send_at(lane)?.max(due))
        });
        let may_send = self.has_map() && self.in_flight.len() < self.rules.max_requests;
        undecided.chain(waiting).chain(sends.filter(|_| may_send)).min()
    }
}

// === impl Request ===

impl Request {
    fn new(id: RequestId) -> Self {
        Self { id, kinesis_records: Vec::new(), buffered: Vec::new(), bytes: 0, is_closed: false }
    }

    /// For how many bytes there is room, if there is room for another Kinesis record. One that is larger than requests
    /// are to be goes alone.
    fn room(&self, rules: &Rules) -> Option<usize> {
        if self.kinesis_records.is_empty() {
            return Some(usize::MAX);
        }
        if self.is_closed {
            return None;
        }
        let room = rules.request_max_bytes.saturating_sub(self.bytes);
        (self.kinesis_records.len() < rules.request_max_records && room > 0).then_some(room)
    }
}

// === impl Leaving ===

impl Leaving {
    /// Whether a lane has keys of this one.
    fn holds<T>(&self, lane: &Lane<T>) -> bool {
        match (self.range, lane.range) {
            (Some(gone), Some(range)) => gone.start <= range.end && range.start <= gone.end,
            _ => true,
        }
    }
}
