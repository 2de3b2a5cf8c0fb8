//! What to send next, and what an answer means for it. Pure: time and answers are handed in.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{HashKey, SequenceNumber, ShardId, UserRecord};
use tokio::time::Instant;

pub(crate) use entry::{Entry, Request};

use crate::limits::{MAX_ENTRIES, MAX_RECORD_BYTES, MAX_REQUEST_BYTES, size};
use crate::metrics::Counts;
use crate::shard_map::ShardMap;
use crate::{BatchOptions, Ordering};

/// Where the service has stored a user record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The shard.
    pub shard: ShardId,
    /// The sequence number of its Kinesis record.
    pub sequence_number: SequenceNumber,
    /// Its place in that Kinesis record, from 0.
    pub sub_sequence_number: u64,
    /// In how many requests it was, at least 1.
    pub attempts: u32,
}

/// What became of one Kinesis record of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is stored.
    Stored { shard: ShardId, sequence_number: SequenceNumber },
    /// It is not stored.
    Failed,
    /// It may be stored: the answer was lost, or says nothing of use.
    Unknown,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this and [`Plan::settle`] it.
    Send(Request),
    /// Every shard that has something waiting is to be left alone until then.
    Wait(Instant),
    /// Every record is acknowledged.
    Done,
}

/// What an answer has to tell about the shard map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Surprise {
    /// It is old.
    Shard,
    /// It is old, and without a new one nobody knows which records of an aggregate are in the right shard.
    Aggregate,
}

/// What an answer brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) counts: Counts,
    /// Of the lanes that failed, for how long the one has been failing that began first.
    pub(crate) failing_for: Option<Duration>,
}

/// What the plan keeps to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    ordering: Ordering,
    /// The largest aggregate, if there are to be any.
    aggregate_max_bytes: Option<usize>,
    max_entries: usize,
    max_bytes: usize,
}

/// User records on their way to a stream.
///
/// There is one lane for each shard that the map knows, and one for hash keys whose shard is unknown. A lane gives its
/// records away from the front and takes back in front what failed, so with [`Ordering::Key`], where a request holds one
/// Kinesis record of a lane and the next request waits for the answer, records leave each lane in order. A key is
/// always in one lane: when the map changes everything that waits is laid out anew, in the order of the input.
#[derive(Debug)]
pub(crate) struct Plan {
    rules: Rules,
    records: Vec<Planned>,
    map: Arc<ShardMap>,
    /// One for each shard of the map by its index, then the one of the unknown.
    lanes: Vec<Lane>,
    /// Who comes first in the next request, so that no lane starves when requests are full.
    first_lane: usize,
    unacknowledged: usize,
}

#[derive(Debug)]
struct Planned {
    record: UserRecord,
    hash_key: HashKey,
    attempts: u32,
    sent: Option<Sent>,
}

#[derive(Debug, Clone, Default)]
struct Lane {
    /// Records by their place in the input.
    waiting: VecDeque<usize>,
    /// Failures since the last success.
    failures: u32,
    /// When the first of them was sent.
    failing_since: Option<Instant>,
    not_before: Option<Instant>,
}

// === impl Rules ===

impl Rules {
    pub(crate) fn new(options: &BatchOptions) -> Self {
        let largest = MAX_RECORD_BYTES - shardmill_record::aggregate::AGGREGATE_PARTITION_KEY.len();
        Self {
            ordering: options.ordering,
            aggregate_max_bytes: options.aggregate.then_some(options.aggregate_max_bytes.min(largest)),
            max_entries: MAX_ENTRIES,
            max_bytes: MAX_REQUEST_BYTES,
        }
    }
}

// === impl Plan ===

