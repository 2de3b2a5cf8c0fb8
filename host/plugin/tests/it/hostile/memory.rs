//! Memory, by every way to take it.

use shardmill_plugin::{Failure, Limits, Metrics};

use super::{Bytes, Guest, Host, runtime};
use crate::forge::{section, with_core_module};

const LIMIT: usize = 4 << 20;
const PAGE: usize = 64 << 10;
/// A table of the shell, of twelve entries.
const TABLE: usize = 96;

fn limits() -> Limits {
    Limits { memory_bytes: LIMIT, ..Limits::default() }
}

async fn refused(guest: &Guest) -> usize {
    match Host::within(guest, limits()).await.attacked().await {
        Failure::Memory { wanted, limit } if limit == LIMIT && wanted > limit => wanted,
        other => panic!("{other:?}"),
    }
}

async fn refused_to_load(bytes: Vec<u8>) -> String {
    runtime(Metrics::default()).load("hostile.wasm", bytes).await.unwrap_err().to_string()
}

#[tokio::test]
async fn by_one_growth_of_almost_all_that_can_be_addressed() {
    let guest = Guest::attacking(
        "(if (i32.eq (memory.grow (i32.const 65000)) (i32.const -1)) (then (unreachable))) (i32.const 1024)",
    );
    assert_eq!(refused(&guest).await, 65002 * PAGE + TABLE);
}

#[tokio::test]
async fn by_many_small_growths() {
    let guest = Guest::attacking("(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)");
    assert_eq!(refused(&guest).await, LIMIT + TABLE);
}

