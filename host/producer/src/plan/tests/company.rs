//! Whom the fault of one record hits, and whom it does not.

use super::*;
use crate::limits::MAX_RECORD_BYTES;

fn refused() -> Outcome {
    let kind = Kind::Operator("check the producer's configuration and what answers at the endpoint");
    Err(failure(kind, "ValidationException"))
}

fn hurried(ordering: Ordering) -> Options {
    Options { ordering, buffer_time: Duration::ZERO, ..Options::default() }
}

#[test]
fn of_a_request_that_is_refused_only_the_record_fails_that_is_refused_alone() {
    for ordering in [Ordering::Key, Ordering::None] {
        let mut bench = Bench::new(hurried(ordering), 3);
        for number in 0..30 {
            bench.push(record(&format!("key-{number}"), 10 + number));
        }
        let bad =
            |kinesis_record: &KinesisRecord| model::unpack(kinesis_record).iter().any(|record| record.data.len() == 17);
        let (mut stored, mut failed, mut requests) = (Vec::new(), Vec::new(), 0);
        while stored.len() + failed.len() < 30 {
            bench.passes(1_000);
            while let Some(request) = bench.next() {
                requests += 1;
                if request.kinesis_records.iter().any(bad) {
                    let outcomes = request.kinesis_records.iter().map(|_| refused()).collect();
                    bench.settle(request.id, outcomes);
                } else {
                    bench.store(&request);
                }
            }
            let (more, given_up) = bench.resolved();
            stored.extend(more);
            failed.extend(given_up);
        }
        assert_eq!(failed, [(7, "refused")], "{ordering}");
        assert_eq!(stored.len(), 29);
        assert!(requests <= 32, "{requests}: one for all, and one for each");
        // Keys keep their order, and what comes later goes together again.
        bench.push(record("key-7", 10));
        bench.push(record("key-7", 10));
        bench.passes(1_000);
        let request = bench.sends();
        assert_eq!(counts(&request), [2]);
    }
}

#[test]
fn a_record_that_waits_goes_behind_one_that_is_suspected() {
    let mut bench = Bench::new(hurried(Ordering::Key), 1);
    bench.push(record("a", 10));
    bench.push(record("a", 11));
    let request = bench.sends();
    bench.settle(request.id, vec![refused()]);
    bench.push(record("a", 12));
    let mut sizes = Vec::new();
    while sizes.len() < 3 {
        bench.passes(1_000);
        let request = bench.sends();
        assert!(bench.next().is_none(), "one of the shard at a time");
        sizes.extend(request.kinesis_records.iter().flat_map(model::unpack).map(|record| record.data.len()));
        bench.store(&request);
    }
    assert_eq!(sizes, [10, 11, 12]);
    assert_eq!(bench.resolved(), (vec![0, 1, 2], vec![]));
}

#[test]
fn a_throttle_is_seen_beside_another_failure_of_its_shard() {
    let mut bench = Bench::new(Options { aggregate: false, ..hurried(Ordering::None) }, 1);
    for kind in [Kind::Unknown, Kind::Refused] {
        (0..2).for_each(|_| _ = bench.push(record("a", 10)));
        let request = bench.sends();
        let before = bench.plan.lanes[0].rate.as_ref().unwrap().part();
        bench.settle(request.id, vec![Err(failure(kind, "InternalFailure")), throttled()]);
        assert!(bench.plan.lanes[0].rate.as_ref().unwrap().part() < before, "{kind:?}");
        bench.passes(10_000);
        while let Some(request) = bench.next() {
            bench.store(&request);
        }
    }
}

#[test]
fn a_shard_that_takes_a_part_is_left_alone_for_longer_each_time() {
    let mut bench = Bench::new(Options { aggregate: false, ..hurried(Ordering::None) }, 1);
    (0..10).for_each(|_| _ = bench.push(record("a", 10)));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let request = bench.sends();
        let mut outcomes: Vec<Outcome> = request.kinesis_records.iter().map(|_| throttled()).collect();
        outcomes[0] = Ok(bench.service.put(&request.kinesis_records[0]));
        bench.settle(request.id, outcomes);
        let until = bench.plan.lanes[0].not_before.unwrap();
        waits.push(until - bench.now);
        bench.now = until;
        bench.passes(1_000);
    }
    assert!(waits.is_sorted() && waits[0] < waits[3], "{waits:?}");
    assert!(bench.plan.failing_since().is_some());

    // What was sent before the failure and comes after it changes nothing.
    let mut bench = Bench::new(Options { aggregate: false, request_max_records: 1, ..hurried(Ordering::None) }, 1);
    (0..2).for_each(|_| _ = bench.push(record("a", 10)));
    let early = bench.sends();
    bench.passes(5);
    let late = bench.sends();
    bench.settle(late.id, vec![throttled()]);
    bench.store(&early);
    assert!(bench.next().is_none(), "it is still left alone");
}

