//! Pools: instances are replaced in time, and nobody waits for that.

use std::time::Duration;

use prometheus_client::registry::Registry;
use serde_json::json;
use shardmill_plugin::{Grants, Limits, Metrics, Plugin, Pool, Runtime, RuntimeOptions, Settings};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::forge::{section, with_core_module};
use crate::hostile::Guest;
use crate::support::{batch, shard};

/// No wait of a test is as long as this.
const LONG: Duration = Duration::from_secs(60);

struct Scene {
    pool: Pool,
    metrics: Metrics,
}

impl Scene {
    async fn new(guest: &Guest, limits: Limits, size: usize, max_instances: u32) -> Self {
        let metrics = Metrics::register(&mut Registry::default());
        let options = RuntimeOptions { max_instances, ..RuntimeOptions::default() };
        let runtime = Runtime::new(options, metrics.clone()).unwrap();
        let module = runtime.load("guest", guest.component()).await.unwrap();
        let settings = Settings {
            processor: "flights".into(),
            config: json!({}),
            limits,
            grants: Grants { clocks: true, random: true, metrics: true, ..Grants::default() },
        };
        Self { pool: Plugin::new(&runtime, module, settings).unwrap().pool(size), metrics }
    }

    async fn call(&self) {
        let mut instance = timeout(LONG, self.pool.get()).await.expect("an instance").unwrap();
        instance.process_batch(&shard(), &batch()).await.unwrap_or_else(|failure| panic!("{failure}"));
    }

    fn retired(&self, reason: &str) -> u64 {
        self.metrics.instances_retired("flights", reason)
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !is_so(self) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(LONG, waiting).await.expect(what);
    }

    async fn close(self) {
        timeout(LONG, self.pool.close()).await.expect("the end of the pool");
        let metrics = self.metrics;
        drop(self.pool);
        assert_eq!(metrics.instances("flights"), 0);
    }
}

/// A guest that takes so many pages with each batch, and crashes when it gets none.
fn growing(pages: u32) -> Guest {
    Guest::attacking(&format!(
        "(if (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)) (then (unreachable))) (i32.const 1024)"
    ))
}

#[tokio::test]
async fn an_instance_has_no_more_calls_than_it_may_have() {
    let guest = Guest::attacking(
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (if (i32.gt_u (global.get $calls) (i32.const 3)) (then (unreachable))) (i32.const 1024)",
    )
    .with("(global $calls (mut i32) (i32.const 0))");
    let limits = Limits { instance_calls: Some(3), ..Limits::default() };
    let scene = Scene::new(&guest, limits, 1, 3).await;
    for _ in 0..30 {
        scene.call().await;
    }
    scene.until("ten that are spent", |scene| scene.retired("calls") == 10).await;
    assert_eq!(scene.retired("failed"), 0);
    scene.close().await;
}

#[tokio::test]
async fn the_last_call_of_an_instance_has_its_successor_started() {
    let limits = Limits { instance_calls: Some(1), ..Limits::default() };
    let scene = Scene::new(&Guest::default(), limits, 1, 3).await;
    let on_loan = scene.pool.get().await.unwrap();
    // The one place is taken, and the next instance is there.
    scene.until("a successor", |scene| scene.pool.idle() == 1).await;
    assert_eq!(scene.metrics.instances("flights"), 2);
    drop(on_loan);
    scene.close().await;
}

#[tokio::test]
async fn an_instance_that_only_ever_grows_is_replaced_before_it_crashes() {
    // 62 of 64 pages are left at first, so that the seventh batch would be one too many.
    let limits = Limits { memory_bytes: 4 << 20, ..Limits::default() };
    let scene = Scene::new(&growing(10), limits, 1, 3).await;
    for _ in 0..50 {
        scene.call().await;
        sleep(Duration::from_millis(1)).await;
        let retired = scene.retired("memory");
        scene.until("no more than one beside those of the pool", |scene| scene.pool.idle() <= 1).await;
        assert!(scene.retired("memory") >= retired);
    }
    assert!(scene.retired("memory") >= 6, "{} replaced", scene.retired("memory"));
    assert_eq!(scene.retired("failed"), 0);
    scene.close().await;
}

