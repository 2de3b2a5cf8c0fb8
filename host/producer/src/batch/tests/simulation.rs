//! Batches on simulated time, against a service that throttles, fails, loses answers and is resharded, with permits that
//! are withdrawn.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shardmill_record::{HashKey, SequenceNumber, UserRecord};
use tokio::time::Instant;

use crate::answer::{Kind, Stored};
use crate::batch::sending::{End, Sending};
use crate::call::Outcome;
use crate::mapping::{Found, Listed};
use crate::metrics::Counts;
use crate::plan::tests::model::{Service, unpack};
use crate::plan::tests::{failure, throttled};
use crate::plan::{Next, Request, RequestId, Rules};
use crate::shard_map::ShardMap;
use crate::{BatchOptions, Ordering, Permit, Sent, Stopped};

/// What a batch knows of the shards when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Everything,
    Half,
    /// As they were before the last reshard.
    Old,
}

/// How the service behaves, and what is sent.
#[derive(Debug, Clone)]
struct World {
    seed: u64,
    records: usize,
    keys: usize,
    shards: usize,
    known: Known,
    /// Of Kinesis records.
    throttled: f64,
    /// Of calls and of listings.
    failed: f64,
    /// Of calls: half of them after everything is stored.
    lost: f64,
    /// When shards are split or merged, in milliseconds.
    reshards: Vec<u64>,
    /// When the permit is withdrawn, in milliseconds.
    withdrawn: Option<u64>,
    options: BatchOptions,
}

#[derive(Debug)]
enum Event {
    /// A request is ready for its connection.
    Arrives(Request),
    Answers(RequestId, Result<Vec<Outcome>, Stopped>),
    Listed(Arc<ShardMap>, Instant),
    Reshard,
    Withdrawn,
}

struct Run {
    service: Service,
    given: Vec<UserRecord>,
    end: Option<End>,
    sent: Vec<Option<Sent>>,
    counts: Counts,
    /// Of each Kinesis record that is known to be stored, the number of its first record and where it is.
    answered: Vec<(usize, SequenceNumber)>,
    /// User records that were stored and whose answers were lost.
    in_vain: usize,
    most_at_once: usize,
}

struct Simulation {
    world: World,
    random: SmallRng,
    start: Instant,
    now: Instant,
    sending: Sending,
    permit: Permit,
    is_withdrawn: Arc<AtomicBool>,
    events: BTreeMap<(Instant, u64), Event>,
    next_event: u64,
    is_listing: bool,
    /// Keys on their way.
    keys_of: HashMap<RequestId, Vec<String>>,
    run: Run,
}

fn number(record: &UserRecord) -> usize {
    usize::from_le_bytes(record.data[..8].try_into().unwrap())
}

fn given(world: &World, random: &mut SmallRng) -> Vec<UserRecord> {
    let record = |number: usize| {
        let key = random.random_range(0..world.keys);
        let mut data = number.to_le_bytes().to_vec();
        data.resize(random.random_range(8..120), 0);
        let explicit_hash_key = (key % 7 == 0).then(|| HashKey::new(key as u128 * (u128::MAX / 1_000)));
        UserRecord { partition_key: format!("key-{key}"), explicit_hash_key, data: data.into() }
    };
    (0..world.records).map(record).collect()
}

fn reshard(service: &mut Service, random: &mut SmallRng) {
    let open = service.open.len();
    if open > 1 && random.random() {
        service.merge(random.random_range(0..open - 1));
    } else {
        service.split(random.random_range(0..open));
    }
}

// === impl Simulation ===

impl Simulation {
    fn new(world: World) -> Self {
        world.options.check().unwrap();
        let mut random = SmallRng::seed_from_u64(world.seed);
        let (mut service, now) = (Service::new(world.shards), Instant::now());
        let map = match world.known {
            Known::Nothing => None,
            Known::Everything | Known::Old => Some(service.map()),
            Known::Half => Some(Arc::new(ShardMap::new(service.open[service.open.len() / 2..].to_vec()))),
        };
        if world.known == Known::Old {
            reshard(&mut service, &mut random);
        }
        let known = map.map(|map| (now, Found { map, record_max_bytes: None }));
        let given = given(&world, &mut random);
        let rules = Rules::of_batches(&world.options.options());
        let is_withdrawn = Arc::new(AtomicBool::new(false));
        let ask = Arc::clone(&is_withdrawn);
        let mut simulation = Self {
            random,
            start: now,
            now,
            sending: Sending::new(given.clone(), rules, &rules.rates(), known, now),
            permit: Permit::new(move || if ask.load(SeqCst) { Err(Stopped) } else { Ok(()) }),
            is_withdrawn,
            events: BTreeMap::new(),
            next_event: 0,
            is_listing: false,
            keys_of: HashMap::new(),
            run: Run {
                service,
                given,
                end: None,
                sent: Vec::new(),
                counts: Counts::default(),
                answered: Vec::new(),
                in_vain: 0,
                most_at_once: 0,
            },
            world,
        };
        for at in simulation.world.reshards.clone() {
            simulation.after(Duration::from_millis(at), Event::Reshard);
        }
        if let Some(at) = simulation.world.withdrawn {
            simulation.after(Duration::from_millis(at), Event::Withdrawn);
        }
        simulation
    }

