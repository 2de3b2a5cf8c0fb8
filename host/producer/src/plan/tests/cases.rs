use shardmill_record::SequenceNumber;

use super::*;
use crate::limits::{HIGHEST_RECORD_BYTES, MAX_RECORD_BYTES};

#[test]
fn records_wait_for_others_until_there_are_enough_or_it_is_time() {
    let mut bench = Bench::new(Options { aggregate_max_bytes: 1_000, ..Options::default() }, 1);
    assert_eq!(bench.waits(), None);
    bench.push(record("a", 100));
    assert_eq!(bench.waits(), Some(100));
    bench.passes(99);
    bench.push(record("b", 100));
    assert_eq!(bench.waits(), Some(1), "the first one's time counts");
    bench.passes(1);
    let request = bench.sends();
    assert_eq!(counts(&request), [2]);
    assert_eq!(request.buffered, [Duration::from_millis(100), Duration::from_millis(1)]);
    bench.store(&request);
    assert_eq!(bench.resolved(), (vec![0, 1], vec![]));

    // Enough for an aggregate waits for nothing.
    (0..10).for_each(|_| _ = bench.push(record("c", 100)));
    let request = bench.sends();
    assert_eq!(counts(&request), [9], "the frame takes something too");
    assert!(request.kinesis_records[0].data.len() <= 1_000);
    bench.store(&request);
    assert_eq!(bench.waits(), Some(100), "the rest is few again");
    let below = bench.next_id;
    bench.plan.flush(below);
    bench.push(record("d", 100));
    let request = bench.sends();
    assert_eq!(counts(&request), [2], "one that is alone takes along what is there");
    bench.store(&request);
    bench.push(record("e", 100));
    assert_eq!(bench.waits(), Some(100), "it was not there yet");
}

#[test]
fn who_has_waited_for_half_of_the_time_goes_along() {
    let mut bench = Bench::new(Options::default(), 3);
    let keys: Vec<_> = (0..3).map(|shard| bench.key_of(shard, 0)).collect();
    bench.push(record(&keys[0], 10));
    bench.passes(50);
    bench.push(record(&keys[1], 10));
    bench.passes(1);
    bench.push(record(&keys[2], 10));
    bench.passes(49);
    let request = bench.sends();
    assert_eq!(counts(&request), [1, 1]);
    let sent: Vec<_> = request.kinesis_records.iter().map(|record| record.partition_key.clone()).collect();
    assert_eq!(sent, keys[..2]);
    assert_eq!(bench.waits(), Some(51));
}

#[test]
fn a_record_alone_is_not_framed_and_one_too_large_for_aggregates_goes_alone() {
    let mut bench = Bench::new(Options { aggregate_max_bytes: 1_000, ..Options::default() }, 1);
    for length in [100, 2_000, 100, 100] {
        bench.push(record("a", length));
    }
    bench.plan.flush(u64::MAX);
    for expected in [vec![100], vec![2_000], vec![]] {
        let request = bench.sends();
        let lengths = if counts(&request) == [1] { vec![request.kinesis_records[0].data.len()] } else { vec![] };
        assert_eq!(lengths, expected);
        assert!(bench.next().is_none(), "one of a shard is on its way at a time");
        bench.store(&request);
    }
    assert_eq!(bench.resolved().0, [0, 1, 2, 3]);
}

#[test]
fn the_services_limits_are_kept_at_their_real_size() {
    let none =
        Options { ordering: Ordering::None, aggregate: false, rate_limit_percent: 100_000, ..Options::default() };
    let mut bench = Bench::new(none.clone(), 1);
    (0..1_100).for_each(|_| _ = bench.push(record("k", 9)));
    for expected in [500, 500] {
        let request = bench.sends();
        assert_eq!((request.kinesis_records.len(), request.bytes), (expected, expected * 10));
    }
    assert_eq!(bench.waits(), Some(100), "what does not fill a request waits for more");

    let mut bench = Bench::new(none.clone(), 1);
    (0..6).for_each(|_| _ = bench.push(record("k", MAX_RECORD_BYTES - 1)));
    let request = bench.sends();
    assert_eq!((request.kinesis_records.len(), request.bytes), (5, 5 << 20));

    // A record that is larger than requests are to be goes in one of its own.
    let large = Options { record_max_bytes: HIGHEST_RECORD_BYTES, ..none };
    let mut bench = Bench::new(large, 1);
    for length in [9, HIGHEST_RECORD_BYTES - 1, 9] {
        bench.push(record("k", length));
    }
    bench.passes(100);
    let sizes: Vec<_> = (0..3).map(|_| bench.sends().bytes).collect();
    assert_eq!(sizes, [10, HIGHEST_RECORD_BYTES, 10]);

    let mut bench = Bench::new(Options { aggregate_max_bytes: MAX_RECORD_BYTES - 1, ..Options::default() }, 1);
    (0..3_000).for_each(|_| _ = bench.push(record("k", 1_000)));
    let request = bench.sends();
    assert_eq!(request.kinesis_records.len(), 1);
    assert!((MAX_RECORD_BYTES - 1_100..=MAX_RECORD_BYTES).contains(&request.bytes));
}

