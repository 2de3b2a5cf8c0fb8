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
mod stages;

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
use shardmill_record::{Batch, BatchLimits, Checkpoint, HashKeyRange, OutOfRange, Position, Unpacker, UserRecord};
use shardmill_stream::start::Start;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::fakes::{FakeGuest, FakeReader, Kept, Letters, OneShard, shard};
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

/// Everything of one run.
struct Run {
    store: Memory,
    drain: CancellationToken,
    abort: CancellationToken,
    kept: Arc<Kept>,
    guest: Arc<FakeGuest>,
    letters: Arc<Letters>,
    status: Status,
    metrics: Metrics,
    stop_request: StopRequest,
    deadline: Deadline,
    budget: Budget,
    task: JoinHandle<Ended>,
    _coordinator: JoinHandle<()>,
}

impl Run {
    async fn start(
        pages: impl IntoIterator<Item = Vec<u64>>,
        ends: bool,
        process: impl Fn(&ShardContext, &Batch) -> Result<Outcome, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(options(), pages, ends, process).await
    }

    async fn start_with(
        options: Options,
        pages: impl IntoIterator<Item = Vec<u64>>,
        ends: bool,
        process: impl Fn(&ShardContext, &Batch) -> Result<Outcome, Failure> + Send + Sync + 'static,
    ) -> Self {
        let guest = FakeGuest::new(process);
        Self::start_of(Memory::new(), None, options, guest, FakeReader { pages: pages.into_iter().collect(), ends })
            .await
    }

    /// On this table, from this checkpoint on.
    async fn start_of(
        store: Memory,
        checkpoint: Option<Position>,
        options: Options,
        guest: FakeGuest,
        reader: FakeReader,
    ) -> Self {
        Self::start_leading_to(store, checkpoint, options, guest, reader, None).await
    }

    /// Whose outputs go there.
    async fn start_leading_to(
        store: Memory,
        checkpoint: Option<Position>,
        options: Options,
        guest: FakeGuest,
        reader: FakeReader,
        destinations: Option<Destinations>,
    ) -> Self {
        let (task, begin) =
            Self::set_up(store, checkpoint, options, guest, reader, destinations, Allowance::default()).await;
        begin(tokio::spawn(task.run()))
    }

    /// A task that does not run, and what makes a run of it once it does.
    async fn set_up(
        store: Memory,
        checkpoint: Option<Position>,
        options: Options,
        guest: FakeGuest,
        reader: FakeReader,
        destinations: Option<Destinations>,
        allowance: Allowance,
    ) -> (ShardTask, impl FnOnce(JoinHandle<Ended>) -> Self) {
        let worker = WorkerId::parse("w1").unwrap();
        let (coordinator, _handle, mut events) = Coordinator::new(
            shardmill_lease::Options::new("application", worker),
            Arc::new(store.clone()),
            Arc::new(TokioClock::default()),
            Arc::new(OneShard),
            shardmill_lease::Metrics::default(),
            7,
        )
        .unwrap();
        let drain = CancellationToken::new();
        let coordinating = coordinator.run(drain.clone());
        let _coordinator = tokio::spawn(async move { coordinating.await.unwrap() });
        let Some(Event::Held(lease)) = events.recv().await else { panic!("no lease") };
        // The receiver is kept: dropping it would drain the coordinator.
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        let guest = Arc::new(guest);
        let (kept, letters) = (Arc::new(Kept::default()), Arc::new(Letters::default()));
        let destination = Arc::clone(&kept) as Arc<dyn Destination>;
        let ours = Destinations::new([("out".to_owned(), crate::Target::Away(destination))].into());
        let destinations = destinations.unwrap_or(ours);
        let (status, metrics, budget) = (Status::default(), Metrics::default(), Budget::new(BUDGET));
        let (abort, deadline, stop_request) = (CancellationToken::new(), Deadline::default(), StopRequest::default());
        let lease = Arc::new(lease);
        let options = Arc::new(options);
        let prefetch = options.prefetch;
        let labels = ConsumerLabels { processor: "p".into(), stream: "s".into() };
        let began = tokio::time::Instant::now();
        let cadence = Cadence { interval: options.checkpoint_interval, count: options.checkpoint_count };
        let place = options.failure.then == Then::DeadLetter;
        let entry = status.add_shard("p", "s", &shard(SHARD), &LeaseKey::of_shard(&shard(SHARD)));
        entry.live().attach(
            shardmill_stream::Metrics::default().condition("s", &shard(SHARD)),
            &lease,
            options.start.shards.contains_key(&shard(SHARD)),
        );
        let scene = Arc::new(ShardScene {
            worker: "w1".into(),
            status: entry,
            share: allowance.share(),
            progress: Mutex::new(Progress::new(Watermark::new(options.checkpoint, checkpoint.clone()))),
            checkpointer: Checkpointer::start(
                Arc::clone(&lease),
                cadence,
                Arc::new(shardmill_cause::Trouble::new(Duration::from_secs(2))),
                metrics.clone(),
                labels.clone(),
            ),
            directory: Arc::new(OneShard),
            options: Arc::clone(&options),
            shard: shard(SHARD),
            lease: Arc::clone(&lease),
            abort: abort.clone(),
            is_last: AtomicBool::new(false),
            is_followed: AtomicBool::new(false),
        });
        let work = Arc::new(BatchWork {
            worker: "w1".into(),
            guest: Arc::clone(&guest) as Arc<dyn Guest>,
            destinations,
            dead_letters: place.then(|| Arc::clone(&letters) as Arc<dyn DeadLetters>),
            metrics: metrics.clone(),
            labels,
            hooks_called: Arc::default(),
            told: Arc::default(),
            scene: Arc::clone(&scene) as Arc<dyn Scene>,
            options,
            wall_clock: Arc::new(move || u64::try_from(began.elapsed().as_millis()).unwrap()),
        });
        let router = work
            .options
            .flow
            .filter
            .is_some()
            .then(|| Router::new(Arc::clone(&work.options.flow), Arc::clone(&work.options.stream), SHARD));
        let task = ShardTask {
            router,
            work,
            scene,
            feed: Feed::start(Box::new(reader), budget.shard("p", BATCH), prefetch, lease.fence()),
            unpacker: Unpacker::new(checkpoint, HashKeyRange::ALL, OutOfRange::Deliver),
            reservations: Vec::new(),
            closed: None,
            meter: crate::meter::Meter::new(tokio::time::Instant::now()),
            deadline: deadline.clone(),
            stop_request: stop_request.clone(),
        };
        let begin = |task| Self {
            store,
            drain,
            abort,
            kept,
            guest,
            letters,
            status,
            metrics,
            stop_request,
            deadline,
            budget,
            task,
            _coordinator,
        };
        (task, begin)
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..100_000 {
            if holds(self) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain until {what}; sent: {:?}, row: {:?}", self.kept.sent(), self.row());
    }

    fn row(&self) -> Lease {
        self.store.row(&LeaseKey::of_shard(&shard(SHARD))).unwrap()
    }

    fn checkpoint(&self) -> String {
        self.row().checkpoint.to_string()
    }

    fn state(&self) -> ShardState {
        self.status.snapshot()["p"].shards[SHARD].state.clone()
    }

    /// Why the shard is stopped, once it is.
    async fn stopped(&self) -> String {
        self.until("the shard is stopped", |run| matches!(run.state(), ShardState::Stopped { .. })).await;
        let ShardState::Stopped { reason } = self.state() else { unreachable!() };
        reason
    }
}

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