    fn after(&mut self, time: Duration, event: Event) {
        self.events.insert((self.now + time, self.next_event), event);
        self.next_event += 1;
    }

    fn latency(&mut self) -> Duration {
        Duration::from_micros(self.random.random_range(1_000..20_000))
    }

    /// As the sender does it.
    fn run(mut self) -> Run {
        loop {
            let wakes = loop {
                match self.sending.next(&self.permit, self.now) {
                    Next::Send(request) => self.sends(request),
                    Next::Wait(until) => break until,
                }
            };
            if self.sending.map_wanted().is_some() && !self.is_listing {
                self.is_listing = true;
                let (began, latency) = (self.now, self.latency());
                let map = self.run.service.map();
                self.after(latency, Event::Listed(map, began));
            }
            let counts = self.sending.take_counts();
            self.run.counts.acknowledged += counts.acknowledged;
            self.run.counts.misplaced += counts.misplaced;
            self.run.counts.possible_repeats += counts.possible_repeats;
            if self.sending.is_over() {
                break;
            }
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let next = event.into_iter().chain(wakes).min();
            let next = next.unwrap_or_else(|| panic!("seed {}: it waits for nothing", self.world.seed));
            assert!(next >= self.now, "seed {}: time goes on", self.world.seed);
            assert!(next - self.start < Duration::from_secs(24 * 3_600), "seed {}: it ends", self.world.seed);
            self.now = next;
            if event == Some(next) {
                let (_, event) = self.events.pop_first().unwrap();
                self.happens(event);
            }
        }
        let is_on_its_way = |event: &Event| matches!(event, Event::Arrives(_) | Event::Answers(..));
        assert!(!self.events.values().any(is_on_its_way), "seed {}: all answers are waited for", self.world.seed);
        match self.sending.finish() {
            Ok(sent) => self.run.sent = sent.into_iter().map(Some).collect(),
            Err((end, sent)) => (self.run.end, self.run.sent) = (Some(end), sent),
        }
        self.run
    }

