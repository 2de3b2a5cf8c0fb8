//! Guests on threads of their own.

use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::json;
use shardmill_plugin::{Failure, Form, HookOutcome, Metrics, Plugin, RuntimeOptions, Timeout};
use shardmill_record::{Batch, BatchBuilder};
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::forge::{SPIN, starting, with_core_module};
use crate::support::{Log, World, batch, guest, record, shard};

/// No wait of a test is as long as this.
const LIMIT: Duration = Duration::from_secs(30);

fn world(threads: usize, max_instances: u32) -> World {
    let threads = NonZeroUsize::new(threads);
    World::with(RuntimeOptions { cache_dir: World::cache_dir(), max_instances, threads, compiler: None })
}

/// A guest that spins when a batch holds what [`batch`] does, and echoes others.
async fn spinning(world: &World) -> Plugin {
    world.plugin(&world.module(Form::Rows).await, json!({ "do": "spin", "on": "three" }))
}

fn harmless() -> Batch {
    let mut builder = BatchBuilder::default();
    builder.push(record("49590338271490256608559692538361571095921575989136588898", None, b"one"));
    builder.build()
}

async fn until_no_instances(world: &World) {
    until_none(&world.metrics).await;
}

async fn until_none(metrics: &Metrics) {
    let gone = async {
        while metrics.instances("flights") > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LIMIT, gone).await.expect("the end of all instances");
}

#[tokio::test]
async fn one_thread_is_enough_for_guests_that_spin_and_one_that_does_not() {
    let world = world(1, 8);
    let plugin = spinning(&world).await;
    let mut spinners = Vec::new();
    for _ in 0..3 {
        let mut instance = plugin.instance().await.unwrap();
        spinners.push(tokio::spawn(async move { instance.process_batch(&shard(), &batch()).await }));
    }
    let mut other = plugin.instance().await.unwrap();
    for _ in 0..100 {
        let outcome = timeout(LIMIT, other.process_batch(&shard(), &harmless())).await.expect("its turn").unwrap();
        assert_eq!(outcome.outputs.len(), 1);
    }
    for spinner in spinners {
        assert!(!spinner.is_finished());
        spinner.abort();
    }
    drop(other);
    until_no_instances(&world).await;
}

#[tokio::test]
async fn a_place_in_the_pool_is_free_when_nothing_is_left_of_a_call_that_was_given_up() {
    // There is room for one instance: were its place free before it is gone, the next one could not be made.
    let world = world(1, 1);
    let plugin = spinning(&world).await;
    let pool = plugin.pool(1);
    for _ in 0..10 {
        let call = async { pool.get().await.unwrap().process_batch(&shard(), &batch()).await };
        assert!(timeout(Duration::from_millis(30), call).await.is_err());
        let mut next = timeout(LIMIT, pool.get()).await.expect("the place").expect("room for an instance");
        next.process_batch(&shard(), &harmless()).await.unwrap();
        // One that is whole goes back, and is what the next call spins on.
        assert!(next.is_usable());
    }
    assert_eq!(pool.idle(), 1);
    timeout(LIMIT, pool.close()).await.expect("the end of the pool");
    assert!(matches!(pool.get().await, Err(Failure::Host(_))));
    assert_eq!(world.metrics.instances("flights"), 0);
}

#[tokio::test]
async fn limits_hold_on_threads_too() {
    let mut world = world(1, 8);
    world.limits.batch_timeout = Duration::from_millis(300);
    let wall = |limit| Failure::Timeout(Timeout::Wall(Duration::from_millis(limit)));
    for behaviour in ["spin", "sleep"] {
        assert_eq!(world.process(Form::Rows, behaviour).await, (Err(wall(300)), false), "{behaviour}");
    }
    world.limits.batch_timeout = LIMIT;
    world.limits.cpu_time = Duration::from_millis(100);
    let (result, is_usable) = world.process(Form::Rows, "spin").await;
    assert_eq!((result, is_usable), (Err(Failure::Timeout(Timeout::Cpu(Duration::from_millis(100)))), false));
    let (Err(Failure::Trap(trap)), false) = world.process(Form::Rows, "panic").await else { panic!("no trap") };
    assert!(trap.stderr.contains("record 0 is not what I thought"), "{trap:?}");
    let plugin = world.plugin(&world.module(Form::Rows).await, json!({ "revoked": "spin" }));
    let mut instance = plugin.instance().await.unwrap();
    assert_eq!(instance.assigned(1, &shard()).await.map(|outcome| outcome.outputs.len()), Ok(1));
    assert_eq!(instance.revoked(1, &shard(), 50).await, Err::<HookOutcome, _>(wall(50)));
    assert!(!instance.is_usable());
    until_no_instances(&world).await;
}

#[tokio::test]
async fn a_start_that_spins_is_ended_and_keeps_no_other_guest_from_starting() {
    let mut world = world(1, 8);
    world.limits.start_timeout = Duration::from_millis(500);
    let bytes = with_core_module(guest(Form::Columnar), &starting(SPIN), 1);
    let module = world.runtime.load("spins", bytes).await.unwrap();
    let spins = world.plugin(&module, json!({}));
    world.limits.start_timeout = LIMIT;
    let module = world.module(Form::Columnar).await;
    let other = world.plugin(&module, json!({}));
    let (failure, other) = tokio::join!(spins.instance(), other.instance());
    assert_eq!(failure.err(), Some(Failure::Timeout(Timeout::Wall(Duration::from_millis(500)))));
    drop(other.unwrap());
    until_no_instances(&world).await;
}

#[tokio::test]
async fn what_a_guest_says_is_in_the_log_and_the_span_of_its_caller() {
    let (log, _guard) = Log::capture();
    let world = world(2, 8);
    let span = tracing::info_span!("work", number = 7);
    world.process(Form::Rows, "log").instrument(span).await.0.unwrap();
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN work{number=7}: guest: a late flight"), "{}", lines[0]);
}

#[tokio::test]
async fn what_was_made_with_a_runtime_keeps_its_threads() {
    let world = world(1, 8);
    let mut instance = world.instance(Form::Rows, "echo").await;
    let World { metrics, .. } = world;
    instance.process_batch(&shard(), &batch()).await.unwrap();
    drop(instance);
    until_none(&metrics).await;
}