#[test]
fn no_more_requests_are_on_their_way_than_allowed() {
    let options = Options { max_requests: 2, buffer_time: Duration::ZERO, ..Options::default() };
    let mut bench = Bench::new(Options { ordering: Ordering::None, ..options }, 1);
    let mut requests = Vec::new();
    for _ in 0..2 {
        bench.push(record("a", 10));
        requests.push(bench.sends());
    }
    bench.push(record("a", 10));
    assert!(bench.next().is_none());
    bench.store(&requests[1]);
    bench.sends();
}

#[test]
fn a_shard_that_fails_is_left_alone_for_longer_each_time_and_others_go_on() {
    let mut bench = Bench::new(Options { buffer_time: Duration::ZERO, ..Options::default() }, 2);
    let (first, second) = (bench.key_of(0, 0), bench.key_of(1, 0));
    bench.push(record(&first, 1));
    bench.push(record(&second, 1));
    let request = bench.sends();
    let began = bench.now;
    let stored = Ok(bench.service.put(&request.kinesis_records[1]));
    bench.settle(request.id, vec![throttled(), stored]);
    assert_eq!(bench.plan.failing_since(), Some(began));
    assert_eq!(bench.resolved().0, [1]);
    assert_eq!(bench.waits(), Some(100));
    bench.push(record(&second, 2));
    bench.push(record(&first, 2));
    let request = bench.sends();
    assert_eq!(counts(&request), [1]);
    bench.store(&request);
    bench.passes(100);
    let request = bench.sends();
    assert_eq!(counts(&request), [2], "what came meanwhile goes with it");
    bench.settle(request.id, vec![throttled()]);
    assert_eq!(bench.waits(), Some(200));
    bench.passes(200);
    let request = bench.sends();
    bench.store(&request);
    assert_eq!(bench.plan.failing_since(), None);
    let attempts: Vec<_> = bench.plan.take_resolved().iter().map(|resolved| resolved.item.attempts).collect();
    assert_eq!(attempts, [1, 3, 2]);
    let counts = bench.plan.take_counts();
    assert_eq!((counts.acknowledged, counts.retries, counts.possible_repeats), (4, 2, 0));
}

#[test]
fn a_shards_rate_bounds_what_is_sent_to_it_and_throttles_lower_it() {
    let options = Options { buffer_time: Duration::ZERO, rate_limit_percent: 100, ..Options::default() };
    let mut bench = Bench::new(options, 1);
    (0..40).for_each(|_| _ = bench.push(record("k", 100_000)));
    let mut sent = 0;
    let from = bench.now;
    while let Some(request) = bench.next() {
        bench.store(&request);
        sent += 1;
    }
    assert_eq!(sent, 11, "a second's worth");
    while sent < 40 {
        match bench.plan.next(bench.now) {
            Next::Send(request) => {
                bench.store(&request);
                sent += 1;
            }
            Next::Wait(until) => bench.now = until.unwrap(),
        }
    }
    let seconds = (bench.now - from).as_secs_f64();
    assert!((2.6..=2.9).contains(&seconds), "{seconds}");
    // What waits expires in the end.
    bench.push(record("k", 100_000));
    bench.passes(31_000);
    assert!(bench.next().is_none());
    assert_eq!(bench.resolved().1, [(40, "expired")]);
}

