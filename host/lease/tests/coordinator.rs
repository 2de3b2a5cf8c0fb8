//! Coordinators on paused time and a table in memory.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_lease::change::{Change, Restart};
use shardmill_lease::store;
use shardmill_lease::store::memory::{Call, Fault, Memory};
use shardmill_lease::{Error, Event, HeldLease, Lost, Options, RunError, WorkerId};
use shardmill_record::Checkpoint;
use support::{Shards, Worker, key, options, position, shard, shard_id};
use tokio::time::{Instant, sleep, timeout};

const EXPIRY: Duration = Duration::from_secs(10);
/// The longest time between two scans: 2 s and a quarter.
const SCAN: Duration = Duration::from_millis(2500);
/// For what happens at one moment but in several tasks.
const MOMENT: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn two_workers_that_start_together_create_each_lease_once_and_hold_it_once() {
    let table = Memory::recording();
    let shards = Shards::numbered(50);
    let mut workers: Vec<_> =
        ["a", "b"].into_iter().zip(1..).map(|(id, seed)| Worker::start(id, &table, &shards, seed)).collect();
    sleep(SCAN * 3).await;
    let mut held = Vec::new();
    for worker in &mut workers {
        while let Ok(Event::Held(lease)) = worker.events.try_recv() {
            held.push(lease);
        }
    }
    let mut keys: Vec<_> = held.iter().map(|held| held.lease().key.clone()).collect();
    keys.sort();
    assert_eq!(keys, (0..50).map(key).collect::<Vec<_>>());
    let history = table.take_history();
    assert_eq!(history.iter().filter(|applied| applied.before.is_none()).count(), 50, "created once each");
    assert!(held.iter().all(|held| held.lease().epoch.get() == 1), "taken once each");
    sleep(Duration::from_secs(120)).await;
    assert!(held.iter().all(|held| held.fence().check().is_ok()), "renewed for two minutes");
}

