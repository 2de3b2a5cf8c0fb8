//! Time, in every function of a guest that the host calls.

use std::time::Duration;

use shardmill_plugin::{Failure, Limits, Timeout};

use super::{Guest, Host, LONG};
use crate::support::{batch, shard};

const BRIEF: Duration = Duration::from_millis(150);
const FOR_EVER: &str = "(loop (br 0)) (unreachable)";

fn wall() -> Limits {
    Limits { batch_timeout: BRIEF, hook_timeout: BRIEF, ..Limits::default() }
}

fn cpu() -> Limits {
    Limits { cpu_time: BRIEF, batch_timeout: LONG, hook_timeout: LONG, start_timeout: LONG, ..Limits::default() }
}

async fn ended(guest: &Guest) {
    for (limits, timeout) in [(wall(), Timeout::Wall(BRIEF)), (cpu(), Timeout::Cpu(BRIEF))] {
        assert_eq!(Host::within(guest, limits).await.attacked().await, Failure::Timeout(timeout));
    }
}

/// One that does not start.
async fn not_started(guest: &Guest, call: &str) {
    let brief = Limits { start_timeout: BRIEF, ..Limits::default() };
    for (limits, timeout) in [(brief, Timeout::Wall(BRIEF)), (cpu(), Timeout::Cpu(BRIEF))] {
        let host = Host::within(guest, limits).await;
        let failure = host.instance().await.unwrap_err();
        assert_eq!(failure, Failure::Timeout(timeout));
        host.counted(call, &failure, 1);
        assert_eq!(host.metrics.instances("hostile"), 0);
    }
}

#[tokio::test]
async fn in_process_batch() {
    ended(&Guest::attacking(FOR_EVER)).await;
}

#[tokio::test]
async fn in_post_return() {
    // Only after a batch with records: the answer is somewhere else then.
    let post = "(if (i32.eq (local.get 0) (i32.const 4096)) (then (loop (br 0))))";
    ended(&Guest { post: post.to_owned(), ..Guest::attacking("(i32.const 4096)") }).await;
}

#[tokio::test]
async fn in_realloc_while_the_host_hands_a_batch_over() {
    // An empty batch and its context take less at a time.
    let realloc =
        format!("(if (i32.gt_u (local.get $size) (i32.const 200)) (then (loop (br 0)))) {}", Guest::default().realloc);
    ended(&Guest { realloc, ..Guest::default() }).await;
}

#[tokio::test]
async fn in_realloc_while_the_host_answers_a_call() {
    let realloc = format!("(if (global.get $asks) (then (loop (br 0)))) {}", Guest::default().realloc);
    let attack = "(global.set $asks (i32.const 1)) (call $all (i32.const 2048)) (i32.const 1024)";
    let guest = Guest { realloc, ..Guest::attacking(attack) }.with("(global $asks (mut i32) (i32.const 0))").importing(
        "shardmill:processor/configuration@0.1.0",
        "all",
        "$all",
        "(param i32)",
    );
    ended(&guest).await;
}

#[tokio::test]
async fn in_init() {
    not_started(&Guest { init: FOR_EVER.to_owned(), ..Guest::default() }, "init").await;
}

#[tokio::test]
async fn before_init() {
    not_started(&Guest { start: FOR_EVER.to_owned(), ..Guest::default() }, "start").await;
}

#[tokio::test]
async fn in_a_hook() {
    for (limits, timeout) in [(wall(), Timeout::Wall(BRIEF)), (cpu(), Timeout::Cpu(BRIEF))] {
        let host = Host::within(&Guest { assigned: FOR_EVER.to_owned(), ..Guest::default() }, limits).await;
        let mut instance = host.pool.get().await.unwrap();
        let failure = instance.assigned(1, &shard()).await.unwrap_err();
        assert_eq!((&failure, instance.is_usable()), (&Failure::Timeout(timeout), false));
        drop(instance);
        host.counted("assigned", &failure, 1);
        host.works().await;
    }
}

#[tokio::test]
async fn in_shutdown() {
    let host = Host::within(&Guest { shutdown: FOR_EVER.to_owned(), ..Guest::default() }, wall()).await;
    host.works().await;
    tokio::time::timeout(LONG, host.pool.close()).await.expect("the end of the pool");
    host.counted("shutdown", &Failure::Timeout(Timeout::Wall(BRIEF)), 1);
    assert_eq!(host.metrics.instances("hostile"), 0);
}

#[tokio::test]
async fn by_waiting_for_ever() {
    let guest = Guest::attacking("(call $block (call $subscribe (i64.const -1))) (i32.const 1024)")
        .importing("wasi:clocks/monotonic-clock@0.2.6", "subscribe-duration", "$subscribe", "(param i64) (result i32)")
        .importing("wasi:io/poll@0.2.6", "[method]pollable.block", "$block", "(param i32)");
    // It computes nothing.
    let failure = Host::within(&guest, Limits { cpu_time: BRIEF, ..wall() }).await.attacked().await;
    assert_eq!(failure, Failure::Timeout(Timeout::Wall(BRIEF)));
}

#[tokio::test]
async fn by_calls_of_the_host_without_end() {
    let calls = [
        (
            "(call $log (i32.const 2) (i32.const 1024) (i32.const 10) (i32.const 0) (i32.const 0))",
            ("shardmill:processor/logging@0.1.0", "log", "(param i32 i32 i32 i32 i32)"),
        ),
        (
            "(call $add (i32.const 1024) (i32.const 4) (i32.const 0) (i32.const 0) (i64.const 1))",
            ("shardmill:processor/metrics@0.1.0", "add", "(param i32 i32 i32 i32 i64)"),
        ),
        (
            "(global.set $next (i32.const 16384)) (call $all (i32.const 2048))",
            ("shardmill:processor/configuration@0.1.0", "all", "(param i32)"),
        ),
        (
            "(global.set $next (i32.const 16384)) (call $get-random-bytes (i64.const 65536) (i32.const 2048))",
            ("wasi:random/random@0.2.6", "get-random-bytes", "(param i64 i32)"),
        ),
    ];
    for (call, (module, name, signature)) in calls {
        let attack = format!("(loop {call} (br 0)) (unreachable)");
        ended(&Guest::attacking(&attack).importing(module, name, &format!("${name}"), signature)).await;
    }
}

#[tokio::test]
async fn by_reading_an_input_that_has_nothing_again_and_again() {
    let guest = Guest::attacking(
        "(local.set $i (call $stdin))
        (loop (call $read (local.get $i) (i64.const 10) (i32.const 2048)) (br 0)) (unreachable)",
    )
    .importing("wasi:cli/stdin@0.2.6", "get-stdin", "$stdin", "(result i32)")
    .importing("wasi:io/streams@0.2.6", "[method]input-stream.blocking-read", "$read", "(param i32 i64 i32)");
    ended(&guest).await;
}

#[tokio::test]
async fn an_instance_that_has_had_one_timeout_is_never_called_again() {
    let host = Host::within(&Guest::attacking(FOR_EVER), wall()).await;
    let mut instance = host.instance().await.unwrap();
    instance.process_batch(&shard(), &batch()).await.unwrap_err();
    let again = instance.process_batch(&shard(), &batch()).await.unwrap_err();
    assert!(matches!(&again, Failure::Host(reason) if reason.contains("broke down")), "{again:?}");
}
