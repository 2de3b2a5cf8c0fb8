//! Shards whose records are spread over lanes and batchers, and what a filter keeps out.

use std::collections::HashMap;

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

    /// Whatever the guest takes and wherever the worker dies: a successor goes on from the checkpoint, nothing is missing, and what
    /// comes first of each record is in the order of its key.
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