#[tokio::test]
async fn by_growths_that_it_goes_on_asking_for_when_they_are_refused() {
    let guest = Guest::attacking(
        "(local.set $i (i32.const 200000))
        (loop (drop (memory.grow (i32.const 1)))
            (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
        (i32.const 1024)",
    );
    let host = Host::within(&guest, limits()).await;
    host.survived().await;
    let instance = host.pool.get().await.unwrap();
    assert_eq!(instance.memory(), LIMIT - PAGE + TABLE);
}

#[tokio::test]
async fn what_was_refused_in_one_call_does_not_explain_the_next_ones_crash() {
    let guest = Guest::attacking(
        "(if (i32.ne (memory.grow (i32.const 1000)) (i32.const -1)) (then (unreachable)))
        (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (if (i32.eq (global.get $calls) (i32.const 2)) (then (global.set $calls (i32.div_u (i32.const 1) (i32.const 0)))))
        (i32.const 1024)",
    )
    .with("(global $calls (mut i32) (i32.const 0))");
    let host = Host::within(&guest, limits()).await;
    host.survived().await;
    // The same call asks for memory and crashes for another reason: memory is what an operator can mend.
    assert!(matches!(host.attacked().await, Failure::Memory { .. }));
    let guest = Guest::attacking("(drop (i32.div_u (i32.const 1) (i32.const 0))) (i32.const 1024)");
    assert!(matches!(Host::within(&guest, limits()).await.attacked().await, Failure::Trap(_)));
}

#[tokio::test]
async fn over_several_memories() {
    let guest = Guest::attacking(
        "(loop
            (br_if 0 (i32.ne (memory.grow $second (i32.const 1)) (i32.const -1)))
            (br_if 0 (i32.ne (memory.grow $third (i32.const 1)) (i32.const -1))))
        (unreachable)",
    )
    .with("(memory $second 1) (memory $third 1)");
    assert_eq!(refused(&guest).await, LIMIT + TABLE);
}

#[tokio::test]
async fn over_a_memory_of_64_bits() {
    let guest = Guest::attacking(
        "(if (i64.eq (memory.grow $wide (i64.const 0x100000000)) (i64.const -1)) (then (unreachable)))
        (i32.const 1024)",
    )
    .with("(memory $wide i64 1)");
    assert!(refused(&guest).await > 1 << 47);
}

#[tokio::test]
async fn over_tables() {
    let guest = Guest::attacking(
        "(loop
            (br_if 0 (i32.ne (table.grow $one (ref.null func) (i32.const 1000)) (i32.const -1)))
            (br_if 0 (i32.ne (table.grow $two (ref.null func) (i32.const 1000)) (i32.const -1))))
        (unreachable)",
    )
    .with("(table $one 0 funcref) (table $two 0 funcref)");
    let limits = Limits { memory_bytes: 1 << 20, ..Limits::default() };
    let failure = Host::within(&guest, limits).await.attacked().await;
    assert!(matches!(failure, Failure::Memory { limit, .. } if limit == 1 << 20), "{failure:?}");
}

#[tokio::test]
async fn over_tables_of_many_core_instances() {
    // Tables of 90,000 entries, 720,000 bytes each.
    let table = [section(4, &[1, 0x70, 0, 0x90, 0xbf, 0x05])];
    let component = |instances| with_core_module(Guest::default().component(), &table, instances);
    Host::of_component(component(4), limits()).await.works().await;
    let failure = Host::of_component(component(6), limits()).await.instance().await.unwrap_err();
    assert!(matches!(failure, Failure::Memory { limit: LIMIT, .. }), "{failure:?}");
}

#[tokio::test]
async fn over_more_core_instances_than_there_may_be() {
    let component = |instances| with_core_module(Guest::default().component(), &[], instances);
    Host::of_component(component(200), limits()).await.works().await;
    let text = refused_to_load(component(300)).await;
    assert!(text.contains("hostile.wasm") && text.contains("maximum of 256"), "{text}");
}

#[tokio::test]
async fn over_globals_of_many_core_instances() {
    // 30,000 globals, which are half a megabyte on the host's side in each instance.
    let global = [0x7e, 1, 0x42, 0, 0x0b];
    let globals = [&[0xb0, 0xea, 0x01][..], &global.repeat(30_000)].concat();
    let component = |instances| with_core_module(Guest::default().component(), &[section(6, &globals)], instances);
    let limits = Limits { memory_bytes: 64 << 20, ..Limits::default() };
    Host::of_component(component(1), limits).await.works().await;
    let text = refused_to_load(component(200)).await;
    assert!(text.contains("maximum of 1048576 bytes"), "{text}");
}

#[tokio::test]
async fn by_a_memory_that_is_too_large_from_the_start() {
    let guest = Guest { memory: "1000", ..Guest::default() };
    let failure = Host::within(&guest, limits()).await.instance().await.unwrap_err();
    assert_eq!(failure, Failure::Memory { wanted: 1000 * PAGE + TABLE, limit: LIMIT });
}

#[tokio::test]
async fn by_handles_of_things_that_the_host_keeps() {
    let clock = "wasi:clocks/monotonic-clock@0.2.6";
    let guest = Guest::attacking(
        "(local.set $i (i32.const 5000))
        (loop (drop (call $subscribe (i64.const 1000000000)))
            (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
        (i32.const 1024)",
    )
    .importing(clock, "subscribe-duration", "$subscribe", "(param i64) (result i32)");
    let failure = Host::of(&guest).await.attacked().await;
    assert!(matches!(&failure, Failure::Trap(trap) if trap.message.contains("table has no free keys")), "{failure:?}");
}

#[tokio::test]
async fn by_zeros_and_random_bytes_that_the_host_makes() {
    let stdout = Guest::default()
        .importing("wasi:cli/stdout@0.2.6", "get-stdout", "$stdout", "(result i32)")
        .importing("wasi:io/streams@0.2.6", "[method]output-stream.write-zeroes", "$zeroes", "(param i32 i64 i32)")
        .importing("wasi:random/random@0.2.6", "get-random-bytes", "$random", "(param i64 i32)");
    let zeroes = "(call $zeroes (call $stdout) (i64.const 0x10000000000) (i32.const 2048)) (i32.const 1024)";
    let random = "(call $random (i64.const 0x10000000000) (i32.const 2048)) (i32.const 1024)";
    for (attack, said) in [(zeroes, "zeroes"), (random, "exceeds limit")] {
        let failure = Host::of(&Guest { attack: attack.to_owned(), ..stdout.clone() }).await.attacked().await;
        assert!(matches!(&failure, Failure::Trap(trap) if trap.message.contains(said)), "{failure:?}");
    }
    // What is asked of an input that has nothing is nothing.
    let stdin = Guest::attacking("(call $read (call $stdin) (i64.const -1) (i32.const 2048)) (i32.const 1024)")
        .importing("wasi:cli/stdin@0.2.6", "get-stdin", "$stdin", "(result i32)")
        .importing("wasi:io/streams@0.2.6", "[method]input-stream.blocking-read", "$read", "(param i32 i64 i32)");
    Host::of(&stdin).await.survived().await;
}

#[tokio::test]
async fn by_lists_whose_items_are_all_in_the_same_place() {
    // 5,000 names of 64 KiB, which would be 320 MiB.
    let names: String = (0..5000).map(|_| "\\00\\00\\01\\00\\00\\00\\01\\00").collect();
    let answer = Bytes::outcome().list(64, 131_072, 5000);
    let guest =
        Guest { memory: "4", ..Guest::answering(&answer) }.with(&format!("(data (i32.const 131072) \"{names}\")"));
    let failure = Host::of(&guest).await.attacked().await;
    assert!(failure.to_string().contains("more than 33554432 bytes in one call"), "{failure}");
}