#[test]
fn a_stream_that_was_made_again_keeps_the_order_of_keys() {
    let mut bench = Bench::new(hurried(Ordering::Key), 2);
    // The same ids, and the ranges the other way round.
    let map = bench.service.map();
    let mut shards: Vec<_> = (0..2).map(|index| map.shard(index).clone()).collect();
    let (left, right) = (shards[0].range, shards[1].range);
    (shards[0].range, shards[1].range) = (right, left);
    let key = bench.key_of(0, 0);
    (1..=2).for_each(|length| _ = bench.push(record(&key, length)));
    let first = bench.sends();
    assert_eq!(counts(&first), [2]);
    bench.push(record(&key, 3));
    bench.service.open = shards;
    bench.map();
    bench.push(record(&key, 4));
    assert!(bench.next().is_none(), "what is on its way comes first");
    bench.settle(first.id, vec![throttled()]);
    bench.passes(1_000);
    let request = bench.sends();
    let sizes: Vec<_> =
        request.kinesis_records.iter().flat_map(model::unpack).map(|record| record.data.len()).collect();
    assert_eq!(sizes, [1, 2, 3, 4]);
}

#[test]
fn what_went_to_a_shard_that_nobody_knows_goes_alone_then() {
    let mut bench = Bench::new(hurried(Ordering::Key), 1);
    (0..5).for_each(|_| _ = bench.push(record("a", 10)));
    let request = bench.sends();
    let mut stored = bench.service.put(&request.kinesis_records[0]);
    stored.shard = shardmill_record::ShardId::parse("shardId-000000000099").unwrap();
    bench.settle(request.id, vec![Ok(stored)]);
    assert_eq!(bench.plan.map_wanted(), Some(MapWanted::Now));
    let reason = Reason::refused(&failure(Kind::Operator("grant it"), "AccessDeniedException"));
    bench.passes(1);
    bench.plan.map_refused(&reason, bench.now);
    assert_eq!(bench.resolved().0, [0]);
    for expected in 1..5 {
        bench.passes(1_000);
        let request = bench.sends();
        assert_eq!(counts(&request), [1], "each new aggregate would only take one along");
        bench.store(&request);
        let resolved = bench.plan.take_resolved();
        assert!(resolved.iter().all(|resolved| resolved.item.id == expected && resolved.item.may_be_repeated));
        assert_eq!(resolved.len(), 1);
    }
}

#[test]
fn a_record_that_may_wait_as_long_as_it_may_live_is_sent() {
    let second = Duration::from_secs(1);
    let mut bench = Bench::new(Options { record_ttl: second, buffer_time: second, ..Options::default() }, 1);
    bench.push(record("a", 10));
    assert_eq!(bench.waits(), Some(500));
    bench.passes(500);
    let request = bench.sends();
    bench.settle(request.id, vec![throttled()]);
    bench.passes(200);
    let request = bench.sends();
    bench.store(&request);
    assert_eq!(bench.resolved(), (vec![0], vec![]));
}

#[test]
fn a_record_that_is_too_large_wants_to_know_whether_the_stream_takes_more_by_now() {
    let options = Options { record_max_bytes: 10 << 20, ..hurried(Ordering::Key) };
    let mut bench = Bench::unmapped(options, 1);
    bench.plan.set_map(bench.service.map(), Some(MAX_RECORD_BYTES), bench.now, bench.now);
    assert_eq!(bench.plan.map_wanted(), None);
    bench.push(record("a", 2 << 20));
    assert_eq!(bench.resolved().1, [(0, "invalid")]);
    assert_eq!(bench.plan.map_wanted(), Some(MapWanted::Sometime));
    // Where it cannot take more, nothing is wanted.
    let mut bench = Bench::new(hurried(Ordering::Key), 1);
    bench.push(record("a", 2 << 20));
    assert_eq!((bench.resolved().1.len(), bench.plan.map_wanted()), (1, None));
}

#[test]
fn what_expires_without_a_map_says_why_there_is_none() {
    let mut bench = Bench::unmapped(Options { record_ttl: Duration::from_secs(1), ..Options::default() }, 1);
    bench.push(record("a", 10));
    bench.plan.map_failed(&failure(Kind::Refused, "LimitExceededException"));
    bench.passes(1_000);
    assert!(bench.next().is_none());
    let resolved = bench.plan.take_resolved();
    let Err(Reason::Expired { last: Some(last) }) = &resolved[0].result else { panic!("{resolved:?}") };
    assert_eq!(last.code, "LimitExceededException");
}

#[test]
fn a_large_aggregate_that_failed_is_back_in_no_time() {
    let mut bench = Bench::new(Options { aggregate_max_bytes: 1_000_000, ..hurried(Ordering::Key) }, 1);
    (0..60_000).for_each(|_| _ = bench.push(record("a", 1)));
    let request = bench.sends();
    assert!(counts(&request)[0] > 40_000, "{:?}", counts(&request));
    (0..60_000).for_each(|_| _ = bench.push(record("a", 1)));
    bench.settle(request.id, vec![throttled()]);
    let ids: Vec<u64> = bench.plan.lanes[0].waiting.iter().map(|item| item.id).collect();
    assert!(ids.is_sorted() && ids.len() == 120_000);
}