#[tokio::test(start_paused = true)]
async fn a_dead_workers_leases_are_taken_after_the_expiry_and_within_a_scan_of_it() {
    for seed in 0..20 {
        let table = Memory::recording();
        let shards = Shards::numbered(5);
        let mut dying = Worker::start("dying", &table, &shards, seed);
        let _held = dying.held_many(5).await;
        sleep(Duration::from_millis(400 * seed)).await;
        let mut successor = Worker::start("successor", &table, &shards, seed + 100);
        sleep(SCAN).await;
        // Who renews last is not known to the dying worker: count from what was written.
        let last_write = Arc::new(Mutex::new(HashMap::new()));
        table.take_history();
        let writes = last_write.clone();
        let watched = table.clone();
        let watching = tokio::spawn(async move {
            loop {
                for applied in watched.take_history() {
                    // That the newcomer asks for a lease proves nothing of its holder.
                    if !matches!(applied.change, Some(Change::HandOff { .. })) {
                        let row = applied.after.unwrap();
                        writes.lock().unwrap().insert(row.key.clone(), (Instant::now(), row.writer().cloned()));
                    }
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
        sleep(Duration::from_secs(7)).await;
        dying.kill().await;
        sleep(MOMENT).await;
        let before = last_write.lock().unwrap().clone();
        let taken = successor.held_many(5).await;
        sleep(MOMENT).await;
        for held in taken {
            let lease = held.lease();
            let (renewed, holder) = before[&lease.key].clone();
            assert_eq!(holder.unwrap().as_str(), "dying");
            let (taken, _) = last_write.lock().unwrap()[&lease.key].clone();
            let after = taken - renewed;
            // One scan to see the last renewal, the expiry, one scan to see that nothing moved.
            assert!(after >= EXPIRY - MOMENT, "seed {seed}: taken {after:?} after the last renewal");
            assert!(after <= EXPIRY + SCAN * 2 + MOMENT, "seed {seed}: taken {after:?} after the last renewal");
            assert_eq!((lease.epoch.get(), lease.owner_switches_since_checkpoint), (2, 1));
        }
        watching.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_worker_that_leaves_are_taken_when_it_lets_go_and_it_returns() {
    let table = Memory::new();
    let shards = Shards::numbered(3);
    let mut leaving = Worker::start("leaving", &table, &shards, 1);
    let mut held = leaving.held_many(3).await;
    let mut successor = Worker::start("successor", &table, &shards, 2);
    sleep(SCAN).await;
    for (held, number) in held.iter().zip(1..) {
        assert!(!held.is_draining());
        held.checkpoint(position(number)).await.unwrap();
    }
    leaving.drain.cancel();
    held[0].draining().await;
    // Renewed until it is let go, while the successor waits.
    sleep(Duration::from_secs(15)).await;
    assert!(held.iter().all(|held| held.is_draining()));
    assert!(held.iter().all(|held| held.fence().check().is_ok()));
    assert!(!leaving.running.is_finished());
    drop(held.pop());
    let fences: Vec<_> = held.iter().map(shardmill_lease::HeldLease::fence).collect();
    for held in held {
        held.release().await.unwrap();
    }
    assert!(fences.iter().all(|fence| fence.check() == Err(Lost::Released)));
    timeout(MOMENT, leaving.running).await.expect("returns once all leases are gone").unwrap().unwrap();
    let gap = Duration::from_millis(250);
    let taken = timeout(gap, successor.held_many(3)).await.expect("the successor is waiting for it");
    let mut checkpoints: Vec<_> = taken.iter().map(|held| held.lease().checkpoint.clone()).collect();
    checkpoints.sort();
    assert_eq!(checkpoints, [position(1), position(2), position(3)]);
}

#[tokio::test(start_paused = true)]
async fn children_start_when_all_parents_are_done() {
    let table = Memory::recording();
    // 0 and 1 merge into 2, which splits into 3 and 4; the parents of 0 left the stream long ago.
    let shards = Shards::new(vec![shard(2, &[0, 1]), shard(0, &[90, 91]), shard(1, &[])]);
    let mut worker = Worker::start("w", &table, &shards, 1);
    let mut held = worker.held_many(2).await;
    held.sort_by_key(|held| held.lease().key.clone());
    assert_eq!(held[0].lease().key, key(0));
    sleep(SCAN * 4).await;
    held[0].complete(&[shard(2, &[0, 1])]).await.unwrap();
    held[0].complete(&[shard(2, &[0, 1])]).await.unwrap();
    assert_eq!(held[0].fence().check(), Err(Lost::Completed));
    sleep(SCAN * 4).await;
    assert!(worker.events.try_recv().is_err(), "one parent is still running");
    held[1].complete(&[shard(2, &[0, 1])]).await.unwrap();
    let merged = timeout(MOMENT, worker.held()).await.expect("taken at once, not at the next scan");
    assert_eq!(merged.lease().key, key(2));
    merged.complete(&[shard(3, &[2]), shard(4, &[2])]).await.unwrap();
    let mut children: Vec<_> = worker.held_many(2).await.iter().map(|held| held.lease().key.clone()).collect();
    children.sort();
    assert_eq!(children, [key(3), key(4)]);
    assert_eq!(table.row(&key(2)).unwrap().children, [shard_id(3), shard_id(4)]);
    // Children exist before their parent is done.
    let history = table.take_history();
    let at =
        |wanted: &dyn Fn(&shardmill_lease::store::memory::Applied) -> bool| history.iter().position(wanted).unwrap();
    let created = at(&|applied| applied.before.is_none() && applied.after.as_ref().unwrap().key == key(4));
    let done = at(&|applied| applied.after.as_ref().is_some_and(|row| row.key == key(2) && row.is_complete()));
    assert!(created < done);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_frozen_finds_its_fence_closed_and_writes_nothing() {
    let table = Memory::recording();
    let shards = Shards::numbered(1);
    let mut frozen = Worker::start("frozen", &table, &shards, 1);
    let held = frozen.held().await;
    held.checkpoint(position(5)).await.unwrap();
    table.take_history();
    frozen.clock.jump(EXPIRY);
    assert!(matches!(held.checkpoint(position(6)).await, Err(Error::Lost(Lost::Expired))));
    assert!(matches!(held.complete(&[shard(1, &[0])]).await, Err(Error::Lost(Lost::Expired))));
    assert_eq!(held.fence().lost().await, Lost::Expired);
    sleep(SCAN * 3).await;
    assert_eq!(table.take_history(), [], "nothing is written, not even to take the lease again while it is in use");
    drop(held);
    let again = worker_takes_again(&mut frozen).await;
    assert_eq!((again.lease().epoch.get(), again.lease().checkpoint.clone()), (2, position(5)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_and_asked_for_by_a_worker_that_is_gone_is_taken_again() {
    let table = Memory::new();
    let mut worker = Worker::start("w", &table, &Shards::numbered(1), 1);
    let held = worker.held().await;
    held.checkpoint(position(5)).await.unwrap();
    worker.clock.jump(EXPIRY);
    assert_eq!(held.fence().lost().await, Lost::Expired);
    // Before it could take it again.
    let gone = WorkerId::parse("gone").unwrap();
    let asked = shardmill_lease::change::apply(&table.row(&key(0)).unwrap(), &Change::HandOff { to: gone }).unwrap();
    table.put_row(asked);
    drop(held);
    let again = timeout(EXPIRY + SCAN * 3, worker.held()).await.expect("nobody else is there");
    assert_eq!(again.lease().checkpoint, position(5));
}

async fn worker_takes_again(worker: &mut Worker) -> shardmill_lease::HeldLease {
    timeout(SCAN + MOMENT, worker.held()).await.expect("its own lease, at once: no expiry to wait for")
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_took_is_lost_before_its_deadline() {
    let table = Memory::new();
    let mut worker = Worker::start("w", &table, &Shards::numbered(1), 1);
    let held = worker.held().await;
    let row = table.row(&key(0)).unwrap();
    let thief = WorkerId::parse("thief").unwrap();
    let stolen = shardmill_lease::change::apply(&row, &Change::Take { worker: thief.clone() }).unwrap();
    table.put_row(stolen.clone());
    let error = held.checkpoint(position(1)).await.unwrap_err();
    assert!(matches!(error, Error::Lost(Lost::Taken { by }) if by == thief));
    assert_eq!(table.row(&key(0)), Some(stolen));
}

/// Which write loses what, once.
fn lose_once(kind: &'static str, fault: Fault) -> (impl Fn(&Call<'_>) -> Fault + Send + Sync, Arc<AtomicBool>) {
    let is_lost = Arc::new(AtomicBool::new(false));
    let lost = is_lost.clone();
    let faults = move |call: &Call<'_>| match call {
        Call::Write(_, change) if change.name() == kind && !lost.swap(true, Ordering::SeqCst) => fault,
        _ => Fault::None,
    };
    (faults, is_lost)
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_every_write_neither_lose_nor_double_a_lease() {
    let late = Fault::ArriveLate(Duration::from_millis(700));
    let slow = Fault::Delay(Duration::from_secs(4));
    for kind in ["take", "renew", "checkpoint", "set-start", "complete", "release"] {
        for fault in [Fault::LoseAnswer, Fault::LoseRequest, late, slow, Fault::Throttle] {
            let table = Memory::recording();
            let (faults, is_lost) = lose_once(kind, fault);
            let start = shardmill_lease::NewLease { checkpoint: Checkpoint::Latest, ..shard(0, &[]) };
            let mut worker = Worker::start("w", &table.with_faults(faults), &Shards::new(vec![start]), 1);
            let case = format!("{kind}, {fault:?}");
            let held = worker.held().await;
            let epoch = held.lease().epoch;
            while let Err(error) = held.set_start_at(1_700_000_000_000).await {
                assert!(error.is_transient(), "{case}: {error}");
            }
            while let Err(error) = held.checkpoint(position(7)).await {
                assert!(error.is_transient(), "{case}: {error}");
            }
            sleep(Duration::from_secs(30)).await;
            held.fence().check().expect(&case);
            held.checkpoint(position(8)).await.expect(&case);
            let row = table.row(&key(0)).unwrap();
            assert_eq!((row.epoch, &row.checkpoint), (epoch, &position(8)), "{case}");
            assert_eq!(row.start_at, Some(1_700_000_000_000), "{case}");
            if kind == "release" {
                held.release().await.expect(&case);
                assert_eq!(table.row(&key(0)).unwrap().owner, None, "{case}");
            } else {
                held.complete(&[]).await.expect(&case);
                assert!(table.row(&key(0)).unwrap().is_complete(), "{case}");
            }
            assert!(is_lost.load(Ordering::SeqCst), "{case}: the fault was met");
            assert!(worker.events.try_recv().is_err(), "{case}: taken twice");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_first_write_that_may_have_moved_the_counter() {
    let table = Memory::new();
    // The first renewal arrives late and its answer is lost; the answers of those that follow are lost too, whatever
    // they did. Others may see the counter move when the first arrives, and count from then.
    let renewals = Arc::new(AtomicUsize::new(0));
    let counted = renewals.clone();
    let faults = move |call: &Call<'_>| match call {
        Call::Write(_, Change::Renew) => match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Fault::ArriveLate(Duration::from_millis(100)),
            _ => Fault::LoseAnswer,
        },
        // It cannot be read again either until the first has arrived.
        Call::Get(_) if counted.load(Ordering::SeqCst) == 1 => Fault::Throttle,
        _ => Fault::None,
    };
    let mut worker = Worker::start("w", &table.with_faults(faults), &Shards::numbered(1), 1);
    let held = worker.held().await;
    let first_deadline = held.fence().deadline();
    sleep(Duration::from_millis(3350)).await;
    assert_eq!(renewals.load(Ordering::SeqCst), 1);
    assert_eq!(held.fence().deadline(), first_deadline, "nothing is known of the first");
    sleep(Duration::from_millis(550)).await;
    assert_eq!(renewals.load(Ordering::SeqCst), 2);
    let moved = held.fence().deadline().saturating_since(first_deadline);
    let first_sent = Duration::from_millis(3300)..=Duration::from_millis(3305);
    assert!(first_sent.contains(&moved), "the second was sent 550 ms later: {moved:?}");
    held.fence().check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rewind_whose_answers_are_lost_costs_no_lease_and_gets_done() {
    let table = Memory::new();
    let is_deaf = Arc::new(AtomicBool::new(false));
    let deaf = is_deaf.clone();
    // Rewinds are applied, and for a while nobody learns of it; renewals and scans meet the row as it is.
    let faults = move |call: &Call<'_>| match call {
        Call::Write(_, Change::Rewind { .. }) if deaf.load(Ordering::SeqCst) => Fault::LoseAnswer,
        Call::Get(_) if deaf.load(Ordering::SeqCst) => Fault::Throttle,
        _ => Fault::None,
    };
    let mut worker = Worker::start("w", &table.with_faults(faults), &Shards::numbered(1), 1);
    let held = worker.held().await;
    held.checkpoint(position(9)).await.unwrap();
    is_deaf.store(true, Ordering::SeqCst);
    let rewinding = tokio::spawn(async move { held.rewind(Restart::At(7)).await.map(|()| held) });
    sleep(EXPIRY).await;
    assert!(table.row(&key(0)).unwrap().epoch.get() > 1, "it was applied");
    is_deaf.store(false, Ordering::SeqCst);
    let held = timeout(EXPIRY, rewinding).await.expect("an answer").unwrap().expect("the lease is held");
    sleep(EXPIRY * 2).await;
    held.fence().check().unwrap();
    let (row, lease) = (table.row(&key(0)).unwrap(), held.lease());
    assert_eq!((row.checkpoint.clone(), row.start_at), (Checkpoint::AtTimestamp, Some(7)));
    assert_eq!((lease.epoch, &lease.checkpoint), (row.epoch, &row.checkpoint));
    held.checkpoint(position(3)).await.unwrap();
    assert_eq!(table.row(&key(0)).unwrap().checkpoint, position(3), "before where it was");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_hangs_holds_up_no_other_lease() {
    let table = Memory::new();
    let hang = |call: &Call<'_>| match call {
        Call::Write(_, Change::Checkpoint { .. }) => Fault::Delay(Duration::from_secs(3600)),
        _ => Fault::None,
    };
    let options = shardmill_lease::Options { parallelism: 1, ..options("w") };
    let mut worker = Worker::start_with(options, &table.with_faults(hang), &Shards::numbered(4), 1);
    let held = worker.held_many(4).await;
    let hanging = tokio::spawn(async move {
        for _ in 0..20 {
            let error = held[0].checkpoint(position(1)).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
        }
        held
    });
    let held = hanging.await.unwrap();
    assert!(held.iter().all(|held| held.fence().check().is_ok()));
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_the_same_worker_id_takes_its_leases_back_at_once_only_if_ids_run_once() {
    for worker_runs_once in [true, false] {
        let table = Memory::new();
        let shards = Shards::numbered(2);
        let options = shardmill_lease::Options { worker_runs_once, ..options("fixed") };
        let mut first = Worker::start_with(options.clone(), &table, &shards, 1);
        let _held = first.held_many(2).await;
        first.kill().await;
        let restarted = Instant::now();
        let mut second = Worker::start_with(options, &table, &shards, 2);
        let held = second.held_many(2).await;
        assert!(held.iter().all(|held| held.lease().epoch.get() == 2));
        let waited = restarted.elapsed();
        assert_eq!(waited < MOMENT, worker_runs_once, "{waited:?}");
        assert!(worker_runs_once || waited >= EXPIRY - Duration::from_millis(3300), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_is_taken_than_allowed_and_what_is_let_go_is_left_to_others_first() {
    let table = Memory::new();
    let shards = Shards::numbered(3);
    let capped = shardmill_lease::Options { max_leases_per_worker: Some(2), ..options("capped") };
    let mut worker = Worker::start_with(capped, &table, &shards, 1);
    let mut held = worker.held_many(2).await;
    sleep(Duration::from_secs(30)).await;
    assert!(worker.events.try_recv().is_err());
    let let_go = held.pop().unwrap();
    let key = let_go.lease().key.clone();
    drop(let_go);
    let other = timeout(SCAN + MOMENT, worker.held()).await.expect("the free one");
    assert_ne!(other.lease().key, key);
    drop(held.pop());
    drop(other);
    assert_eq!(worker.held_many(2).await.len(), 2, "later it takes leases that it let go again");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_while_costs_nothing_and_for_longer_closes_the_fence_in_time() {
    for (outage, survives) in [(5, true), (30, false)] {
        let table = Memory::new();
        let is_down = Arc::new(AtomicBool::new(false));
        let down = is_down.clone();
        let faults = move |_: &Call<'_>| if down.load(Ordering::SeqCst) { Fault::LoseRequest } else { Fault::None };
        let mut worker = Worker::start("w", &table.with_faults(faults), &Shards::numbered(2), 1);
        let held = worker.held_many(2).await;
        is_down.store(true, Ordering::SeqCst);
        sleep(Duration::from_secs(outage)).await;
        assert!(held.iter().all(|held| held.fence().check().is_ok() == survives), "{outage} s");
        is_down.store(false, Ordering::SeqCst);
        sleep(EXPIRY).await;
        assert!(held.iter().all(|held| held.fence().check().is_ok() == survives), "{outage} s");
        drop(held);
        assert_eq!(worker.held_many(2).await.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_from_the_start_ends_the_coordinator_and_later_it_is_waited_out() {
    let is_taken = |call: &Call<'_>| matches!(call, Call::Write(_, Change::Take { .. }));
    let is_created = |call: &Call<'_>| matches!(call, Call::Create(_));
    let is_scanned = |call: &Call<'_>| matches!(call, Call::List);
    let kinds: [fn(&Call<'_>) -> bool; 3] = [is_taken, is_created, is_scanned];
    for forbidden in kinds {
        let faults = move |call: &Call<'_>| if forbidden(call) { Fault::Forbid } else { Fault::None };
        let worker = Worker::start("w", &Memory::new().with_faults(faults), &Shards::numbered(2), 1);
        let ended = timeout(SCAN * 4, worker.running).await.expect("an end").unwrap();
        assert!(matches!(ended, Err(RunError::Store(store::Error::NotPermitted { .. }))), "{ended:?}");
    }

    let table = Memory::new();
    let is_forbidden = Arc::new(AtomicBool::new(false));
    let forbidden = is_forbidden.clone();
    let faults = move |_: &Call<'_>| if forbidden.load(Ordering::SeqCst) { Fault::Forbid } else { Fault::None };
    let mut worker = Worker::start("w", &table.with_faults(faults), &Shards::numbered(2), 1);
    let held = worker.held_many(2).await;
    is_forbidden.store(true, Ordering::SeqCst);
    sleep(EXPIRY * 3).await;
    assert!(held.iter().all(|held| held.fence().check().is_err()));
    drop(held);
    sleep(EXPIRY * 3).await;
    assert!(!worker.running.is_finished(), "what has worked may work again");
    is_forbidden.store(false, Ordering::SeqCst);
    assert_eq!(worker.held_many(2).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_worker_knows_what_it_is_to_have_once_it_leads_or_a_leader_that_lives_has_planned() {
    let (table, shards) = (Memory::new(), Shards::numbered(2));
    let mut first = Worker::start("first", &table, &shards, 1);
    assert!(!first.handle.view().is_planned, "nothing was seen");
    let held = first.held_many(2).await;
    sleep(SCAN).await;
    let view = first.handle.view();
    assert!(view.leads && view.is_planned, "{view:?}");
    assert_eq!((view.claims, view.doubtful.len()), (2, 0));
    let mut second = Worker::start("second", &table, &shards, 2);
    sleep(MOMENT * 10).await;
    assert!(!second.handle.view().is_planned, "it was not seen yet");
    sleep(SCAN * 4).await;
    let view = second.handle.view();
    assert!(!view.leads && view.is_planned, "{view:?}");
    assert_eq!(view.claims, 1, "on its way, for as long as the holder does not let go");
    let given = held.into_iter().find(HeldLease::is_draining).expect("one is asked for");
    drop(given);
    let _held = second.held().await;
    assert_eq!(second.handle.view().claims, 1);
    first.kill().await;
    sleep(EXPIRY + SCAN).await;
    assert!(second.handle.view().leads);
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_worker_that_may_be_dead_are_in_doubt_until_they_are_taken_or_it_is_seen_to_live() {
    for dies in [true, false] {
        let (table, shards) = (Memory::new(), Shards::numbered(3));
        let mut before = Worker::start("before", &table, &shards, 1);
        let held = before.held_many(3).await;
        sleep(SCAN * 2).await;
        if dies {
            before.kill().await;
            before = Worker::start("after", &table, &shards, 2);
            let mut planned_at = None;
            for _ in 0..2_000 {
                let view = before.handle.view();
                if view.is_planned && view.doubtful.is_empty() && view.leases.iter().any(|lease| lease.owner.is_some())
                {
                    planned_at = Some(view.claims);
                    break;
                }
                sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(planned_at, Some(3), "never was it certain before it had them");
            continue;
        }
        let second =
            Worker::start_with(Options { max_leases_per_worker: Some(1), ..options("second") }, &table, &shards, 2);
        sleep(SCAN * 8).await;
        assert_eq!(before.handle.view().doubtful.len(), 0, "its own and those that are renewed");
        drop((held, second));
    }
}

#[tokio::test(start_paused = true)]
async fn why_the_tables_cannot_be_used_is_shown_for_as_long_as_it_lasts() {
    let table = Memory::new();
    let fails = Arc::new(AtomicBool::new(false));
    let down = fails.clone();
    let faults = move |_: &Call<'_>| if down.load(Ordering::SeqCst) { Fault::Throttle } else { Fault::None };
    let mut worker = Worker::start("w", &table.with_faults(faults), &Shards::numbered(1), 1);
    let held = worker.held().await;
    sleep(SCAN).await;
    assert_eq!(worker.handle.view().failing, None);
    fails.store(true, Ordering::SeqCst);
    sleep(SCAN * 2).await;
    let failing = worker.handle.view().failing.expect("it is shown before the lease runs out");
    assert!(failing.reason.contains("throttle"), "{failing:?}");
    held.fence().check().unwrap();
    sleep(EXPIRY * 2).await;
    held.fence().check().unwrap_err();
    drop(held);
    let still = worker.handle.view().failing.expect("also when no lease is held any more");
    assert!(still.since.saturating_since(failing.since) < EXPIRY, "{still:?}, {failing:?}");
    assert!(!worker.handle.view().is_planned);
    fails.store(false, Ordering::SeqCst);
    let _held = worker.held().await;
    sleep(EXPIRY * 2).await;
    assert_eq!(worker.handle.view().failing, None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_on_its_way_is_not_rewound_and_goes_to_whom_it_was_to() {
    let (table, shards) = (Memory::new(), Shards::numbered(2));
    let mut first = Worker::start("first", &table, &shards, 1);
    let held = first.held_many(2).await;
    let mut second = Worker::start("second", &table, &shards, 2);
    let asked = loop {
        sleep(Duration::from_millis(1)).await;
        let asked = |row: &shardmill_lease::Lease| row.checkpoint_owner.is_some();
        if let Some(row) = table.rows().into_iter().find(asked) {
            break row;
        }
    };
    // Its holder has not seen it yet.
    let held = held.into_iter().find(|held| held.lease().key == asked.key).expect("it is held");
    let refused = held.rewind(Restart::TrimHorizon).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused:?}");
    assert!(refused.to_string().contains("on its way to the worker second"), "{refused}");
    drop(held);
    let moved = timeout(MOMENT * 20, second.held()).await.expect("it need not expire first");
    assert_eq!(moved.lease().key, asked.key);
}
