//! Plans against a model of the service.

mod batch_cases;
mod cases;
mod company;
mod map_cases;
pub(crate) mod model;
mod simulation;

use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{HashKey, UserRecord};
use tokio::time::Instant;

use super::*;
use crate::answer::{Failure, Kind};
use crate::call::Outcome;
use crate::{BatchOptions, Options};
use model::Service;

pub(crate) const THROTTLED: &str = "ProvisionedThroughputExceededException";

pub(crate) fn failure(kind: Kind, label: &'static str) -> Arc<Failure> {
    Arc::new(Failure { kind, label, code: label.to_owned(), reason: "as the test wants it".to_owned() })
}

pub(crate) fn throttled() -> Outcome {
    Err(failure(Kind::Refused, THROTTLED))
}

pub(crate) fn record(key: &str, length: usize) -> UserRecord {
    UserRecord { partition_key: key.to_owned(), explicit_hash_key: None, data: vec![7; length].into() }
}

/// A plan on a stream, and the records of a test.
struct Bench {
    service: Service,
    plan: Plan<()>,
    next_id: u64,
    now: Instant,
}

// === impl Bench ===

impl Bench {
    fn new(options: Options, shards: usize) -> Self {
        let mut bench = Self::unmapped(options, shards);
        bench.map();
        bench
    }

    fn unmapped(options: Options, shards: usize) -> Self {
        options.check().unwrap();
        Self { service: Service::new(shards), plan: Plan::new(Rules::new(&options)), next_id: 0, now: Instant::now() }
    }

    /// With the rules of batches.
    fn of_batches(options: &BatchOptions, shards: usize) -> Self {
        let rules = Rules::of_batches(&options.options());
        let mut bench = Self { plan: Plan::new(rules), ..Self::unmapped(options.options(), shards) };
        bench.map();
        bench
    }

    fn map(&mut self) {
        self.plan.set_map(self.service.map(), None, self.now, self.now);
    }

    fn passes(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn push(&mut self, record: UserRecord) -> u64 {
        let hash_key = record.hash_key();
        self.plan.push(Item::new(self.next_id, record, hash_key, self.now, ()));
        self.next_id += 1;
        self.next_id - 1
    }

    /// A key that goes to a shard, by its index; one of many.
    fn key_of(&self, shard: usize, which: usize) -> String {
        let map = self.service.map();
        let keys = (0..).map(|number| format!("key-{number}"));
        let of_shard = |key: &String| map.predict(HashKey::of_partition_key(key)) == Some(shard);
        keys.filter(of_shard).nth(which).unwrap()
    }

    fn next(&mut self) -> Option<Request> {
        match self.plan.next(self.now) {
            Next::Send(request) => Some(request),
            Next::Wait(until) => {
                assert!(until.is_none_or(|until| until > self.now), "it waits for what is over");
                None
            }
        }
    }

    fn sends(&mut self) -> Request {
        self.next().expect("there is something to send")
    }

    /// In how many milliseconds something is to be done.
    fn waits(&mut self) -> Option<u128> {
        match self.plan.next(self.now) {
            Next::Send(request) => panic!("{request:?}"),
            // Rates round up.
            Next::Wait(until) => until.map(|until| (until - self.now).as_millis()),
        }
    }

    fn settle(&mut self, request: u64, outcomes: Vec<Outcome>) {
        self.plan.settle(request, outcomes, self.now, |failures| Duration::from_millis(50 << failures.min(6)));
    }

    /// Everything of a request is stored.
    fn store(&mut self, request: &Request) {
        let outcomes = request.kinesis_records.iter().map(|record| Ok(self.service.put(record))).collect();
        self.settle(request.id, outcomes);
    }

    /// The ids of what is resolved since this was last asked: stored, and given up with a word.
    fn resolved(&mut self) -> (Vec<u64>, Vec<(u64, &'static str)>) {
        let (mut stored, mut failed) = (Vec::new(), Vec::new());
        for Resolved { item, result } in self.plan.take_resolved() {
            match result {
                Ok(_) => stored.push(item.id),
                Err(reason) => failed.push((item.id, reason.word())),
            }
        }
        (stored, failed)
    }
}

fn counts(request: &Request) -> Vec<usize> {
    request.kinesis_records.iter().map(|record| record.count).collect()
}