    fn sends(&mut self, request: Request) {
        let (options, seed) = (&self.world.options, self.world.seed);
        assert!(!self.is_withdrawn.load(SeqCst), "seed {seed}: no request without a permit");
        assert!(request.kinesis_records.len() <= options.request_max_records, "seed {seed}");
        let bytes: usize = request.kinesis_records.iter().map(|record| record.bytes()).sum();
        assert!(bytes <= options.request_max_bytes, "seed {seed}");
        let keys = request.kinesis_records.iter().flat_map(|kinesis_record| {
            let mut keys: Vec<_> = unpack(kinesis_record).into_iter().map(|record| record.partition_key).collect();
            keys.sort_unstable();
            keys.dedup();
            keys
        });
        let keys: Vec<_> = keys.collect();
        if options.ordering == Ordering::Key {
            let on_their_way: HashSet<_> = self.keys_of.values().flatten().collect();
            assert!(keys.iter().all(|key| !on_their_way.contains(key)), "seed {seed}: keys come one after another");
            assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "seed {seed}: and once in a request");
        }
        self.keys_of.insert(request.id, keys);
        self.run.most_at_once = self.run.most_at_once.max(self.keys_of.len());
        assert!(self.keys_of.len() <= options.max_requests, "seed {seed}");
        let latency = self.latency();
        self.after(latency, Event::Arrives(request));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Withdrawn => self.is_withdrawn.store(true, SeqCst),
            Event::Reshard => reshard(&mut self.run.service, &mut self.random),
            Event::Arrives(request) => self.arrives(&request),
            Event::Answers(request, answer) => {
                self.keys_of.remove(&request);
                let random: f64 = self.random.random();
                let delay = |failures: u32| Duration::from_millis(10 << failures.min(5)).mul_f64(0.5 + random / 2.0);
                self.sending.answered(request, answer, self.now, delay);
            }
            Event::Listed(map, began) => {
                self.is_listing = false;
                let is_failed = self.random.random_bool(self.world.failed);
                let result = if is_failed {
                    Err(failure(Kind::Unknown, "timeout"))
                } else {
                    Ok(Found { map, record_max_bytes: None })
                };
                let listed = Listed { began, result, failing_for: Duration::ZERO };
                let no_map = self.sending.listed(listed, &self.permit, self.now);
                assert!(is_failed || no_map.is_none());
            }
        }
    }

    fn arrives(&mut self, request: &Request) {
        let answer = if self.is_withdrawn.load(SeqCst) { Err(Stopped) } else { Ok(self.outcomes(request)) };
        let latency = if answer.is_ok() { self.latency() } else { Duration::ZERO };
        self.after(latency, Event::Answers(request.id, answer));
    }

    fn outcomes(&mut self, request: &Request) -> Vec<Outcome> {
        let is_lost = self.random.random_bool(self.world.lost);
        let is_failed = self.random.random_bool(self.world.failed);
        let is_stored = !is_failed && (!is_lost || self.random.random());
        let mut outcomes: Vec<Outcome> = Vec::new();
        for kinesis_record in &request.kinesis_records {
            outcomes.push(if !is_stored {
                Err(failure(Kind::Unknown, "InternalFailure"))
            } else if self.random.random_bool(self.world.throttled) {
                throttled()
            } else {
                let Stored { shard, sequence_number } = self.run.service.put(kinesis_record);
                let records = unpack(kinesis_record);
                if is_lost {
                    self.run.in_vain += records.len();
                } else {
                    self.run.answered.push((number(&records[0]), sequence_number.clone()));
                }
                Ok(Stored { shard, sequence_number })
            });
        }
        if is_lost {
            outcomes.fill_with(|| Err(failure(Kind::Unknown, "timeout")));
        }
        outcomes
    }
}

// === impl Run ===

impl Run {
    fn check(&self, world: &World) {
        let seed = world.seed;
        let acknowledged = self.sent.iter().flatten().count();
        assert_eq!(self.sent.len(), self.given.len(), "seed {seed}");
        match &self.end {
            None => assert_eq!(acknowledged, self.given.len(), "seed {seed}: the service has all of it"),
            Some(end) => {
                assert!(world.withdrawn.is_some() && *end == End::Stopped(Stopped), "seed {seed}: {end:?}");
                assert!(acknowledged < self.given.len(), "seed {seed}");
            }
        }
        let by_place: HashMap<_, _> =
            self.service.kept.iter().map(|kept| ((&kept.sequence_number, kept.sub_sequence_number), kept)).collect();
        for (record, sent) in self.given.iter().zip(&self.sent) {
            let Some(sent) = sent else { continue };
            let kept = by_place.get(&(&sent.sequence_number, sent.sub_sequence_number)).expect("something is there");
            assert_eq!((&kept.record, &kept.shard.id), (record, &sent.shard), "seed {seed}");
            assert!(kept.shard.range.contains(record.hash_key()), "seed {seed}: it is where it is looked for");
            assert!(sent.attempts > 0, "seed {seed}");
        }
        for (number, sequence_number) in &self.answered {
            let sent = self.sent[*number].as_ref().map(|sent| &sent.sequence_number);
            assert_eq!(sent, Some(sequence_number), "seed {seed}: what is known to be stored is told");
        }
        if self.end.is_none() {
            let further = self.service.kept.len() - self.given.len();
            assert_eq!(further, self.in_vain + self.counts.misplaced as usize, "seed {seed}: repeats are explained");
            assert!(self.in_vain as u64 <= self.counts.possible_repeats, "seed {seed}");
        }
        if world.options.ordering == Ordering::Key {
            self.check_order(seed);
        }
    }