#[test]
fn a_records_time_is_over_with_the_reason_of_its_last_attempt() {
    let mut bench = Bench::new(Options { record_ttl: Duration::from_secs(1), ..Options::default() }, 1);
    bench.push(record("a", 1));
    bench.passes(100);
    let request = bench.sends();
    bench.push(record("a", 2));
    assert_eq!(bench.waits(), Some(1_000), "the second one's time; of the first nobody knows yet");
    bench.passes(950);
    bench.settle(request.id, vec![Err(failure(Kind::Unknown, "timeout"))]);
    assert!(bench.next().is_none());
    let resolved = bench.plan.take_resolved();
    let Resolved { item, result: Err(Reason::Expired { last: Some(last) }) } = &resolved[0] else {
        panic!("{resolved:?}")
    };
    assert_eq!((item.id, item.attempts, item.may_be_stored(), last.code.as_str()), (0, 1, true, "timeout"));
    bench.passes(49);
    assert!(bench.resolved().1.is_empty());
    bench.passes(1);
    assert!(bench.next().is_none());
    assert_eq!(bench.resolved(), (vec![], vec![(1, "expired")]));
    assert_eq!(bench.waits(), None);
}

#[test]
fn throttled_records_fail_at_once_where_that_is_wanted() {
    let options = Options { fail_if_throttled: true, buffer_time: Duration::ZERO, ..Options::default() };
    let mut bench = Bench::new(options, 1);
    bench.push(record("a", 1));
    bench.push(record("b", 1));
    let request = bench.sends();
    bench.settle(request.id, vec![throttled()]);
    assert_eq!(bench.resolved().1, [(0, "throttled"), (1, "throttled")]);
    bench.push(record("c", 1));
    bench.passes(100);
    let request = bench.sends();
    bench.settle(request.id, vec![Err(failure(Kind::Refused, "connection"))]);
    assert_eq!(bench.resolved(), (vec![], vec![]), "other failures are tried again");
    assert!(bench.waits().is_some());
}

#[test]
fn what_somebody_has_to_mend_is_refused_at_once() {
    let mut bench = Bench::new(Options { buffer_time: Duration::ZERO, ..Options::default() }, 1);
    bench.push(record("a", 1));
    let request = bench.sends();
    bench.settle(request.id, vec![Err(failure(Kind::Operator("grant it"), "AccessDeniedException"))]);
    let resolved = bench.plan.take_resolved();
    let Err(Reason::Refused(refusal)) = &resolved[0].result else { panic!("{resolved:?}") };
    assert_eq!((refusal.code.as_str(), refusal.advice), ("AccessDeniedException", "grant it"));
    assert!(!resolved[0].item.may_be_stored());
    // The next one is tried, and not at once.
    bench.push(record("b", 1));
    assert_eq!(bench.waits(), Some(100));
}

#[test]
fn lost_answers_are_counted_when_their_records_go_again() {
    let mut bench = Bench::new(Options { buffer_time: Duration::ZERO, ..Options::default() }, 1);
    (0..3).for_each(|_| _ = bench.push(record("a", 1)));
    let request = bench.sends();
    let stored = bench.service.put(&request.kinesis_records[0]);
    bench.settle(request.id, vec![Err(failure(Kind::Unknown, "timeout"))]);
    assert_eq!(bench.plan.take_counts().possible_repeats, 0, "nothing went again");
    bench.passes(100);
    let request = bench.sends();
    assert_eq!(bench.plan.take_counts().possible_repeats, 3);
    bench.store(&request);
    let resolved = bench.plan.take_resolved();
    assert!(resolved.iter().all(|resolved| resolved.item.may_be_repeated));
    let after = |number: &SequenceNumber| *number > stored.sequence_number;
    assert!(
        resolved
            .iter()
            .all(|resolved| resolved.result.as_ref().is_ok_and(|place| after(&place.stored.sequence_number)))
    );
    assert_eq!(bench.service.kept.len(), 6);
}

#[test]
fn everything_is_resolved_when_it_is_given_up() {
    let mut bench = Bench::new(Options { buffer_time: Duration::ZERO, ..Options::default() }, 2);
    let (first, second) = (bench.key_of(0, 0), bench.key_of(1, 0));
    bench.push(record(&first, 1));
    bench.push(record(&first, 1));
    let on_its_way = bench.sends();
    bench.push(record(&first, 1));
    bench.push(record(&second, 1));
    bench.plan.give_up(&Reason::Stopped);
    let mut resolved: Vec<_> = bench.plan.take_resolved();
    resolved.sort_by_key(|resolved| resolved.item.id);
    let found: Vec<_> = resolved.iter().map(|resolved| (resolved.item.id, resolved.item.may_be_stored())).collect();
    assert_eq!(found, [(0, true), (1, true), (2, false), (3, false)]);
    assert!(resolved.iter().all(|resolved| resolved.result == Err(Reason::Stopped)));
    // Its answer comes too late.
    bench.store(&on_its_way);
    assert_eq!(bench.resolved(), (vec![], vec![]));
    assert_eq!(bench.waits(), None);
}
