//! Splits and merges while a worker runs.

use shardmill_tests::{Config, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, leases};

const FIRST: &str = "shardId-000000000000";
const SECOND: &str = "shardId-000000000001";

#[tokio::test]
async fn splits_and_merges_lose_nothing_repeat_nothing_and_keep_the_order_of_keys() {
    let services = Services::with_streams(2, 3).await;
    let config = Config::copy().processor("batch = { records = 50 }");
    let mut writer = Writer::new(&services, "input", 100).with_aggregates();
    writer.put(2_000).await;
    let mut worker = Worker::start(&services, &config);
    worker
        .until("the first records", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            (worker.records_done().await > 0).then_some(())
        })
        .await;

    writer.put(1_500).await;
    services.split("input", FIRST).await;
    writer.put(1_500).await;
    // The upper half of the first shard lies beside the second one.
    services.merge("input", "shardId-000000000003", SECOND).await;
    writer.put(1_500).await;
    // And once more while the worker is idle.
    let all = writer.count();
    worker.until_records(all).await;
    services.split("input", "shardId-000000000004").await;
    writer.put(500).await;

    let all = writer.count();
    worker.until_records(all).await;
    let closed = [FIRST, SECOND, "shardId-000000000003", "shardId-000000000004"];
    leases::until_ended(&mut worker, &services, config.lease_table(), &closed).await;
    worker.stop().await;

    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..all);
    assert_order_of_keys(&output);
    let rows = leases::rows(&services, config.lease_table()).await;
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);
    leases::assert_lineage(&rows, &services.shards("input").await, &closed);
    assert_eq!(rows.len(), 7);
}

#[tokio::test]
async fn a_worker_that_starts_after_a_reshard_begins_with_the_parents() {
    let services = Services::with_streams(1, 2).await;
    let config = Config::copy();
    let mut writer = Writer::new(&services, "input", 50);
    writer.put(1_000).await;
    services.split("input", FIRST).await;
    writer.put(1_000).await;
    services.merge("input", SECOND, "shardId-000000000002").await;
    writer.put(1_000).await;

    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(3_000).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..3_000);
    assert_order_of_keys(&output);
    let rows = leases::rows(&services, config.lease_table()).await;
    let ended: Vec<_> = rows.iter().filter(|(_, row)| row.checkpoint.is_shard_end()).map(|(shard, _)| shard).collect();
    assert_eq!(ended, [FIRST, SECOND, "shardId-000000000002"]);
}
