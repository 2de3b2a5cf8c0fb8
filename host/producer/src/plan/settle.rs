use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{HashKeyRange, ShardId};
use tokio::time::Instant;

use super::item::{Company, Item, Place, Resolved};
use super::{InFlight, MapWanted, Plan, RequestId, Sent};
use crate::Reason;
use crate::answer::{Failure, Stored};
use crate::call::Outcome;
use crate::limits::size;

/// An aggregate that is stored in a shard that the map does not know: which of its records are in the right place will be
/// seen.
#[derive(Debug)]
pub(super) struct Undecided<T> {
    pub(super) sent: Sent<T>,
    stored: Stored,
    answered: Instant,
}

// === impl Plan ===

impl<T> Plan<T> {
    /// Takes in what became of a request: one outcome for each of its Kinesis records. `delay` says how long to leave a
    /// shard alone after so many failures. Says why something failed, if something did.
    pub(crate) fn settle(
        &mut self,
        request: RequestId,
        outcomes: Vec<Outcome>,
        now: Instant,
        mut delay: impl FnMut(u32) -> Duration,
    ) -> Option<Arc<Failure>> {
        let InFlight { made, sent } = self.in_flight.remove(&request)?;
        let is_lone = matches!(&sent[..], [sent] if sent.items.len() == 1);
        let mut first_failure = None;
        // By lane, whether something failed, and because it was throttled.
        let mut lanes: Vec<(u64, bool, bool)> = Vec::new();
        for (sent, outcome) in sent.into_iter().zip(outcomes) {
            let is_throttled = outcome.as_ref().is_err_and(|failure| failure.is_throttle());
            match lanes.iter_mut().find(|(lane, ..)| *lane == sent.lane) {
                Some((_, has_failed, was_throttled)) => {
                    *has_failed |= outcome.is_err();
                    *was_throttled |= is_throttled;
                }
                None => lanes.push((sent.lane, outcome.is_err(), is_throttled)),
            }
            match outcome {
                Ok(stored) => self.stored(sent, stored, now),
                Err(failure) => {
                    first_failure.get_or_insert(Arc::clone(&failure));
                    self.failed(sent, &failure, is_lone);
                }
            }
        }
        for (lane, has_failed, is_throttled) in lanes {
            // A lane that is gone has left its records to others, which have not failed.
            let Some(index) = self.index_of(lane) else { continue };
            let lane = &mut self.lanes[index];
            if !has_failed {
                lane.works(made);
                continue;
            }
            lane.fails(made);
            lane.not_before = Some(now + delay(lane.failures));
            if let (true, Some(rate)) = (is_throttled, &lane.rate) {
                rate.throttled(now);
            }
        }
        first_failure
    }

    fn stored(&mut self, sent: Sent<T>, stored: Stored, now: Instant) {
        self.counts.kinesis_records += 1;
        self.counts.kinesis_bytes += sent.bytes as u64;
        let index = self.index_of(sent.lane);
        let found = self.map.find(&stored.shard);
        if found.is_none() && sent.items.len() > 1 {
            self.map_wanted = Some(MapWanted::Now);
            self.undecided.push(Undecided { sent, stored, answered: now });
            return;
        }
        // Where the lane is gone the map is newer than the request.
        if found.is_none() || (index.is_some() && found != index) {
            self.map_wanted = self.map_wanted.max(Some(MapWanted::Sometime));
        }
        let range = found.map(|found| self.map.shard(found).range);
        self.acknowledge(sent, stored, range);
    }

    /// Of an aggregate that is stored in a shard of this range, if it is known.
    ///
    /// The service itself put it there by the hash key of its first record, which is in the right place. A record that is
    /// not known to be is sent again, as the KPL does, because readers may leave it out there.
    fn acknowledge(&mut self, sent: Sent<T>, stored: Stored, range: Option<HashKeyRange>) {
        let stored = Arc::new(stored);
        let mut misplaced = Vec::new();
        for (sub_sequence_number, mut item) in sent.items.into_iter().enumerate() {
            if sub_sequence_number > 0 && range.is_none_or(|range| !range.contains(item.hash_key)) {
                self.counts.misplaced += 1;
                item.may_be_repeated = true;
                if range.is_none() {
                    item.company = item.company.max(Company::OwnRecord);
                }
                misplaced.push(item);
                continue;
            }
            self.counts.acknowledged += 1;
            self.counts.acknowledged_bytes += size(&item.record) as u64;
            let place = Place { stored: Arc::clone(&stored), sub_sequence_number: sub_sequence_number as u64 };
            self.resolved.push(Resolved { item, result: Ok(place) });
        }
        self.lay_again(misplaced);
        self.release(sent.lane);
    }

    /// From the last to the first, because each goes before those that it came before.
    fn lay_again(&mut self, items: Vec<Item<T>>) {
        items.into_iter().rev().for_each(|item| self.lay(item));
    }