    fn check_order(&self, seed: u64) {
        let mut firsts: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut seen = HashSet::new();
        // As a reader meets them that leaves out what is outside its shard's range.
        for kept in &self.service.kept {
            if kept.shard.range.contains(kept.record.hash_key()) && seen.insert(number(&kept.record)) {
                firsts.entry(&kept.record.partition_key).or_default().push(number(&kept.record));
            }
        }
        let mut of_keys: HashMap<&str, Vec<usize>> = HashMap::new();
        for record in &self.given {
            of_keys.entry(&record.partition_key).or_default().push(number(record));
        }
        for (key, numbers) in of_keys {
            let firsts = firsts.remove(key).unwrap_or_default();
            assert!(numbers.starts_with(&firsts), "seed {seed}: {key} is in order and without a gap: {firsts:?}");
            let told = numbers.iter().take_while(|number| self.sent[**number].is_some()).count();
            let all = numbers.iter().filter(|number| self.sent[**number].is_some()).count();
            assert_eq!(told, all, "seed {seed}: what is acknowledged of {key} comes before what is not");
        }
    }
}

fn world(seed: u64) -> World {
    World {
        seed,
        records: 3_000,
        keys: 100,
        shards: 4,
        known: [Known::Nothing, Known::Everything, Known::Half, Known::Old][seed as usize % 4],
        throttled: 0.3,
        failed: 0.05,
        lost: 0.05,
        reshards: vec![30, 300],
        withdrawn: None,
        options: BatchOptions { aggregate_max_bytes: 2_000, ..BatchOptions::default() },
    }
}

#[test]
fn a_batch_is_stored_whole_and_in_order_whatever_the_service_does() {
    let mut sum = Counts::default();
    for seed in 0..20 {
        let world = world(seed);
        let run = Simulation::new(world.clone()).run();
        run.check(&world);
        assert_eq!(run.end, None, "seed {seed}");
        sum.possible_repeats += run.counts.possible_repeats;
        sum.misplaced += run.counts.misplaced;
    }
    assert!(sum.possible_repeats > 0 && sum.misplaced > 0, "{sum:?}");
}

#[test]
fn a_permit_that_is_withdrawn_ends_a_batch_when_its_requests_are_answered() {
    let mut stored_in_part = 0;
    for seed in 0..40 {
        let world = World { withdrawn: Some(seed * 5), ..world(seed) };
        let run = Simulation::new(world.clone()).run();
        run.check(&world);
        assert_eq!(run.end, Some(End::Stopped(Stopped)), "seed {seed}: it takes longer than that");
        stored_in_part += usize::from(run.sent.iter().any(Option::is_some));
    }
    assert!(stored_in_part > 20, "{stored_in_part}");
}

#[test]
fn requests_of_one_batch_overlap_where_order_permits_it() {
    let free = BatchOptions { ordering: Ordering::None, aggregate: false, ..BatchOptions::default() };
    let full = BatchOptions { request_max_records: 1, ..BatchOptions::default() };
    // Requests for one shard each, or without any order; and one shard with its order.
    for (options, shards, most) in [(free, 1, 4), (full.clone(), 4, 4), (full, 1, 1)] {
        let world = World { shards, known: Known::Everything, reshards: Vec::new(), options, ..world(1) };
        let run = Simulation::new(world.clone()).run();
        run.check(&world);
        assert_eq!(run.most_at_once, most);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.min(256) / 2))]

    #[test]
    fn whatever_happens_to_a_batch_nothing_is_lost_out_of_order_or_told_wrongly(
        seed: u64, records in 0..200usize, keys in 1..40usize, shards in 1..6usize,
        known in prop_oneof![
            Just(Known::Nothing), Just(Known::Everything), Just(Known::Half), Just(Known::Old)
        ],
        rates in (0..6u32, 0..4u32, 0..4u32), reshards in prop::collection::vec(0..300u64, 0..4),
        withdrawn in prop::option::of(0..200u64),
        is_ordered: bool, aggregate in prop::option::of(100..2_000usize),
        max_requests in 1..5usize, request_max_records in 1..20usize, rate in prop::option::of(1..100u32),
    ) {
        let options = BatchOptions {
            ordering: if is_ordered { Ordering::Key } else { Ordering::None },
            aggregate: aggregate.is_some(),
            aggregate_max_bytes: aggregate.unwrap_or(1_000),
            request_max_records,
            request_max_bytes: 64 << 10,
            max_requests,
            ..BatchOptions::default()
        };
        let rate_limit_percent = rate.unwrap_or(options.rate_limit_percent);
        let options = BatchOptions { rate_limit_percent, ..options };
        let world = World {
            seed, records, keys, shards, known, reshards, withdrawn, options,
            throttled: f64::from(rates.0) / 10.0,
            failed: f64::from(rates.1) / 10.0,
            lost: f64::from(rates.2) / 10.0,
        };
        Simulation::new(world.clone()).run().check(&world);
    }
}