impl Plan {
    /// For records that are valid, see [`validate`](crate::limits::validate).
    pub(crate) fn new(records: Vec<UserRecord>, rules: Rules, map: Arc<ShardMap>) -> Self {
        let planned = |record: UserRecord| Planned { hash_key: record.hash_key(), record, attempts: 0, sent: None };
        let records: Vec<_> = records.into_iter().map(planned).collect();
        let everything = Lane { waiting: (0..records.len()).collect(), ..Lane::default() };
        let unacknowledged = records.len();
        let empty = Arc::new(ShardMap::default());
        let mut plan = Self { rules, records, map: empty, lanes: vec![everything], first_lane: 0, unacknowledged };
        plan.route(map);
        plan
    }

    /// The shard map that is used.
    pub(crate) fn map(&self) -> &Arc<ShardMap> {
        &self.map
    }

    /// The next request. Ask again when it is settled.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        if self.unacknowledged == 0 {
            return Next::Done;
        }
        let mut request = Request::new(now);
        let count = self.lanes.len();
        let order = (self.first_lane..count).chain(0..self.first_lane);
        for lane in order {
            if self.lanes[lane].not_before.is_none_or(|until| until <= now) && !self.fill(&mut request, lane) {
                self.first_lane = lane;
                break;
            }
        }
        if !request.entries.is_empty() {
            return Next::Send(request);
        }
        let waiting = self.lanes.iter().filter(|lane| !lane.waiting.is_empty());
        Next::Wait(waiting.filter_map(|lane| lane.not_before).min().unwrap_or(now))
    }

    /// Moves records of a lane into the request; whether they had room.
    fn fill(&mut self, request: &mut Request, lane: usize) -> bool {
        while let Some(entry) = self.entry(lane) {
            let taken = entry.len();
            if !request.take(entry, self.rules.max_entries, self.rules.max_bytes) {
                return false;
            }
            for index in self.lanes[lane].waiting.drain(..taken) {
                self.records[index].attempts += 1;
            }
            if self.rules.ordering == Ordering::Key {
                break;
            }
        }
        true
    }

    /// The next Kinesis record of a lane.
    fn entry(&self, lane: usize) -> Option<Entry> {
        let waiting = &self.lanes[lane].waiting;
        let first = *waiting.front()?;
        let is_shard = lane < self.map.len();
        let aggregate = match self.rules.aggregate_max_bytes {
            // Of records whose shard is unknown nobody knows whether they belong together.
            Some(max_bytes) if is_shard && waiting.len() > 1 => {
                let records = waiting.iter().map(|index| (*index, &self.records[*index].record));
                Entry::aggregate(lane, records, max_bytes)
            }
            _ => None,
        };
        Some(aggregate.unwrap_or_else(|| Entry::alone(lane, first, &self.records[first].record)))
    }

    /// The worst that the answer has to tell about the map, if something was stored elsewhere than expected.
    pub(crate) fn surprise(&self, request: &Request, outcomes: &[Outcome]) -> Option<Surprise> {
        let of_entry = |(entry, outcome): (&Entry, &Outcome)| match outcome {
            Outcome::Stored { shard, .. } => match self.map.find(shard) {
                Some(found) if found == entry.lane => None,
                None if entry.len() > 1 => Some(Surprise::Aggregate),
                _ => Some(Surprise::Shard),
            },
            Outcome::Failed | Outcome::Unknown => None,
        };
        request.entries.iter().zip(outcomes).filter_map(of_entry).max()
    }

    /// Takes in what became of a request: one outcome for each of its entries.
    ///
    /// `map` is the newest shard map. A record that an aggregate took along to a shard that is not known to be its own
    /// is sent again, as the KPL does, because readers may leave it out there. `delay` says how long to leave a lane
    /// alone after so many failures.
    pub(crate) fn settle(
        &mut self,
        request: Request,
        outcomes: &[Outcome],
        map: &Arc<ShardMap>,
        now: Instant,
        mut delay: impl FnMut(u32) -> Duration,
    ) -> Settled {
        let mut settled = Settled::default();
        let mut failed = Vec::new();
        // From the last to the first, so that what goes back in front of its lane stays in order.
        for (entry, outcome) in request.entries.iter().zip(outcomes).rev() {
            match outcome {
                Outcome::Stored { shard, sequence_number } => {
                    self.lanes[entry.lane].failures = 0;
                    self.lanes[entry.lane].failing_since = None;
                    settled.counts.kinesis_records += 1;
                    settled.counts.kinesis_bytes += entry.bytes() as u64;
                    self.acknowledge(entry, shard, sequence_number, map, &mut settled);
                }
                Outcome::Failed | Outcome::Unknown => {
                    failed.push(entry.lane);
                    settled.counts.retries += 1;
                    if *outcome == Outcome::Unknown {
                        settled.counts.possible_repeats += entry.len() as u64;
                    }
                    self.put_back(entry, entry.records.iter().rev().copied());
                }
            }
        }
        failed.dedup();
        for lane in failed {
            let lane = &mut self.lanes[lane];
            lane.failures = lane.failures.saturating_add(1);
            lane.not_before = Some(now + delay(lane.failures));
            let since = *lane.failing_since.get_or_insert(request.made);
            settled.failing_for = settled.failing_for.max(Some(now.saturating_duration_since(since)));
        }
        if !Arc::ptr_eq(map, &self.map) {
            self.route(Arc::clone(map));
        }
        settled
    }

    /// Whether anything waits because it failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.lanes.iter().any(|lane| lane.failures > 0 && !lane.waiting.is_empty())
    }

    fn acknowledge(
        &mut self,
        entry: &Entry,
        shard: &ShardId,
        sequence_number: &SequenceNumber,
        map: &ShardMap,
        settled: &mut Settled,
    ) {
        // The service itself put the record there by its first hash key, so alone it is in the right place. Of a shard
        // that is not even in the newest map, because it was closed again meanwhile, nobody knows the range.
        let range = map.find(shard).map(|index| map.shard(index).range);
        let mut misplaced = Vec::new();
        for (sub_sequence_number, index) in entry.records.iter().enumerate() {
            let planned = &mut self.records[*index];
            if sub_sequence_number > 0 && range.is_none_or(|range| !range.contains(planned.hash_key)) {
                misplaced.push(*index);
                continue;
            }
            planned.sent = Some(Sent {
                shard: shard.clone(),
                sequence_number: sequence_number.clone(),
                sub_sequence_number: sub_sequence_number as u64,
                attempts: planned.attempts,
            });
            settled.counts.acknowledged += 1;
            settled.counts.acknowledged_bytes += size(&planned.record) as u64;
            self.unacknowledged -= 1;
        }
        settled.counts.misplaced += misplaced.len() as u64;
        self.put_back(entry, misplaced.into_iter().rev());
    }

    /// Takes records from the last to the first.
    fn put_back(&mut self, entry: &Entry, records: impl Iterator<Item = usize>) {
        for index in records {
            self.lanes[entry.lane].waiting.push_front(index);
        }
    }

    /// Lays out what is waiting by another map. A shard that is in both keeps its failures.
    fn route(&mut self, map: Arc<ShardMap>) {
        let mut waiting: Vec<usize> = self.lanes.iter().flat_map(|lane| lane.waiting.iter().copied()).collect();
        waiting.sort_unstable();
        let mut lanes = vec![Lane::default(); map.len() + 1];
        for (old, lane) in self.lanes.iter().take(self.map.len()).enumerate() {
            if let Some(new) = map.find(&self.map.shard(old).id) {
                lanes[new].failures = lane.failures;
                lanes[new].failing_since = lane.failing_since;
                lanes[new].not_before = lane.not_before;
            }
        }
        for index in waiting {
            let lane = map.predict(self.records[index].hash_key).unwrap_or(map.len());
            lanes[lane].waiting.push_back(index);
        }
        self.lanes = lanes;
        self.map = map;
        self.first_lane = 0;
    }

    /// For each record, in the order given, where it is stored if it is acknowledged.
    pub(crate) fn into_sent(self) -> Vec<Option<Sent>> {
        self.records.into_iter().map(|planned| planned.sent).collect()
    }
}
