use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{SequenceNumber, ShardId, UserRecord};
use tokio::time::Instant;

use crate::answer::Failure;
use crate::call::Outcome;
use crate::mapping::{Found, Listed};
use crate::metrics::Counts;
use crate::plan::{Item, MapWanted, Next, Plan, Rates, RequestId, Resolved, Rules};
use crate::{InvalidRecord, Permit, Reason, Refusal, Stopped};

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

/// One batch on its way. Pure but for the permit, which is handed in like the time, answers and listings.
#[derive(Debug)]
pub(super) struct Sending {
    plan: Plan<()>,
    /// For each record, in the order given, where it is stored if it is acknowledged.
    sent: Vec<Option<Sent>>,
    unacknowledged: usize,
    /// Requests that are to be answered.
    on_their_way: usize,
    end: Option<End>,
}

/// Why nothing more is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// A record breaks a rule.
    Refused { index: usize, reason: InvalidRecord },
    /// The service refuses until somebody has mended something.
    Rejected { operation: &'static str, refusal: Arc<Refusal> },
    /// The permit was withdrawn.
    Stopped(Stopped),
}

// === impl Sending ===

impl Sending {
    /// `known` is the shard map if there is one, and when its listing began.
    pub(super) fn new(
        records: Vec<UserRecord>,
        rules: Rules,
        rates: &Rates,
        known: Option<(Instant, Found)>,
        now: Instant,
    ) -> Self {
        let mut plan = Plan::with_rates(rules, rates.clone());
        if let Some((began, Found { map, record_max_bytes })) = known {
            plan.set_map(map, record_max_bytes, began, now);
        }
        let unacknowledged = records.len();
        for (id, record) in records.into_iter().enumerate() {
            let hash_key = record.hash_key();
            plan.push(Item::new(id as u64, record, hash_key, now, ()));
        }
        let mut sending = Self { plan, sent: vec![None; unacknowledged], unacknowledged, on_their_way: 0, end: None };
        sending.resolve();
        sending
    }

    /// Whether there is nothing to do and nothing to wait for any more.
    pub(super) fn is_over(&self) -> bool {
        self.on_their_way == 0 && (self.unacknowledged == 0 || self.end.is_some())
    }

    /// Asks the permit before anything is asked of the service.
    pub(super) fn ask(&mut self, permit: &Permit) {
        if let (None, Err(stopped)) = (&self.end, permit.ask()) {
            self.end = Some(End::Stopped(stopped));
        }
    }

    /// The next request, for which the permit has been asked.
    pub(super) fn next(&mut self, permit: &Permit, now: Instant) -> Next {
        if self.end.is_some() {
            return Next::Wait(None);
        }
        let next = self.plan.next(now);
        if let Next::Send(_) = next {
            self.ask(permit);
            if self.end.is_some() {
                return Next::Wait(None);
            }
            self.on_their_way += 1;
        }
        next
    }

    /// Whether a newer map is wanted.
    pub(super) fn map_wanted(&self) -> Option<MapWanted> {
        self.plan.map_wanted().filter(|_| self.end.is_none())
    }

    /// What became of a request that was handed out: one outcome for each of its Kinesis records, or it was not sent because
    /// the permit had been withdrawn. Says why something failed, if something did.
    pub(super) fn answered(
        &mut self,
        request: RequestId,
        answer: Result<Vec<Outcome>, Stopped>,
        now: Instant,
        delay: impl FnMut(u32) -> Duration,
    ) -> Option<Arc<Failure>> {
        self.on_their_way -= 1;
        match answer {
            Ok(outcomes) => {
                let failure = self.plan.settle(request, outcomes, now, delay);
                self.resolve();
                failure
            }
            Err(stopped) => {
                self.end.get_or_insert(End::Stopped(stopped));
                None
            }
        }
    }

    /// What a listing of the shards brought. Says why there is still no map to send by, if there is none.
    pub(super) fn listed(&mut self, listed: Listed, permit: &Permit, now: Instant) -> Option<Arc<Failure>> {
        let Listed { began, result, .. } = listed;
        let failure = match result {
            Ok(Found { map, record_max_bytes }) => {
                // How large records may be was decided before the first request.
                let record_max_bytes = record_max_bytes.filter(|_| !self.plan.has_map());
                self.plan.set_map(map, record_max_bytes, began, now);
                None
            }
            Err(failure) if failure.advice().is_none() => Some(failure),
            Err(failure) if self.plan.has_map() => {
                self.plan.map_refused(&Reason::refused(&failure), now);
                None
            }
            Err(failure) => {
                let refusal = Refusal::of(&failure);
                self.end.get_or_insert(End::Rejected { operation: "ListShards", refusal });
                None
            }
        };
        self.resolve();
        let failure = failure.filter(|_| !self.plan.has_map());
        if failure.is_some() {
            self.ask(permit);
        }
        failure
    }

    /// Since when something has been failing all the time, if there is such a thing.
    pub(super) fn failing_since(&self) -> Option<Instant> {
        self.plan.failing_since()
    }

    /// What happened since this was last asked.
    pub(super) fn take_counts(&mut self) -> Counts {
        self.plan.take_counts()
    }

    fn resolve(&mut self) {
        for Resolved { item, result } in self.plan.take_resolved() {
            let index = item.id as usize;
            match result {
                Ok(place) => {
                    self.sent[index] = Some(Sent {
                        shard: place.stored.shard.clone(),
                        sequence_number: place.stored.sequence_number.clone(),
                        sub_sequence_number: place.sub_sequence_number,
                        attempts: item.attempts,
                    });
                    self.unacknowledged -= 1;
                }
                Err(Reason::Invalid(reason)) => _ = self.end.get_or_insert(End::Refused { index, reason }),
                Err(Reason::Refused(refusal)) => {
                    self.end.get_or_insert(End::Rejected { operation: "PutRecords", refusal });
                }
                // With the rules of batches no record expires, none fails because it is throttled, and there is no spool.
                Err(Reason::Expired { .. } | Reason::Throttled(_) | Reason::Stopped | Reason::NotSpooled(_)) => {}
            }
        }
    }

    /// When it is over: where each record is, or why not all of them are stored and where those are that are.
    pub(super) fn finish(mut self) -> Result<Vec<Sent>, (End, Vec<Option<Sent>>)> {
        let Some(end) = self.end.clone().filter(|_| self.unacknowledged > 0) else {
            return Ok(self.sent.into_iter().flatten().collect());
        };
        // The first record of an aggregate is where it belongs, whatever is known of the others.
        self.plan.give_up(&Reason::Stopped);
        self.resolve();
        Err((end, self.sent))
    }
}
