//! What a shard's task says that it is about: the watchdog's reasons come from this.

use shardmill_lease::change::Change;
use shardmill_lease::store::memory::{Call, Fault};
use shardmill_plugin::HookOutcome;

use super::*;
use crate::live::Activity;

/// Long enough that it is what the shard is about for good.
const LONG: Duration = Duration::from_secs(3_600);

async fn until_about(run: &Run, activity: Activity) {
    let is_about = |run: &Run| {
        let live = run.status.live("p", SHARD).expect("the lease is held");
        live.vitals(tokio::time::Instant::now()).activity == activity
    };
    run.until(&format!("it is about {activity:?}"), is_about).await;
    sleep(Duration::from_secs(30)).await;
    assert!(is_about(run), "{activity:?} lasts");
}

fn copier() -> FakeGuest {
    FakeGuest::new(|_, batch| Ok(copy(batch)))
}

#[tokio::test(start_paused = true)]
async fn a_task_says_what_it_waits_for() {
    let slow = FakeGuest { takes: LONG, ..copier() };
    let reader = FakeReader { pages: [(1..=9).collect()].into(), ends: false };
    until_about(&Run::start_of(Memory::new(), None, options(), slow, reader).await, Activity::Guest).await;

    let run = Run::start([Vec::new(), (1..=9).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.kept.closed.store(true, Ordering::SeqCst);
    until_about(&run, Activity::Sending).await;

    let failing = |_: &ShardContext, batch: &Batch| Ok(failing(batch, |number| number == 4, true));
    let slow = Backoff { first: LONG, longest: LONG };
    let run = Run::start_with(Options { backoff: slow, ..options() }, [(1..=9).collect()], false, failing).await;
    until_about(&run, Activity::BackingOff).await;

    let policy = FailurePolicy { attempts: 1, then: Then::DeadLetter, ..options().failure };
    let run = Run::start_with(Options { failure: policy, ..options() }, [(1..=9).collect()], false, failing).await;
    run.letters.is_full.store(true, Ordering::SeqCst);
    until_about(&run, Activity::Storing).await;

    let run = Run::start([(1..=9).collect()], false, |_, batch| Ok(copy(batch))).await;
    until_about(&run, Activity::Waiting).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_does_not_return_is_told_of() {
    let guest = FakeGuest { hook: Box::new(|_| (LONG, Ok(HookOutcome::default()))), ..copier() };
    let slow = Options { hook_timeout: LONG, ..options() };
    let reader = FakeReader { pages: [(1..=9).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new(), None, slow, guest, reader).await;
    until_about(&run, Activity::Hook).await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_table_does_not_take_is_told_of() {
    let faults = |call: &Call<'_>| match call {
        Call::Write(_, Change::Complete { .. }) => Fault::Throttle,
        _ => Fault::None,
    };
    let reader = FakeReader { pages: [(1..=9).collect()].into(), ends: true };
    let run = Run::start_of(Memory::new().with_faults(faults), None, options(), copier(), reader).await;
    until_about(&run, Activity::Ending).await;
    assert_eq!(run.guest.told(), ["assigned", "shard-ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_goes_is_not_counted_as_stopped_any_more() {
    let policy = FailurePolicy { attempts: 1, ..options().failure };
    let failing = |_: &ShardContext, batch: &Batch| Ok(failing(batch, |number| number == 4, true));
    let run = Run::start_with(Options { failure: policy, ..options() }, [(1..=9).collect()], false, failing).await;
    run.stopped().await;
    let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
    let gauge = run.metrics.shards_stopped.get_or_create(&labels).clone();
    assert_eq!(gauge.get(), 1);
    run.task.abort();
    run.until("the task has gone", |run| run.task.is_finished()).await;
    assert_eq!(gauge.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_before_a_batch_that_the_table_does_not_take_is_told_of() {
    let faults = |call: &Call<'_>| match call {
        Call::Write(_, Change::Checkpoint { .. }) => Fault::Throttle,
        _ => Fault::None,
    };
    let first = Options { delivery: Delivery::AtMostOnce, ..options() };
    let reader = FakeReader { pages: [(1..=9).collect()].into(), ends: false };
    let run = Run::start_of(Memory::new().with_faults(faults), None, first, copier(), reader).await;
    until_about(&run, Activity::Checkpointing).await;
    assert!(run.kept.sent().is_empty());
}
