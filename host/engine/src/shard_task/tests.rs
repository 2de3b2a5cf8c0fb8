//! The whole loop on paused time, with a guest, a reader and a destination of the test's own, and the memory store.

mod activities;
mod checkpoints;
mod failures;
mod fakes;
mod hooks;
mod lanes;
mod letters;
mod losing;
mod orders;
mod outputs;
mod run;
mod stages;
mod stages_left;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use shardmill_lease::store::memory::Memory;
use shardmill_lease::{Coordinator, Event, Lease, LeaseKey, TokioClock, WorkerId};
use shardmill_plugin::ShardContext;
use shardmill_plugin::{
    Cause, FailedRecord, Failure, Outcome, OutcomeLimits, Output, ProcessError, SkippedRecord, Trap,
};
use shardmill_record::{
    Batch, BatchLimits, Checkpoint, HashKeyRange, OutOfRange, Position, SequenceNumber, Unpacker, UserRecord,
};
use shardmill_stream::start::Start;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::fakes::{FakeGuest, FakeReader, Kept, Letters, OneShard, shard};
use self::run::Run;
use super::*;
use crate::batch_work::Scene;
use crate::checkpointer::{Cadence, Checkpointer};
use crate::metrics::ConsumerLabels;
use crate::policy::Watermark;
use crate::{
    Allowance, Backoff, BatchOptions, Budget, CheckpointBy, DeadLetters, Delivery, Destination, Destinations,
    FailurePolicy, Guest, Metrics, Options, Status, Then, Tolerance,
};

const SHARD: &str = "shardId-000000000000";
const BUDGET: u64 = 64 << 20;
/// What is counted for batches; the guest has as much.
const BATCH: u64 = 1 << 20;

fn options() -> Options {
    Options {
        application: "application".into(),
        processor: "p".into(),
        stream: "s".into(),
        start: Start::default(),
        prefetch: crate::Prefetch::default(),
        batch: BatchOptions { limits: BatchLimits { records: 10, bytes: 1 << 20 }, ..BatchOptions::default() },
        flow: Arc::default(),
        failure: FailurePolicy {
            attempts: 3,
            bisect: false,
            max_age: None,
            tolerance: Tolerance::default(),
            then: Then::StopShard,
        },
        backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) },
        delivery: Delivery::AtLeastOnce,
        checkpoint: CheckpointBy::Host,
        checkpoint_interval: Duration::from_secs(1),
        checkpoint_count: None,
        out_of_range: OutOfRange::Deliver,
        outcome: OutcomeLimits::default(),
        hook_timeout: Duration::from_secs(1),
        shutdown_timeout: Duration::from_secs(5),
    }
}

/// Every record to the output.
fn copy(batch: &Batch) -> Outcome {
    let outputs = batch.iter().enumerate().map(|(index, record)| Output {
        name: "out".into(),
        record: UserRecord {
            partition_key: record.partition_key.to_owned(),
            explicit_hash_key: None,
            data: Bytes::copy_from_slice(record.data),
        },
        cause: Cause::Record(index as u32),
    });
    Outcome { outputs: outputs.collect(), ..Outcome::default() }
}

fn failing(batch: &Batch, fails: impl Fn(u64) -> bool, retry: bool) -> Outcome {
    let mut outcome = copy(batch);
    for (index, record) in batch.iter().enumerate() {
        if fails(number(record.data)) {
            outcome.failed.push(FailedRecord { index: index as u32, reason: "poison".into(), retry });
        }
    }
    outcome
}

fn number(data: &[u8]) -> u64 {
    std::str::from_utf8(data).unwrap().parse().unwrap()
}

fn at(number: u64) -> Position {
    Position::new(SequenceNumber::parse(&number.to_string()).unwrap(), 0)
}

/// Records that are given up, as they are counted.
fn counted(run: &Run, why: &'static str, then: &'static str) -> u64 {
    let (processor, stream) = ("p".to_owned(), "s".to_owned());
    let labels = crate::metrics::GivenUpLabels { processor, stream, why, then };
    run.metrics.records_given_up.get_or_create(&labels).get()
}

