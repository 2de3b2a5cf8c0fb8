//! What plans do about shard maps that are missing, old or new.

use super::*;
use crate::answer::Stored;
use crate::limits::MAX_RECORD_BYTES;

fn hurried() -> Options {
    Options { buffer_time: Duration::ZERO, ..Options::default() }
}

/// What is sent now goes to the service, and its answers come later.
fn put(bench: &mut Bench, request: &Request) -> Vec<Stored> {
    request.kinesis_records.iter().map(|record| bench.service.put(record)).collect()
}

fn answer(bench: &mut Bench, request: &Request, stored: Vec<Stored>) {
    bench.settle(request.id, stored.into_iter().map(Ok).collect());
}

#[test]
fn nothing_is_sent_without_a_map_and_none_is_wanted_without_records() {
    let mut bench = Bench::unmapped(hurried(), 2);
    assert_eq!(bench.plan.map_wanted(), None);
    bench.push(record("a", 1));
    assert_eq!(bench.plan.map_wanted(), Some(MapWanted::Now));
    assert_eq!(bench.waits(), Some(30_000));
    bench.map();
    assert_eq!(bench.plan.map_wanted(), None);
    let request = bench.sends();
    bench.store(&request);

    // Where nobody may list the shards, nothing can be sent.
    let mut bench = Bench::unmapped(hurried(), 2);
    bench.push(record("a", 1));
    let reason = Reason::refused(&failure(Kind::Operator("grant it"), "AccessDeniedException"));
    bench.plan.map_refused(&reason, bench.now);
    assert_eq!(bench.resolved().1, [(0, "refused")]);
}

#[test]
fn records_that_their_stream_does_not_take_are_invalid() {
    let mut bench = Bench::unmapped(Options { record_max_bytes: 10 << 20, ..hurried() }, 1);
    bench.push(record("a", 2 << 20));
    bench.push(record("a", 1));
    bench.plan.set_map(bench.service.map(), Some(MAX_RECORD_BYTES), bench.now, bench.now);
    bench.push(record("a", MAX_RECORD_BYTES));
    assert_eq!(bench.resolved().1, [(0, "invalid"), (2, "invalid")]);
    // The stream was given more.
    bench.plan.set_map(bench.service.map(), Some(4 << 20), bench.now, bench.now);
    bench.push(record("a", MAX_RECORD_BYTES));
    assert_eq!(bench.resolved().1, []);
    assert_eq!(counts(&bench.sends()), [1]);
}

