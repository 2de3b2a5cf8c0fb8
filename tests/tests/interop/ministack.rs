//! `ministack`, for streams and for leases.

use std::time::Duration;

use shardmill_tests::{Config, Services, Worker, Writer};

use crate::runs;

const BEHIND: &str = "shardmill_stream_millis_behind_latest";

#[tokio::test]
async fn every_record_is_processed_once_in_the_order_of_its_key() {
    let services = Services::ministack().await.and_streams(4, 3).await;
    runs::without_faults(&services, 6_000).await;
}

/// Its sequence numbers have leading zeros and are compared as texts: a checkpoint that lost them would be behind every
/// record, and the successor would skip all that its predecessor had left.
#[tokio::test]
async fn kills_lose_nothing_and_repeat_only_what_came_after_the_checkpoints() {
    let services = Services::ministack().await.and_streams(4, 3).await;
    runs::with_kills(&services, 3).await;
}

/// More records than one read brings, and so large that the next one waits: 2 MiB a second may be read of a shard.
#[tokio::test]
async fn a_worker_that_is_behind_says_by_how_much_until_it_has_caught_up() {
    const RECORDS: u64 = 10_500;
    let services = Services::ministack().await.and_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 50).padded(500);
    writer.put(RECORDS).await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let mut worker = Worker::start(&services, &Config::copy());
    let of_input = r#"stream="input",shard="shardId-000000000000""#;
    let behind = worker
        .until("a lag", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            let behind = worker.metric(BEHIND, of_input).await;
            (behind > 0.0).then_some(behind)
        })
        .await;
    assert!(behind >= 1_000.0, "the next record had waited for a second: {behind} ms");
    assert!((worker.records_done().await) < RECORDS);
    worker
        .until("no lag", async |worker| {
            let (_, metrics) = worker.get("/metrics").await;
            let is_told = metrics.lines().any(|line| line.starts_with(BEHIND) && line.contains(of_input));
            assert!(is_told, "the lag is told: {metrics}");
            (worker.metric(BEHIND, of_input).await == 0.0).then_some(())
        })
        .await;
    worker.until_records(RECORDS).await;
    worker.stop().await;
}
