//! Whole lives of a producer on simulated time, against a service that throttles, fails, loses answers and is resharded.

use std::collections::{BTreeMap, HashMap, HashSet};

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::model::{Kept, unpack};
use super::*;
use crate::answer::Stored;

/// How the service behaves, and what is put.
#[derive(Debug, Clone)]
struct World {
    seed: u64,
    records: usize,
    keys: usize,
    shards: usize,
    /// Of Kinesis records.
    throttled: f64,
    /// Of calls, and of Kinesis records in the others.
    failed: f64,
    /// Of calls: half of them after everything is stored.
    lost: f64,
    /// Splits and merges, evenly over the time.
    reshards: usize,
    options: Options,
}

#[derive(Debug)]
enum Event {
    Put,
    /// A request reaches the service.
    Arrives(Request),
    Answers(RequestId, Vec<Outcome>),
    Listed(Arc<ShardMap>, Instant),
    Reshard,
}

/// What a run was like.
struct Run {
    service: Service,
    given: Vec<UserRecord>,
    /// Where each record is, by its number.
    places: BTreeMap<u64, crate::plan::item::Place>,
    counts: Counts,
    /// How often a record was stored and the answer lost, by its number.
    stored_in_vain: HashMap<u64, usize>,
    /// User records in calls whose answers were lost.
    lost: u64,
    requests: usize,
}

struct Simulation {
    world: World,
    random: SmallRng,
    bench: Bench,
    events: BTreeMap<(Instant, u64), Event>,
    next_event: u64,
    is_listing: bool,
    /// Keys on their way, with [`Ordering::Key`].
    on_their_way: HashSet<String>,
    keys_of: HashMap<RequestId, Vec<String>>,
    run: Run,
}

fn number(record: &UserRecord) -> u64 {
    u64::from_le_bytes(record.data[..8].try_into().unwrap())
}

// === impl Simulation ===

impl Simulation {
    fn new(world: World) -> Self {
        let bench = Bench::unmapped(world.options.clone(), world.shards);
        let run = Run {
            service: Service::new(1),
            given: Vec::new(),
            places: BTreeMap::new(),
            counts: Counts::default(),
            stored_in_vain: HashMap::new(),
            lost: 0,
            requests: 0,
        };
        let mut simulation = Self {
            random: SmallRng::seed_from_u64(world.seed),
            world,
            bench,
            events: BTreeMap::new(),
            next_event: 0,
            is_listing: false,
            on_their_way: HashSet::new(),
            keys_of: HashMap::new(),
            run,
        };
        // Two thousand records a second.
        for number in 0..simulation.world.records as u64 {
            simulation.after(Duration::from_micros(number * 500), Event::Put);
        }
        let time = Duration::from_micros(simulation.world.records as u64 * 500);
        for number in 1..=simulation.world.reshards as u32 {
            simulation.after(time * number / (simulation.world.reshards as u32 + 1), Event::Reshard);
        }
        simulation
    }

    fn after(&mut self, time: Duration, event: Event) {
        self.events.insert((self.bench.now + time, self.next_event), event);
        self.next_event += 1;
    }

    /// From some to many milliseconds, for calls that overtake each other.
    fn latency(&mut self) -> Duration {
        Duration::from_micros(self.random.random_range(1_000..20_000))
    }

    fn run(mut self) -> Run {
        loop {
            let wakes = self.advance();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = event.into_iter().chain(wakes).min() else { break };
            assert!(next >= self.bench.now, "seed {}: time goes on", self.world.seed);
            self.bench.now = next;
            if event == Some(next) {
                let (_, event) = self.events.pop_first().unwrap();
                self.happens(event);
            }
        }
        self.run.service = self.bench.service;
        self.run
    }

    /// Everything that is to be done now. When the next thing is.
    fn advance(&mut self) -> Option<Instant> {
        let wakes = loop {
            match self.bench.plan.next(self.bench.now) {
                Next::Send(request) => self.send(request),
                Next::Wait(until) => break until,
            }
        };
        if self.bench.plan.map_wanted().is_some() && !self.is_listing {
            self.is_listing = true;
            let (began, latency) = (self.bench.now, self.latency());
            // The service answers at some time between.
            let map = self.bench.service.map();
            self.after(latency, Event::Listed(map, began));
        }
        for Resolved { item, result } in self.bench.plan.take_resolved() {
            let place = result.unwrap_or_else(|reason| panic!("seed {}: {reason}", self.world.seed));
            let twice = self.run.places.insert(number(&item.record), place);
            assert_eq!(twice, None, "seed {}: a record is resolved once", self.world.seed);
        }
        let counts = self.bench.plan.take_counts();
        self.run.counts.retries += counts.retries;
        self.run.counts.acknowledged += counts.acknowledged;
        self.run.counts.possible_repeats += counts.possible_repeats;
        self.run.counts.misplaced += counts.misplaced;
        wakes
    }

