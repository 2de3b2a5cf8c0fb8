//! What a guest is told of its shard's life, and that it holds nobody up.

use shardmill_lease::store::memory::{Call, Fault};
use shardmill_plugin::HookOutcome;

use super::*;
use crate::Hook;

#[tokio::test(start_paused = true)]
async fn hooks_come_in_order_around_the_batches() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (batches, hooks) = (Arc::clone(&events), Arc::clone(&events));
    let guest = FakeGuest {
        hook: Box::new(move |hook| {
            hooks.lock().unwrap().push(hook.name());
            (Duration::ZERO, Ok(HookOutcome::default()))
        }),
        ..FakeGuest::new(move |_, batch| {
            batches.lock().unwrap().push("batch");
            Ok(copy(batch))
        })
    };
    let reader = FakeReader { pages: [(1..=15).collect(), vec![], vec![16]].into(), ends: true };
    let run = Run::start_of(Memory::new(), None, options(), guest, reader).await;
    assert_eq!(run.task.await.unwrap(), Ended::Complete);
    assert_eq!(*events.lock().unwrap(), ["assigned", "batch", "batch", "idle", "batch", "shard-ended"]);
}

#[tokio::test(start_paused = true)]
async fn hooks_that_hang_end_after_their_time() {
    let guest = || FakeGuest {
        hook: Box::new(|_| (Duration::from_secs(1_000_000), Ok(HookOutcome::default()))),
        ..FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 4, false)))
    };
    let skipping = Options { failure: FailurePolicy { then: Then::Skip, ..options().failure }, ..options() };
    let began = tokio::time::Instant::now();
    let reader = FakeReader { pages: [(1..=5).collect(), vec![], vec![6]].into(), ends: true };
    let run = Run::start_of(Memory::new(), None, skipping.clone(), guest(), reader).await;
    let (kept, told) = (Arc::clone(&run.kept), Arc::clone(&run.guest));
    assert_eq!(run.task.await.unwrap(), Ended::Complete);
    assert_eq!(told.told(), ["assigned", "given-up", "idle", "shard-ended"]);
    assert_eq!(kept.sent(), texts([1, 2, 3, 5, 6]));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());

    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), None, skipping, guest(), reader).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "5/0").await;
    run.drain.cancel();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_shard_s_guest_is_told_the_time_that_is_left() {
    let slow = || FakeGuest { takes: Duration::from_millis(4_300), ..FakeGuest::new(|_, batch| Ok(copy(batch))) };
    let time_left = |run: &Run| {
        let hooks = run.guest.hooks.lock().unwrap();
        hooks.iter().find_map(|hook| match hook {
            Hook::Revoked { time_left_ms } => Some(*time_left_ms),
            _other => None,
        })
    };
    let reader = || FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    // Handed to another worker: what a hook may have.
    let run = Run::start_of(Memory::new(), None, options(), slow(), reader()).await;
    sleep(Duration::from_millis(10)).await;
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(time_left(&run), Some(1_000));
    // The process stops, in five seconds, and most of them went into a batch.
    let run = Run::start_of(Memory::new(), None, options(), slow(), reader()).await;
    sleep(Duration::from_millis(10)).await;
    run.deadline.set(tokio::time::Instant::now() + Duration::from_secs(5));
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    let left = time_left(&run).unwrap();
    assert!((1..1_000).contains(&left), "{left} ms");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_shard_is_left_to_the_next_worker_when_it_cannot_be_written() {
    let store = Memory::new().with_faults(|call| match call {
        Call::Write(_, shardmill_lease::change::Change::Complete { .. }) => Fault::Throttle,
        _other => Fault::None,
    });
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: true };
    let run = Run::start_of(store, None, options(), FakeGuest::new(|_, batch| Ok(copy(batch))), reader).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "5/0").await;
    sleep(Duration::from_secs(60)).await;
    run.drain.cancel();
    let began = tokio::time::Instant::now();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(run.row().owner, None);
    assert_eq!(run.guest.told(), ["assigned", "shard-ended", "revoked"]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_the_shard_s_end_that_a_stop_cuts_short_blames_nobody() {
    let by_guest = || Options { checkpoint: CheckpointBy::Guest, hook_timeout: Duration::from_secs(3600), ..options() };
    let hanging = FakeGuest {
        hook: Box::new(|hook| {
            let takes = if matches!(hook, Hook::ShardEnded) { Duration::from_secs(1_000_000) } else { Duration::ZERO };
            (takes, Ok(HookOutcome::default()))
        }),
        ..FakeGuest::new(|_, batch| Ok(copy(batch)))
    };
    let reader = || FakeReader { pages: [(1..=5).collect()].into(), ends: true };
    let run = Run::start_of(Memory::new(), None, by_guest(), hanging, reader()).await;
    run.until("the hook runs", |run| run.guest.told().contains(&"shard-ended")).await;
    run.abort.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(run.task.await.unwrap(), Ended::Aborted);

    // One that cannot be called for a time is called; one that fails is in the reason.
    let tries = Arc::new(AtomicU32::new(0));
    let tried = Arc::clone(&tries);
    let unable = FakeGuest {
        hook: Box::new(move |hook| {
            let ended = matches!(hook, Hook::ShardEnded);
            let failure = match tried.fetch_add(u32::from(ended), Ordering::SeqCst) {
                0 if ended => Failure::Host("no memory for another instance".into()),
                _ if ended => crash(),
                _ => return (Duration::ZERO, Ok(HookOutcome::default())),
            };
            (Duration::ZERO, Err(failure))
        }),
        ..FakeGuest::new(|_, batch| Ok(copy(batch)))
    };
    let run = Run::start_of(Memory::new(), None, by_guest(), unable, reader()).await;
    let reason = run.stopped().await;
    assert!(reason.contains("nowhere yet") && reason.contains("hook") && reason.contains("crash"), "{reason}");
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_let_go_while_its_guest_cannot_be_told_of_a_given_up_record_is_checkpointed_before_it() {
    let unable = FakeGuest {
        hook: Box::new(|hook| {
            let told = match hook {
                Hook::GivenUp(_) => Err(Failure::Host("no memory for another instance".into())),
                _other => Ok(HookOutcome::default()),
            };
            (Duration::ZERO, told)
        }),
        ..FakeGuest::new(|_, batch| Ok(failing(batch, |number| number == 4, false)))
    };
    let failure = FailurePolicy { then: Then::Skip, ..options().failure };
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), None, Options { failure, ..options() }, unable, reader).await;
    run.until("what is done is sent", |run| run.kept.sent() == ["1", "2", "3", "5"]).await;
    sleep(Duration::from_secs(1)).await;
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(run.checkpoint(), "3/0");
    assert_eq!(run.task.await.unwrap(), Ended::Released);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_the_guest_s_call_and_gives_everything_back() {
    let guest = FakeGuest { takes: Duration::from_secs(1_000_000), ..FakeGuest::new(|_, batch| Ok(copy(batch))) };
    let reader = FakeReader { pages: [(1..=5).collect(), (6..=9).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), None, options(), guest, reader).await;
    run.until("records are in hand", |run| run.budget.available() < BUDGET).await;
    sleep(Duration::from_secs(1)).await;
    let mut stolen = run.row();
    stolen.owner = Some(WorkerId::parse("w2").unwrap());
    stolen.counter += 1;
    stolen.epoch.0 += 1;
    run.store.put_row(stolen.clone());
    run.until("the task has ended", |run| run.task.is_finished()).await;
    run.until("all bytes are given back", |run| run.budget.available() == BUDGET).await;
    assert_eq!(run.guest.told(), ["assigned"], "nobody is told of a shard that is another's");
    assert!(run.status.snapshot()["p"].shards.is_empty());
    assert_eq!(run.task.await.unwrap(), Ended::Lost);
    assert!(run.kept.sent().is_empty());
}
