//! `kinesis-local` with `dynalite`.

use shardmill_tests::{Config, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, leases};

use crate::runs;

const FIRST: &str = "shardId-000000000000";
const SECOND: &str = "shardId-000000000001";

#[tokio::test]
async fn every_record_is_processed_once_in_the_order_of_its_key() {
    let services = Services::kinesis_local_and_dynalite().await.and_streams(3, 2).await;
    runs::without_faults(&services, 1_200).await;
}

#[tokio::test]
async fn kills_lose_nothing_and_repeat_only_what_came_after_the_checkpoints() {
    let services = Services::kinesis_local_and_dynalite().await.and_streams(3, 2).await;
    runs::with_kills(&services, 2).await;
}

/// Children have to be learnt of from `ChildShards` or by a listing at the shard's end: nothing else lists the shards
/// in time. The output's new shards are found with the `ShardFilter` `AT_LATEST`.
#[tokio::test]
async fn splits_and_merges_of_input_and_output_lose_nothing_and_repeat_nothing() {
    let services = Services::kinesis_local_and_dynalite().await.and_streams(2, 2).await;
    let config = Config::copy().processor("batch = { records = 50 }");
    let text = config.text().replace(r#"sync = "500ms""#, r#"sync = "5m""#);
    assert_ne!(text, config.text());
    let mut writer = Writer::new(&services, "input", 60).with_aggregates();
    writer.put(450).await;
    let mut worker = Worker::start_with(&services, &text);
    worker
        .until("the first records", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            (worker.records_done().await > 0).then_some(())
        })
        .await;

    writer.put(300).await;
    services.split("input", FIRST).await;
    writer.put(300).await;
    // The upper half of the first shard lies beside the second one.
    services.merge("input", "shardId-000000000003", SECOND).await;
    services.split("output", FIRST).await;
    writer.put(300).await;
    // And once more while the worker is idle.
    let all = writer.count();
    worker.until_records(all).await;
    services.split("input", "shardId-000000000004").await;
    writer.put(300).await;

    let all = writer.count();
    worker.until_records(all).await;
    let closed = [FIRST, SECOND, "shardId-000000000003", "shardId-000000000004"];
    leases::until_ended(&mut worker, &services, config.lease_table(), &closed).await;
    assert!(!worker.logged("INFO", "its shard map is new").is_empty(), "the output's split was noticed");
    worker.stop().await;

    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..all);
    assert_order_of_keys(&output);
    assert!(output.iter().any(|record| record.shard == "shardId-000000000002"), "the output's new shards are used");
    let rows = leases::rows(&services, config.lease_table()).await;
    leases::assert_lineage(&rows, &services.shards("input").await, &closed);
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);
}

#[tokio::test]
async fn a_worker_that_starts_after_a_reshard_begins_with_the_parents() {
    let services = Services::kinesis_local_and_dynalite().await.and_streams(1, 2).await;
    let config = Config::copy();
    let mut writer = Writer::new(&services, "input", 60);
    writer.put(300).await;
    services.split("input", FIRST).await;
    writer.put(300).await;
    services.merge("input", SECOND, "shardId-000000000002").await;
    writer.put(300).await;

    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(900).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..900);
    assert_order_of_keys(&output);
    let rows = leases::rows(&services, config.lease_table()).await;
    let closed = [FIRST, SECOND, "shardId-000000000002"];
    leases::assert_lineage(&rows, &services.shards("input").await, &closed);
}

#[tokio::test]
async fn a_stream_whose_shard_count_is_changed_up_and_down_is_read_whole_and_in_order() {
    let services = Services::kinesis_local_and_dynalite().await.and_streams(2, 1).await;
    let config = Config::copy().processor("batch = { records = 50 }");
    let mut writer = Writer::new(&services, "input", 60).with_aggregates();
    let mut worker = Worker::start_ready(&services, &config).await;
    for count in [4, 2] {
        writer.put(200).await;
        services.scale("input", count).await;
    }
    writer.put(200).await;
    let all = writer.count();
    worker.until_records(all).await;
    worker.stop().await;
    let shards = services.shards("input").await;
    assert!(shards.iter().skip(2).all(|shard| shard.parent_shard_id().is_some()), "it names parents: {shards:?}");
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..all);
    assert_order_of_keys(&output);
}
