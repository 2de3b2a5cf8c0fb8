//! Seeded runs of several workers on one table under random faults: the promises hold at every moment.
//!
//! `SEED=17 cargo test --release --workspace --test simulation` repeats one run; `SEEDS=1000` makes more.

mod support;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shardmill_lease::change::{Change, Refused, Restart};
use shardmill_lease::store::memory::{Applied, Call, Fault, Memory};
use shardmill_lease::{Error, Event, Fence, HeldLease, LeaseKey, NewLease, Options, RunError, Takeover};
use shardmill_record::Checkpoint;
use support::{Shards, Worker, options, position, shard};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Shards that end, and are followed by others.
const CLOSED: usize = 6;
/// With those that follow.
const LINEAGE: usize = 12;
/// Shards that go on for ever.
const OPEN: usize = 6;
/// How much clocks may differ from true time, in millionths: a hundredth, which is a hundred times what real ones do.
const SKEW_PPM: i64 = 9_900;
const RUN: Duration = Duration::from_secs(600);
/// After this, nothing fails any more, and everything must get done.
const FAULTS: Duration = Duration::from_secs(300);
/// A shard is done at this position.
const LAST: u64 = 40;

type Fences = Arc<Mutex<HashMap<LeaseKey, Vec<Fence>>>>;

fn faults(seed: u64, started: Instant, is_cut_off: Arc<AtomicBool>) -> impl Fn(&Call<'_>) -> Fault + Send + Sync {
    let random = Mutex::new(SmallRng::seed_from_u64(seed));
    move |_| {
        if is_cut_off.load(Ordering::SeqCst) {
            return Fault::LoseRequest;
        }
        if started.elapsed() > FAULTS {
            return Fault::None;
        }
        let mut random = random.lock().unwrap();
        let time = Duration::from_millis(random.random_range(1..6000));
        match random.random_range(0..100) {
            0..70 => Fault::Delay(time / 60),
            70..76 => Fault::Delay(time),
            76..82 => Fault::Throttle,
            82..88 => Fault::LoseRequest,
            88..94 => Fault::LoseAnswer,
            94..99 => Fault::ArriveLate(time * 2),
            _ => Fault::None,
        }
    }
}

/// The shards that follow one: splits, and merges of which both parents come to their end.
fn children(index: usize) -> Vec<NewLease> {
    match index {
        0 | 1 => vec![shard(100, &[0, 1])],
        2 => vec![shard(102, &[2]), shard(202, &[2])],
        3 | 4 => vec![shard(103, &[3, 4])],
        5 => vec![shard(105, &[5])],
        102 | 202 => vec![shard(300, &[102, 202])],
        _ => Vec::new(),
    }
}

fn is_open(key: &LeaseKey) -> bool {
    (CLOSED..CLOSED + OPEN).contains(&number(key))
}

fn number(key: &LeaseKey) -> usize {
    key.as_str().trim_start_matches("shardId-").parse().unwrap()
}

/// What a user does with a lease: works, checkpoints, completes it at the end, now and then lets it go.
async fn work(held: HeldLease, fences: Fences, started: Instant, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (lease, fence) = (held.lease(), held.fence());
    fences.lock().unwrap().entry(lease.key.clone()).or_default().push(fence.clone());
    let done = |checkpoint: &Checkpoint| {
        checkpoint.position().map_or(0, |position| position.sequence_number.as_str().parse().unwrap())
    };
    let mut at: u64 = done(&lease.checkpoint);
    loop {
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(random.random_range(100..4000))) => {}
            () = held.draining() => {}
            _ = fence.lost() => return,
        }
        let lets_go = started.elapsed() < FAULTS && random.random_bool(0.02);
        if held.is_draining() || lets_go {
            let _ = held.release().await;
            return;
        }
        if at >= LAST && !is_open(&lease.key) {
            match held.complete(&children(number(&lease.key))).await {
                Ok(()) => return,
                Err(error) => assert!(error.is_transient() || fence.check().is_err(), "{error}"),
            }
            continue;
        }
        if started.elapsed() < FAULTS && random.random_bool(0.01) {
            match held.rewind(Restart::At(at)).await {
                Ok(()) => at = 0,
                Err(Error::Refused(Refused::OnItsWay { .. })) => {}
                Err(error) => assert!(fence.check().is_err(), "{error}"),
            }
            continue;
        }
        at += 1;
        match held.checkpoint(position(at)).await {
            Ok(()) => {}
            Err(error) => assert!(error.is_transient() || fence.check().is_err(), "{error}"),
        }
    }
}

