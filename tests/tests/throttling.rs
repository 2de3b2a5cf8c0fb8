//! Streams that refuse records because they come too fast.

use std::time::Duration;

use shardmill_tests::{Config, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, leases};

/// 2 KiB each: twice what the output's one shard takes in the time in which they are put.
const RECORDS: u64 = 2_000;

#[tokio::test]
async fn order_and_completeness_survive_a_throttled_output() {
    let services = Services::start_limited().await;
    services.create_stream("input", 4).await;
    services.create_stream("output", 1).await;
    let config = Config::copy();
    let mut worker = Worker::start_ready(&services, &config).await;
    let mut writer = Writer::new(&services, "input", 100).padded(2_000);
    while writer.count() < RECORDS {
        writer.put(100).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    worker.until_records(RECORDS).await;
    // A stream of too few shards is told once it has lasted, and its end; nothing else is worth a line.
    let (begun, ended) =
        (worker.logged("WARN", "records cannot be stored"), worker.logged("INFO", "records are stored"));
    assert!(begun.len() <= 3 && ended.len() <= begun.len(), "{begun:?} {ended:?}");
    assert_eq!(worker.logged("WARN", "").len(), begun.len(), "{}", worker.stderr());
    let retries = worker.metric("shardmill_producer_retries_total", r#"stream="output""#).await;
    assert!(retries > 0.0, "the output was throttled");
    worker.stop().await;

    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..RECORDS);
    assert_order_of_keys(&output);
    let input = Tail::all(&services, "input").await;
    leases::assert_released_at_the_end(&leases::rows(&services, config.lease_table()).await, &input);
}
