//! Shards whose records are spread over lanes and batchers, and what a filter keeps out.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use shardmill_filter::{Filter, OnInvalidJson, Pattern};
use tokio::time::Instant;

use super::fakes::GARBLED;
use super::*;
use crate::{Batcher, Flow, Window};

fn filter(pattern: &str, on_invalid_json: OnInvalidJson) -> Filter {
    Filter::new(vec![Pattern::parse(pattern).unwrap()], on_invalid_json).unwrap()
}

fn spread(flow: Flow) -> Options {
    Options { flow: Arc::new(flow), ..options() }
}

fn lanes(lanes: u32) -> Options {
    spread(Flow { lanes, ..Flow::default() })
}

/// By key, in the order in which they were sent.
fn by_key(sent: &[String]) -> HashMap<u64, Vec<u64>> {
    let mut by_key: HashMap<u64, Vec<u64>> = HashMap::new();
    for number in sent.iter().map(|text| text.parse::<u64>().unwrap()) {
        by_key.entry(number % super::fakes::KEYS).or_default().push(number);
    }
    by_key
}

fn assert_order_of_keys(sent: &[String]) {
    for (key, numbers) in by_key(sent) {
        assert!(numbers.is_sorted(), "key {key}: {numbers:?}");
    }
}

/// So many records through a guest that waits: in how many milliseconds.
async fn takes(parallelism: u32) -> u128 {
    let began = Instant::now();
    let run = Run::start_with(lanes(parallelism), [(1..=6000).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("all is sent", |run| run.kept.sent().len() == 6000).await;
    let took = began.elapsed().as_millis();
    assert_order_of_keys(&run.kept.sent());
    run.until("all is checkpointed", |run| run.checkpoint() == "6000/0").await;
    took
}

#[tokio::test(start_paused = true)]
async fn lanes_multiply_what_a_waiting_guest_gets_done() {
    let (one, four) = (takes(1).await, takes(4).await);
    assert!(four * 3 < one, "{one} ms alone, {four} ms in four lanes");
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_one_lane_lets_the_others_finish_and_the_checkpoint_stays_before_it() {
    let once = FailurePolicy { attempts: 1, ..options().failure };
    let options = Options { failure: once, ..lanes(4) };
    let run = Run::start_with(options, [(1..=200).collect()], false, |_, batch| {
        Ok(failing(batch, |number| number == 57, true))
    })
    .await;
    let reason = run.stopped().await;
    assert!(reason.contains("57/0") && reason.contains("poison"), "{reason}");
    run.until("what stands before it is checkpointed", |run| run.checkpoint() == "56/0").await;
    let sent = run.kept.sent();
    assert!(!sent.contains(&"57".to_owned()) && sent.len() >= 56, "{sent:?}");
    assert_order_of_keys(&sent);
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_what_is_on_its_way_and_hands_out_nothing_more() {
    let run = Run::start_with(lanes(4), [(1..=5000).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("some are sent", |run| run.kept.sent().len() >= 100).await;
    run.drain.cancel();
    let (store, kept) = (run.store.clone(), Arc::clone(&run.kept));
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    let mut sent: Vec<u64> = kept.sent().iter().map(|text| text.parse().unwrap()).collect();
    sent.sort_unstable();
    assert!(sent.len() < 1000, "{}", sent.len());
    let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    let done = sent.iter().zip(1..).take_while(|(number, expected)| *number == expected).count();
    assert_eq!(row.checkpoint.to_string(), format!("{done}/0"), "up to the first that was not handed out");
}

#[tokio::test(start_paused = true)]
async fn a_shard_ends_when_every_lane_has_ended() {
    let run = Run::start_with(lanes(3), [(1..=100).collect()], true, |_, batch| Ok(copy(batch))).await;
    let kept = Arc::clone(&run.kept);
    assert_eq!(run.task.await.unwrap(), Ended::Complete);
    assert_eq!(kept.sent().len(), 100);
    assert_eq!(run.guest.told().last(), Some(&"shard-ended"));
}

#[tokio::test(start_paused = true)]
async fn memory_goes_back_while_lanes_go_on() {
    let pages: Vec<Vec<u64>> = (0..50).map(|page| (page * 100 + 1..=page * 100 + 100).collect()).collect();
    let run = Run::start_with(lanes(2), pages, false, |_, batch| Ok(copy(batch))).await;
    run.until("all is sent", |run| run.kept.sent().len() == 5000).await;
    // But for the page that is asked for.
    let asked = crate::feed::PAGE_BYTES + 2 * super::BATCH;
    run.until("nothing is held", |run| run.budget.available() == BUDGET - asked).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_filter_keeps_out_is_done_and_not_seen() {
    let pattern = r#"{"partitionKey": ["k001", "k002"]}"#;
    for lanes in [1, 3] {
        let flow = Flow { filter: Some(filter(pattern, OnInvalidJson::Drop)), lanes, ..Flow::default() };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let seeing = Arc::clone(&seen);
        let run =
            Run::start_with(spread(flow), [(1..=100).collect(), (101..=103).collect()], false, move |_, batch| {
                seeing.lock().unwrap().extend(batch.iter().map(|record| number(record.data)));
                Ok(copy(batch))
            })
            .await;
        // The last ones are all filtered out.
        run.until("all is checkpointed", |run| run.checkpoint() == "103/0").await;
        let expected: Vec<u64> = (1..=103).filter(|number| [1, 2].contains(&(number % super::fakes::KEYS))).collect();
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        assert_eq!(seen, expected);
        let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
        assert_eq!(run.metrics.records_done.get_or_create(&labels).get(), expected.len() as u64);
        assert_eq!(run.metrics.records_settled("p", "s"), 103);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_filter_cannot_read_fails_as_the_policy_says() {
    let pattern = r#"{"data": {"n": [{"numeric": [">", 0]}]}}"#;
    for parallelism in [1, 3] {
        let flow = Flow { filter: Some(filter(pattern, OnInvalidJson::Fail)), lanes: parallelism, ..Flow::default() };
        let failure = FailurePolicy { then: Then::DeadLetter, ..options().failure };
        let options = Options { failure, ..spread(flow) };
        let store = Memory::new();
        let reader = FakeReader { pages: [(GARBLED + 1..=GARBLED + 20).collect()].into(), ends: false };
        let guest = FakeGuest::new(|_, _| panic!("nothing is handed over"));
        let run = Run::start_of(store, None, options, guest, reader).await;
        run.until("all is checkpointed", |run| run.checkpoint() == "1000020/0").await;
        let letters = run.letters.stored.lock().unwrap();
        assert_eq!(letters.len(), 20);
        assert!(letters.iter().all(|letter| letter.reason.contains("not JSON") && letter.attempts == 0), "{letters:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn batchers_have_records_and_limits_of_their_own() {
    let few = BatchOptions { limits: BatchLimits { records: 2, bytes: 1 << 20 }, ..BatchOptions::default() };
    let batchers = vec![Batcher {
        name: "few".into(),
        when: Some(filter(r#"{"partitionKey": [{"prefix": "k00"}]}"#, OnInvalidJson::Drop)),
        batch: few,
    }];
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let noting = Arc::clone(&sizes);
    let run =
        Run::start_with(spread(Flow { batchers, ..Flow::default() }), [(1..=240).collect()], false, move |_, batch| {
            let is_one = |key: &str| key.starts_with("k00");
            let ones = batch.iter().filter(|record| is_one(record.partition_key)).count();
            assert!(ones == 0 || ones == batch.len(), "they are not mixed");
            noting.lock().unwrap().push((ones > 0, batch.len()));
            Ok(copy(batch))
        })
        .await;
    run.until("all is checkpointed", |run| run.checkpoint() == "240/0").await;
    let sizes = sizes.lock().unwrap();
    assert!(sizes.iter().all(|(is_few, size)| *size <= if *is_few { 2 } else { 10 }), "{sizes:?}");
    assert!(sizes.iter().any(|(is_few, size)| !is_few && *size == 10));
    assert_order_of_keys(&run.kept.sent());
}

#[tokio::test(start_paused = true)]
async fn windows_are_not_mixed_and_a_silence_is_told() {
    // Each record arrives a millisecond after the one before, and the wall clock began with them.
    let window = Some(Window { length: Duration::from_millis(50) });
    let batch = BatchOptions {
        limits: BatchLimits { records: 1000, bytes: 1 << 20 },
        wait: Duration::from_millis(50),
        window,
        empty: true,
    };
    let batches = Arc::new(Mutex::new(Vec::new()));
    let noting = Arc::clone(&batches);
    let run = Run::start_with(Options { batch, ..options() }, [(1..=220).collect()], false, move |_, batch| {
        noting.lock().unwrap().push(batch.iter().map(|record| record.approximate_arrival).collect::<Vec<_>>());
        Ok(copy(batch))
    })
    .await;
    run.until("a silence is told", |_| batches.lock().unwrap().last().is_some_and(Vec::is_empty)).await;
    let batches = batches.lock().unwrap();
    let windows: Vec<Vec<u64>> = batches.iter().filter(|batch| !batch.is_empty()).cloned().collect();
    assert_eq!(windows.len(), 5);
    for (window, arrivals) in (0..).zip(&windows) {
        assert!(arrivals.iter().all(|arrival| arrival / 50 == window), "{window}: {arrivals:?}");
    }
    assert_eq!(run.kept.sent(), texts(1..=220));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the guest takes and wherever the worker dies: a successor goes on from the checkpoint, nothing is
    /// missing, and what comes first of each record is in the order of its key.
    #[test]
    fn a_successor_misses_nothing(
        parallelism in 2..6u32, seed in any::<u64>(), dies_after in 1..400u64, records in 100..800u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let often = Options { checkpoint_interval: Duration::from_millis(20), ..lanes(parallelism) };
            let guest = || {
                let mut guest = FakeGuest::new(|_, batch| Ok(copy(batch)));
                guest.varies = Some(seed);
                guest
            };
            let reader = |from: u64| FakeReader { pages: [(from..=records).collect()].into(), ends: false };
            let store = Memory::new();
            let run = Run::start_of(store.clone(), None, often.clone(), guest(), reader(1)).await;
            sleep(Duration::from_millis(dies_after)).await;
            run.abort.cancel();
            let first = run.kept.clone();
            run.drain.cancel();
            let _ended = run.task.await.unwrap();
            let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
            let done = row.checkpoint.position().map_or(0, |at| at.sequence_number.to_string().parse::<u64>().unwrap());
            let mut sent: Vec<u64> = first.sent().iter().map(|text| text.parse().unwrap()).collect();
            let before: std::collections::HashSet<u64> = sent.iter().copied().collect();
            assert!((1..=done).all(|number| before.contains(&number)), "the checkpoint at {done} has passed what was not sent");
            let run = Run::start_of(Memory::new(), None, often, guest(), reader(done + 1)).await;
            run.until("all is sent", |run| run.kept.sent().len() as u64 == records - done).await;
            sent.extend(run.kept.sent().iter().map(|text| text.parse::<u64>().unwrap()));
            let mut seen = std::collections::HashSet::new();
            let firsts: Vec<String> = sent.into_iter().filter(|number| seen.insert(*number)).map(|number| number.to_string()).collect();
            assert_eq!(firsts.len() as u64, records);
            assert_order_of_keys(&firsts);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_says_how_far_the_checkpoint_goes_says_nothing_of_what_it_does_not_see() {
    let pattern = r#"{"partitionKey": [{"anything-but": ["k030"]}]}"#;
    let flow = Flow { filter: Some(filter(pattern, OnInvalidJson::Drop)), ..Flow::default() };
    let options = Options { checkpoint: CheckpointBy::Guest, ..spread(flow) };
    let run = Run::start_with(options, [(1..=29).collect(), vec![30]], true, |_, batch| {
        Ok(Outcome { checkpoint: Some(batch.position(batch.len() - 1)), ..copy(batch) })
    })
    .await;
    // The last one is filtered out alone.
    assert_eq!(run.task.await.unwrap(), Ended::Complete);
}

#[tokio::test(start_paused = true)]
async fn where_an_unreadable_record_stops_the_shard_what_stands_before_it_is_done() {
    // Numbers match as texts, and what is no JSON fails.
    let patterns = [r#"{"data": [{"anything-but": {"prefix": "no"}}]}"#, r#"{"data": {"n": [1]}}"#];
    let patterns = patterns.map(|pattern| Pattern::parse(pattern).unwrap()).to_vec();
    for parallelism in [1, 3] {
        let filter = Filter::new(patterns.clone(), OnInvalidJson::Fail).unwrap();
        let flow = Flow { filter: Some(filter), lanes: parallelism, ..Flow::default() };
        let pages = [(1..=4).chain([GARBLED + 1, GARBLED + 2]).collect()];
        let run = Run::start_with(spread(flow), pages, false, |_, batch| Ok(copy(batch))).await;
        let reason = run.stopped().await;
        assert!(reason.contains("1000001/0") && reason.contains("not JSON"), "{reason}");
        run.until("what stands before it is checkpointed", |run| run.checkpoint() == "4/0").await;
        assert_eq!(run.kept.sent().len(), 4);
    }
}

/// A guest that is never done.
fn stuck() -> FakeGuest {
    FakeGuest { takes: Duration::from_secs(1_000_000), ..FakeGuest::new(|_, batch| Ok(copy(batch))) }
}

#[tokio::test(start_paused = true)]
async fn at_most_once_the_checkpoint_is_behind_a_timed_batch_before_it_is_handed_over() {
    let limits = BatchLimits { records: 1000, bytes: 1 << 20 };
    let wait = Duration::from_millis(50);
    let window = Some(Window { length: Duration::from_secs(60) });
    for batch in [
        BatchOptions { limits, wait, window, empty: false },
        BatchOptions { limits, wait, window: None, empty: true },
        BatchOptions { limits, wait: Duration::ZERO, window, empty: false },
    ] {
        let failure = FailurePolicy { then: Then::DeadLetter, ..options().failure };
        let options = Options { batch, delivery: Delivery::AtMostOnce, failure, ..options() };
        let reader = || FakeReader { pages: [(1..=10).collect()].into(), ends: false };
        let run = Run::start_of(Memory::new(), None, options.clone(), stuck(), reader()).await;
        run.until("the checkpoint is behind what the guest has", |run| run.checkpoint() == "10/0").await;
        // And stays there when the guest is done, and where it fails.
        let guest = FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 4, true)));
        let run = Run::start_of(Memory::new(), None, options, guest, reader()).await;
        run.until("what fails is given up at once", |run| run.letters.stored.lock().unwrap().len() == 1).await;
        run.until("the others are sent", |run| run.kept.sent().len() == 9).await;
        assert_eq!(run.checkpoint(), "10/0");
    }
}

#[tokio::test(start_paused = true)]
async fn in_windows_too_a_guest_says_nothing_of_what_it_does_not_see() {
    let pattern = r#"{"partitionKey": [{"anything-but": ["k030"]}]}"#;
    let flow = Flow { filter: Some(filter(pattern, OnInvalidJson::Drop)), ..Flow::default() };
    let window = Some(Window { length: Duration::from_secs(60) });
    let batch = BatchOptions { window, ..options().batch };
    let options = Options { checkpoint: CheckpointBy::Guest, batch, ..spread(flow) };
    let run = Run::start_with(options, [(1..=29).collect(), vec![30]], true, |_, batch| {
        Ok(Outcome { checkpoint: Some(batch.position(batch.len() - 1)), ..copy(batch) })
    })
    .await;
    assert_eq!(tokio::time::timeout(Duration::from_secs(600), run.task).await.unwrap().unwrap(), Ended::Complete);
}

/// An aggregate that names one long key for each of many records.
fn hostile(records: usize, key: usize) -> shardmill_record::Page {
    let record = UserRecord { partition_key: "k".repeat(key), explicit_hash_key: None, data: Bytes::from_static(b"7") };
    let mut aggregate = shardmill_record::aggregate::Aggregator::default();
    (0..records).for_each(|_| aggregate.push(&record));
    let (payload, _hash_key) = aggregate.finish().unwrap();
    let mut page = shardmill_record::PageBuilder::default();
    page.push("1", "a", &payload, 0).unwrap();
    page.build()
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_lanes_is_bounded_in_bytes_whatever_an_aggregate_holds() {
    const KEY: usize = 50_000;
    let page = hostile(120, KEY);
    assert!(page.content() < 2 * KEY, "it is small as it comes");
    for wait in [Duration::ZERO, Duration::from_secs(3600)] {
        let limits = BatchLimits { records: 100, bytes: 150_000 };
        let batch = BatchOptions { limits, wait, ..BatchOptions::default() };
        let options = Options { batch, ..lanes(3) };
        let most = options.bytes_in_batches() as usize;
        assert!(most as u64 <= BATCH);
        let reader = FakeReader { pages: VecDeque::new(), ends: false };
        let guest = FakeGuest::new(|_, _| Ok(Outcome::default()));
        let allowance = Allowance::default();
        let (mut task, _begin) = Run::set_up(Memory::new(), None, options, guest, reader, None, allowance).await;
        task.unpacker.push(page.clone());
        let (bytes, done) = task.work_through_lanes().await;
        assert!(bytes <= most + KEY + 100, "{bytes} bytes at once, and {most} are reserved");
        assert!(bytes > most - 150_000, "{bytes} of {most} bytes are used");
        assert_eq!(done, 120, "and nothing waits for ever");
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_hold_no_more_than_the_budget_counts_for_them() {
    let limits = BatchLimits { records: 100, bytes: 4 << 20 };
    let options = Options { batch: BatchOptions { limits, ..BatchOptions::default() }, ..lanes(256) };
    let guest = FakeGuest::new(|_, _| Ok(Outcome::default()));
    let reader = FakeReader { pages: VecDeque::new(), ends: false };
    let allowance = Allowance::default();
    let (mut task, _begin) = Run::set_up(Memory::new(), None, options, guest, reader, None, allowance).await;
    task.unpacker.push(hostile(120, 50_000));
    let (bytes, done) = task.work_through_lanes().await;
    assert!(bytes as u64 <= BATCH + 50_100, "{bytes} bytes at once");
    assert_eq!(done, 120);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_does_not_hold_up_the_others() {
    let wait = Duration::from_secs(3600);
    let report = Batcher {
        name: "report".into(),
        when: Some(filter(r#"{"partitionKey": ["k001"]}"#, OnInvalidJson::Drop)),
        batch: BatchOptions { wait, ..options().batch },
    };
    let flow = Flow { batchers: vec![report], ..Flow::default() };
    let run = Run::start_with(spread(flow), [(1..=6000).collect()], false, |_, batch| Ok(copy(batch))).await;
    // The first one of the report is among the first records.
    run.until("the others are sent", |run| run.kept.sent().len() >= 6000 - 10).await;
    assert_order_of_keys(&run.kept.sent());
}

#[tokio::test(start_paused = true)]
async fn lanes_do_not_wait_for_records_that_stand_behind_a_hot_key() {
    let batch = BatchOptions { wait: Duration::from_secs(3600), ..options().batch };
    let options = Options { batch, ..lanes(4) };
    // Most are of one key.
    let numbers: Vec<u64> = (1..=400).flat_map(|n| [n * 600, n * 600 + n % 7]).collect();
    let count = numbers.iter().collect::<std::collections::BTreeSet<_>>().len();
    let numbers: Vec<u64> = numbers.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let run = Run::start_with(options, [numbers], false, |_, batch| Ok(copy(batch))).await;
    run.until("all but what waits in four lanes is sent", |run| run.kept.sent().len() >= count - 40).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_goes_when_others_want_its_memory() {
    let batch = BatchOptions { wait: Duration::from_secs(3600), ..options().batch };
    let run =
        Run::start_with(Options { batch, ..lanes(2) }, [(1..=5).collect()], false, |_, batch| Ok(copy(batch))).await;
    sleep(Duration::from_secs(60)).await;
    assert!(run.kept.sent().is_empty(), "it waits");
    let budget = run.budget.clone();
    let _waits = tokio::spawn(async move { budget.reserve(BUDGET).await });
    run.until("it is handed over", |run| run.kept.sent().len() == 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_goes_when_no_more_records_may_be_handed_over() {
    let batch = BatchOptions { wait: Duration::from_secs(3600), ..options().batch };
    let reader = FakeReader { pages: [(1..=50).collect()].into(), ends: false };
    let guest = FakeGuest::new(|_, batch| Ok(copy(batch)));
    let options = Options { batch, ..lanes(2) };
    let allowance = Allowance::of(5);
    let (task, begin) = Run::set_up(Memory::new(), None, options, guest, reader, None, allowance.clone()).await;
    let run = begin(tokio::spawn(task.run()));
    run.until("they are sent", |run| run.kept.sent().len() == 5).await;
    allowance.used_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_silence_is_told_only_when_no_lane_has_anything() {
    for key in 1..=4 {
        let batch = BatchOptions { wait: Duration::from_millis(50), empty: true, ..options().batch };
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let noting = Arc::clone(&sizes);
        let guest = FakeGuest {
            takes: Duration::from_millis(30),
            ..FakeGuest::new(move |_, batch| {
                noting.lock().unwrap().push(batch.len());
                Ok(copy(batch))
            })
        };
        // All in one lane, for as long as ten batches take.
        let reader = FakeReader { pages: [(1..=100).map(|n| n * 600 + key).collect()].into(), ends: false };
        let run = Run::start_of(Memory::new(), None, Options { batch, ..lanes(4) }, guest, reader).await;
        run.until("a silence is told", |_| sizes.lock().unwrap().contains(&0)).await;
        let before: usize = sizes.lock().unwrap().iter().take_while(|size| **size > 0).sum();
        assert_eq!(before, 100);
        assert_eq!(run.kept.sent().len(), 100);
    }
}

fn has(batch: &Batch, wanted: u64) -> bool {
    batch.iter().any(|record| number(record.data) == wanted)
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_one_lane_calls_away_those_that_would_be_tried_again() {
    // The host cannot make the call for the first record, for as long as it takes.
    let unmade = Arc::new(AtomicU32::new(0));
    let counting = Arc::clone(&unmade);
    let run = Run::start_with(lanes(4), [(1..=4).collect()], false, move |_, batch| match batch {
        batch if has(batch, 4) => Err(Failure::Guest(ProcessError::StopShard { message: "enough".into() })),
        batch if has(batch, 1) => {
            counting.fetch_add(1, Ordering::SeqCst);
            Err(Failure::Host("no instance".into()))
        }
        batch => Ok(copy(batch)),
    })
    .await;
    let reason = run.stopped().await;
    assert!(unmade.load(Ordering::SeqCst) > 0, "they are in different lanes");
    assert!(reason.contains("enough"), "{reason}");
    run.until("the task stands", |run| run.metrics.shards_stopped.get_or_create(&labels()).get() == 1).await;
    // It obeys as any stopped shard.
    assert!(run.status.restart("p", SHARD));
    assert_eq!(run.task.await.unwrap(), Ended::Restart);
}

fn labels() -> ConsumerLabels {
    ConsumerLabels { processor: "p".into(), stream: "s".into() }
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_one_lane_is_told_while_others_are_on_their_way() {
    let failure = FailurePolicy { attempts: 1, then: Then::StopProcess, ..options().failure };
    let numbers = || [(1..=4).collect::<Vec<u64>>()];
    let run = Run::start_with(Options { failure, ..lanes(4) }, numbers(), false, |_, batch| {
        Ok(failing(batch, |number| number == 4, true))
    })
    .await;
    // Nobody takes what the other lanes put out.
    run.kept.closed.store(true, Ordering::SeqCst);
    let reason = run.stopped().await;
    assert!(reason.contains("poison"), "{reason}");
    assert!(run.stop_request.get().is_some_and(|asked| asked.process && asked.reason.contains("poison")));
    assert_eq!(run.metrics.shards_stopped.get_or_create(&labels()).get(), 0, "it is not left yet");
    run.kept.closed.store(false, Ordering::SeqCst);
    run.until("what stands before it is done", |run| run.checkpoint() == "3/0").await;
    assert_eq!(run.metrics.shards_stopped.get_or_create(&labels()).get(), 1);
    assert_eq!(run.kept.sent().len(), 3);
}