    /// `is_lone` says whether nothing else was in the request.
    fn failed(&mut self, sent: Sent<T>, failure: &Arc<Failure>, is_lone: bool) {
        // Of a request that the service takes for wrong it is not known which record is to blame.
        let is_suspect = failure.is_about_request() && !is_lone;
        let reason = if is_suspect {
            self.counts.retries += 1;
            // It may be that the stream takes smaller records by now.
            self.map_wanted = self.map_wanted.max(Some(MapWanted::Sometime));
            None
        } else if failure.advice().is_some() {
            Some(Reason::refused(failure))
        } else if self.rules.fail_if_throttled && failure.is_throttle() {
            Some(Reason::throttled(failure))
        } else {
            self.counts.retries += 1;
            None
        };
        let mut items = sent.items;
        for item in &mut items {
            item.was_lost = failure.is_unknown();
            item.failure = Some(Arc::clone(failure));
            if is_suspect {
                item.company = Company::OwnRequest;
            }
        }
        match reason {
            Some(reason) => {
                let given_up = items.into_iter().map(|item| Resolved { item, result: Err(reason.clone()) });
                self.resolved.extend(given_up);
            }
            None => self.lay_again(items),
        }
        self.release(sent.lane);
    }

    /// One Kinesis record less of a lane is on its way.
    fn release(&mut self, lane: u64) {
        if let Some(index) = self.index_of(lane) {
            self.lanes[index].in_flight -= 1;
        } else if let Some(index) = self.leaving.iter().position(|leaving| leaving.number == lane) {
            self.leaving[index].in_flight -= 1;
            if self.leaving[index].in_flight == 0 {
                self.leaving.swap_remove(index);
            }
        }
    }

    /// Decides what a new map, of a listing that began then, knows how to decide.
    pub(super) fn decide(&mut self, began: Instant) {
        for undecided in std::mem::take(&mut self.undecided) {
            let Undecided { sent, stored, answered } = undecided;
            match self.range_of(&stored.shard) {
                None if answered > began => {
                    self.map_wanted = Some(MapWanted::Now);
                    self.undecided.push(Undecided { sent, stored, answered });
                }
                // A shard that is closed again, or that nobody else knows.
                range => self.acknowledge(sent, stored, range),
            }
        }
    }

    fn range_of(&self, shard: &ShardId) -> Option<HashKeyRange> {
        self.map.find(shard).map(|found| self.map.shard(found).range)
    }

    /// Gives up what has been tried for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some(ttl) = self.rules.ttl else { return };
        let map_failure = self.map_failure.clone();
        for lane in &mut self.lanes {
            let is_old = |item: &Item<T>| item.accepted + ttl <= now;
            let old = lane.waiting.iter().take_while(|item| is_old(item)).count();
            if old > 0 {
                let expired = lane.take(old).into_iter().map(|item| {
                    let reason = Reason::expired(item.failure.as_deref().or(map_failure.as_deref()));
                    Resolved { item, result: Err(reason) }
                });
                self.resolved.extend(expired);
            }
        }
        // The last one is the youngest.
        let is_old =
            |undecided: &mut Undecided<T>| undecided.sent.items.last().is_none_or(|item| item.accepted + ttl <= now);
        let old: Vec<_> = self.undecided.extract_if(.., is_old).collect();
        for undecided in old {
            self.give_up_undecided(undecided, &Reason::expired(None));
        }
    }

    /// The first record of an aggregate is stored where it belongs; of the others nobody knows.
    fn give_up_undecided(&mut self, Undecided { mut sent, stored, .. }: Undecided<T>, reason: &Reason) {
        for mut item in sent.items.drain(1..) {
            item.was_lost = true;
            self.resolved.push(Resolved { item, result: Err(reason.clone()) });
        }
        self.acknowledge(sent, stored, None);
    }

    /// Gives up what waits, and sends nothing of it any more.
    pub(crate) fn give_up_waiting(&mut self, reason: &Reason) {
        for lane in &mut self.lanes {
            let waiting = lane.take(lane.waiting.len());
            let given_up = waiting.into_iter().map(|item| Resolved { item, result: Err(reason.clone()) });
            self.resolved.extend(given_up);
        }
    }

    /// Gives up everything. Of what is on its way nobody will know.
    pub(crate) fn give_up(&mut self, reason: &Reason) {
        self.give_up_waiting(reason);
        for undecided in std::mem::take(&mut self.undecided) {
            self.give_up_undecided(undecided, reason);
        }
        let mut in_flight: Vec<_> = self.in_flight.drain().collect();
        in_flight.sort_unstable_by_key(|(id, _)| *id);
        for sent in in_flight.into_iter().flat_map(|(_, in_flight)| in_flight.sent) {
            for mut item in sent.items {
                item.was_lost = true;
                self.resolved.push(Resolved { item, result: Err(reason.clone()) });
            }
            self.release(sent.lane);
        }
    }
}
