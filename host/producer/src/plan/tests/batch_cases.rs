//! What plans do with the rules of batches.

use bytes::Bytes;
use shardmill_record::aggregate::Aggregator;

use super::*;
use crate::limits::MAX_RECORD_BYTES;

/// What a reader takes for an aggregate: one of two records, and bytes that only begin like one.
fn aggregate_and_lookalike(lookalike_bytes: usize) -> (Bytes, Bytes) {
    let mut aggregator = Aggregator::default();
    (0..2).for_each(|length| aggregator.push(&record("inside", length)));
    let (aggregate, _) = aggregator.finish().unwrap();
    let mut lookalike = aggregate[..4].to_vec();
    lookalike.resize(lookalike_bytes, 0);
    (aggregate, lookalike.into())
}

#[test]
fn data_that_are_an_aggregate_themselves_get_a_frame_of_their_own() {
    let (aggregate, lookalike) = aggregate_and_lookalike(100);
    let given = |key: &str, data: &Bytes| UserRecord { data: data.clone(), ..record(key, 0) };
    let options = BatchOptions { aggregate_max_bytes: 64, ..BatchOptions::default() };
    // Alone in its shard, too large for an aggregate with others, and where the shard is unknown.
    let mut alone = Bench::of_batches(&BatchOptions::default(), 2);
    let mut large = Bench::of_batches(&options, 2);
    let mut unknown = Bench::unmapped(options.options(), 2);
    let half = Arc::new(ShardMap::new(unknown.service.open[1..].to_vec()));
    unknown.plan.set_map(half, None, unknown.now, unknown.now);
    for (bench, records) in [(&mut alone, 1), (&mut large, 2), (&mut unknown, 2)] {
        for data in [&aggregate, &lookalike] {
            let key = bench.key_of(0, 0);
            (0..records).for_each(|_| _ = bench.push(given(&key, data)));
            bench.plan.flush(u64::MAX);
            for _ in 0..records {
                let request = bench.sends();
                assert_eq!(counts(&request), [1]);
                assert_eq!(model::unpack(&request.kinesis_records[0]), [given(&key, data)]);
                assert!(request.kinesis_records[0].data.len() > data.len() + 20);
                bench.store(&request);
            }
        }
        assert_eq!(bench.resolved().0.len(), 2 * records);
    }
    // Whoever has no aggregates means what he says.
    let mut plain = Bench::of_batches(&BatchOptions { aggregate: false, ..options }, 1);
    plain.push(given("k", &aggregate));
    let request = plain.sends();
    assert_eq!(
        (request.kinesis_records[0].partition_key.as_str(), &request.kinesis_records[0].data),
        ("k", &aggregate)
    );
}

#[test]
fn data_that_are_too_large_with_a_frame_of_their_own_are_invalid() {
    for (bytes, aggregate, taken) in [
        (MAX_RECORD_BYTES - 100, true, true),
        (MAX_RECORD_BYTES - 10, true, false),
        (MAX_RECORD_BYTES - 10, false, true),
    ] {
        let mut bench = Bench::of_batches(&BatchOptions { aggregate, ..BatchOptions::default() }, 1);
        bench.push(UserRecord { data: aggregate_and_lookalike(bytes).1, ..record("k", 0) });
        let resolved = bench.plan.take_resolved();
        assert_eq!(resolved.is_empty(), taken, "{bytes}");
        for resolved in resolved {
            let Err(Reason::Invalid(reason)) = resolved.result else { panic!("{resolved:?}") };
            let InvalidRecord::AggregateTooLarge { bytes, allowed } = reason else { panic!("{reason:?}") };
            assert!(bytes > allowed && allowed == MAX_RECORD_BYTES, "{reason}");
        }
        if taken {
            assert!(bench.sends().bytes <= MAX_RECORD_BYTES);
        }
    }
}

#[test]
fn batches_wait_for_no_more_records_and_never_give_up() {
    let mut bench = Bench::of_batches(&BatchOptions::default(), 1);
    (0..3_000).for_each(|_| _ = bench.push(record("k", 1_000)));
    let request = bench.sends();
    assert!((50_000..=51_201).contains(&request.bytes), "{}", request.bytes);
    assert_eq!(bench.waits(), None, "one of a shard is on its way at a time");
    bench.store(&request);
    let mut bench = Bench::of_batches(&BatchOptions::default(), 1);
    bench.push(record("k", 1));
    for _year in 0..10 {
        let request = bench.sends();
        assert_eq!(bench.waits(), None);
        bench.passes(365 * 24 * 3_600_000);
        bench.settle(request.id, vec![throttled()]);
        bench.passes(5_000);
    }
    assert_eq!(bench.resolved(), (vec![], vec![]));
    let request = bench.sends();
    bench.store(&request);
    assert_eq!(bench.resolved().0, [0]);
}

#[test]
fn plans_of_one_stream_keep_to_its_rates_together() {
    let options = BatchOptions { rate_limit_percent: 100, ..BatchOptions::default() };
    let rules = Rules::of_batches(&options.options());
    let rates = rules.rates();
    let mut benches: Vec<_> = (0..4)
        .map(|_| {
            let bench = Bench::unmapped(options.options(), 2);
            Bench { plan: Plan::with_rates(rules, rates.clone()), ..bench }
        })
        .collect();
    let start = benches[0].now;
    let mut sent = 0;
    for bench in &mut benches {
        bench.now = start;
        bench.map();
        let key = bench.key_of(0, 0);
        (0..20).for_each(|_| _ = bench.push(record(&key, 100_000)));
        while let Some(request) = bench.next() {
            bench.store(&request);
            sent += 1;
        }
    }
    assert_eq!(sent, 11, "a second's worth of one shard");
    // The other shard has its own, and nobody is told to come back too early.
    let key = benches[3].key_of(1, 0);
    benches[3].push(record(&key, 100_000));
    let request = benches[3].sends();
    benches[3].store(&request);
    let waits: Vec<_> = benches.iter_mut().map(|bench| bench.waits().unwrap()).collect();
    assert!(waits.iter().all(|wait| *wait == waits[0] && *wait > 0), "{waits:?}");
    // Without a limit there is none.
    let mut free = Bench::of_batches(&BatchOptions::default(), 1);
    (0..200).for_each(|_| _ = free.push(record("k", 100_000)));
    for _ in 0..200 {
        let request = free.sends();
        free.store(&request);
    }
}
