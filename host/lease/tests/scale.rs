//! Large fleets on paused time: how many rounds and moves it takes, how often the store is asked, and what that costs.
//!
//! `cargo test --release --workspace --test scale -- --nocapture` prints the figures; `make test-all` runs the largest.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_lease::store::memory::{Call, Fault, Memory};
use shardmill_lease::{Options, WorkerId};
use support::Shards;
use support::app::{App, Seen};
use tokio::time::{Instant, timeout};

/// What DynamoDB takes for on-demand capacity in us-east-1, in US dollars for a million request units.
const USD_A_MILLION_WRITES: f64 = 0.625;
const USD_A_MILLION_READS: f64 = 0.125;
/// A row of the lease table with all of its attributes; so many fit into one read unit of 4 KiB.
const ROW_BYTES: f64 = 400.0;
const READ_UNIT_BYTES: f64 = 4096.0;
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// How often the store is asked for what.
#[derive(Debug, Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Calls {
    fn watched(&self, table: &Memory) -> Memory {
        let calls = self.0.clone();
        table.with_faults(move |call| {
            let name = match call {
                Call::List => "scan",
                Call::Get(_) => "get",
                Call::Create(_) => "create",
                Call::Write(_, change) => change.name(),
                Call::Delete(_) => "delete",
                Call::Document(_) => "document read",
                Call::Documents(_) => "documents scanned",
                Call::PutDocument(_) | Call::DeleteDocument(_) => "document write",
            };
            *calls.lock().unwrap().entry(name).or_default() += 1;
            // As an answer takes in one region.
            Fault::Delay(Duration::from_millis(5))
        })
    }

    fn take(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// What a month of such minutes costs.
struct Bill {
    reads: f64,
    writes: f64,
}

impl Bill {
    fn of(calls: &BTreeMap<&str, u64>, time: Duration, shards: usize, workers: usize) -> Self {
        let months = MONTH.as_secs_f64() / time.as_secs_f64();
        let count = |name: &str| calls.get(name).copied().unwrap_or(0) as f64 * months;
        let scan = (shards as f64 * ROW_BYTES / READ_UNIT_BYTES).ceil();
        let scan_documents = (2.0 * workers as f64 * ROW_BYTES / READ_UNIT_BYTES).ceil();
        let writes: f64 = calls
            .keys()
            .filter(|name| !matches!(**name, "scan" | "get" | "document read" | "documents scanned"))
            .map(|name| count(name))
            .sum();
        let reads =
            count("scan") * scan + count("documents scanned") * scan_documents + count("get") + count("document read");
        Self { reads, writes }
    }

    fn usd(&self) -> f64 {
        (self.reads * USD_A_MILLION_READS + self.writes * USD_A_MILLION_WRITES) / 1e6
    }
}

struct Fleet {
    table: Memory,
    calls: Calls,
    shards: Shards,
    seen: Seen,
    started: usize,
}

impl Fleet {
    fn new(shards: usize) -> Self {
        let (table, shards) = (Memory::new(), Shards::numbered(shards));
        Self { table, calls: Calls::default(), shards, seen: Seen::default(), started: 0 }
    }

    fn start(&mut self, generation: u64) -> App {
        self.started += 1;
        let worker = WorkerId::parse(&format!("w{:05}", self.started)).unwrap();
        let options = Options { generation, events: 20_000, ..Options::new("orders", worker) };
        let table = self.calls.watched(&self.table);
        App::start(options, &table, &self.shards, &self.seen, Duration::from_millis(300), self.started as u64)
    }

    fn spread(&self, workers: usize) -> (usize, usize) {
        let counts = self.seen.counts();
        let least = if counts.len() < workers { 0 } else { counts.values().copied().min().unwrap_or(0) };
        (least, counts.values().copied().max().unwrap_or(0))
    }

    /// Returns how long it took until all leases were held, evenly.
    async fn until_even(&self, shards: usize, workers: usize, limit: Duration) -> Duration {
        let started = Instant::now();
        loop {
            let (least, most) = self.spread(workers);
            if self.seen.held_count() == shards && most - least <= 1 {
                return started.elapsed();
            }
            assert!(
                started.elapsed() < limit,
                "{least} to {most} leases a worker, {} held, after {limit:?}",
                self.seen.held_count()
            );
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

/// A whole fleet starts, works, loses a worker and a fifth, and stands still: figures of each.
async fn life(shards: usize, workers: usize) {
    println!("== {shards} shards, {workers} workers");
    let mut fleet = Fleet::new(shards);
    let mut apps: Vec<App> = (0..workers).map(|_| fleet.start(0)).collect();
    let time = fleet.until_even(shards, workers, Duration::from_secs(120)).await;
    let (moves, _) = fleet.seen.take_moves();
    println!(
        "start: even after {time:.1?}, {:.2} takes a lease, {:?}",
        moves as f64 / shards as f64,
        fleet.calls.take()
    );
    for (what, leaving) in [("one worker", 1), ("a fifth of the workers", workers / 5)] {
        let gone = apps.split_off(apps.len() - leaving.max(1));
        for app in gone {
            app.kill().await;
        }
        let time = fleet.until_even(shards, apps.len(), Duration::from_secs(60)).await;
        let (moves, _) = fleet.seen.take_moves();
        println!("{what} killed: even after {time:.1?} (expiry 10 s), {moves} takes");
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    fleet.calls.take();
    fleet.seen.take_moves();
    let minute = Duration::from_secs(60);
    tokio::time::sleep(minute).await;
    fleet.seen.check_fences();
    assert_eq!(fleet.seen.take_moves().0, 0, "nothing moves in a fleet that is even");
    let calls = fleet.calls.take();
    let bill = Bill::of(&calls, minute, shards, workers);
    let renewals = Bill { reads: 0.0, writes: calls["renew"] as f64 * 30.0 * 24.0 * 60.0 };
    println!("a minute at rest: {calls:?}");
    println!(
        "a month at rest: {:.0} million reads, {:.0} million writes, {:.0} USD, of which {:.0} USD are renewals",
        bill.reads / 1e6,
        bill.writes / 1e6,
        bill.usd(),
        renewals.usd()
    );
    // Two scan, however many there are.
    assert!(calls["scan"] <= 2 * 60, "{calls:?}");
    assert!(
        bill.usd() < renewals.usd() * 1.25,
        "coordination costs {} USD beside the renewals",
        bill.usd() - renewals.usd()
    );
}

/// New workers start before old ones stop, one pair after another or ten at a time.
async fn surge(shards: usize, workers: usize, at_a_time: usize, generation: u64) {
    let mut fleet = Fleet::new(shards);
    let mut old: Vec<App> = (0..workers).map(|_| fleet.start(0)).collect();
    fleet.until_even(shards, workers, Duration::from_secs(120)).await;
    fleet.seen.take_moves();
    let mut stopping = tokio::task::JoinSet::new();
    let mut new = Vec::new();
    while !old.is_empty() {
        for _ in 0..at_a_time {
            new.push(fleet.start(generation));
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        for app in old.drain(..at_a_time) {
            app.drain.cancel();
            stopping.spawn(async move { timeout(Duration::from_secs(60), app.ended).await.expect("it ends") });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        fleet.seen.check_fences();
    }
    while let Some(ended) = stopping.join_next().await {
        ended.unwrap().unwrap().unwrap();
    }
    fleet.until_even(shards, workers, Duration::from_secs(120)).await;
    let (moves, mut gaps) = fleet.seen.take_moves();
    gaps.sort();
    let a_lease = moves as f64 / shards as f64;
    let kind = if generation == 0 { "a restart of the same" } else { "a deploy" };
    println!(
        "surge of {workers} workers, {shards} leases, {at_a_time} at a time, {kind}: {a_lease:.2} moves a lease, gaps: median {:?}, longest {:?}",
        gaps[gaps.len() / 2],
        gaps[gaps.len() - 1]
    );
    assert!(gaps[gaps.len() - 1] < Duration::from_secs(1));
    assert!(a_lease <= if generation == 0 { 1.3 } else { 1.1 }, "{a_lease} moves a lease");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_a_hundred_workers_starts_loses_some_and_rests() {
    life(1000, 100).await;
}

#[tokio::test(start_paused = true)]
async fn a_surge_deploy_of_a_hundred_workers_moves_a_lease_about_once() {
    surge(1000, 100, 10, 1).await;
    surge(1000, 100, 10, 0).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "minutes: `make test-all` runs it"]
async fn ten_thousand_shards_and_five_hundred_workers() {
    life(10_000, 500).await;
    surge(1000, 100, 1, 1).await;
}
