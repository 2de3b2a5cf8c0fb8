//! When outputs go, and what they hold up.

use shardmill_plugin::HookOutcome;

use super::*;
use crate::Hook;
use crate::stop::StopReason;

/// An output of the call, with the numbers of its records.
fn total(batch: &Batch, mut outcome: Outcome) -> Outcome {
    let numbers: Vec<String> = batch.iter().map(|record| number(record.data).to_string()).collect();
    let record = UserRecord {
        partition_key: "total".into(),
        explicit_hash_key: None,
        data: Bytes::from(format!("of {}", numbers.join(" "))),
    };
    outcome.outputs.push(Output { name: "out".into(), record, cause: Cause::Batch });
    outcome
}

fn bisecting(then: Then) -> Options {
    let failure = FailurePolicy { attempts: 1, bisect: true, then, ..options().failure };
    Options { failure, ..options() }
}

#[tokio::test(start_paused = true)]
async fn an_output_of_a_call_is_not_lost_when_the_shard_stops_behind_some_of_its_records() {
    let run = Run::start([(1..=9).collect()], false, |_, batch| {
        Ok(total(batch, failing(batch, |number| number == 7, false)))
    })
    .await;
    run.stopped().await;
    run.until("the front is checkpointed", |run| run.checkpoint() == "6/0").await;
    let mut expected = texts(1..=6);
    expected.push("of 1 2 3 4 5 6 7 8 9".to_owned());
    assert_eq!(run.kept.sent(), expected);

    // In parts.
    let run = Run::start_with(bisecting(Then::StopShard), [(1..=8).collect()], false, |_, batch| {
        let crashes = batch.iter().any(|record| number(record.data) == 5);
        if crashes { Err(crash()) } else { Ok(total(batch, copy(batch))) }
    })
    .await;
    run.stopped().await;
    run.until("the front is checkpointed", |run| run.checkpoint() == "4/0").await;
    let mut expected = texts(1..=4);
    expected.push("of 1 2 3 4".to_owned());
    assert_eq!(run.kept.sent(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_split_sends_what_has_become_much_before_its_end() {
    let few = |then| {
        let outcome = OutcomeLimits { outputs: 2, ..OutcomeLimits::default() };
        Options { outcome, checkpoint_interval: Duration::ZERO, ..bisecting(then) }
    };
    // Ten outputs are too many, and so are five; the last record comes to no end.
    let run = Run::start_with(few(Then::DeadLetter), [(1..=10).collect()], false, |_, batch| {
        let numbers: Vec<u64> = batch.iter().map(|record| number(record.data)).collect();
        match numbers[..] {
            [10] => Err(Failure::Host("no memory for another instance".into())),
            [3] => Err(crash()),
            _ => Ok(copy(batch)),
        }
    })
    .await;
    run.until("the front is checkpointed", |run| run.checkpoint() == "8/0").await;
    assert_eq!(run.kept.sent(), texts([1, 2, 4, 5, 6, 7, 8]), "in order, each once; one more is not much");
    assert_eq!(run.letters.stored.lock().unwrap().len(), 1);
    let told = run.guest.told();
    assert_eq!(told.iter().filter(|hook| **hook == "given-up").count(), 1, "{told:?}");
    assert!(matches!(run.state(), ShardState::Retrying { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_the_guest_returns_when_it_is_told_of_records_is_sent_before_the_checkpoint_passes_them() {
    let failure = FailurePolicy { then: Then::Skip, ..options().failure };
    let own_letter = |refuses: bool| {
        let kept = Options { failure: failure.clone(), ..options() };
        let guest = FakeGuest {
            hook: Box::new(|hook| {
                let outputs = match hook {
                    Hook::GivenUp(records) => {
                        let data = Bytes::from(format!("lost {}", records[0].position));
                        let record = UserRecord { partition_key: "k".into(), explicit_hash_key: None, data };
                        // The number of the call: assigned was the first.
                        vec![Output { name: "out".into(), record, cause: Cause::Hook(2) }]
                    }
                    _other => Vec::new(),
                };
                (Duration::ZERO, Ok(HookOutcome { outputs, ..HookOutcome::default() }))
            }),
            ..FakeGuest::new(|_, batch| {
                Ok(Outcome { outputs: Vec::new(), ..failing(batch, |number| number == 2, false) })
            })
        };
        async move {
            let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
            let run = Run::start_of(Memory::new(), None, kept, guest, reader).await;
            let gate = if refuses { &run.kept.refuses } else { &run.kept.closed };
            gate.store(true, Ordering::SeqCst);
            run
        }
    };
    let run = own_letter(false).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(run.checkpoint(), "TRIM_HORIZON");
    run.kept.closed.store(false, Ordering::SeqCst);
    run.until("all is checkpointed", |run| run.checkpoint() == "5/0").await;
    assert_eq!(run.kept.sent(), ["lost 2/0"]);

    let run = own_letter(true).await;
    let reason = run.stopped().await;
    assert!(reason.contains("no such stream"), "{reason}");
    run.until("what stands before it is checkpointed", |run| run.checkpoint() == "1/0").await;
}

#[tokio::test(start_paused = true)]
async fn outputs_that_are_refused_do_not_hide_that_the_process_is_to_stop() {
    let failure = FailurePolicy { then: Then::StopProcess, ..options().failure };
    let run = Run::start_with(Options { failure, ..options() }, [(1..=9).collect()], false, |_, batch| {
        Ok(failing(batch, |number| number == 4, false))
    })
    .await;
    run.kept.refuses.store(true, Ordering::SeqCst);
    let StopReason { reason, process, .. } = run.stop_request.asked().await;
    assert!(process && reason.contains("4/0") && reason.contains("no such stream"), "{reason}");
    let labels =
        crate::metrics::GivenUpLabels { processor: "p".into(), stream: "s".into(), why: "final", then: "stop-process" };
    assert_eq!(run.metrics.records_given_up.get_or_create(&labels).get(), 1);
    assert_eq!(run.checkpoint(), "TRIM_HORIZON");
}

#[tokio::test(start_paused = true)]
async fn outputs_that_are_refused_in_the_midst_of_a_batch_come_when_the_shard_is_started_again() {
    let outcome = OutcomeLimits { outputs: 2, ..OutcomeLimits::default() };
    let some = Options { outcome, ..bisecting(Then::Skip) };
    // The batch is split, and what its first half returns is too much to wait for the end.
    let run = Run::start_with(some, [(1..=8).collect()], false, |_, batch| {
        if batch.len() == 8 { Err(crash()) } else { Ok(copy(batch)) }
    })
    .await;
    run.kept.refuses.store(true, Ordering::SeqCst);
    let reason = run.stopped().await;
    assert!(reason.contains("no such stream"), "{reason}");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(run.checkpoint(), "TRIM_HORIZON", "nothing of it was sent");
}

/// Emits a record in this hook, and skips record 2.
pub(super) fn hooked(name: &'static str) -> FakeGuest {
    let calls = AtomicU32::new(0);
    FakeGuest {
        hook: Box::new(move |hook| {
            let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
            let record = UserRecord { partition_key: "k".into(), explicit_hash_key: None, data: Bytes::from("7") };
            let output = Output { name: "out".into(), record, cause: Cause::Hook(call.into()) };
            let outputs = (hook.name() == name).then_some(output);
            (Duration::ZERO, Ok(HookOutcome { outputs: outputs.into_iter().collect(), ..HookOutcome::default() }))
        }),
        ..FakeGuest::new(|_, batch| Ok(Outcome { outputs: Vec::new(), ..failing(batch, |number| number == 2, false) }))
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_hook_returned_and_was_not_sent_keeps_the_checkpoint_back_when_the_time_for_a_stop_is_over() {
    let failure = FailurePolicy { then: Then::Skip, ..options().failure };
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), None, Options { failure, ..options() }, hooked("given-up"), reader).await;
    run.kept.closed.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(1)).await;
    run.abort.cancel();
    let store = run.store.clone();
    assert_eq!(run.task.await.unwrap(), Ended::Aborted);
    assert_eq!(store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap().checkpoint.to_string(), "TRIM_HORIZON");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_the_host_cannot_call_is_called_until_it_can() {
    let failure = FailurePolicy { then: Then::Skip, ..options().failure };
    let calls = AtomicU32::new(0);
    let guest = FakeGuest {
        hook: Box::new(move |hook| {
            let busy = hook.name() == "given-up" && calls.fetch_add(1, Ordering::SeqCst) < 5;
            let outcome = if busy { Err(Failure::Host("no instance".into())) } else { Ok(HookOutcome::default()) };
            (Duration::ZERO, outcome)
        }),
        ..FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 2, false)))
    };
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), None, Options { failure, ..options() }, guest, reader).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "5/0").await;
    assert_eq!(run.guest.told().iter().filter(|hook| **hook == "given-up").count(), 6);
}

#[tokio::test(start_paused = true)]
async fn of_destinations_that_fail_the_one_that_stops_more_is_heard_and_what_others_took_is_counted() {
    struct Stopping;
    #[async_trait::async_trait]
    impl Destination for Stopping {
        async fn send(&self, _: Vec<UserRecord>, _: &shardmill_lease::Fence) -> Result<(), crate::SendError> {
            Err(crate::SendError::Refused { output: "bad".into(), reason: "it is full".into() })
        }
    }
    let stage = super::stages::stage(
        Options { failure: FailurePolicy { then: Then::StopProcess, ..options().failure }, ..options() },
        FakeGuest::new(|_, batch| Ok(failing(batch, |_| true, false))),
        &Arc::default(),
        16,
    );
    let kept = Arc::new(Kept::default());
    stage.lead_to(Destinations::new([("out".to_owned(), crate::Target::Away(Arc::new(Stopping)))].into()));
    let by_name: [(&str, crate::Target); 3] = [
        ("bad", crate::Target::Away(Arc::new(Stopping))),
        ("good", crate::Target::Away(Arc::clone(&kept) as Arc<dyn Destination>)),
        ("stage", crate::Target::Stage(Arc::downgrade(&stage))),
    ];
    let destinations = Destinations::new(by_name.into_iter().map(|(name, to)| (name.to_owned(), to)).collect());
    let guest = FakeGuest::new(|_, batch| {
        let outputs = copy(batch)
            .outputs
            .into_iter()
            .flat_map(|output| ["bad", "good", "stage"].map(|name| Output { name: name.into(), ..output.clone() }));
        Ok(Outcome { outputs: outputs.collect(), ..Outcome::default() })
    });
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let run = Run::start_leading_to(Memory::new(), None, options(), guest, reader, Some(destinations)).await;
    let StopReason { reason, process, .. } = run.stop_request.asked().await;
    assert!(process && reason.contains("it is full") && reason.contains("processor `stage`"), "{reason}");
    let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
    assert_eq!((kept.sent().len(), run.metrics.outputs.get_or_create(&labels).get()), (5, 5));
}