#[test]
fn records_whose_shard_is_unknown_go_one_by_one_and_want_a_map() {
    let mut bench = Bench::unmapped(hurried(), 2);
    let (known, unknown) = (bench.key_of(1, 0), bench.key_of(0, 0));
    let half = Arc::new(ShardMap::new(bench.service.open[1..].to_vec()));
    bench.plan.set_map(half, None, bench.now, bench.now);
    for key in [&known, &unknown, &known, &unknown] {
        bench.push(record(key, 1));
    }
    assert_eq!(bench.plan.map_wanted(), Some(MapWanted::Sometime));
    let request = bench.sends();
    assert_eq!(counts(&request), [2, 1]);
    bench.store(&request);
    bench.map();
    let request = bench.sends();
    assert_eq!(counts(&request), [1]);
    bench.store(&request);
    let (mut stored, failed) = bench.resolved();
    stored.sort_unstable();
    assert_eq!((stored, failed), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn what_an_old_map_misled_is_sent_again_once_there_is_a_new_one() {
    let mut bench = Bench::new(hurried(), 1);
    let old = bench.service.map();
    bench.service.split(0);
    let (left, right) = (bench.key_of(0, 0), bench.key_of(1, 0));
    bench.plan.set_map(old, None, bench.now, bench.now);
    for key in [&left, &right, &left, &right] {
        bench.push(record(key, 1));
    }
    let request = bench.sends();
    assert_eq!(counts(&request), [4]);
    bench.push(record(&right, 2));
    bench.passes(10);
    bench.store(&request);
    assert_eq!(bench.plan.map_wanted(), Some(MapWanted::Now));
    assert_eq!(bench.resolved().0, [], "of none it is known whether it is in the right place");
    assert!(bench.next().is_none(), "what comes after it waits");
    // A listing that began before the answer came may be too old.
    let began = bench.now - Duration::from_millis(1);
    let half = Arc::new(ShardMap::new(bench.service.open[1..].to_vec()));
    bench.plan.set_map(half, None, began, bench.now);
    assert_eq!((bench.plan.map_wanted(), bench.resolved().0), (Some(MapWanted::Now), vec![]));
    bench.map();
    assert_eq!(bench.resolved().0, [0, 2]);
    assert_eq!(bench.plan.take_counts().misplaced, 2);
    let request = bench.sends();
    assert_eq!(counts(&request), [3], "in order: what was misled, then what came after it");
    let lengths: Vec<_> = model::unpack(&request.kinesis_records[0]).iter().map(|record| record.data.len()).collect();
    assert_eq!(lengths, [1, 1, 2]);
    bench.store(&request);
    assert_eq!(bench.resolved().0, [1, 3, 4]);
}

#[test]
fn what_went_to_a_shard_that_nobody_knows_any_more_is_sent_again_but_for_its_first_record() {
    for is_listed in [true, false] {
        let mut bench = Bench::new(hurried(), 1);
        bench.service.split(0);
        (0..3).for_each(|number| _ = bench.push(record(&format!("key-{number}"), 1)));
        let request = bench.sends();
        let stored = put(&mut bench, &request);
        bench.service.split(1);
        bench.service.split(0);
        answer(&mut bench, &request, stored);
        if is_listed {
            bench.map();
        } else {
            bench.plan.map_refused(&Reason::Stopped, bench.now);
        }
        assert_eq!(bench.resolved().0, [0]);
        assert_eq!(bench.plan.take_counts().misplaced, 2);
        assert!(bench.next().is_some());
    }
}

#[test]
fn what_is_never_decided_is_given_up_when_its_time_is_over() {
    let mut bench = Bench::new(hurried(), 1);
    bench.service.split(0);
    bench.push(record("a", 1));
    bench.passes(1_000);
    bench.push(record("b", 1));
    let request = bench.sends();
    bench.store(&request);
    assert_eq!(bench.waits(), Some(30_000));
    bench.passes(30_000);
    assert!(bench.next().is_none());
    let resolved = bench.plan.take_resolved();
    let found: Vec<_> = resolved.iter().map(|r| (r.item.id, r.result.is_ok(), r.item.may_be_stored())).collect();
    assert_eq!(found, [(1, false, true), (0, true, false)]);
    // The lane is free.
    bench.push(record("c", 1));
    assert_eq!(counts(&bench.sends()), [1]);
}

#[test]
fn shards_that_take_over_a_range_wait_for_what_was_sent_before() {
    for ordering in [Ordering::Key, Ordering::None] {
        let mut bench = Bench::new(Options { ordering, ..hurried() }, 3);
        // The first shard is split, the other two are merged.
        let keys: Vec<_> = (0..3).map(|shard| bench.key_of(shard, 0)).collect();
        for key in &keys[..2] {
            bench.push(record(key, 1));
        }
        let request = bench.sends();
        assert_eq!(counts(&request), [1, 1]);
        bench.service.split(0);
        bench.service.merge(2);
        bench.map();
        for key in &keys {
            bench.push(record(key, 2));
        }
        match ordering {
            Ordering::Key => assert!(bench.next().is_none(), "each of the new shards has what was in one that is gone"),
            Ordering::None => assert_eq!(counts(&bench.sends()).iter().sum::<usize>(), 3),
        }
        // One of them fails, and goes first where it belongs now.
        let stored = bench.service.put(&request.kinesis_records[1]);
        bench.settle(request.id, vec![Err(failure(Kind::Unknown, "timeout")), Ok(stored)]);
        assert_eq!(bench.resolved().0, [1]);
        if ordering == Ordering::Key {
            let request = bench.sends();
            assert_eq!(counts(&request), [2, 2]);
            let first = model::unpack(&request.kinesis_records[0]);
            assert_eq!(first.iter().map(|record| record.data.len()).collect::<Vec<_>>(), [1, 2]);
            bench.store(&request);
            assert_eq!(bench.resolved().0, [0, 2, 3, 4]);
        }
    }
}

#[test]
fn a_shard_that_stays_keeps_what_is_known_of_it() {
    let mut bench = Bench::new(hurried(), 2);
    let (stays, goes) = (bench.key_of(0, 0), bench.key_of(1, 0));
    bench.push(record(&stays, 1));
    bench.push(record(&goes, 1));
    let request = bench.sends();
    bench.settle(request.id, vec![throttled(), throttled()]);
    let began = bench.plan.failing_since();
    bench.service.split(1);
    bench.map();
    assert_eq!(bench.plan.failing_since(), began);
    let request = bench.sends();
    assert_eq!(request.kinesis_records[0].partition_key, goes, "a new shard has not failed");
    assert_eq!(bench.waits(), Some(100));
}