    fn send(&mut self, request: Request) {
        self.run.requests += 1;
        self.check(&request);
        let latency = self.latency();
        self.after(latency, Event::Arrives(request));
    }

    fn check(&mut self, request: &Request) {
        let (options, seed) = (&self.world.options, self.world.seed);
        let bytes: usize = request.kinesis_records.iter().map(KinesisRecord::bytes).sum();
        assert!(bytes <= options.request_max_bytes && bytes == request.bytes, "seed {seed}");
        assert!(request.kinesis_records.len() <= options.request_max_records, "seed {seed}");
        let mut keys = Vec::new();
        for kinesis_record in &request.kinesis_records {
            let records = unpack(kinesis_record);
            if records.len() > 1 {
                assert!(options.aggregate && kinesis_record.data.len() <= options.aggregate_max_bytes, "seed {seed}");
                assert_eq!(kinesis_record.explicit_hash_key, Some(records[0].hash_key()), "seed {seed}");
            }
            let mut of_this: Vec<_> = records.into_iter().map(|record| record.partition_key).collect();
            of_this.sort_unstable();
            of_this.dedup();
            keys.extend(of_this);
        }
        if options.ordering == Ordering::Key {
            for key in &keys {
                assert!(self.on_their_way.insert(key.clone()), "seed {seed}: one record of {key} follows another");
            }
            self.keys_of.insert(request.id, keys);
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Put => self.put(),
            Event::Arrives(request) => self.arrives(&request),
            Event::Answers(request, outcomes) => {
                for key in self.keys_of.remove(&request).unwrap_or_default() {
                    self.on_their_way.remove(&key);
                }
                let random: f64 = self.random.random();
                let delay = |failures: u32| Duration::from_millis(10 << failures.min(5)).mul_f64(0.5 + random / 2.0);
                self.bench.plan.settle(request, outcomes, self.bench.now, delay);
            }
            Event::Listed(map, began) => {
                self.is_listing = false;
                self.bench.plan.set_map(map, None, began, self.bench.now);
            }
            Event::Reshard => self.reshard(),
        }
    }

    fn put(&mut self) {
        let number = self.run.given.len() as u64;
        let key = self.random.random_range(0..self.world.keys);
        let mut data = number.to_le_bytes().to_vec();
        data.resize(self.random.random_range(8..120), 0);
        let explicit_hash_key = (key % 7 == 0).then(|| HashKey::new(key as u128 * (u128::MAX / 1_000)));
        let record = UserRecord { partition_key: format!("key-{key}"), explicit_hash_key, data: data.into() };
        self.run.given.push(record.clone());
        self.bench.push(record);
    }

    fn arrives(&mut self, request: &Request) {
        let is_lost = self.random.random_bool(self.world.lost);
        let is_failed = self.random.random_bool(self.world.failed);
        let is_stored = !is_failed && (!is_lost || self.random.random());
        let mut outcomes: Vec<Outcome> = Vec::new();
        for kinesis_record in &request.kinesis_records {
            outcomes.push(if !is_stored {
                Err(failure(Kind::Unknown, "InternalFailure"))
            } else if self.random.random_bool(self.world.throttled) {
                throttled()
            } else if self.random.random_bool(self.world.failed) {
                Err(failure(Kind::Refused, "InternalFailure"))
            } else {
                let stored: Stored = self.bench.service.put(kinesis_record);
                if is_lost {
                    for record in unpack(kinesis_record) {
                        *self.run.stored_in_vain.entry(number(&record)).or_default() += 1;
                    }
                }
                Ok(stored)
            });
        }
        if is_lost || !is_stored {
            self.run.lost += request.kinesis_records.iter().map(|record| record.count as u64).sum::<u64>();
            outcomes.fill_with(|| Err(failure(Kind::Unknown, "timeout")));
        }
        let latency = self.latency();
        self.after(latency, Event::Answers(request.id, outcomes));
    }

    fn reshard(&mut self) {
        let open = self.bench.service.open.len();
        if open > 1 && self.random.random() {
            self.bench.service.merge(self.random.random_range(0..open - 1));
        } else {
            self.bench.service.split(self.random.random_range(0..open));
        }
    }
}

// === impl Run ===

