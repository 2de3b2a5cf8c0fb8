//! Fleets of coordinators on paused time: balance, hand-offs, deploys, the leader, what else lives on the table.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_lease::audit::Reason;
use shardmill_lease::balance::{Balance, Throughput};
use shardmill_lease::change::{self, Change};
use shardmill_lease::clear::Delays;
use shardmill_lease::store::memory::{Call, Fault, Memory};
use shardmill_lease::{Event, LeaseKey, Lost, Note, Options, Roster, RunError, Takeover, WorkerId};
use shardmill_record::Checkpoint;
use support::app::{App, Seen};
use support::{Shards, Worker, key, options, position, shard};
use tokio::time::{Instant, sleep, timeout};

const EXPIRY: Duration = Duration::from_secs(10);
/// The longest time between two rounds.
const ROUND: Duration = Duration::from_millis(2500);
/// Longer than it takes to settle: a membership that stands still, a plan, a look at it, a renewal that sees the hand-off.
const SETTLED: Duration = Duration::from_secs(20);
const AT_ONCE: Duration = Duration::ZERO;

/// Workers of one fleet.
struct Fleet {
    table: Memory,
    shards: Shards,
    seen: Seen,
    finishing: Duration,
    started: u64,
}

impl Fleet {
    fn new(shards: usize) -> Self {
        let (table, shards) = (Memory::new(), Shards::numbered(shards));
        Self { table, shards, seen: Seen::default(), finishing: AT_ONCE, started: 0 }
    }

    fn start(&mut self) -> App {
        self.start_with(|options| options)
    }

    fn start_with(&mut self, change: impl FnOnce(Options) -> Options) -> App {
        self.started += 1;
        let options = change(options(&format!("w{:04}", self.started)));
        App::start(options, &self.table, &self.shards, &self.seen, self.finishing, self.started)
    }

    fn start_many(&mut self, count: usize) -> Vec<App> {
        (0..count).map(|_| self.start()).collect()
    }

    fn held(&self) -> Vec<usize> {
        let mut counts: Vec<usize> = self.seen.counts().into_values().collect();
        counts.sort_unstable();
        counts
    }

    async fn until_held(&self, expected: &[usize], limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.held() != expected {
            assert!(Instant::now() < deadline, "after {limit:?} workers hold {:?}, not {expected:?}", self.held());
            self.seen.watch(Duration::from_millis(50)).await;
        }
    }
}