#[tokio::test]
async fn an_instance_that_has_grown_works_on_while_no_other_one_starts() {
    let limits = Limits { memory_bytes: 4 << 20, retire_above: 10, ..Limits::default() };
    // The runtime has room for one.
    let scene = Scene::new(&growing(5), limits, 1, 1).await;
    for _ in 0..12 {
        scene.call().await;
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((scene.retired("memory"), scene.metrics.instances("flights")), (0, 1));
    scene.close().await;
}

#[tokio::test]
async fn an_instance_that_does_not_end_keeps_nobody_from_its_place() {
    let guest = Guest { shutdown: "(loop (br 0)) (unreachable)".to_owned(), ..Guest::default() };
    let limits = Limits { instance_calls: Some(1), hook_timeout: Duration::from_secs(20), ..Limits::default() };
    let scene = Scene::new(&guest, limits, 1, 3).await;
    scene.call().await;
    // The first one spins until its time is over.
    timeout(Duration::from_secs(15), scene.call()).await.expect("another one in its place");
    assert_eq!(scene.retired("calls"), 0);
}

#[tokio::test]
async fn instances_that_nothing_needs_are_let_go_down_to_one() {
    let limits = Limits { keep_idle: Duration::from_millis(50), ..Limits::default() };
    let scene = Scene::new(&Guest::default(), limits, 4, 6).await;
    let (first, second, third) = tokio::join!(scene.pool.get(), scene.pool.get(), scene.pool.get());
    assert_eq!(scene.metrics.instances("flights"), 3);
    drop((first.unwrap(), second.unwrap(), third.unwrap()));
    scene.until("one that is left", |scene| scene.metrics.instances("flights") == 1).await;
    assert_eq!((scene.pool.idle(), scene.retired("idle")), (1, 2));
    // It stays, and works.
    sleep(Duration::from_millis(150)).await;
    scene.call().await;
    assert_eq!((scene.pool.idle(), scene.retired("idle")), (1, 2));
    scene.close().await;
}

#[tokio::test]
async fn a_pool_that_is_followed_by_another_one_leaves_nothing_behind() {
    let limits = Limits { keep_idle: Duration::from_secs(3_600), ..Limits::default() };
    let mut scene = Scene::new(&Guest::default(), limits, 2, 6).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..5 {
        let (first, second) = tokio::join!(scene.pool.get(), scene.pool.get());
        drop((first.unwrap(), second.unwrap()));
        assert_eq!(scene.pool.idle(), 2);
        // Who looks after those that wait begins to wait as well.
        tokio::task::yield_now().await;
        assert!(tasks() > before);
        let next = scene.pool.followed_by(scene.pool.plugin().clone(), Vec::new());
        std::mem::replace(&mut scene.pool, next).end_idle().await;
    }
    scene.until("the end of what looked after them", |_| tasks() == before).await;
    scene.close().await;
}

#[tokio::test]
async fn a_crash_counts_as_one() {
    let scene = Scene::new(&Guest::attacking("(unreachable)"), Limits::default(), 1, 2).await;
    for failed in 1..=5 {
        let mut instance = scene.pool.get().await.unwrap();
        instance.process_batch(&shard(), &batch()).await.unwrap_err();
        drop(instance);
        assert_eq!((scene.retired("failed"), scene.pool.idle()), (failed, 0));
    }
    scene.close().await;
}

/// A guest that has grown after its first batch, and that waits for a day when it is shut down.
fn staying() -> Guest {
    let stay = "(call $block (call $subscribe (i64.const 86400000000000))) (i32.const 1024)";
    let guest = Guest { shutdown: stay.to_owned(), ..growing(20) };
    guest
        .importing("wasi:clocks/monotonic-clock@0.2.6", "subscribe-duration", "$subscribe", "(param i64) (result i32)")
        .importing("wasi:io/poll@0.2.6", "[method]pollable.block", "$block", "(param i32)")
}

#[tokio::test]
async fn instances_that_grow_and_refuse_to_end_do_not_pile_up() {
    let limits = Limits { retire_above: 1, hook_timeout: Duration::from_secs(60), ..Limits::default() };
    let scene = Scene::new(&staying(), limits, 2, 20).await;
    for _ in 0..20 {
        scene.call().await;
        // What comes of it beside comes at once, on this thread.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let instances = scene.metrics.instances("flights");
        assert!(instances <= 2 + i64::from(Pool::BEYOND), "{instances} instances");
    }
}

#[tokio::test]
async fn an_instance_that_has_grown_ends_as_soon_as_there_is_room_for_its_end() {
    let limits = Limits { retire_above: 1, hook_timeout: Duration::from_millis(300), ..Limits::default() };
    let scene = Scene::new(&staying(), limits, 1, 3).await;
    scene.call().await;
    scene.until("one that ends", |scene| scene.pool.idle() == 1 && scene.metrics.instances("flights") == 2).await;
    // The second one waits until the time of the first one is over.
    scene.call().await;
    scene.until("the end of both", |scene| scene.retired("failed") == 2).await;
    assert_eq!((scene.pool.idle(), scene.metrics.instances("flights")), (1, 1));
    scene.close().await;
}

#[tokio::test]
async fn a_call_takes_the_successor_that_is_being_started() {
    // A while, during which others go on.
    let init = "(local $i i32) (local.set $i (i32.const 30000000))
        (loop (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) (i32.const 1024)";
    let guest = Guest { init: init.to_owned(), ..Guest::default() };
    let limits = Limits { instance_calls: Some(2), ..Limits::default() };
    let scene = Scene::new(&guest, limits, 1, 5).await;
    scene.call().await;
    // Its last call has another one started.
    scene.call().await;
    assert_eq!(scene.pool.idle(), 0, "the successor has not come yet");
    let on_loan = scene.pool.get().await.unwrap();
    scene.until("the end of the first one", |scene| scene.retired("calls") == 1).await;
    assert_eq!((scene.metrics.instances("flights"), scene.pool.idle()), (1, 0));
    drop(on_loan);
    scene.close().await;
}

#[tokio::test]
async fn an_instance_that_breaks_down_takes_no_others_successor_with_it() {
    // It crashes with its second batch.
    let guest = Guest::attacking(
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (if (i32.eq (global.get $calls) (i32.const 2)) (then (unreachable)))
        (drop (memory.grow (i32.const 50))) (i32.const 1024)",
    )
    .with("(global $calls (mut i32) (i32.const 0))");
    let limits = Limits { memory_bytes: 4 << 20, ..Limits::default() };
    let scene = Scene::new(&guest, limits, 1, 3).await;
    scene.call().await;
    // It is on loan when its successor comes, and does not come back.
    let mut first = scene.pool.get().await.unwrap();
    scene.until("a successor", |scene| scene.pool.idle() == 1).await;
    first.process_batch(&shard(), &batch()).await.unwrap_err();
    drop(first);
    assert_eq!(scene.retired("failed"), 1);
    // The successor has grown, and has one of its own.
    scene.call().await;
    scene.until("its successor", |scene| scene.retired("memory") == 1 && scene.pool.idle() == 1).await;
    scene.close().await;
}

#[tokio::test]
async fn one_guest_takes_no_other_ones_memories_tables_or_instances() {
    let runtime = Runtime::new(RuntimeOptions { max_instances: 2, ..RuntimeOptions::default() }, Metrics::default());
    let runtime = runtime.unwrap();
    // One memory and one table of the shell's, and with these as many as there may be.
    let memory = section(5, &[1, 0, 0]);
    let table = section(4, &[1, 0x70, 0, 0]);
    let plugin = async |sections: &[Vec<u8>], instances| {
        let component = with_core_module(Guest::default().component(), sections, instances);
        let module = runtime.load("greedy.wasm", component).await?;
        let settings = Settings {
            processor: "greedy".into(),
            config: json!({}),
            limits: Limits::default(),
            grants: Grants { clocks: true, random: true, metrics: true, ..Grants::default() },
        };
        Plugin::new(&runtime, module, settings)
    };
    for (sections, most, said) in [(memory, 7, "8 in the pooling"), (table, 14, "16 in the pooling")] {
        let sections = [sections];
        let greedy = plugin(&sections, most).await.unwrap_or_else(|error| panic!("{error}"));
        let _one = greedy.instance().await.unwrap();
        // A share is left, whatever the other one has.
        let _other = greedy.instance().await.unwrap();
        let error = plugin(&sections, 51).await.unwrap_err().to_string();
        assert!(error.contains("greedy.wasm") && error.contains(said), "{error}");
    }
}
