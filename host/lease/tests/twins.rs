//! Two processes with one worker id: one of them stops and says why, and nothing is held twice meanwhile.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shardmill_lease::change::Change;
use shardmill_lease::store::memory::{Call, Fault, Memory};
use shardmill_lease::{Event, Fence, LeaseKey, Options, RunError};
use support::{Shards, Worker, options};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

const SHARDS: usize = 6;
const EXPIRY: Duration = Duration::from_secs(10);

type Fences = Arc<Mutex<HashMap<LeaseKey, Vec<Fence>>>>;

/// A worker whose user runs every lease until it is lost or to be let go.
struct Running {
    drain: CancellationToken,
    ended: JoinHandle<Result<(), RunError>>,
    fences: Fences,
}

impl Running {
    fn start(options: Options, table: &Memory, fences: &Fences, finishing: Duration, seed: u64) -> Self {
        let Worker { mut events, drain, running, .. } =
            Worker::start_with(options, table, &Shards::numbered(SHARDS), seed);
        let all = fences.clone();
        let own = Fences::default();
        let fences = own.clone();
        let ended = tokio::spawn(async move {
            while let Some(Event::Held(held)) = events.recv().await {
                for fences in [&all, &own] {
                    let key = held.lease().key.clone();
                    fences.lock().unwrap().entry(key).or_default().push(held.fence());
                }
                tokio::spawn(async move {
                    let fence = held.fence();
                    tokio::select! {
                        biased;
                        _ = fence.lost() => {}
                        () = held.draining() => sleep(finishing).await,
                    }
                    drop(held);
                });
            }
            running.await.unwrap()
        });
        Self { drain, ended, fences }
    }

    fn held(&self) -> usize {
        let fences = self.fences.lock().unwrap();
        fences.values().flatten().filter(|fence| fence.check().is_ok()).count()
    }

    fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }

    async fn twin(self) -> String {
        match timeout(Duration::from_secs(1), self.ended).await.expect("it has ended").unwrap() {
            Err(RunError::Twin(twin)) => twin.to_string(),
            ended => panic!("{ended:?}"),
        }
    }
}

/// "fenced": at no moment are two holders sure of one lease.
async fn watch(fences: &Fences, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
        for (key, fences) in fences.lock().unwrap().iter_mut() {
            fences.retain(|fence| fence.check().is_ok());
            assert!(fences.len() <= 1, "{key} has {} valid fences", fences.len());
        }
    }
}

fn takes(table: &Memory) -> usize {
    let history = table.take_history();
    history.iter().filter(|applied| matches!(applied.change, Some(Change::Take { .. }))).count()
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_stops_with_the_id_and_what_to_do_and_the_first_does_not_notice() {
    let (table, fences) = (Memory::recording(), Fences::default());
    let first = Running::start(options("same"), &table, &fences, Duration::ZERO, 1);
    watch(&fences, Duration::from_secs(5)).await;
    assert_eq!((first.held(), takes(&table)), (SHARDS, SHARDS));
    let second = Running::start(options("same"), &table, &fences, Duration::ZERO, 2);
    watch(&fences, EXPIRY * 2).await;
    assert!(!second.has_ended(), "the first may be finishing");
    watch(&fences, EXPIRY * 4).await;
    let text = second.twin().await;
    assert!(text.contains("`same`") && text.contains("`worker-id`"), "{text}");
    watch(&fences, EXPIRY * 6).await;
    assert!(!first.has_ended());
    assert_eq!((first.held(), takes(&table)), (SHARDS, 0), "nothing changed hands");
}

#[tokio::test(start_paused = true)]
async fn a_broken_promise_that_the_id_runs_once_ends_with_one_process_and_no_back_and_forth() {
    let once = || Options { worker_runs_once: true, ..options("same") };
    let (table, fences) = (Memory::recording(), Fences::default());
    let first = Running::start(once(), &table, &fences, Duration::ZERO, 1);
    watch(&fences, Duration::from_secs(5)).await;
    let second = Running::start(once(), &table, &Fences::default(), Duration::ZERO, 2);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(second.held(), SHARDS, "taken at once, as the platform promised that nobody has them");
    assert_eq!(first.held(), 0);
    assert_eq!(takes(&table), 2 * SHARDS);
    sleep(EXPIRY * 6).await;
    let text = first.twin().await;
    assert!(text.contains("`same`"), "{text}");
    sleep(EXPIRY * 6).await;
    assert_eq!((second.held(), takes(&table)), (SHARDS, 0), "and never taken back");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_while_its_predecessor_finishes_goes_on_with_its_leases() {
    for once in [false, true] {
        let options = || Options { worker_runs_once: once, ..options("same") };
        let (table, fences) = (Memory::recording(), Fences::default());
        let first = Running::start(options(), &table, &fences, Duration::from_secs(25), 1);
        sleep(Duration::from_secs(5)).await;
        first.drain.cancel();
        sleep(Duration::from_secs(1)).await;
        let second = Running::start(options(), &table, &fences, Duration::ZERO, 2);
        sleep(EXPIRY * 6).await;
        assert!(first.has_ended() && !second.has_ended());
        assert_eq!(second.held(), SHARDS);
    }
}

/// Slow answers, and limits, so that both of two twins get some leases; a third worker with an id of its own.
async fn run(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (table, fences) = (Memory::recording(), Fences::default());
    let faults = |seed| {
        let random = Mutex::new(SmallRng::seed_from_u64(seed));
        move |_: &Call<'_>| Fault::Delay(Duration::from_millis(random.lock().unwrap().random_range(1..400)))
    };
    let mut start = |id, max: Option<usize>| {
        let options = Options { max_leases_per_worker: max, ..options(id) };
        let table = table.with_faults(faults(random.random()));
        Running::start(options, &table, &fences, Duration::from_millis(random.random_range(0..3000)), random.random())
    };
    let max = Some(4);
    let twins = [start("same", max), start("same", max)];
    // It would take everything if it were first, and there would be nothing to quarrel about.
    watch(&fences, Duration::from_secs(5)).await;
    let other = (seed.is_multiple_of(2)).then(|| start("other", None));
    watch(&fences, EXPIRY * 8).await;
    let [one, two] = &twins;
    assert!(one.has_ended() ^ two.has_ended(), "exactly one stops: {} {}", one.has_ended(), two.has_ended());
    takes(&table);
    watch(&fences, EXPIRY * 3).await;
    assert!(takes(&table) <= SHARDS, "no back and forth");
    let [one, two] = twins;
    let [gone, stays] = if one.has_ended() { [one, two] } else { [two, one] };
    assert!(gone.twin().await.contains("`same`"));
    let held = stays.held() + other.as_ref().map_or(0, Running::held);
    let expected = if other.is_some() { SHARDS } else { 4 };
    assert_eq!(held, expected, "everything that may be held is held");
}

#[test]
fn of_two_that_start_together_exactly_one_goes_on() {
    for seed in 0..30 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run(seed))));
        if let Err(panic) = result {
            eprintln!("failed with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