async fn stop(app: App) {
    app.drain.cancel();
    timeout(Duration::from_secs(60), app.ended).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn leases_get_even_from_every_start_and_then_nothing_moves() {
    for (shards, workers, even) in
        [(10, 3, vec![3, 3, 4]), (7, 7, vec![1; 7]), (3, 5, vec![1; 3]), (1, 4, vec![1]), (40, 1, vec![40])]
    {
        let mut fleet = Fleet::new(shards);
        let mut apps = vec![fleet.start()];
        fleet.until_held(&[shards], SETTLED).await;
        for _ in 1..workers {
            apps.push(fleet.start());
        }
        fleet.until_held(&even, SETTLED * 2).await;
        fleet.seen.take_moves();
        fleet.seen.watch(EXPIRY * 12).await;
        assert_eq!(fleet.seen.take_moves().0, 0, "{shards} leases on {workers} workers: no ping-pong");
        assert_eq!(fleet.held(), even);
    }
}

#[tokio::test(start_paused = true)]
async fn two_four_four_gets_even_by_one_move() {
    let mut fleet = Fleet::new(10);
    let small = fleet.start_with(|options| Options { max_leases_per_worker: Some(2), ..options });
    fleet.until_held(&[2], SETTLED).await;
    let _others = fleet.start_many(2);
    fleet.until_held(&[2, 4, 4], SETTLED * 2).await;
    fleet.seen.take_moves();
    // The one that could have no more than two is replaced.
    let _larger = fleet.start();
    stop(small).await;
    fleet.until_held(&[3, 3, 4], SETTLED * 2).await;
    let (moves, _) = fleet.seen.take_moves();
    assert!(moves <= 3, "{moves} moves: the two that were left, and one");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_changes_hands_is_let_go_first_and_is_without_a_holder_for_a_moment_only() {
    let mut fleet = Fleet::new(12);
    fleet.finishing = Duration::from_secs(2);
    let _first = fleet.start();
    fleet.until_held(&[12], SETTLED).await;
    let _others = fleet.start_many(2);
    fleet.until_held(&[4, 4, 4], SETTLED * 2).await;
    let (moves, gaps) = fleet.seen.take_moves();
    assert_eq!((moves, gaps.len()), (12 + 8, 8), "each moved once");
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_millis(250)), "{gaps:?}");
    // Nobody was surprised: the epoch is that of two takes.
    assert!(fleet.table.rows().iter().all(|row| row.epoch.get() <= 2 && row.checkpoint_owner.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_surge_deploy_moves_each_lease_about_once_and_leaves_no_gap() {
    let (workers, shards) = (10, 100);
    let mut fleet = Fleet::new(shards);
    fleet.finishing = Duration::from_millis(300);
    let old = fleet.start_many(workers);
    fleet.until_held(&vec![shards / workers; workers], SETTLED * 3).await;
    fleet.seen.take_moves();
    let mut new = Vec::new();
    for old in old {
        // As Kubernetes does it: the next new one is ready, then an old one is told to stop.
        new.push(fleet.start_with(|options| Options { generation: 1, ..options }));
        fleet.seen.watch(Duration::from_secs(3)).await;
        stop(old).await;
        fleet.seen.check_fences();
    }
    fleet.until_held(&vec![shards / workers; workers], SETTLED * 3).await;
    let (moves, mut gaps) = fleet.seen.take_moves();
    gaps.sort();
    let longest = gaps.last().unwrap();
    println!("surge deploy of {workers} workers, {shards} leases: {moves} moves, longest gap {longest:?}");
    assert!(*longest < Duration::from_secs(1), "{longest:?}");
    assert!(moves <= shards * 13 / 10, "{moves} moves of {shards} leases");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_alone_lets_go_at_once_and_its_successor_needs_no_longer_than_its_start() {
    let mut fleet = Fleet::new(5);
    let alone = fleet.start();
    fleet.until_held(&[5], SETTLED).await;
    let told = Instant::now();
    stop(alone).await;
    assert!(told.elapsed() < Duration::from_millis(100), "{:?}", told.elapsed());
    fleet.seen.take_moves();
    let _successor = fleet.start();
    fleet.until_held(&[5], Duration::from_millis(200)).await;
}

#[tokio::test(start_paused = true)]
async fn all_workers_that_stop_together_do_not_wait_for_each_other() {
    let mut fleet = Fleet::new(9);
    let apps = fleet.start_many(3);
    fleet.until_held(&[3, 3, 3], SETTLED * 2).await;
    let told = Instant::now();
    for app in &apps {
        app.drain.cancel();
    }
    for app in apps {
        timeout(SETTLED, app.ended).await.expect("it ends").unwrap().unwrap();
    }
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}: they noticed that nobody stays", told.elapsed());
    assert!(fleet.table.rows().iter().all(|row| row.owner.is_none() && row.checkpoint_owner.is_none()));
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_leaves_is_even_within_three_rounds_and_what_a_fifth_of_them_leaves_within_five() {
    for (leaving, rounds) in [(1, 3), (4, 5)] {
        for is_killed in [false, true] {
            let (workers, shards) = (20, 400);
            let mut fleet = Fleet::new(shards);
            let mut apps = fleet.start_many(workers);
            fleet.until_held(&vec![shards / workers; workers], SETTLED * 3).await;
            // Not the leader, for whose post its deputy waits; that is another test.
            let gone: Vec<App> = apps.drain(workers - leaving..).collect();
            let left = workers - leaving;
            let mut even = vec![shards / left; left];
            even.iter_mut().rev().take(shards % left).for_each(|count| *count += 1);
            let limit = if is_killed {
                for app in gone {
                    app.kill().await;
                }
                EXPIRY + ROUND
            } else {
                for app in &gone {
                    app.drain.cancel();
                }
                Duration::from_secs(4)
            };
            // Hand-offs wait for the holders' renewals besides.
            fleet.until_held(&even, limit + ROUND * rounds + Duration::from_secs(4)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_killed_is_replaced_and_rows_that_were_deleted_come_back() {
    let mut fleet = Fleet::new(6);
    let leader = fleet.start();
    fleet.until_held(&[6], SETTLED).await;
    assert!(leader.handle.view().leads);
    let others = fleet.start_many(2);
    fleet.until_held(&[2, 2, 2], SETTLED * 2).await;
    leader.kill().await;
    // The post and the leases stand still together: who has been looking need not wait twice.
    fleet.until_held(&[3, 3], EXPIRY + ROUND * 3).await;
    assert_eq!(others.iter().filter(|app| app.handle.view().leads).count(), 1);

    let row = fleet.table.row(&key(4)).unwrap();
    fleet.table.remove_row(&row.key);
    fleet.seen.watch(Duration::from_secs(70)).await;
    assert_eq!(fleet.table.row(&row.key).unwrap().epoch.get(), 1, "created and taken anew");
    fleet.until_held(&[3, 3], SETTLED).await;
}

#[tokio::test(start_paused = true)]
async fn who_looks_from_outside_sees_workers_with_what_they_say_of_themselves_and_who_leads_also_when_none_lives() {
    let mut fleet = Fleet::new(2);
    let note = Note::new(|| Some(serde_json::json!({ "build": "7" })));
    let noted = fleet.start_with(|options| Options { note, ..options });
    fleet.until_held(&[2], SETTLED).await;
    let plain = fleet.start();
    fleet.until_held(&[1, 1], SETTLED).await;
    let roster = Roster::read(&fleet.table).await.unwrap();
    let [first, second] = &roster.workers[..] else { panic!("two workers: {roster:?}") };
    assert_eq!(first.note, Some(serde_json::json!({ "build": "7" })));
    assert_eq!((&second.note, second.is_leaving), (&None, false));
    assert_eq!((roster.leader.as_ref(), roster.deputy.as_ref()), (Some(&first.id), Some(&second.id)));
    fleet.seen.watch(ROUND * 2).await;
    let later = Roster::read(&fleet.table).await.unwrap();
    assert!(later.workers.iter().zip(&roster.workers).all(|(later, before)| later.version > before.version));
    noted.kill().await;
    plain.kill().await;
    fleet.seen.watch(ROUND * 2).await;
    let dead = Roster::read(&fleet.table).await.unwrap();
    fleet.seen.watch(EXPIRY).await;
    assert_eq!(Roster::read(&fleet.table).await.unwrap(), dead, "what was said last is kept, and stands still");
    assert_eq!(dead.workers.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_may_not_read_the_table_leaves_the_post_to_another() {
    let mut fleet = Fleet::new(4);
    let is_forbidden = Arc::new(AtomicBool::new(false));
    let forbidden = is_forbidden.clone();
    let table = fleet.table.with_faults(move |call| match call {
        Call::List if forbidden.load(Ordering::SeqCst) => Fault::Forbid,
        _ => Fault::None,
    });
    let first = App::start(options("first"), &table, &fleet.shards, &fleet.seen, AT_ONCE, 99);
    fleet.until_held(&[4], SETTLED).await;
    let second = fleet.start();
    fleet.until_held(&[2, 2], SETTLED * 2).await;
    is_forbidden.store(true, Ordering::SeqCst);
    fleet.seen.watch(EXPIRY * 3).await;
    assert!(second.handle.view().leads && !first.handle.view().leads);
    assert_eq!(fleet.held(), [2, 2], "its leases it keeps");
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_does_not_let_go_loses_the_lease_after_a_while_and_two_never_run_it() {
    let table = Memory::recording();
    let shards = Shards::numbered(2);
    let mut stubborn = Worker::start("stubborn", &table, &shards, 1);
    let held = stubborn.held_many(2).await;
    let seen = Seen::default();
    let options = Options { hand_off_timeout: Duration::from_secs(15), ..options("patient") };
    let _patient = App::start(options, &table, &shards, &seen, AT_ONCE, 2);
    let mut waited = Duration::ZERO;
    while seen.held_count() == 0 {
        assert!(waited < Duration::from_secs(60), "the lease is not got hold of");
        sleep(Duration::from_millis(50)).await;
        waited += Duration::from_millis(50);
        let sure = held.iter().filter(|held| held.fence().check().is_ok()).count();
        assert!(sure + seen.held_count() <= 2, "both are sure of one");
    }
    assert!(waited > Duration::from_secs(15) + EXPIRY, "{waited:?}");
    assert_eq!(held.iter().filter(|held| held.is_draining()).count(), 1, "it was asked for one");
    for held in &held {
        let left = held.time_left(Duration::from_secs(3600));
        assert!(if held.is_draining() { left < Duration::from_secs(30) } else { left.as_secs() == 3600 }, "{left:?}");
    }
    assert!(held.iter().any(|held| matches!(held.fence().check(), Err(Lost::Taken { .. }))));
}

#[tokio::test(start_paused = true)]
async fn a_lease_on_its_way_to_a_worker_that_dies_goes_to_another() {
    let mut fleet = Fleet::new(2);
    fleet.finishing = Duration::from_secs(20);
    let _first = fleet.start();
    fleet.until_held(&[2], SETTLED).await;
    let thief = fleet.start();
    let is_asked_for = |fleet: &Fleet| fleet.table.rows().iter().any(|row| row.checkpoint_owner.is_some());
    while !is_asked_for(&fleet) {
        fleet.seen.watch(Duration::from_millis(50)).await;
    }
    thief.kill().await;
    let _third = fleet.start();
    fleet.until_held(&[1, 1], Duration::from_secs(20) + EXPIRY * 3).await;
    assert!(fleet.table.rows().iter().all(|row| row.checkpoint_owner.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_dies_during_a_hand_off_is_waited_for_no_longer_than_the_expiry() {
    let mut fleet = Fleet::new(2);
    fleet.finishing = Duration::from_secs(1000);
    let holder = fleet.start();
    fleet.until_held(&[2], SETTLED).await;
    let _thief = fleet.start();
    while !fleet.table.rows().iter().any(|row| row.checkpoint_owner.is_some()) {
        fleet.seen.watch(Duration::from_millis(50)).await;
    }
    holder.kill().await;
    fleet.until_held(&[2], EXPIRY + ROUND * 2).await;
}

/// A row that another system holds.
fn foreign(table: &Memory, index: usize) {
    let row =
        change::apply(&table.row(&key(index)).unwrap(), &Change::Take { worker: WorkerId::parse("kcl").unwrap() });
    table.put_row(row.unwrap());
}

/// A table on which a worker of another system holds two of three leases, and renews them for so long.
async fn with_foreign(table: &Memory, renewing: Duration) {
    let mut creator = Worker::start("creator", table, &Shards::numbered(3), 9);
    let held = creator.held_many(3).await;
    drop(held);
    creator.drain.cancel();
    timeout(SETTLED, creator.running).await.unwrap().unwrap().unwrap();
    foreign(table, 0);
    foreign(table, 1);
    let table = table.clone();
    tokio::spawn(async move {
        let until = Instant::now() + renewing;
        while Instant::now() < until {
            sleep(Duration::from_millis(3300)).await;
            for index in 0..2 {
                let row = table.row(&key(index)).unwrap();
                table.put_row(change::apply(&row, &Change::Renew).unwrap());
            }
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_table_on_which_another_system_lives_is_refused_and_nothing_of_it_is_touched() {
    let table = Memory::recording();
    with_foreign(&table, EXPIRY * 20).await;
    table.take_history();
    let refused = Worker::start("w", &table, &Shards::numbered(4), 1);
    let ended = timeout(EXPIRY, refused.running).await.expect("it ends").unwrap();
    let Err(RunError::Foreign(foreign)) = &ended else { panic!("{ended:?}") };
    let text = foreign.to_string();
    assert!(["`kcl`", "shardId-00000000000", "takeover = \"force\""].iter().all(|part| text.contains(part)), "{text}");
    assert_eq!(table.take_history(), [], "nothing was created or taken");

    let forced = Options { takeover: Takeover::Force, ..options("w") };
    let mut forced = Worker::start_with(forced, &table, &Shards::numbered(3), 1);
    let held = forced.held().await;
    assert_eq!(held.lease().key, key(2), "what is free");
    sleep(EXPIRY * 5).await;
    assert!(forced.events.try_recv().is_err(), "what the other renews is left to it");
}

#[tokio::test(start_paused = true)]
async fn leases_of_another_system_that_has_gone_are_taken_when_they_have_expired() {
    let table = Memory::new();
    with_foreign(&table, Duration::ZERO).await;
    sleep(Duration::from_secs(4)).await;
    let started = Instant::now();
    let mut worker = Worker::start("w", &table, &Shards::numbered(3), 1);
    worker.held_many(3).await;
    let waited = started.elapsed();
    assert!((EXPIRY..EXPIRY + ROUND).contains(&waited), "{waited:?}: seen to stand still once, not twice");
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_cleared_away_once_what_follows_has_begun_and_does_not_come_back() {
    let table = Memory::new();
    let shards = Shards::new(vec![shard(0, &[]), shard(1, &[0]), shard(2, &[0])]);
    let mut worker = Worker::start("w", &table, &shards, 1);
    let parent = worker.held().await;
    parent.complete(&[shard(1, &[0]), shard(2, &[0])]).await.unwrap();
    drop(parent);
    let children = worker.held_many(2).await;
    children[0].checkpoint(position(1)).await.unwrap();
    sleep(Delays::default().complete * 2).await;
    assert!(table.row(&key(0)).is_some(), "a child has not begun");
    children[1].checkpoint(position(1)).await.unwrap();
    sleep(Delays::default().complete / 2).await;
    assert!(table.row(&key(0)).is_some(), "not at once");
    sleep(Delays::default().complete).await;
    assert_eq!(table.row(&key(0)), None);
    assert!(children.iter().all(|child| child.fence().check().is_ok()));
}

#[tokio::test(start_paused = true)]
async fn shards_that_nobody_reads_are_named_by_the_leader_until_somebody_does() {
    let mut fleet = Fleet::new(3);
    let small = fleet.start_with(|options| Options { max_leases_per_worker: Some(1), ..options });
    fleet.until_held(&[1], SETTLED).await;
    assert_eq!(small.handle.view().audit.holes, [], "not at once: a lease may be changing hands");
    fleet.seen.watch(EXPIRY * 4).await;
    let audit = small.handle.view().audit;
    assert_eq!(audit.holes.len(), 2);
    assert!(audit.holes.iter().all(|hole| hole.reason == Reason::Unowned && hole.lease == hole.shard));
    let _second = fleet.start();
    fleet.until_held(&[1, 2], SETTLED).await;
    fleet.seen.watch(ROUND).await;
    assert_eq!(small.handle.view().audit.holes, []);
    let broken = fleet.table.row(&key(0)).unwrap();
    let done = shardmill_lease::Lease { checkpoint: Checkpoint::ShardEnd, owner: None, ..broken };
    fleet.table.put_row(done);
    fleet.seen.watch(EXPIRY * 4).await;
    let audit = small.handle.view().audit;
    assert!(matches!(&audit.holes[..], [hole] if hole.reason == Reason::DoneThoughOpen), "{audit:?}");
}

#[tokio::test(start_paused = true)]
async fn by_throughput_a_worker_with_a_heavy_shard_has_fewer_of_them() {
    let table = Memory::new();
    let shards = Shards::numbered(6);
    // Two workers that hold three each, one of them a shard that carries as much as all the others.
    let start = |id: &str, seed| {
        let rule: Arc<dyn Balance> = Arc::new(Throughput::default());
        let mut worker = Worker::start_balanced(options(id), rule, &table, &shards, 0, seed);
        let held: Arc<Mutex<BTreeSet<LeaseKey>>> = Arc::default();
        let kept = held.clone();
        tokio::spawn(async move {
            let _ends_with_the_worker = (worker.drain, worker.handle, worker.clock);
            while let Some(Event::Held(lease)) = worker.events.recv().await {
                let key = lease.lease().key.clone();
                lease.measured(if key == support::key(0) { 5_000_000 } else { 1_000_000 });
                kept.lock().unwrap().insert(key.clone());
                let kept = kept.clone();
                tokio::spawn(async move {
                    let fence = lease.fence();
                    tokio::select! {
                        biased;
                        _ = fence.lost() => {}
                        () = lease.draining() => {}
                    }
                    kept.lock().unwrap().remove(&key);
                    drop(lease);
                });
            }
        });
        held
    };
    let one = start("one", 1);
    sleep(SETTLED).await;
    let two = start("two", 2);
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let carried = |held: &Arc<Mutex<BTreeSet<LeaseKey>>>| {
            let held = held.lock().unwrap();
            held.iter().map(|key| if *key == support::key(0) { 5 } else { 1 }).sum::<u64>()
        };
        let loads = [carried(&one), carried(&two)];
        if loads == [5, 5] {
            break;
        }
        assert!(Instant::now() < deadline, "{loads:?}");
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_while_a_lease_is_on_its_way_to_it_gives_it_back() {
    for lets_go in [false, true] {
        let mut fleet = Fleet::new(2);
        fleet.finishing = Duration::from_secs(3);
        let holder = fleet.start();
        fleet.until_held(&[2], SETTLED).await;
        let thief = fleet.start();
        while !fleet.table.rows().iter().any(|row| row.checkpoint_owner.is_some()) {
            fleet.seen.watch(Duration::from_millis(50)).await;
        }
        if lets_go {
            // Both stop: the holder lets the lease go to one that does not want it any more.
            holder.drain.cancel();
        }
        thief.drain.cancel();
        timeout(SETTLED, thief.ended).await.expect("it ends").unwrap().unwrap();
        if lets_go {
            timeout(SETTLED, holder.ended).await.expect("it ends").unwrap().unwrap();
            assert!(fleet.table.rows().iter().all(|row| row.owner.is_none()), "{:?}", fleet.table.rows());
        } else {
            assert!(fleet.table.rows().iter().all(|row| row.checkpoint_owner.is_none()), "{:?}", fleet.table.rows());
            fleet.until_held(&[2], EXPIRY * 2).await;
        }
    }
}
