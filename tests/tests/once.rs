//! Every record is processed, once while nothing fails, and in order for each partition key.

use std::time::Duration;

use shardmill_tests::{Config, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, leases};

const RECORDS: u64 = 20_000;
const KEYS: u64 = 200;

#[tokio::test]
async fn every_record_is_processed_once_in_the_order_of_its_key_and_a_restart_repeats_nothing() {
    let services = Services::with_streams(4, 3).await;
    let config = Config::copy();
    let mut writer = Writer::new(&services, "input", KEYS).with_aggregates();
    writer.put(RECORDS / 2).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    writer.put(RECORDS / 2).await;

    let mut output = Tail::new(&services, "output").await;
    worker.until("all outputs", async |_| (output.count().await as u64 >= RECORDS).then_some(())).await;
    worker.until_records(RECORDS).await;
    assert_eq!(worker.records_done().await, RECORDS);
    assert_eq!(worker.metric("shardmill_outputs_total", r#"processor="copy",stream="input""#).await, RECORDS as f64);
    let aggregates = worker.metric("shardmill_aggregates_total", "").await;
    assert!(aggregates >= RECORDS as f64 / 3.0 / 10.0, "{aggregates} aggregates taken apart");
    assert_eq!(worker.metric("shardmill_records_out_of_range_total", "").await, 0.0);
    worker.stop().await;

    let input = Tail::all(&services, "input").await;
    assert_each_once(&input, 0..RECORDS);
    assert_order_of_keys(&input);
    // Read anew, and after the end of the worker: nothing comes late, nothing twice.
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..RECORDS);
    assert_order_of_keys(&output);
    let rows = leases::rows(&services, config.lease_table()).await;
    assert_eq!(rows.len(), 4);
    leases::assert_released_at_the_end(&rows, &input);

    let mut worker = Worker::start_ready(&services, &config).await;
    worker
        .until("leases of all shards", async |worker| {
            (worker.metric("shardmill_shards", "").await == 4.0).then_some(())
        })
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(worker.records_done().await, 0, "nothing is processed again");
    writer.put(500).await;
    worker.until_records(500).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..RECORDS + 500);
    assert_order_of_keys(&output);
}

/// Checkpoints inside an aggregate: batches that end there, and a stop there.
#[tokio::test]
async fn a_stop_inside_an_aggregate_loses_and_repeats_nothing() {
    const RECORDS: u64 = 3_000;
    let services = Services::with_streams(2, 2).await;
    let config = Config::copy().processor("batch = { records = 4 }").processor(r#"checkpoint-interval = "100ms""#);
    let mut writer = Writer::new(&services, "input", KEYS).with_aggregates();
    writer.put(RECORDS).await;
    let mut stopped_inside = 0;
    let mut runs = 0;
    while (Tail::all(&services, "output").await.len() as u64) < RECORDS {
        let mut worker = Worker::start(&services, &config);
        worker
            .until("some records", async |worker| {
                worker.logged("INFO", "admin server").first()?;
                (worker.records_done().await > 0).then_some(())
            })
            .await;
        worker.stop().await;
        runs += 1;
        let rows = leases::rows(&services, config.lease_table()).await;
        stopped_inside += rows.values().filter(|row| row.checkpoint.sub_sequence_number() > 0).count();
    }
    assert_each_once(&Tail::all(&services, "output").await, 0..RECORDS);
    leases::assert_released_at_the_end(
        &leases::rows(&services, config.lease_table()).await,
        &Tail::all(&services, "input").await,
    );
    println!("{runs} runs, {stopped_inside} checkpoints inside an aggregate");
}