/// One worker's life: works, is killed, drained or frozen, and comes back; once nothing fails any more only if it `stays`.
async fn live(id: usize, stays: bool, table: Memory, shards: Shards, fences: Fences, seed: u64) {
    let started = Instant::now();
    let mut random = SmallRng::seed_from_u64(seed);
    for life in 0.. {
        if started.elapsed() > FAULTS && !stays {
            return;
        }
        let is_cut_off = Arc::new(AtomicBool::new(false));
        let store = table.with_faults(faults(random.random(), started, is_cut_off.clone()));
        // Half of the workers keep their id over a restart.
        let name = if id.is_multiple_of(2) { format!("w{id}") } else { format!("w{id}-{life}") };
        // Lives that end while their tasks run on hold leases and have no row: as if they were another system's.
        let options = Options { takeover: Takeover::Force, ..options(&name) };
        let fast = random.random_range(-SKEW_PPM..=SKEW_PPM);
        let mut worker = Worker::start_skewed(options, &store, &shards, fast, random.random());
        let mut tasks = JoinSet::new();
        let is_last = started.elapsed() > FAULTS;
        let lifetime = if is_last { RUN } else { Duration::from_secs(random.random_range(5..90)) };
        let end = sleep(lifetime);
        tokio::pin!(end);
        loop {
            tokio::select! {
                biased;
                () = &mut end => break,
                event = worker.events.recv() => match event {
                    Some(Event::Held(held)) => {
                        tasks.spawn(work(held, fences.clone(), started, random.random()));
                    }
                    Some(event) => panic!("{event:?}"),
                    None => break,
                },
                Some(done) = tasks.join_next() => done.unwrap(),
            }
        }
        match random.random_range(0..3) {
            0 => {
                // Renewals stop, and the tasks run on for a while as if nothing had happened.
                worker.kill().await;
                let time = Duration::from_secs(random.random_range(0..40));
                tokio::spawn(async move {
                    sleep(time).await;
                    tasks.abort_all();
                });
            }
            1 => {
                worker.drain.cancel();
                while let Some(Event::Held(held)) = worker.events.recv().await {
                    drop(held);
                }
                while let Some(done) = tasks.join_next().await {
                    done.unwrap();
                }
                match worker.running.await.unwrap() {
                    // An earlier life under the same id, whose tasks run on, is another process to this one.
                    Ok(()) | Err(RunError::Twin(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {
                // As if frozen: nothing comes through, time goes on, and then everything does again.
                is_cut_off.store(true, Ordering::SeqCst);
                sleep(Duration::from_secs(random.random_range(1..30))).await;
                is_cut_off.store(false, Ordering::SeqCst);
                sleep(Duration::from_secs(15)).await;
                worker.kill().await;
                tasks.abort_all();
            }
        }
        sleep(Duration::from_secs(random.random_range(0..5))).await;
    }
}

/// "fenced": at no moment are two holders sure of one lease.
fn check_fences(fences: &Fences, at: Duration) {
    for (key, fences) in fences.lock().unwrap().iter_mut() {
        fences.retain(|fence| fence.check().is_ok());
        assert!(fences.len() <= 1, "{key} has {} valid fences after {at:?}", fences.len());
    }
}

/// "monotonic", and the epoch's and counter's rules, on what was really written.
fn check_history(history: &[Applied]) {
    for applied in history {
        let Applied { change, before: Some(before), after: Some(after) } = applied else { continue };
        let is_rewind = matches!(change, Some(Change::Rewind { .. }));
        assert!(is_rewind || after.checkpoint >= before.checkpoint, "{applied:?}");
        let is_hand_off = matches!(change, Some(Change::HandOff { .. }));
        assert_eq!(after.counter, before.counter + u64::from(!is_hand_off), "{applied:?}");
        let is_take = matches!(change, Some(Change::Take { .. }));
        assert_eq!(after.epoch.get(), before.epoch.get() + u64::from(is_take || is_rewind), "{applied:?}");
        assert!(!before.is_complete(), "{applied:?}");
    }
}

/// "parents-first": a child is taken only when its parent is done.
fn check_parents(history: &[Applied], done: &mut HashMap<LeaseKey, bool>) {
    for applied in history {
        let Some(after) = &applied.after else { continue };
        if matches!(applied.change, Some(Change::Take { .. })) {
            for parent in after.parent_keys() {
                assert_eq!(done.get(&parent), Some(&true), "{applied:?}");
            }
        }
        done.insert(after.key.clone(), after.is_complete());
    }
}

async fn run(seed: u64) {
    let table = Memory::recording();
    let shards = Shards::numbered(CLOSED + OPEN);
    let fences = Fences::default();
    let mut random = SmallRng::seed_from_u64(seed);
    let mut workers = JoinSet::new();
    // Whoever is alone in the end must not wait for those that are gone.
    let stay = random.random_range(1..=3);
    for id in 0..3 {
        workers.spawn(live(id, id < stay, table.clone(), shards.clone(), fences.clone(), random.random()));
    }
    let started = Instant::now();
    let mut done = HashMap::new();
    let mut created = BTreeSet::new();
    let mut takes = 0;
    while started.elapsed() < RUN {
        sleep(Duration::from_millis(20)).await;
        if let Some(ended) = workers.try_join_next() {
            ended.expect("a worker failed");
        }
        let history = table.take_history();
        check_fences(&fences, started.elapsed());
        check_history(&history);
        check_parents(&history, &mut done);
        for applied in history.iter().filter(|applied| applied.before.is_none()) {
            let key = applied.after.as_ref().expect("a row").key.clone();
            // What is done is deleted after a while; created again, its shard would be read again.
            assert!(created.insert(key.clone()), "{key} is created again");
        }
        takes += history.iter().filter(|applied| matches!(applied.change, Some(Change::Take { .. }))).count();
    }
    let rows = table.rows();
    assert_eq!(created.len(), LINEAGE + OPEN, "every shard, and all that follow: {created:?}");
    assert!(rows.iter().filter(|row| is_open(&row.key)).count() == OPEN, "what is not done stays");
    let undone: Vec<_> = rows.iter().filter(|row| !row.is_complete() && !is_open(&row.key)).collect();
    assert!(undone.is_empty(), "not done: {undone:?}");
    assert!(takes > LINEAGE + OPEN, "leases changed hands");
    let mut held: HashMap<_, usize> = HashMap::new();
    for row in rows.iter().filter(|row| is_open(&row.key)) {
        *held.entry(row.owner.clone().expect("held")).or_default() += 1;
        assert_eq!(row.checkpoint_owner, None, "{row:?}");
    }
    assert!(held.len() == stay && held.values().all(|count| *count == OPEN / stay), "balanced in the end: {held:?}");
}

/// The beginning of a life with all that was written: the same seed, the same story.
async fn story(seed: u64) -> Vec<String> {
    let table = Memory::recording();
    let shards = Shards::numbered(CLOSED + OPEN);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut workers = JoinSet::new();
    for id in 0..3 {
        workers.spawn(live(id, true, table.clone(), shards.clone(), Fences::default(), random.random()));
    }
    sleep(Duration::from_secs(200)).await;
    let tell = |applied: &Applied| format!("{:?} {:?}", applied.change, applied.after);
    table.take_history().iter().map(tell).collect()
}

fn simulated<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(life)
}

#[test]
fn a_seed_tells_one_story() {
    for seed in [3, 41] {
        let (first, second) = (simulated(story(seed)), simulated(story(seed)));
        let differs = first.iter().zip(&second).position(|(one, other)| one != other);
        assert_eq!(differs.map(|at| (&first[at], &second[at])), None, "seed {seed}");
        assert_eq!(first.len(), second.len());
        assert!(first.len() > 500, "{}", first.len());
    }
}

#[test]
fn promises_hold_under_faults() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("SEED and SEEDS are numbers"));
    let seeds = number("SEED").map_or(0..number("SEEDS").unwrap_or(40), |seed| seed..seed + 1);
    for seed in seeds {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulated(run(seed))));
        if let Err(panic) = result {
            eprintln!("failed with SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
