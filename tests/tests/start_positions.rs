//! Where a consumer begins that has no checkpoint.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_kinesis::primitives::{DateTime, DateTimeFormat};
use shardmill_tests::{Config, Services, Tail, Worker, Writer, assert_each_once, leases, numbers};

/// The local Kinesis keeps times of arrival in whole seconds.
const NEXT_SECOND: Duration = Duration::from_millis(1_100);

/// Waits until this many records have come out, stops the worker, and gives the output's numbers.
async fn processed(services: &Services, worker: &mut Worker, count: u64) -> BTreeSet<u64> {
    worker.until_records(count).await;
    // Time for what should not come.
    tokio::time::sleep(Duration::from_millis(600)).await;
    worker.stop().await;
    numbers(&Tail::all(services, "output").await)
}

#[tokio::test]
async fn without_a_setting_a_consumer_begins_with_the_oldest_record() {
    let services = Services::with_streams(2, 1).await;
    Writer::new(&services, "input", 50).put(300).await;
    let mut worker = Worker::start(&services, &Config::copy());
    assert_eq!(processed(&services, &mut worker, 300).await, (0..300).collect());
}

#[tokio::test]
async fn at_the_tip_old_records_are_passed_over_and_a_restart_before_the_first_checkpoint_skips_nothing() {
    let services = Services::with_streams(2, 1).await;
    let config =
        Config::copy().stream(r#"start = "latest""#).top(r#"worker-id = "worker-0""#).top("worker-runs-once = true");
    let mut writer = Writer::new(&services, "input", 50);
    writer.put(200).await;
    tokio::time::sleep(NEXT_SECOND).await;

    let mut worker = Worker::start_ready(&services, &config).await;
    worker
        .until("the start to be stored", async |_| {
            let rows = leases::rows(&services, config.lease_table()).await;
            (rows.len() == 2 && rows.values().all(|row| row.start_at.is_some())).then_some(())
        })
        .await;
    worker.kill().await;
    let rows = leases::rows(&services, config.lease_table()).await;
    assert!(rows.values().all(|row| row.checkpoint.is_start()), "nothing was ever checkpointed: {rows:?}");

    writer.put(200).await; // while nobody is there
    tokio::time::sleep(NEXT_SECOND).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    writer.put(100).await;
    assert_eq!(processed(&services, &mut worker, 300).await, (200..500).collect());
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 200..500);
}

#[tokio::test]
async fn a_time_passes_over_what_came_before_it() {
    let services = Services::with_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 50);
    writer.put(200).await;
    tokio::time::sleep(NEXT_SECOND).await;
    let now = DateTime::from(std::time::SystemTime::now()).fmt(DateTimeFormat::DateTimeWithOffset).expect("a time");
    writer.put(100).await;
    let mut worker = Worker::start(&services, &Config::copy().stream(&format!("start = {now:?}")));
    assert_eq!(processed(&services, &mut worker, 100).await, (200..300).collect());
}

#[tokio::test]
async fn single_shards_begin_at_or_after_a_record() {
    let services = Services::with_streams(3, 1).await;
    Writer::new(&services, "input", 50).put(300).await;
    let input = Tail::all(&services, "input").await;
    let of_shard = |index: usize| -> Vec<_> {
        input.iter().filter(|record| record.shard == format!("shardId-{index:012}")).collect()
    };
    let (at, after, whole) = (of_shard(0), of_shard(1), of_shard(2));
    let config = Config::copy().stream(&format!(
        "start-shards = {{ shardId-000000000000 = {{ at = \"{}\" }}, shardId-000000000001 = {{ after = \"{}\" }} }}",
        at[10].position.sequence_number, after[20].position.sequence_number,
    ));
    let expected: BTreeSet<u64> =
        at[10..].iter().chain(&after[21..]).chain(&whole).map(|record| record.number).collect();
    let mut worker = Worker::start(&services, &config);
    assert_eq!(processed(&services, &mut worker, expected.len() as u64).await, expected);
}
