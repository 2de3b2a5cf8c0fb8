use std::time::Duration;

use serde_json::json;
use shardmill_plugin::{Failure, Form, InvalidOutcome, Timeout, Trap};

use crate::forge::{SPIN, TRAP, growing, section, starting, with_core_module};
use crate::support::{World, batch, guest, shard};

async fn start(world: &World, bytes: Vec<u8>) -> Failure {
    let module = world.runtime.load("patched", bytes).await.unwrap();
    world.plugin(&module, json!({})).instance().await.expect_err("it cannot start")
}

#[tokio::test]
async fn a_crash_tells_its_message_and_its_stack_and_ends_the_instance() {
    let world = World::new();
    let (Err(Failure::Trap(Trap { message, backtrace, stderr })), false) = world.process(Form::Rows, "panic").await
    else {
        panic!("no trap")
    };
    assert!(message.contains("unreachable"), "{message}");
    assert!(stderr.contains("record 0 is not what I thought"), "{stderr}");
    assert!(backtrace.contains("0:"), "{backtrace}");
    let mut instance = world.instance(Form::Rows, "panic").await;
    instance.process_batch(&shard(), &batch()).await.unwrap_err();
    assert!(matches!(instance.process_batch(&shard(), &batch()).await, Err(Failure::Host(_))));
    let trapped = async |behaviour| match world.process(Form::Rows, behaviour).await {
        (Err(Failure::Trap(trap)), false) => trap.message,
        other => panic!("{behaviour}: {other:?}"),
    };
    assert!(trapped("divide").await.contains("unreachable"));
    assert!(trapped("recurse").await.contains("call stack exhausted"));
    assert!(trapped("exit").await.contains("exited with status"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_guest_that_computes_gives_way() {
    let mut world = World::new();
    (world.limits.batch_timeout, world.limits.cpu_time) = (Duration::from_secs(600), Duration::from_secs(600));
    let mut instance = world.instance(Form::Rows, "spin").await;
    let (shard, batch) = (shard(), batch());
    // One thread runs the guest and this task: it ends only if the guest gives way again and again.
    let other = tokio::spawn(async {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    });
    tokio::select! {
        biased;
        ended = instance.process_batch(&shard, &batch) => panic!("it computes without end: {ended:?}"),
        other = other => other.unwrap(),
    }
}

#[tokio::test]
async fn a_guest_that_computes_is_stopped() {
    let mut world = World::new();
    world.limits.batch_timeout = Duration::from_millis(300);
    let (result, is_usable) = world.process(Form::Rows, "spin").await;
    assert_eq!((result, is_usable), (Err(Failure::Timeout(Timeout::Wall(Duration::from_millis(300)))), false));
}

#[tokio::test]
async fn computing_is_bounded_apart_from_waiting() {
    let mut world = World::new();
    world.limits.cpu_time = Duration::from_millis(100);
    let (result, is_usable) = world.process(Form::Rows, "spin").await;
    assert_eq!((result, is_usable), (Err(Failure::Timeout(Timeout::Cpu(Duration::from_millis(100)))), false));
    // The time of one call does not count for the next.
    world.limits.cpu_time = Duration::from_secs(1);
    let mut instance = world.instance(Form::Rows, "work").await;
    for _ in 0..5 {
        instance.process_batch(&shard(), &batch()).await.unwrap();
    }
}

#[tokio::test]
async fn a_host_call_that_waits_is_ended_too() {
    let mut world = World::new();
    world.limits.batch_timeout = Duration::from_millis(100);
    let (result, is_usable) = world.process(Form::Rows, "sleep").await;
    assert_eq!((result, is_usable), (Err(Failure::Timeout(Timeout::Wall(Duration::from_millis(100)))), false));
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_its_instance() {
    let world = World::new();
    for behaviour in ["sleep", "spin"] {
        let mut instance = world.instance(Form::Rows, behaviour).await;
        let (shard, batch) = (shard(), batch());
        let call = instance.process_batch(&shard, &batch);
        assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
        assert!(!instance.is_usable());
    }
    assert_eq!(world.metrics.instances("flights"), 0);
}

#[tokio::test]
async fn memory_is_bounded() {
    let mut world = World::new();
    world.limits.memory_bytes = 16 << 20;
    let (Err(Failure::Memory { wanted, limit }), false) = world.process(Form::Rows, "memory").await else {
        panic!("it got its memory")
    };
    assert!(limit == 16 << 20 && wanted > limit, "{wanted} of {limit}");
}

#[tokio::test]
async fn memory_is_summed_over_all_memories() {
    let world = World::new();
    // 320 pages are 20 MiB: one fits the 64 MiB, four do not.
    let memory = [section(5, &[1, 0, 0xc0, 0x02])];
    let module = world.runtime.load("one", with_core_module(guest(Form::Columnar), &memory, 1)).await.unwrap();
    let instance = world.plugin(&module, json!({})).instance().await.unwrap();
    assert!(instance.memory() > 20 << 20);
    let failure = start(&world, with_core_module(guest(Form::Columnar), &memory, 4)).await;
    assert!(matches!(failure, Failure::Memory { limit, .. } if limit == 64 << 20), "{failure:?}");
    // The same memories are empty at first, and grow when the guest runs.
    let module = world.runtime.load("one", with_core_module(guest(Form::Columnar), &growing(320), 1)).await.unwrap();
    let instance = world.plugin(&module, json!({})).instance().await.unwrap();
    assert!(instance.memory() > 20 << 20);
    let failure = start(&world, with_core_module(guest(Form::Columnar), &growing(320), 4)).await;
    assert!(matches!(failure, Failure::Memory { limit, .. } if limit == 64 << 20), "{failure:?}");
}

#[tokio::test]
async fn starting_is_bounded() {
    let mut world = World::new();
    world.limits.start_timeout = Duration::from_millis(200);
    let spinning = with_core_module(guest(Form::Columnar), &starting(SPIN), 1);
    assert!(matches!(start(&world, spinning).await, Failure::Timeout(_)));
    let trapping = with_core_module(guest(Form::Columnar), &starting(TRAP), 1);
    assert!(matches!(start(&world, trapping).await, Failure::Trap(_)));
    let module = world.module(Form::Rows).await;
    let spinning = world.plugin(&module, json!({ "init": "spin" })).instance().await.err();
    assert!(matches!(spinning, Some(Failure::Timeout(_))), "{spinning:?}");
    let trapping = world.plugin(&module, json!({ "init": "trap" })).instance().await.err();
    assert!(matches!(trapping, Some(Failure::Trap(_))), "{trapping:?}");
    assert_eq!(world.metrics.instances("flights"), 0);
}

#[tokio::test]
async fn a_hook_that_has_little_time_left_is_ended() {
    let world = World::new();
    let plugin = world.plugin(&world.module(Form::Rows).await, json!({ "revoked": "spin" }));
    let failure = plugin.instance().await.unwrap().revoked(1, &shard(), 50).await.unwrap_err();
    assert_eq!(failure, Failure::Timeout(Timeout::Wall(Duration::from_millis(50))));
}

#[tokio::test]
async fn what_a_guest_hands_the_host_is_bounded() {
    let mut world = World::new();
    world.limits.outcome_bytes = 1 << 20;
    for (form, behaviour) in [(Form::Rows, "huge"), (Form::Rows, "huge-log"), (Form::Columnar, "huge")] {
        let (result, is_usable) = world.process(form, behaviour).await;
        let expected = Failure::InvalidOutcome(InvalidOutcome::TooLarge { limit: 1 << 20 });
        assert_eq!((result, is_usable), (Err(expected), false), "{form} {behaviour}");
    }
    world.limits.outcome_bytes = 16 << 20;
    for form in [Form::Rows, Form::Columnar] {
        assert!(world.process(form, "huge").await.0.is_ok(), "{form}");
    }
}

#[tokio::test]
async fn one_guests_crash_is_not_anothers() {
    let world = World::new();
    let (mut broken, mut whole) = (world.instance(Form::Rows, "spin").await, world.instance(Form::Rows, "echo").await);
    let (context, records) = (shard(), batch());
    let spinning = broken.process_batch(&context, &records);
    let (timeout, calls) = tokio::join!(tokio::time::timeout(Duration::from_millis(200), spinning), async {
        for _ in 0..100 {
            whole.process_batch(&context, &records).await.unwrap();
        }
        whole.is_usable()
    });
    assert!(timeout.is_err() && calls);
}

#[tokio::test]
async fn there_are_no_more_instances_than_the_runtime_has_room_for() {
    let world = World::new();
    let plugin = world.plugin(&world.module(Form::Columnar).await, json!({}));
    let mut instances = Vec::new();
    let failure = loop {
        match plugin.instance().await {
            Ok(instance) => instances.push(instance),
            Err(failure) => break failure,
        }
    };
    assert!(matches!(&failure, Failure::Host(reason) if reason.contains("limit")), "{failure:?}");
    assert_eq!(instances.len(), 8);
    instances.pop();
    assert!(plugin.instance().await.is_ok());
}
