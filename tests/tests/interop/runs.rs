//! Runs that are the same on all services.

use std::collections::BTreeMap;

use shardmill_tests::leases::{self, Row};
use shardmill_tests::{
    Config, Services, Tail, TakenUp, Worker, Writer, assert_each_once, assert_order_of_keys, assert_taken_up, numbers,
    positions,
};

const KEYS: u64 = 60;

/// Every record once and in the order of its key, checkpoints at the last records, and a restart that repeats nothing.
pub(crate) async fn without_faults(services: &Services, records: u64) {
    let config = Config::copy();
    let mut writer = Writer::new(services, "input", KEYS).with_aggregates();
    writer.put(records / 2).await;
    let mut worker = Worker::start_ready(services, &config).await;
    writer.put(records - records / 2).await;
    worker.until_records(records).await;
    assert!(worker.metric("shardmill_aggregates_total", "").await > 0.0, "aggregates are taken apart");
    worker.stop().await;

    let input = Tail::all(services, "input").await;
    assert_each_once(&input, 0..records);
    let output = Tail::all(services, "output").await;
    assert_each_once(&output, 0..records);
    assert_order_of_keys(&output);
    leases::assert_released_at_the_end(&leases::rows(services, config.lease_table()).await, &input);

    let mut worker = Worker::start_ready(services, &config).await;
    writer.put(300).await;
    worker.until_records(300).await;
    worker.stop().await;
    let output = Tail::all(services, "output").await;
    assert_each_once(&output, 0..records + 300);
    assert_order_of_keys(&output);
    let input = Tail::all(services, "input").await;
    leases::assert_released_at_the_end(&leases::rows(services, config.lease_table()).await, &input);
}

/// Kills in the middle of the work lose nothing, and only what came after the last checkpoints is repeated.
pub(crate) async fn with_kills(services: &Services, kills: usize) {
    // The successor has the same name and so need not wait until leases expire.
    let config = Config::copy()
        .top(r#"worker-id = "worker-0""#)
        .top("worker-runs-once = true")
        .processor("batch = { records = 10 }")
        .processor(r#"checkpoint-interval = "200ms""#);
    let mut writer = Writer::new(services, "input", KEYS).with_aggregates();
    let mut output = Tail::new(services, "output").await;
    let mut left_behind: Vec<(BTreeMap<String, Row>, usize)> = Vec::new();
    let mut worker = Worker::start(services, &config);
    for _ in 0..kills {
        let known = output.count().await;
        writer.put(200).await;
        worker
            .until("outputs and a checkpoint", async |_| {
                let rows = leases::rows(services, config.lease_table()).await;
                let checkpointed = rows.values().any(|row| row.checkpoint.position().is_some());
                (output.count().await > known && checkpointed).then_some(())
            })
            .await;
        // More than it has time for.
        writer.put(400).await;
        worker.kill().await;
        left_behind.push((leases::rows(services, config.lease_table()).await, output.count().await));
        worker = Worker::start(services, &config);
    }
    let all = writer.count();
    worker
        .until("all outputs", async |_| {
            output.poll().await;
            (numbers(output.found()).len() as u64 >= all).then_some(())
        })
        .await;
    worker.stop().await;
    output.poll().await;
    let found = output.found();
    assert_eq!(numbers(found), (0..all).collect(), "nothing is lost, and nothing comes from nowhere");
    let input = Tail::all(services, "input").await;
    leases::assert_released_at_the_end(&leases::rows(services, config.lease_table()).await, &input);

    let positions = positions(&input);
    let mut taken_up = TakenUp { left: 0, repeated: 0 };
    let ends = left_behind.iter().skip(1).map(|(_, outputs)| *outputs).chain([found.len()]);
    for ((rows, outputs), end) in left_behind.iter().zip(ends) {
        let (before, after) = found[..end].split_at(*outputs);
        let seen = assert_taken_up(rows, &positions, before, after);
        taken_up.left += seen.left;
        taken_up.repeated += seen.repeated;
    }
    assert!(taken_up.left > 0, "kills came before everything was done");
    println!("{all} records, {} outputs after {kills} kills: {taken_up:?}", found.len());
}
