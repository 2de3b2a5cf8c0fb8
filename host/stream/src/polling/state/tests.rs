use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const MIB: u64 = 1 << 20;
const WIDE: Demand = Demand { records: 10_000, bytes: 64 * MIB };
const INTERVAL: Duration = Duration::from_millis(200);

fn number(number: u64) -> SequenceNumber {
    SequenceNumber::parse(&number.to_string()).unwrap()
}

fn page(records: u32, bytes: u64, millis_behind: Option<u64>) -> Answer {
    let last = (records > 0).then(|| number(u64::from(records)));
    Answer { records, bytes, memory: bytes, last, next_iterator: Some("next".into()), millis_behind }
}

/// A state that has just been told to read, at the returned time.
fn reading(options: Options) -> (State, Instant) {
    let now = Instant::now();
    let mut state = State::new(options, ReadFrom::TrimHorizon, now);
    assert_eq!(state.step(now, WIDE), Step::TakeIterator(ReadFrom::TrimHorizon));
    state.took_iterator("first".into());
    assert!(matches!(state.step(now, WIDE), Step::Read { .. }));
    (state, now)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn waits_for_the_reads_limit_while_behind_and_idles_at_the_tip() {
    for (answer, wait) in [
        (page(10, 1_000, Some(60_000)), INTERVAL),
        (page(0, 0, Some(60_000)), INTERVAL),
        (page(10_000, 100_000, Some(0)), INTERVAL),
        (page(10_000, 100_000, None), INTERVAL),
        (page(10, 1_000, Some(0)), ms(1_000)),
        (page(0, 0, None), ms(1_000)),
    ] {
        let (mut state, now) = reading(Options::default());
        state.answered(now, answer.clone());
        assert_eq!(state.step(now, WIDE), Step::Wait(now + wait), "{answer:?}");
        assert_eq!(state.wait(now), wait);
    }
}

#[test]
fn backs_off_while_nothing_comes_and_is_fast_again_with_the_first_record() {
    let options = Options { idle_ms: 500, idle_max_ms: 3_000, ..Options::default() };
    let (mut state, mut now) = reading(options);
    let mut wait = |answer: Answer| {
        state.answered(now, answer);
        let Step::Wait(until) = state.step(now, WIDE) else { panic!("no pause") };
        let waited = until - now;
        now = until;
        assert!(matches!(state.step(now, WIDE), Step::Read { .. }));
        waited
    };
    let empty = || page(0, 0, Some(0));
    let waits: Vec<_> = (0..5).map(|_| wait(empty())).collect();
    assert_eq!(waits, [500, 1_000, 2_000, 3_000, 3_000].map(ms));
    assert_eq!(wait(page(1, 10, Some(0))), ms(500));
    assert_eq!([wait(empty()), wait(empty())], [500, 1_000].map(ms));
    // Empty pages are nothing to rest at while the tip is ahead.
    assert_eq!([wait(page(0, 0, Some(9))), wait(page(0, 0, Some(9))), wait(empty())], [200, 200, 500].map(ms));
}

#[test]
fn a_page_that_ends_at_the_service_s_limit_is_full_where_no_lag_is_told() {
    for (bytes, idles) in [(9 * MIB, false), (10 * MIB, false), (8 * MIB, true)] {
        let slow = Options { idle_ms: 60_000, idle_max_ms: 60_000, ..Options::default() };
        let (mut state, now) = reading(slow);
        state.answered(now, page(30, bytes, None));
        let Step::Wait(until) = state.step(now, WIDE) else { panic!("no pause") };
        assert_eq!(until - now == ms(60_000), idles, "{bytes} bytes: {:?}", until - now);
    }
}

#[test]
fn trouble_begins_when_the_call_was_made_that_failed() {
    let (mut state, now) = reading(Options::default());
    let trouble = state.failed(now + ms(30_000), Failure::Unavailable, 0.5);
    assert_eq!(trouble, Trouble { since: now, failures: 1 });
}

#[test]
fn waits_until_the_service_can_give_as_many_bytes_again() {
    let (mut state, now) = reading(Options::default());
    state.answered(now + ms(150), page(100, 10 * MIB, Some(60_000)));
    assert_eq!(state.step(now + ms(150), WIDE), Step::Wait(now + ms(5_150)));
}

#[test]
fn asks_for_what_fits_the_demand() {
    let (mut state, now) = reading(Options::default());
    let limit = |state: &State, bytes| state.limit_for(Demand { records: 5_000, bytes });
    assert_eq!(limit(&state, 64 * MIB), 5_000);
    assert_eq!(limit(&state, MIB), 1_024);
    state.answered(now, page(100, 10 * MIB, None));
    assert_eq!(limit(&state, MIB), 10, "large records count at once");
    assert_eq!(limit(&state, 1), 1);
    state.step(now + ms(60_000), WIDE);
    state.answered(now, page(1_000, 100_000, None));
    assert_eq!(limit(&state, MIB), 13, "small ones only after a while");
}

#[test]
fn expects_twice_of_what_came_and_less_only_after_a_while() {
    let (mut state, now) = reading(Options::default());
    assert_eq!(state.expects(), 16 * MIB, "nothing is known of a shard that was not read");
    let mut expected = state.expects();
    for _ in 0..30 {
        state.answered(now, page(10, MIB, Some(0)));
        assert!(state.expects() >= expected * 3 / 4 && state.expects() <= expected);
        expected = state.expects();
    }
    assert_eq!(expected, 2 * MIB);
    state.answered(now, page(10, 3 * MIB, Some(0)));
    assert_eq!(state.expects(), 6 * MIB, "more at once");
    state.answered(now, page(10, 10 * MIB, Some(0)));
    assert_eq!(state.expects(), 16 * MIB, "and never more than a page can have");
    for _ in 0..30 {
        state.answered(now, page(0, 0, Some(0)));
    }
    assert_eq!(state.expects(), SMALLEST_PAGE);
}

#[test]
fn an_answer_that_was_too_large_is_asked_for_again_in_its_time_with_room_for_any() {
    let (mut state, now) = reading(Options::default());
    for _ in 0..30 {
        state.answered(now, page(10, MIB, Some(0)));
    }
    let now = now + ms(60_000);
    let Step::Read { iterator, .. } = state.step(now, WIDE) else { panic!("a read") };
    state.refused(now, 10 * MIB);
    assert!(state.was_refused());
    assert_eq!((state.expects(), state.trouble()), (16 * MIB, None));
    assert_eq!(state.step(now, WIDE), Step::Wait(now + ms(5_000)), "the service has counted it");
    let Step::Read { iterator: again, .. } = state.step(now + ms(5_000), WIDE) else { panic!("a read") };
    assert_eq!(iterator, again);
    state.answered(now, page(10, 10 * MIB, Some(0)));
    assert!(!state.was_refused());
}

#[test]
fn an_expired_iterator_is_renewed_at_once_after_the_last_record() {
    let (mut state, now) = reading(Options::default());
    state.failed(now + ms(300), Failure::Iterator, 0.5);
    assert_eq!(state.step(now + ms(300), WIDE), Step::TakeIterator(ReadFrom::TrimHorizon), "nothing was read yet");
    state.took_iterator("second".into());
    assert!(matches!(state.step(now + ms(500), WIDE), Step::Read { .. }));
    state.answered(now + ms(500), page(7, 70, Some(9)));
    state.failed(now + ms(900), Failure::Iterator, 0.5);
    assert_eq!(state.step(now + ms(900), WIDE), Step::TakeIterator(ReadFrom::After(number(7))));
}

#[test]
fn pauses_grow_up_to_a_bound_and_end_with_a_page() {
    let (mut state, mut now) = reading(Options::default());
    let started = now;
    let mut pauses = Vec::new();
    for failures in 1..=40 {
        let trouble = state.failed(now, Failure::Throttled, 1.0);
        assert_eq!(trouble, Trouble { since: started, failures });
        let Step::Wait(until) = state.step(now, WIDE) else { panic!("no pause after a throttle") };
        pauses.push(until - now);
        now = until;
        assert!(matches!(state.step(now, WIDE), Step::Read { .. }), "the iterator is still good");
    }
    assert_eq!(pauses[..5], [500, 1_000, 2_000, 4_000, 8_000].map(ms));
    assert!(pauses[5..].iter().all(|pause| *pause == LONGEST_PAUSE));
    assert_eq!(state.answered(now, page(1, 1, None)), Some(Trouble { since: started, failures: 40 }));
    assert_eq!(state.trouble(), None);
    assert_eq!(state.answered(now, page(1, 1, None)), None);
}

#[test]
fn the_end_is_final() {
    let (mut state, now) = reading(Options::default());
    state.answered(now, Answer { next_iterator: None, ..page(3, 30, Some(0)) });
    assert_eq!(state.step(now, WIDE), Step::Ended);
    assert_eq!(state.wait(now), Duration::ZERO);
}

/// A shard with numbered records, behind a service that fails and forgets iterators, and loses answers.
struct Service {
    random: SmallRng,
    records: u64,
    largest_record: u64,
    /// Percent of calls that fail.
    trouble: u32,
    now: Instant,
    reads: Vec<Instant>,
    iterators: Vec<Instant>,
    /// When a page was given, and its size.
    given: Vec<(Instant, u64)>,
}

impl Service {
    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn pass(&mut self) {
        self.now += ms(self.random.random_range(0..120));
    }

    fn position(from: &ReadFrom) -> u64 {
        match from {
            ReadFrom::TrimHorizon | ReadFrom::AtTimestamp(_) => 1,
            ReadFrom::At(number) => number.as_str().parse().unwrap(),
            ReadFrom::After(number) => number.as_str().parse::<u64>().unwrap() + 1,
        }
    }

    fn failure(&mut self) -> Failure {
        [Failure::Throttled, Failure::Unavailable, Failure::Iterator, Failure::Invalid][self.random.random_range(0..4)]
    }

    /// Reads to the end, and returns the records in the order in which they came.
    fn drive(&mut self, state: &mut State) -> Vec<u64> {
        let mut read = Vec::new();
        let mut idle_allowed = true;
        loop {
            let demand =
                Demand { records: self.random.random_range(1..3_000), bytes: self.random.random_range(1..4 * MIB) };
            match state.step(self.now, demand) {
                Step::Ended => return read,
                Step::Wait(until) => {
                    assert!(until > self.now);
                    assert!(idle_allowed || until - self.now <= INTERVAL, "idled while behind");
                    self.now = until;
                }
                Step::TakeIterator(from) => {
                    self.iterators.push(self.now);
                    self.pass();
                    if self.chance(self.trouble) {
                        let failure = self.failure();
                        state.failed(self.now, failure, self.random.random());
                        idle_allowed = true;
                    } else if !self.chance(self.trouble) {
                        state.took_iterator(Self::position(&from).to_string());
                    }
                }
                Step::Read { iterator, limit } => {
                    self.reads.push(self.now);
                    assert!(limit >= 1 && limit <= demand.records);
                    self.pass();
                    if self.chance(self.trouble) {
                        let failure = self.failure();
                        state.failed(self.now, failure, self.random.random());
                        idle_allowed = true;
                        continue;
                    }
                    let first: u64 = iterator.parse().unwrap();
                    let wanted = if self.chance(20) { self.random.random_range(0..=limit) } else { limit };
                    let last = (first + u64::from(wanted) - 1).min(self.records);
                    let records = (last + 1 - first) as u32;
                    let bytes = u64::from(records) * self.random.random_range(1..self.largest_record);
                    self.given.push((self.now, bytes));
                    // The answer is lost, as when the caller stops waiting.
                    if self.chance(self.trouble) {
                        continue;
                    }
                    read.extend(first..=last);
                    let at_end = last == self.records;
                    let closed = at_end && (records == 0 || self.chance(50));
                    state.answered(
                        self.now,
                        Answer {
                            records,
                            bytes,
                            memory: bytes + u64::from(records) * 32,
                            last: (records > 0).then(|| number(last)),
                            next_iterator: (!closed).then(|| (last + 1).to_string()),
                            millis_behind: Some(if at_end { 0 } else { 5 }),
                        },
                    );
                    idle_allowed = at_end || Options::default().time_for(bytes) > INTERVAL;
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn every_record_comes_once_in_order_and_within_the_services_limits(
        seed in any::<u64>(),
        records in 0..20_000_u64,
        largest_record in prop_oneof![Just(2_u64), Just(2_000), Just(50_000)],
        trouble in prop_oneof![Just(0_u32), 0..60_u32],
    ) {
        let now = Instant::now();
        let random = SmallRng::seed_from_u64(seed);
        let (reads, iterators, given) = (Vec::new(), Vec::new(), Vec::new());
        let mut service = Service { random, records, largest_record, trouble, now, reads, iterators, given };
        let mut state = State::new(Options::default(), ReadFrom::TrimHorizon, now);
        let read = service.drive(&mut state);

        prop_assert!(read.iter().copied().eq(1..=records), "{} of {records} records", read.len());
        for calls in [&service.reads, &service.iterators] {
            prop_assert!(calls.windows(2).all(|pair| pair[1] - pair[0] >= INTERVAL));
        }
        // A page is only paid for once its answer was seen.
        if trouble == 0 {
            for pair in service.given.windows(2) {
                let earned = (pair[1].0 - pair[0].0).as_secs_f64() * 2.0 * MIB as f64;
                prop_assert!(earned + 1.0 >= pair[0].1 as f64, "{} bytes, {earned} earned", pair[0].1);
            }
        }
    }
}
