//! When checkpoints are written, and who says how far.

use shardmill_lease::store::memory::{Call, Fault};
use shardmill_plugin::HookOutcome;

use super::*;
use crate::Hook;

const HOUR: Duration = Duration::from_secs(3600);

fn last(batch: &Batch) -> u64 {
    number(batch.record(batch.len() - 1).data)
}

fn written(run: &Run) -> u64 {
    let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
    run.metrics.checkpoints.get_or_create(&labels).get()
}

#[tokio::test(start_paused = true)]
async fn checkpoints_are_written_by_interval_and_by_count() {
    let by_count = Options { checkpoint_interval: HOUR, checkpoint_count: Some(20), ..options() };
    let run = Run::start_with(by_count, [(1001..=1100).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("all is sent", |run| run.kept.sent().len() == 100).await;
    sleep(Duration::from_secs(60)).await;
    // The first one at once, and then every two batches.
    assert_eq!((written(&run), run.checkpoint()), (5, "1090/0".to_owned()));
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!((written(&run), run.checkpoint()), (6, "1100/0".to_owned()), "at once at a stop");

    let by_interval = Options { checkpoint_interval: Duration::from_secs(10), checkpoint_count: None, ..options() };
    let run = Run::start_with(by_interval, [(1001..=1100).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("all is sent", |run| run.kept.sent().len() == 100).await;
    assert_eq!(written(&run), 1);
    run.until("all is checkpointed", |run| run.checkpoint() == "1100/0").await;
    assert_eq!(written(&run), 2);
}

#[tokio::test(start_paused = true)]
async fn a_table_that_throttles_is_asked_less_and_holds_nobody_up() {
    let (throttles, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let (throttling, asking) = (Arc::clone(&throttles), Arc::clone(&asked));
    let store = Memory::new().with_faults(move |call| match call {
        Call::Write(_, shardmill_lease::change::Change::Checkpoint { .. }) => {
            asking.fetch_add(1, Ordering::SeqCst);
            if throttling.load(Ordering::SeqCst) { Fault::Throttle } else { Fault::None }
        }
        _other => Fault::None,
    });
    let often = Options { checkpoint_interval: Duration::ZERO, checkpoint_count: Some(1), ..options() };
    let reader = FakeReader { pages: [(1001..=3000).collect()].into(), ends: false };
    let run = Run::start_of(store, None, often, FakeGuest::new(|_, batch| Ok(copy(batch))), reader).await;
    run.until("all is sent", |run| run.kept.sent().len() == 2000).await;
    sleep(Duration::from_secs(60)).await;
    let asked = asked.load(Ordering::SeqCst);
    assert!((5..30).contains(&asked), "{asked} writes in a minute");
    assert_eq!(run.checkpoint(), "TRIM_HORIZON");
    throttles.store(false, Ordering::SeqCst);
    run.until("all is checkpointed", |run| run.checkpoint() == "3000/0").await;
}

/// The checkpoint that stands in the table when a batch is handed over, and the batch's last record.
type Handed = Arc<Mutex<Vec<(String, u64)>>>;

fn noting(store: &Memory, handed: &Handed) -> impl Fn(&Batch) + Send + Sync + 'static {
    let (store, handed) = (store.clone(), Arc::clone(handed));
    move |batch| {
        let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
        handed.lock().unwrap().push((row.checkpoint.to_string(), last(batch)));
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_once_the_checkpoint_passes_a_batch_before_it_is_handed_over() {
    let (store, handed) = (Memory::new(), Handed::default());
    let note = noting(&store, &handed);
    let once = Options { delivery: Delivery::AtMostOnce, checkpoint_interval: HOUR, ..options() };
    let guest = FakeGuest::new(move |_, batch| {
        note(batch);
        Ok(failing(batch, |number| number == 14, true))
    });
    let reader = FakeReader { pages: [(1..=25).collect()].into(), ends: false };
    let skipping = Options { failure: FailurePolicy { then: Then::Skip, ..once.failure.clone() }, ..once.clone() };
    let run = Run::start_of(store, None, skipping, guest, reader).await;
    run.until("all is sent", |run| run.kept.sent().len() == 24).await;
    // 14 was handed over once, though it might have had three attempts.
    let expected = [10, 20, 25].map(|last: u64| (format!("{last}/0"), last));
    assert_eq!(*handed.lock().unwrap(), expected);
    assert_eq!(run.kept.sent(), texts((1..=25).filter(|number| *number != 14)));

    // Where it stops, what stands behind the failed record is done all the same: nobody comes back for it.
    let run =
        Run::start_with(once, [(1..=25).collect()], false, |_, batch| Ok(failing(batch, |number| number == 14, true)))
            .await;
    run.stopped().await;
    assert_eq!(run.kept.sent(), texts((1..=20).filter(|number| *number != 14)));
    assert_eq!(run.checkpoint(), "20/0");
}

#[tokio::test(start_paused = true)]
async fn at_most_once_nothing_is_handed_over_while_the_checkpoint_cannot_be_written() {
    let store = Memory::new().with_faults(|call| match call {
        Call::Write(_, shardmill_lease::change::Change::Checkpoint { .. }) => Fault::Throttle,
        _other => Fault::None,
    });
    let calls = Arc::new(AtomicU32::new(0));
    let called = Arc::clone(&calls);
    let guest = FakeGuest::new(move |_, batch| {
        called.fetch_add(1, Ordering::SeqCst);
        Ok(copy(batch))
    });
    let once = Options { delivery: Delivery::AtMostOnce, ..options() };
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let run = Run::start_of(store, None, once, guest, reader).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(run.state(), ShardState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_guest_holds_the_checkpoint_back_and_moves_it_on_in_its_last_hook() {
    let by_guest = Options { checkpoint: CheckpointBy::Guest, checkpoint_interval: Duration::ZERO, ..options() };
    // Half of each batch, and all of it when the shard is taken away.
    let guest = FakeGuest {
        hook: Box::new(|hook| {
            let checkpoint = matches!(hook, Hook::Revoked { .. }).then(|| at(29));
            (Duration::ZERO, Ok(HookOutcome { checkpoint, ..HookOutcome::default() }))
        }),
        ..FakeGuest::new(|_, batch| {
            let checkpoint = Some(batch.position(batch.len() / 2));
            Ok(Outcome { checkpoint, ..copy(batch) })
        })
    };
    let reader = FakeReader { pages: [(11..=30).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), Some(at(10)), by_guest, guest, reader).await;
    run.until("all is sent", |run| run.kept.sent().len() == 20).await;
    run.until("half is checkpointed", |run| run.checkpoint() == "26/0").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(run.checkpoint(), "26/0");
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(run.checkpoint(), "29/0");
}

#[tokio::test(start_paused = true)]
async fn a_guest_cannot_push_the_checkpoint_beyond_what_is_done_nor_back() {
    let by_guest = Options { checkpoint: CheckpointBy::Guest, checkpoint_interval: Duration::ZERO, ..options() };
    let run = Run::start_with(by_guest, [(11..=30).collect()], false, |_, batch| {
        // All of the first batch, all of the second though not all of it is done, and back in what comes of it again.
        let checkpoint = if batch.len() == 10 { batch.position(batch.len() - 1) } else { at(5) };
        Ok(Outcome { checkpoint: Some(checkpoint), ..failing(batch, |number| number == 27, true) })
    })
    .await;
    run.until("it has failed", |run| matches!(run.state(), ShardState::Retrying { .. })).await;
    run.stopped().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(run.checkpoint(), "20/0", "what it said last holds: not so far as 26");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_with_a_checkpoint_behind_all_that_the_guest_has_seen_is_not_carried_out() {
    for (by, position) in [(CheckpointBy::Guest, 21), (CheckpointBy::Guest, 1_000_000), (CheckpointBy::Host, 21)] {
        let strict = Options { checkpoint: by, ..options() };
        let run = Run::start_with(strict, [(11..=20).collect(), (21..=30).collect()], false, move |_, batch| {
            Ok(Outcome { checkpoint: Some(at(position)), ..copy(batch) })
        })
        .await;
        let reason = run.stopped().await;
        assert!(reason.contains(&format!("{position}/0")) && reason.contains("20/0"), "{reason}");
        assert!(run.kept.sent().is_empty(), "not in part");
    }
    // A hook has seen what the batches had.
    let by_guest = Options { checkpoint: CheckpointBy::Guest, checkpoint_interval: Duration::ZERO, ..options() };
    let guest = FakeGuest {
        hook: Box::new(|hook| {
            let checkpoint = if matches!(hook, Hook::Assigned) { at(11) } else { at(13) };
            (Duration::ZERO, Ok(HookOutcome { checkpoint: Some(checkpoint), ..HookOutcome::default() }))
        }),
        ..FakeGuest::new(|_, batch| Ok(copy(batch)))
    };
    let reader = FakeReader { pages: [(11..=12).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), Some(at(10)), by_guest, guest, reader).await;
    run.until("all is sent", |run| run.kept.sent().len() == 2).await;
    run.drain.cancel();
    run.until("the stop", |run| run.task.is_finished()).await;
    assert_eq!(run.checkpoint(), "TRIM_HORIZON", "neither hook could mean this shard");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_throttles_is_asked_less_also_by_who_waits_for_it() {
    let asked = Arc::new(AtomicU32::new(0));
    let asking = Arc::clone(&asked);
    let store = Memory::new().with_faults(move |call| match call {
        Call::Write(_, shardmill_lease::change::Change::Checkpoint { .. }) => {
            asking.fetch_add(1, Ordering::SeqCst);
            Fault::Throttle
        }
        _other => Fault::None,
    });
    let once = Options { delivery: Delivery::AtMostOnce, ..options() };
    let reader = FakeReader { pages: [(1..=5).collect()].into(), ends: false };
    let run = Run::start_of(store, None, once, FakeGuest::new(|_, batch| Ok(copy(batch))), reader).await;
    sleep(Duration::from_secs(60)).await;
    let asked = asked.load(Ordering::SeqCst);
    assert!((20..80).contains(&asked), "{asked} writes in a minute");
    assert!(run.kept.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_shard_whose_guest_holds_the_checkpoint_back_is_not_written() {
    let by_guest = Options { checkpoint: CheckpointBy::Guest, ..options() };
    let run = Run::start_with(by_guest.clone(), [(1..=9).collect()], true, |_, batch| {
        Ok(Outcome { checkpoint: Some(at(7)), ..copy(batch) })
    })
    .await;
    let reason = run.stopped().await;
    assert!(reason.contains("7/0") && reason.contains("9/0") && reason.contains("guest"), "{reason}");
    assert_eq!(run.guest.told(), ["assigned", "shard-ended"]);
    run.until("the guest's position is checkpointed", |run| run.checkpoint() == "7/0").await;
    assert_eq!(run.store.rows().len(), 1, "no child before the end");

    let guest = FakeGuest {
        hook: Box::new(|hook| {
            let checkpoint = matches!(hook, Hook::ShardEnded).then(|| at(9));
            (Duration::ZERO, Ok(HookOutcome { checkpoint, ..HookOutcome::default() }))
        }),
        ..FakeGuest::new(|_, batch| Ok(copy(batch)))
    };
    let reader = FakeReader { pages: [(1..=9).collect()].into(), ends: true };
    let run = Run::start_of(Memory::new(), None, by_guest, guest, reader).await;
    let store = run.store.clone();
    assert_eq!(run.task.await.unwrap(), Ended::Complete);
    assert_eq!(store.rows()[0].checkpoint, Checkpoint::ShardEnd);
}