fn texts(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers.into_iter().map(|number| number.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn every_record_is_processed_once_in_order_and_the_end_is_checkpointed() {
    let run = Run::start([(1..=25).collect(), vec![], (26..=30).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("all is checkpointed", |run| run.checkpoint() == "30/0").await;
    assert_eq!(run.kept.sent(), texts(1..=30));
}

/// The sizes of the batches in which these pages come.
async fn batches(batch: BatchOptions, pages: Vec<Vec<u64>>) -> Vec<usize> {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let (seen, last) = (Arc::clone(&sizes), pages.iter().flatten().max().copied().unwrap());
    let run = Run::start_with(Options { batch, ..options() }, pages, false, move |_, batch| {
        seen.lock().unwrap().push(batch.len());
        Ok(copy(batch))
    })
    .await;
    run.until("all is checkpointed", |run| run.checkpoint() == format!("{last}/0")).await;
    let sizes = sizes.lock().unwrap();
    sizes.clone()
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_full_by_count_or_by_bytes_or_has_waited_long_enough() {
    let pages = || vec![(1001..=1003).collect(), (1004..=1006).collect(), (1007..=1009).collect()];
    let limits = |records, bytes| BatchLimits { records, bytes };
    let at_once = |limits| BatchOptions { limits, ..BatchOptions::default() };
    assert_eq!(batches(at_once(limits(2, 1 << 20)), pages()).await, [2, 1, 2, 1, 2, 1]);
    // Each record has 4 bytes of sequence number, 4 of key and 4 of data.
    assert_eq!(batches(at_once(limits(10, 25)), pages()).await, [2, 1, 2, 1, 2, 1]);
    let waiting = |limits| BatchOptions { limits, wait: Duration::from_secs(1), ..BatchOptions::default() };
    assert_eq!(batches(waiting(limits(10, 1 << 20)), pages()).await, [9]);
    assert_eq!(batches(waiting(limits(6, 1 << 20)), pages()).await, [6, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_drained_shard_is_checkpointed_at_once_and_released() {
    let run = Run::start([(1..=5).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("all is sent", |run| run.kept.sent().len() == 5).await;
    run.drain.cancel();
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    let row = run.store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    assert_eq!((row.owner, row.checkpoint.to_string()), (None, "5/0".to_owned()));
    assert_eq!(run.guest.told(), ["assigned", "revoked"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_seen_between_the_batches_of_a_page() {
    let run = Run::start([(1..=1000).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.until("some batches are sent", |run| run.kept.sent().len() >= 20).await;
    run.drain.cancel();
    let (store, kept) = (run.store.clone(), Arc::clone(&run.kept));
    assert_eq!(run.task.await.unwrap(), Ended::Released);
    let sent = kept.sent();
    assert!(sent.len() < 100, "{} records were sent before the stop was seen", sent.len());
    let row = store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    assert_eq!(row.checkpoint.to_string(), format!("{}/0", sent.last().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_stands_keeps_no_bytes_from_others() {
    let pages = [(1..=9).collect(), (10..=19).collect(), (20..=29).collect()];
    let run = Run::start(pages, false, |_, batch| Ok(failing(batch, |number| number == 4, true))).await;
    run.stopped().await;
    run.until("its bytes are given back", |run| run.budget.available() == BUDGET).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_the_bytes_of_its_page_until_it_is_processed() {
    let budget = Arc::new(OnceLock::<Budget>::new());
    let held = Arc::new(Mutex::new(Vec::new()));
    let (known, seen) = (Arc::clone(&budget), Arc::clone(&held));
    let run = Run::start([(1..=25).collect(), vec![], (26..=30).collect()], true, move |_, batch| {
        seen.lock().unwrap().push(BUDGET - known.get().unwrap().available());
        Ok(copy(batch))
    })
    .await;
    budget.set(run.budget.clone()).unwrap();
    assert_eq!(run.task.await.unwrap(), Ended::Complete);
    let held = held.lock().unwrap().clone();
    // Also the last batch of a page, and while nothing is being read any more.
    assert_eq!(held.len(), 4);
    assert!(held.iter().all(|bytes| *bytes > 0), "{held:?}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(run.budget.available(), BUDGET);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_waits_for_more_records_goes_when_others_want_its_memory() {
    let hour = BatchOptions { wait: Duration::from_secs(300), ..options().batch };
    let run =
        Run::start_with(Options { batch: hour, ..options() }, [(1..=5).collect()], false, |_, batch| Ok(copy(batch)))
            .await;
    sleep(Duration::from_secs(60)).await;
    assert!(run.kept.sent().is_empty(), "it waits while there is memory");
    let _all = run.budget.reserve(run.budget.available()).await;
    run.until("it is sent", |run| run.kept.sent().len() == 5).await;
}

fn crash() -> Failure {
    Failure::Trap(Trap { message: "crash".into(), backtrace: String::new(), stderr: String::new() })
}

#[tokio::test(start_paused = true)]
async fn no_checkpoint_passes_outputs_that_are_not_acknowledged() {
    let run = Run::start([(1..=3).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.kept.closed.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(run.checkpoint(), "TRIM_HORIZON");
    run.kept.closed.store(false, Ordering::SeqCst);
    run.until("all is checkpointed", |run| run.checkpoint() == "3/0").await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_the_call_in_flight_and_writes_nothing() {
    let run = Run::start([(1..=3).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.kept.closed.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(1)).await;
    let mut stolen = run.row();
    stolen.owner = Some(WorkerId::parse("w2").unwrap());
    stolen.counter += 1;
    stolen.epoch.0 += 1;
    run.store.put_row(stolen.clone());
    assert_eq!(run.task.await.unwrap(), Ended::Lost);
    run.kept.closed.store(false, Ordering::SeqCst);
    // Shorter than the expiry, after which the thief's lease would be free.
    sleep(Duration::from_secs(5)).await;
    assert_eq!(run.store.row(&stolen.key).unwrap(), stolen);
    assert!(run.kept.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_closed_shard_is_completed_after_its_last_record_with_its_children_there() {
    let run = Run::start([(1..=3).collect(), (4..=12).collect()], true, |_, batch| Ok(copy(batch))).await;
    let (store, kept) = (run.store.clone(), Arc::clone(&run.kept));
    assert_eq!(run.task.await.unwrap(), Ended::Complete);
    assert_eq!(kept.sent(), texts(1..=12));
    let rows = store.rows();
    let checkpoints: Vec<_> = rows.iter().map(|row| (row.key.to_string(), row.checkpoint.clone())).collect();
    assert_eq!(
        checkpoints,
        [(SHARD.to_owned(), Checkpoint::ShardEnd), ("shardId-000000000001".to_owned(), Checkpoint::TrimHorizon)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_whose_time_is_over_still_checkpoints_what_was_done() {
    let hour = Options { checkpoint_interval: Duration::from_secs(3600), ..options() };
    let run = Run::start_with(hour, [(1..=3).collect(), (4..=6).collect(), (7..=9).collect()], false, |_, batch| {
        Ok(copy(batch))
    })
    .await;
    // The first checkpoint is written at once, the ones after it at the interval.
    run.until("all is sent", |run| run.kept.sent().len() == 9).await;
    run.abort.cancel();
    assert_eq!(run.task.await.unwrap(), Ended::Aborted);
    let row = run.store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap();
    assert_eq!(row.checkpoint.to_string(), "9/0");
}

#[tokio::test(start_paused = true)]
async fn a_stop_whose_time_is_over_gives_up_what_is_in_flight() {
    let run = Run::start([(1..=3).collect()], false, |_, batch| Ok(copy(batch))).await;
    run.kept.closed.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(1)).await;
    run.drain.cancel();
    sleep(Duration::from_secs(5)).await;
    run.abort.cancel();
    assert_eq!(run.task.await.unwrap(), Ended::Aborted);
    assert_eq!(run.store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap().checkpoint, Checkpoint::TrimHorizon);
}
