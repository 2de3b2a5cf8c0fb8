//! What an operator tells a shard to do.

use shardmill_lease::change::Restart;

use super::*;

/// So many records in one page, of which a batch holds ten.
async fn many() -> Run {
    Run::start([(1..=1000).collect()], false, |_, batch| Ok(copy(batch))).await
}

#[tokio::test(start_paused = true)]
async fn a_paused_shard_finishes_its_batch_rests_with_its_lease_and_begins_again_behind_what_is_done() {
    let run = many().await;
    run.until("some batches are sent", |run| run.kept.sent().len() >= 20).await;
    assert_eq!(run.status.pause("p", SHARD), Some(true));
    assert_eq!(run.status.pause("p", SHARD), Some(false), "it was told before");
    run.until("it rests", |run| run.state() == ShardState::Paused).await;
    let (sent, counter) = (run.kept.sent(), run.row().counter);
    assert!(sent.len() < 100 && sent.len().is_multiple_of(10), "{} records: whole batches", sent.len());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(run.kept.sent(), sent, "nothing is handed out");
    assert!(run.row().counter > counter + 10, "the lease is renewed");
    assert_eq!(run.checkpoint(), format!("{}/0", sent.last().unwrap()));
    assert_eq!(run.budget.available(), BUDGET, "no memory is kept from others");
    assert_eq!(run.status.unready(), ["processor p: its stream and lease table have not been reached yet"]);
    assert!(run.status.notes()[0].contains("is paused"), "{:?}", run.status.notes());
    assert_eq!(run.status.resume("p", SHARD), Some(true));
    assert_eq!(run.task.await.unwrap(), Ended::Restart);
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_the_wait_for_another_attempt() {
    let slow = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };
    let fails = |_: &ShardContext, batch: &Batch| Ok(failing(batch, |number| number == 4, true));
    let run = Run::start_with(Options { backoff: slow, ..options() }, [(1..=9).collect()], false, fails).await;
    run.until("the batch has failed", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
    run.status.pause("p", SHARD);
    run.until("it rests", |run| run.state() == ShardState::Paused).await;
    run.until("what stands before it is done", |run| run.checkpoint() == "3/0").await;
    assert_eq!(run.kept.sent(), texts(1..=3));
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_pause() {
    let run = many().await;
    run.status.pause("p", SHARD);
    run.until("it rests", |run| run.state() == ShardState::Paused).await;
    run.drain.cancel();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    assert_eq!(run.status.pause("p", SHARD), None, "the order went with the lease");
}

#[tokio::test(start_paused = true)]
async fn a_rewind_gives_up_the_batch_in_hand_and_nothing_is_checkpointed_after_it() {
    let run = many().await;
    run.until("some batches are checkpointed", |run| run.row().checkpoint.position().is_some()).await;
    run.kept.closed.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(5)).await;
    let (before, sent) = (run.row(), run.kept.sent());
    let answer = run.status.rewind("p", SHARD, Restart::At(7)).expect("the lease is held");
    assert_eq!(run.task.await.unwrap(), Ended::Restart);
    assert_eq!(answer.await, Ok(()));
    assert_eq!(run.store.row(&before.key).unwrap().epoch.get(), before.epoch.get() + 1);
    sleep(Duration::from_secs(60)).await;
    let row = run.store.row(&before.key).unwrap();
    assert_eq!((row.checkpoint, row.start_at), (Checkpoint::AtTimestamp, Some(7)));
    assert_eq!(run.kept.sent(), sent);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_shard_can_begin_again_or_somewhere_else() {
    let poison = |_: &ShardContext, batch: &Batch| Ok(failing(batch, |number| number == 4, true));
    for rewinds in [false, true] {
        let run = Run::start([(1..=9).collect()], false, poison).await;
        assert!(!run.status.restart("p", SHARD), "it runs");
        run.until("the shard is stopped", |run| matches!(run.state(), ShardState::Stopped { .. })).await;
        let key = run.row().key;
        if rewinds {
            let answer = run.status.rewind("p", SHARD, Restart::Latest(9)).expect("the lease is held");
            assert_eq!(run.task.await.unwrap(), Ended::Restart);
            assert_eq!(answer.await, Ok(()));
        } else {
            assert!(run.status.restart("p", SHARD));
            assert_eq!(run.task.await.unwrap(), Ended::Restart);
        }
        let row = run.store.row(&key).unwrap();
        let expected = if rewinds { ("LATEST".to_owned(), Some(9)) } else { ("3/0".to_owned(), None) };
        assert_eq!((row.checkpoint.to_string(), row.start_at), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_with_a_start_of_its_own_is_not_rewound() {
    let own = shardmill_stream::start::ShardStart::After(shardmill_record::SequenceNumber::parse("1").unwrap());
    let start = Start { shards: [(shard(SHARD), own)].into(), ..Start::default() };
    let run =
        Run::start_with(Options { start, ..options() }, [(1..=9).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "9/0").await;
    let answer = run.status.rewind("p", SHARD, Restart::TrimHorizon).expect("the lease is held");
    assert!(answer.await.unwrap_err().contains("start-shards"));
    sleep(Duration::from_secs(1)).await;
    assert!(!run.task.is_finished(), "and what it is at goes on");
}

#[tokio::test(start_paused = true)]
async fn an_order_that_the_lease_is_lost_before_is_answered() {
    let run = many().await;
    run.kept.closed.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(1)).await;
    run.abort.cancel();
    sleep(Duration::from_millis(1)).await;
    let answer = run.status.rewind("p", SHARD, Restart::TrimHorizon);
    assert_eq!(run.task.await.unwrap(), Ended::Aborted);
    if let Some(answer) = answer {
        assert!(answer.await.unwrap_err().contains("let the shard go"));
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_rewinds_the_second_counts_and_the_first_is_told() {
    let poison = |_: &ShardContext, batch: &Batch| Ok(failing(batch, |number| number == 4, true));
    let run = Run::start([(1..=9).collect()], false, poison).await;
    run.until("the shard is stopped", |run| matches!(run.state(), ShardState::Stopped { .. })).await;
    let key = run.row().key;
    let first = run.status.rewind("p", SHARD, Restart::At(7)).expect("the lease is held");
    let second = run.status.rewind("p", SHARD, Restart::Latest(9)).expect("the lease is held");
    assert!(first.await.unwrap_err().contains("another rewind"));
    assert_eq!(second.await, Ok(()));
    assert_eq!(run.task.await.unwrap(), Ended::Restart);
    assert_eq!(run.store.row(&key).unwrap().checkpoint, Checkpoint::Latest);
}

#[tokio::test(start_paused = true)]
async fn an_old_order_to_start_again_does_not_end_the_next_stop() {
    let status = Status::default();
    let entry = status.add_shard("p", "s", &shard(SHARD), &LeaseKey::of_shard(&shard(SHARD)));
    let stopped = || ShardState::Stopped { reason: "poison".to_owned() };
    entry.set_state(stopped());
    assert!(status.restart("p", SHARD) && status.restart("p", SHARD));
    entry.restarted().await;
    entry.set_state(ShardState::Running);
    assert!(!status.restart("p", SHARD), "it runs");
    entry.set_state(stopped());
    let again = tokio::time::timeout(Duration::from_secs(60), entry.restarted()).await;
    assert!(again.is_err(), "nobody has asked for it since");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lets_a_shard_go_rewinds_it_no_more_and_repeats_nothing() {
    let run = many().await;
    run.until("some batches are sent", |run| run.kept.sent().len() >= 20).await;
    run.status.pause("p", SHARD);
    run.until("it rests", |run| run.state() == ShardState::Paused).await;
    let sent = run.kept.sent().len();
    run.drain.cancel();
    let answer = run.status.rewind("p", SHARD, Restart::TrimHorizon);
    let key = run.row().key;
    run.task.await.unwrap();
    if let Some(answer) = answer {
        let reason = answer.await.unwrap_err();
        assert!(reason.contains("letting the shard go") || reason.contains("let the shard go"), "{reason}");
    }
    assert_eq!(run.store.row(&key).unwrap().checkpoint.to_string(), format!("{sent}/0"));
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_task_is_given_up_is_not_counted_as_paused_for_ever() {
    let run = many().await;
    run.status.pause("p", SHARD);
    run.until("it rests", |run| run.state() == ShardState::Paused).await;
    let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
    let paused = || run.metrics.shards_paused.get_or_create(&labels).get();
    assert_eq!(paused(), 1);
    run.task.abort();
    run.until("it is gone", |run| run.task.is_finished()).await;
    assert_eq!(paused(), 0);
}

/// When the oldest record arrived that is not done, as the watchdog has it: records arrive at their numbers.
fn oldest(run: &Run) -> Option<u64> {
    run.status.live("p", SHARD).and_then(|live| live.vitals(tokio::time::Instant::now()).undone)
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_as_far_behind_as_its_oldest_record_that_is_not_done_though_the_reader_is_at_the_tip() {
    let poison = |_: &ShardContext, batch: &Batch| Ok(failing(batch, |number| number == 14, true));
    let run = Run::start([(1..=90).collect()], false, poison).await;
    run.until("the shard is stopped", |run| matches!(run.state(), ShardState::Stopped { .. })).await;
    run.until("what stands before it is done", |run| run.checkpoint() == "13/0").await;
    assert_eq!(oldest(&run), Some(14));

    // A pause gives up the rest of the page, which is still to be done.
    let run = many().await;
    run.until("some batches are sent", |run| run.kept.sent().len() >= 20).await;
    run.status.pause("p", SHARD);
    run.until("it rests", |run| run.state() == ShardState::Paused).await;
    run.until("what is done is checkpointed", |run| run.checkpoint() == format!("{}/0", run.kept.sent().len())).await;
    assert_eq!(oldest(&run), Some(run.kept.sent().len() as u64), "not younger than the next");

    // The guest keeps the checkpoint back.
    let by_guest = Options { checkpoint: CheckpointBy::Guest, ..options() };
    let run = Run::start_with(by_guest, [(1..=90).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("all is sent", |run| run.kept.sent().len() == 90).await;
    assert_eq!(oldest(&run), Some(1));

    let run = Run::start([(1..=90).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "90/0").await;
    assert_eq!(oldest(&run), None);
}