impl Run {
    /// What must be true of every run.
    fn check(&self, world: &World) {
        let seed = world.seed;
        assert_eq!(self.places.len(), self.given.len(), "seed {seed}: every record is acknowledged");
        assert_eq!(self.counts.acknowledged, self.given.len() as u64, "seed {seed}");
        let mut copies: HashMap<u64, usize> = HashMap::new();
        let mut by_key: HashMap<&str, Vec<u64>> = HashMap::new();
        let mut seen = HashSet::new();
        // As a reader meets them that leaves out what is outside its shard's range: shards never share a key at a time.
        for kept in &self.service.kept {
            *copies.entry(number(&kept.record)).or_default() += 1;
            if kept.shard.range.contains(kept.record.hash_key()) && seen.insert(number(&kept.record)) {
                by_key.entry(&kept.record.partition_key).or_default().push(number(&kept.record));
            }
        }
        let place = |kept: &Kept| (kept.sequence_number.clone(), kept.sub_sequence_number);
        let by_place: HashMap<_, _> = self.service.kept.iter().map(|kept| (place(kept), kept)).collect();
        for (number, record) in self.given.iter().enumerate().map(|(number, record)| (number as u64, record)) {
            let place = &self.places[&number];
            let kept = by_place
                .get(&(place.stored.sequence_number.clone(), place.sub_sequence_number))
                .expect("something is there");
            assert_eq!((&kept.record, &kept.shard.id), (record, &place.stored.shard), "seed {seed}");
            assert!(kept.shard.range.contains(record.hash_key()), "seed {seed}: {number} is where it is looked for");
        }
        // Each further copy is explained: its answer was lost, or it was in an aggregate that went to another shard.
        let further: usize = copies.values().map(|copies| copies - 1).sum();
        let in_vain: usize = self.stored_in_vain.values().sum();
        assert_eq!(further as u64, in_vain as u64 + self.counts.misplaced, "seed {seed}");
        for (number, times) in &self.stored_in_vain {
            assert!(copies[number] > *times, "seed {seed}");
        }
        assert_eq!(self.counts.possible_repeats, self.lost, "seed {seed}: all that may come twice is counted");
        if world.reshards == 0 {
            assert_eq!(self.counts.misplaced, 0, "seed {seed}");
        }
        if world.options.ordering == Ordering::Key {
            assert!(by_key.values().all(|numbers| numbers.is_sorted()), "seed {seed}: keys keep their order");
        }
    }
}

fn world(seed: u64) -> World {
    World {
        seed,
        records: 6_000,
        keys: 100,
        shards: 4,
        throttled: 0.3,
        failed: 0.05,
        lost: 0.01,
        reshards: 2,
        options: Options { record_ttl: Duration::from_secs(3_600), max_requests: 8, ..Options::default() },
    }
}

#[test]
fn a_stream_that_throttles_fails_and_is_resharded_keeps_every_record_in_order() {
    let mut sum = Counts::default();
    for seed in 0..20 {
        let world = world(seed);
        let run = Simulation::new(world.clone()).run();
        run.check(&world);
        assert!(run.counts.retries > 0, "seed {seed}");
        assert!(run.requests < 3_000, "seed {seed}: records go together, {} requests", run.requests);
        sum.possible_repeats += run.counts.possible_repeats;
        sum.misplaced += run.counts.misplaced;
    }
    assert!(sum.possible_repeats > 0 && sum.misplaced > 0, "{sum:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.min(256) / 4))]

    #[test]
    fn whatever_the_service_does_no_record_is_lost_or_out_of_order(
        seed: u64, records in 1..400usize, keys in 1..40usize, shards in 1..6usize,
        rates in (0..6u32, 0..4u32, 0..4u32), reshards in 0..6usize,
        is_ordered: bool, aggregate in prop::option::of(100..2_000usize),
        max_requests in 1..5usize, request_max_records in 1..20usize, buffer_time in 0..200u64,
    ) {
        let world = World {
            seed, records, keys, shards, reshards,
            throttled: f64::from(rates.0) / 10.0,
            failed: f64::from(rates.1) / 10.0,
            lost: f64::from(rates.2) / 10.0,
            options: Options {
                ordering: if is_ordered { Ordering::Key } else { Ordering::None },
                aggregate: aggregate.is_some(),
                aggregate_max_bytes: aggregate.unwrap_or(1_000),
                buffer_time: Duration::from_millis(buffer_time),
                request_max_records,
                request_max_bytes: 64 << 10,
                max_requests,
                record_ttl: Duration::from_secs(24 * 3_600),
                ..Options::default()
            },
        };
        Simulation::new(world.clone()).run().check(&world);
    }
}
