//! Records that fail, and what the failure policy makes of them.

use shardmill_plugin::{Done, GivenUpRecord};

use super::*;
use crate::Hook;
use crate::stop::StopReason;

#[tokio::test(start_paused = true)]
async fn only_failed_records_are_handed_over_again_and_outputs_keep_their_order() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let run = Run::start([(1..=4).collect()], false, move |shard, batch| {
        let numbers: Vec<u64> = batch.iter().map(|record| number(record.data)).collect();
        seen.lock().unwrap().push((shard.attempt, numbers));
        Ok(failing(batch, |number| number % 2 == 0 && shard.attempt == 1, true))
    })
    .await;
    run.until("all is checkpointed", |run| run.checkpoint() == "4/0").await;
    assert_eq!(*calls.lock().unwrap(), [(1, vec![1, 2, 3, 4]), (2, vec![2, 4])]);
    assert_eq!(run.kept.sent(), texts(1..=4));
    assert_eq!(run.state(), ShardState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_poison_record_stops_the_shard_with_what_is_before_it_done_and_the_lease_held() {
    let run = Run::start([(1..=9).collect()], false, |_, batch| Ok(failing(batch, |number| number == 4, true))).await;
    let reason = run.stopped().await;
    run.until("the front is checkpointed", |run| run.checkpoint() == "3/0").await;
    assert_eq!(run.kept.sent(), texts(1..=3));
    assert!(reason.contains("4/0") && reason.contains("3 attempts") && reason.contains("poison"), "{reason}");
    assert_eq!(run.guest.told(), ["assigned", "given-up"]);
    assert!(run.status.unready().iter().any(|reason| reason.contains(SHARD) && reason.contains("poison")));
    let counter = run.row().counter;
    sleep(Duration::from_secs(60)).await;
    assert!(run.row().counter > counter + 10, "the lease is renewed");
    run.drain.cancel();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
}

#[tokio::test(start_paused = true)]
async fn what_the_host_cannot_do_uses_up_no_attempt() {
    let (calls, seen) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (called, attempts) = (Arc::clone(&calls), Arc::clone(&seen));
    let run = Run::start([(1..=3).collect()], false, move |shard, batch| {
        attempts.lock().unwrap().push(shard.attempt);
        match called.fetch_add(1, Ordering::SeqCst) {
            // Three are allowed, and these are not among them.
            0..20 => Err(Failure::Host("no room for another instance".into())),
            20..22 => Err(crash()),
            _last => Ok(copy(batch)),
        }
    })
    .await;
    run.until("all is checkpointed", |run| run.checkpoint() == "3/0").await;
    assert_eq!(run.kept.sent(), texts(1..=3));
    assert_eq!(calls.load(Ordering::SeqCst), 23);
    let seen = seen.lock().unwrap();
    assert!(seen[..21].iter().all(|attempt| *attempt == 1), "{seen:?}");
    assert_eq!(seen[21..], [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_crashes_is_made_again() {
    let run = Run::start([(1..=3).collect()], false, |shard, batch| match shard.attempt {
        1 => Err(crash()),
        2 => Err(ProcessError::Retry { after: Duration::from_secs(60), message: "later".into() }.into()),
        _ => Ok(copy(batch)),
    })
    .await;
    let began = tokio::time::Instant::now();
    run.until("all is checkpointed", |run| run.checkpoint() == "3/0").await;
    assert!(began.elapsed() >= Duration::from_secs(60), "the guest's wish is kept");
    assert_eq!(run.kept.sent(), texts(1..=3));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_as_a_whole_blames_no_single_record() {
    let run = Run::start([(1..=9).collect()], false, |_, _| Err(crash())).await;
    let reason = run.stopped().await;
    assert!(reason.contains("9 records from 1/0 to 9/0") && reason.contains("3 attempts"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_wrong_is_not_carried_out_in_part() {
    let run = Run::start([(1..=3).collect()], false, |shard, batch| {
        let mut outcome = copy(batch);
        if shard.attempt == 1 {
            outcome.skipped.push(SkippedRecord { index: 3, reason: "there is none".into() });
        }
        Ok(outcome)
    })
    .await;
    run.until("all is checkpointed", |run| run.checkpoint() == "3/0").await;
    assert_eq!(run.kept.sent(), texts(1..=3));
}

fn with(failure: FailurePolicy) -> Options {
    Options { failure, ..options() }
}

/// One attempt, with bisection.
fn bisecting(then: Then) -> FailurePolicy {
    FailurePolicy { attempts: 1, bisect: true, then, ..options().failure }
}

/// A guest that crashes with these records, and keeps the numbers of each call.
fn crashing(
    poison: &'static [u64],
    calls: &Arc<Mutex<Vec<Vec<u64>>>>,
) -> impl Fn(&ShardContext, &Batch) -> Result<Outcome, Failure> + Send + Sync + 'static {
    let calls = Arc::clone(calls);
    move |_, batch| {
        let numbers: Vec<u64> = batch.iter().map(|record| number(record.data)).collect();
        let crashes = numbers.iter().any(|number| poison.contains(number));
        calls.lock().unwrap().push(numbers);
        if crashes { Err(crash()) } else { Ok(copy(batch)) }
    }
}

/// What the hook `given-up` was told.
fn given_up(run: &Run) -> Vec<GivenUpRecord> {
    let hooks = run.guest.hooks.lock().unwrap();
    let told = hooks.iter().filter_map(|hook| match hook {
        Hook::GivenUp(records) => Some(records.clone()),
        _other => None,
    });
    told.flatten().collect()
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_of_other_records_give_nobody_more_attempts() {
    let handed_over = Arc::new(Mutex::new([0u32; 6]));
    let seen = Arc::clone(&handed_over);
    // Each call acknowledges a record or two, and never the fifth.
    let run = Run::start([(1..=5).collect()], false, move |shard, batch| {
        for record in batch.iter() {
            seen.lock().unwrap()[usize::try_from(number(record.data)).unwrap()] += 1;
        }
        Ok(failing(batch, |number| number > u64::from(shard.attempt) || number == 5, true))
    })
    .await;
    let reason = run.stopped().await;
    assert!(reason.contains("4/0") && reason.contains("1 more") && reason.contains("3 attempts"), "{reason}");
    assert_eq!(*handed_over.lock().unwrap(), [0, 1, 2, 3, 3, 3]);
    assert_eq!(run.kept.sent(), texts(1..=3));
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_of_an_earlier_batch_count_for_no_other() {
    // The second batch has four records, and is answered with the outcome of the first, which had ten; then as it should.
    let calls = Arc::new(AtomicU32::new(0));
    let called = Arc::clone(&calls);
    let run = Run::start([(1..=14).collect()], false, move |_, batch| match called.fetch_add(1, Ordering::SeqCst) {
        1 => Ok(Outcome { done: Done::Listed((0..10).collect()), ..Outcome::default() }),
        2 => Ok(Outcome { done: Done::Before(10), ..Outcome::default() }),
        _other => Ok(copy(batch)),
    })
    .await;
    run.until("all is checkpointed", |run| run.checkpoint() == "14/0").await;
    assert_eq!(run.kept.sent(), texts(1..=14));
    assert_eq!(calls.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_crashes_is_split_and_the_poison_record_alone_is_skipped() {
    let calls = Arc::default();
    let run = Run::start_with(with(bisecting(Then::Skip)), [(1..=20).collect()], false, crashing(&[14], &calls)).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "20/0").await;
    assert_eq!(run.kept.sent(), texts((1..=20).filter(|number| *number != 14)));
    let calls = calls.lock().unwrap().clone();
    let expected: [&[u64]; 7] = [
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        &[11, 12, 13, 14, 15, 16, 17, 18, 19, 20],
        &[11, 12, 13, 14, 15],
        &[11, 12],
        // It is one of 13, 14 and 15 then.
        &[13],
        &[14],
        &[15],
    ];
    assert_eq!(calls[..7], expected);
    assert_eq!(calls[7..], [vec![16, 17, 18, 19, 20]]);
    let told = given_up(&run);
    let [record] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&record.position, record.attempts), (&at(14), 1));
    assert!(record.reason.contains("crash"), "{record:?}");
    assert_eq!(counted(&run, "attempts", "skip"), 1);
    assert_eq!(run.state(), ShardState::Running);
    assert!(run.status.stopped().is_empty());
}

#[tokio::test(start_paused = true)]
async fn bisection_stops_a_shard_right_before_the_poison_record() {
    let calls = Arc::default();
    let policy = FailurePolicy { attempts: 2, ..bisecting(Then::StopShard) };
    let run = Run::start_with(with(policy), [(1..=9).collect()], false, crashing(&[6], &calls)).await;
    let reason = run.stopped().await;
    assert!(reason.contains("the record at 6/0") && reason.contains("2 attempts"), "{reason}");
    run.until("the front is checkpointed", |run| run.checkpoint() == "5/0").await;
    assert_eq!(run.kept.sent(), texts(1..=5));
    let alone = calls.lock().unwrap().iter().filter(|call| **call == [6]).count();
    assert_eq!(alone, 2);
    assert_eq!(counted(&run, "attempts", "stop-shard"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_spoils_the_outcome_is_found_by_its_outputs() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let run = Run::start_with(with(bisecting(Then::Skip)), [(1..=9).collect()], false, move |_, batch| {
        seen.lock().unwrap().push(batch.len());
        let mut outcome = copy(batch);
        for output in &mut outcome.outputs {
            if output.record.data == "7" {
                output.record.partition_key = String::new();
            }
        }
        Ok(outcome)
    })
    .await;
    run.until("all is checkpointed", |run| run.checkpoint() == "9/0").await;
    assert_eq!(*calls.lock().unwrap(), [9, 6, 1, 2]);
    assert_eq!(run.kept.sent(), texts([1, 2, 3, 4, 5, 6, 8, 9]));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_rejected_is_split_and_its_culprit_gets_one_attempt() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let policy = FailurePolicy { attempts: 5, ..bisecting(Then::Skip) };
    let run = Run::start_with(with(policy), [(1..=4).collect()], false, move |_, batch| {
        let numbers: Vec<u64> = batch.iter().map(|record| number(record.data)).collect();
        let rejects = numbers.contains(&4);
        seen.lock().unwrap().push(numbers);
        if rejects { Err(ProcessError::Reject { message: "never".into() }.into()) } else { Ok(copy(batch)) }
    })
    .await;
    run.until("all is checkpointed", |run| run.checkpoint() == "4/0").await;
    assert_eq!(*calls.lock().unwrap(), [vec![1, 2, 3, 4], vec![1, 2], vec![3], vec![4]]);
    assert_eq!(counted(&run, "final", "skip"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_guest_s_wish_to_wait_is_kept_when_the_batch_is_split() {
    let run =
        Run::start_with(with(bisecting(Then::Skip)), [(1..=2).collect()], false, |shard, batch| match batch.len() {
            2 if shard.attempt == 1 => {
                Err(ProcessError::Retry { after: Duration::from_secs(60), message: "busy".into() }.into())
            }
            _half => Ok(copy(batch)),
        })
        .await;
    let began = tokio::time::Instant::now();
    run.until("all is checkpointed", |run| run.checkpoint() == "2/0").await;
    assert!(began.elapsed() >= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_guest_s_wish_to_wait_has_a_bound_and_records_grow_old_meanwhile() {
    let policy = FailurePolicy { max_age: Some(Duration::from_secs(60)), then: Then::Skip, ..options().failure };
    let run = Run::start_with(with(policy), [(1..=2).collect()], false, |_, batch| {
        let after = Duration::from_millis(u64::MAX);
        if batch.len() == 2 {
            Err(Failure::Guest(ProcessError::Retry { message: "busy".into(), after }))
        } else {
            Ok(copy(batch))
        }
    })
    .await;
    sleep(Duration::from_secs(3_500)).await;
    assert_eq!(run.checkpoint(), "TRIM_HORIZON");
    run.until("all is checkpointed", |run| run.checkpoint() == "2/0").await;
    assert_eq!((counted(&run, "age", "skip"), run.kept.sent().len()), (2, 0), "they are not handed over again");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_call_its_guest_does_not_try_all_the_time() {
    let calls = Arc::new(AtomicU32::new(0));
    let called = Arc::clone(&calls);
    let eager = Options { backoff: Backoff { first: Duration::ZERO, longest: Duration::ZERO }, ..options() };
    let _run = Run::start_with(eager, [(1..=2).collect()], false, move |_, _| {
        called.fetch_add(1, Ordering::SeqCst);
        Err(Failure::Host("no memory for another instance".into()))
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    let calls = calls.load(Ordering::SeqCst);
    assert!((5..20).contains(&calls), "{calls} calls in a minute");
}

#[tokio::test(start_paused = true)]
async fn the_last_failure_of_a_batch_is_not_waited_after() {
    let patient = Options {
        backoff: Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) },
        ..with(FailurePolicy { attempts: 1, then: Then::Skip, ..options().failure })
    };
    let run =
        Run::start_with(patient, [(1..=9).collect()], false, |_, batch| Ok(failing(batch, |number| number == 4, true)))
            .await;
    let began = tokio::time::Instant::now();
    run.until("all is checkpointed", |run| run.checkpoint() == "9/0").await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn dead_letters_hold_all_that_is_known_and_are_stored_before_the_checkpoint_passes() {
    let calls = Arc::default();
    let run =
        Run::start_with(with(bisecting(Then::DeadLetter)), [(1..=8).collect()], false, crashing(&[3], &calls)).await;
    run.letters.refuses.store(true, Ordering::SeqCst);
    let reason = run.stopped().await;
    assert!(reason.contains("a full disk") && reason.contains("make room"), "{reason}");
    run.until("the front is checkpointed", |run| run.checkpoint() == "2/0").await;
    assert_eq!(run.kept.sent(), texts(1..=2));
    assert!(given_up(&run).is_empty(), "it is tried again when there is room");

    let calls = Arc::default();
    let run =
        Run::start_with(with(bisecting(Then::DeadLetter)), [(1..=8).collect()], false, crashing(&[3], &calls)).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "8/0").await;
    assert_eq!(run.kept.sent(), texts([1, 2, 4, 5, 6, 7, 8]));
    let stored = run.letters.stored.lock().unwrap().clone();
    let [letter] = &stored[..] else { panic!("{stored:?}") };
    assert_eq!((&*letter.application, &*letter.processor, &*letter.stream), ("application", "p", "s"));
    assert_eq!((letter.shard.as_str(), &letter.position), (SHARD, &at(3)));
    assert_eq!((letter.partition_key.as_str(), &letter.data[..]), ("k003", &b"3"[..]));
    assert_eq!((letter.arrived_at, letter.attempts), (3, 1));
    assert!(letter.given_up_at > 0 && letter.reason.contains("crash"), "{letter:?}");
    assert_eq!((&*letter.plugin, &*letter.worker, letter.lease_epoch), ("digest", "w1", run.row().epoch.get()));
    assert_eq!(counted(&run, "attempts", "dead-letter"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_few_records_of_a_batch_are_tolerated_and_more_are_not() {
    // Of ten records 10 % are one.
    let policy = FailurePolicy { tolerance: Tolerance::parse("10%").unwrap(), ..options().failure };
    let fails = |number| matches!(number, 4 | 15 | 17);
    let run =
        Run::start_with(with(policy), [(1..=30).collect()], false, move |_, batch| Ok(failing(batch, fails, false)))
            .await;
    let reason = run.stopped().await;
    assert!(reason.contains("15/0") && reason.contains("1 more"), "{reason}");
    run.until("the front is checkpointed", |run| run.checkpoint() == "14/0").await;
    assert_eq!(run.kept.sent(), texts([1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]));
    assert_eq!(counted(&run, "final", "tolerated"), 1);
    assert_eq!(counted(&run, "final", "stop-shard"), 2);
    let positions: Vec<Position> = given_up(&run).into_iter().map(|record| record.position).collect();
    assert_eq!(positions, [at(4), at(15), at(17)], "each once");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_fails_is_tried_until_it_is_too_old() {
    let attempts = Arc::new(AtomicU32::new(0));
    let counted_attempts = Arc::clone(&attempts);
    let max_age = Some(Duration::from_secs(30));
    let policy = FailurePolicy { attempts: 1_000_000, max_age, then: Then::Skip, ..options().failure };
    let run = Run::start_with(with(policy), [(1..=3).collect()], false, move |_, batch| {
        let poison = batch.iter().any(|record| number(record.data) == 2);
        counted_attempts.fetch_add(u32::from(poison), Ordering::SeqCst);
        Ok(failing(batch, |number| number == 2, true))
    })
    .await;
    let began = tokio::time::Instant::now();
    run.until("all is checkpointed", |run| run.checkpoint() == "3/0").await;
    // It arrived when the test began; waits grow to a second.
    assert!(began.elapsed() >= Duration::from_secs(29), "{:?}", began.elapsed());
    assert!((30..70).contains(&attempts.load(Ordering::SeqCst)), "{attempts:?}");
    assert_eq!(run.kept.sent(), texts([1, 3]));
    assert_eq!(counted(&run, "age", "skip"), 1);
    let told = given_up(&run);
    assert!(told[0].reason.contains("older than 30s") && told[0].reason.contains("poison"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn what_stops_more_than_the_shard_asks_for_it_and_lets_its_lease_go_when_told() {
    for (then, process) in [(Then::StopWorker, false), (Then::StopProcess, true)] {
        let policy = FailurePolicy { then, ..options().failure };
        let run = Run::start_with(with(policy), [(1..=9).collect()], false, |_, batch| {
            Ok(failing(batch, |number| number == 4, false))
        })
        .await;
        let StopReason { stream, shard, reason, process: whole } = run.stop_request.asked().await;
        assert_eq!((&*stream, shard.as_str(), whole), ("s", SHARD, process));
        assert!(reason.contains("4/0") && reason.contains("poison"), "{reason}");
        assert_eq!(given_up(&run).len(), 1);
        assert_eq!(counted(&run, "final", then.as_str()), 1);
        run.drain.cancel();
        let store = run.store.clone();
        assert_eq!(run.task.await.unwrap(), Ended::Released);
        let row = store.row(&LeaseKey::of_shard(&super::shard(SHARD))).unwrap();
        assert_eq!((row.owner, row.checkpoint.to_string()), (None, "3/0".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_shard_ends_to_begin_again_with_its_checkpoint_written_and_its_lease_held() {
    let hour = Options { checkpoint_interval: Duration::from_secs(3600), ..options() };
    let run =
        Run::start_with(hour, [(1..=19).collect()], false, |_, batch| Ok(failing(batch, |number| number == 14, false)))
            .await;
    assert!(!run.status.restart("p", SHARD), "it is not stopped");
    run.stopped().await;
    assert!(!run.status.restart("p", "shardId-000000000009"), "there is none");
    assert!(!run.status.restart("q", SHARD));
    assert!(run.status.restart("p", SHARD));
    let (status, store) = (run.status.clone(), run.store.clone());
    assert_eq!(run.task.await.unwrap(), Ended::Restart);
    let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    assert_eq!(row.checkpoint.to_string(), "13/0");
    assert!(!status.restart("p", SHARD), "it has begun again");
    assert!(!run.guest.told().contains(&"revoked"));
}

#[tokio::test(start_paused = true)]
async fn a_pause_in_the_midst_of_a_call_leaves_no_letter_unwritten_that_finds_room() {
    let failure = FailurePolicy { then: Then::DeadLetter, ..options().failure };
    let guest = FakeGuest {
        takes: Duration::from_secs(5),
        ..FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 4, false)))
    };
    let reader = FakeReader { pages: [(1..=10).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), None, Options { failure, ..options() }, guest, reader).await;
    sleep(Duration::from_secs(1)).await;
    run.status.pause("p", SHARD);
    run.until("the shard rests", |run| run.state() == ShardState::Paused).await;
    assert_eq!(run.checkpoint(), "10/0");
    assert_eq!(run.letters.stored.lock().unwrap().len(), 1);
    assert_eq!(run.kept.sent().len(), 9);
}
