//! What happens to records that are handed over at most once when the shard is left with them in hand.

use super::*;
use crate::Hook;

fn once(then: Then) -> Options {
    let failure = FailurePolicy { then, ..options().failure };
    Options { delivery: Delivery::AtMostOnce, failure, ..options() }
}

fn told(run: &Run) -> usize {
    let hooks = run.guest.hooks.lock().unwrap();
    hooks.iter().map(|hook| if let Hook::GivenUp(records) = hook { records.len() } else { 0 }).sum()
}

async fn start(options: Options, guest: FakeGuest) -> Run {
    let reader = FakeReader { pages: [(1..=10).collect()].into(), ends: false };
    Run::start_of(Memory::new(), None, options, guest, reader).await
}

/// A guest that takes a second, and with which record 4 fails.
fn slow() -> FakeGuest {
    let takes = Duration::from_secs(1);
    FakeGuest { takes, ..FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 4, true))) }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_fails_while_the_shard_is_being_let_go_has_its_dead_letter() {
    let run = start(once(Then::DeadLetter), slow()).await;
    run.until("the batch is checkpointed", |run| run.checkpoint() == "10/0").await;
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    let stored = run.letters.stored.lock().unwrap().clone();
    assert_eq!(stored.iter().map(|letter| number(&letter.data)).collect::<Vec<_>>(), [4]);
    assert_eq!((counted(&run, "attempts", "dead-letter"), told(&run)), (1, 1));
    assert_eq!(run.kept.sent().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_record_is_counted_as_lost_when_its_dead_letter_is_not_taken() {
    let run = start(once(Then::DeadLetter), slow()).await;
    run.letters.refuses.store(true, Ordering::SeqCst);
    let reason = run.stopped().await;
    assert!(reason.contains("a full disk"), "{reason}");
    assert_eq!((counted(&run, "attempts", "lost"), told(&run)), (1, 1));
    assert_eq!(run.kept.sent().len(), 9);

    // Nor in time: the worker stops.
    let run = start(once(Then::DeadLetter), slow()).await;
    run.letters.is_full.store(true, Ordering::SeqCst);
    run.until("the batch is checkpointed", |run| run.checkpoint() == "10/0").await;
    sleep(Duration::from_secs(2)).await;
    run.drain.cancel();
    sleep(Duration::from_secs(2)).await;
    assert!(!run.task.is_finished(), "nobody else would store it");
    run.abort.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(
        (counted(&run, "attempts", "lost"), counted(&run, "left", "lost")),
        (1, 9),
        "the others' outputs as well"
    );
}

#[tokio::test(start_paused = true)]
async fn records_that_nobody_has_seen_are_counted_when_the_shard_is_left() {
    // No instance of the guest can be started.
    let unable = FakeGuest::new(|_, _| Err(Failure::Host("no memory for another instance".into())));
    let run = start(once(Then::Skip), unable).await;
    run.until("it is tried again", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
    assert!(run.status.pause("p", SHARD).unwrap());
    sleep(Duration::from_secs(60)).await;
    assert!(matches!(run.state(), ShardState::Retrying { .. }), "it does not rest before somebody has the records");
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(counted(&run, "left", "skip"), 10);

    let stopping = FakeGuest::new(|_, _| Err(Failure::Guest(ProcessError::StopShard { message: "enough".into() })));
    let run = start(once(Then::StopShard), stopping).await;
    run.stopped().await;
    assert_eq!(counted(&run, "left", "stop-shard"), 10);

    // The task goes with its call in hand.
    let run = start(once(Then::Skip), slow()).await;
    run.until("the batch is checkpointed", |run| run.checkpoint() == "10/0").await;
    run.abort.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(counted(&run, "left", "lost"), 10);
}

#[tokio::test(start_paused = true)]
async fn records_that_are_handed_over_again_are_never_counted_as_lost() {
    let failure = FailurePolicy { then: Then::DeadLetter, attempts: 1, ..options().failure };
    let run = start(Options { failure, ..options() }, slow()).await;
    run.letters.is_full.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(3)).await;
    // The place has no room, and the shard is not held up by that.
    run.drain.cancel();
    let store = run.store.clone();
    run.until("the stop", |run| run.task.is_finished()).await;
    let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    assert_eq!((row.owner, row.checkpoint.to_string()), (None, "3/0".to_owned()));
    assert_eq!((counted(&run, "attempts", "dead-letter"), counted(&run, "attempts", "lost"), told(&run)), (0, 0, 0));
    assert_eq!(run.kept.sent(), texts(1..=3));
}

#[tokio::test(start_paused = true)]
async fn records_whose_outputs_are_not_acknowledged_are_counted_as_lost() {
    let run = start(once(Then::Skip), FakeGuest::new(|_, batch| Ok(copy(batch)))).await;
    run.kept.refuses.store(true, Ordering::SeqCst);
    run.stopped().await;
    assert_eq!(counted(&run, "left", "lost"), 10);

    // Nor in time.
    let run = start(once(Then::Skip), FakeGuest::new(|_, batch| Ok(copy(batch)))).await;
    run.kept.closed.store(true, Ordering::SeqCst);
    run.until("the batch is checkpointed", |run| run.checkpoint() == "10/0").await;
    sleep(Duration::from_secs(1)).await;
    run.abort.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(counted(&run, "left", "lost"), 10);
}

/// A stage that tries its batches again and again, behind a processor that hands over at most once.
async fn behind(then: Then, letters: &Arc<Letters>) -> (Run, Arc<crate::Stage>) {
    let slow = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };
    let failure = FailurePolicy { then, ..options().failure };
    let failing = FakeGuest::new(|_, batch| Ok(failing(batch, |_| true, true)));
    let stage = super::stages::stage(Options { backoff: slow, failure, ..options() }, failing, letters, 16);
    let reader = FakeReader { pages: [(1..=10).collect()].into(), ends: false };
    let guest = FakeGuest::new(|_, batch| Ok(copy(batch)));
    let to = Some(super::stages::to_stage(&stage));
    let run = Run::start_leading_to(Memory::new(), None, once(Then::Skip), guest, reader, to).await;
    run.until("the batch has failed", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
    (run, stage)
}

#[tokio::test(start_paused = true)]
async fn what_is_with_a_later_processor_is_not_left_for_a_pause_and_given_up_when_the_shard_is_let_go() {
    let letters = Arc::new(Letters::default());
    let (run, _stage) = behind(Then::DeadLetter, &letters).await;
    run.status.pause("p", SHARD);
    sleep(Duration::from_secs(30)).await;
    assert!(matches!(run.state(), ShardState::Retrying { .. }), "nobody would come back to it");
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    let stored = letters.stored.lock().unwrap();
    assert_eq!(stored.len(), 10, "each has its letter");
    assert!(stored.iter().all(|letter| letter.hops == 1 && letter.reason.contains("the shard was left")));
}

#[tokio::test(start_paused = true)]
async fn what_a_later_processor_has_not_begun_has_its_letter_as_well() {
    let letters = Arc::new(Letters::default());
    let unable = FakeGuest::new(|_, _| Err(Failure::Host("no memory for another instance".into())));
    let failure = FailurePolicy { then: Then::DeadLetter, ..options().failure };
    // Three batches of ten in its one lane.
    let stage = super::stages::stage(Options { failure, ..options() }, unable, &letters, 16);
    let whole = BatchOptions { limits: BatchLimits { records: 30, bytes: 1 << 20 }, ..BatchOptions::default() };
    let reader = FakeReader { pages: [(1..=30).collect()].into(), ends: false };
    let guest = FakeGuest::new(|_, batch| Ok(copy(batch)));
    let to = Some(super::stages::to_stage(&stage));
    let options = Options { batch: whole, ..once(Then::Skip) };
    let run = Run::start_leading_to(Memory::new(), None, options, guest, reader, to).await;
    run.until("it is tried again", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    let stored = letters.stored.lock().unwrap();
    assert_eq!(stored.iter().map(|letter| number(&letter.data)).collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_passed_over_is_counted_whatever_becomes_of_the_others_outputs() {
    let cases = [(Then::Skip, "skip"), (Then::DeadLetter, "lost")];
    for (then, word) in cases {
        let run = start(once(then), slow()).await;
        // The place for letters takes none, the outputs wait, and then the time is over.
        run.letters.refuses.store(true, Ordering::SeqCst);
        run.kept.closed.store(true, Ordering::SeqCst);
        run.until("the batch is checkpointed", |run| run.checkpoint() == "10/0").await;
        sleep(Duration::from_secs(3)).await;
        run.abort.cancel();
        run.until("the stop", |run| run.task.is_finished()).await;
        assert_eq!((counted(&run, "attempts", word), counted(&run, "left", "lost")), (1, 9), "{then:?}");
    }

    // Refused, it is told of as well.
    let run = start(once(Then::Skip), slow()).await;
    run.kept.refuses.store(true, Ordering::SeqCst);
    run.stopped().await;
    assert_eq!((counted(&run, "attempts", "skip"), counted(&run, "left", "lost"), told(&run)), (1, 9, 1));
}

#[tokio::test(start_paused = true)]
async fn what_was_done_is_counted_also_if_the_hook_of_a_given_up_record_puts_out_what_is_refused() {
    let alarming = FakeGuest {
        hook: Box::new(|hook| {
            let record = UserRecord { partition_key: "k".into(), explicit_hash_key: None, data: Bytes::from("7") };
            let output = Output { name: "alarm".into(), record, cause: Cause::Hook(2) };
            let outputs = (hook.name() == "given-up").then_some(output).into_iter().collect();
            (Duration::ZERO, Ok(shardmill_plugin::HookOutcome { outputs, ..Default::default() }))
        }),
        ..slow()
    };
    let (kept, alarms) = (Arc::new(Kept::default()), Arc::new(Kept::default()));
    alarms.refuses.store(true, Ordering::SeqCst);
    let away = |kept: &Arc<Kept>| crate::Target::Away(Arc::clone(kept) as Arc<dyn Destination>);
    let to = Destinations::new([("out".to_owned(), away(&kept)), ("alarm".to_owned(), away(&alarms))].into());
    let reader = FakeReader { pages: [(1..=10).collect()].into(), ends: false };
    let run = Run::start_leading_to(Memory::new(), None, once(Then::Skip), alarming, reader, Some(to)).await;
    let reason = run.stopped().await;
    assert!(reason.contains("no such stream"), "{reason}");
    let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
    assert_eq!(run.metrics.records_done.get_or_create(&labels).get(), 9);
}

#[tokio::test(start_paused = true)]
async fn what_a_call_has_caused_and_nobody_takes_loses_all_of_its_records() {
    let sum = |batch: &Batch| {
        let mut outcome = copy(batch);
        outcome.outputs.truncate(1);
        outcome.outputs[0].cause = Cause::Batch;
        outcome
    };
    let run = start(once(Then::Skip), FakeGuest::new(move |_, batch| Ok(sum(batch)))).await;
    run.kept.refuses.store(true, Ordering::SeqCst);
    run.stopped().await;
    let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
    assert_eq!((counted(&run, "left", "lost"), run.metrics.records_done.get_or_create(&labels).get()), (10, 0));

    // A record that is passed over, and whose error report is refused, is counted once.
    let reporting = FakeGuest::new(move |_, batch| {
        let outputs = sum(batch).outputs;
        Ok(Outcome { outputs, ..failing(batch, |_| true, false) })
    });
    let run = start(once(Then::Skip), reporting).await;
    run.kept.refuses.store(true, Ordering::SeqCst);
    run.stopped().await;
    assert_eq!((counted(&run, "final", "skip"), counted(&run, "left", "lost")), (10, 0));
}
