//! Checkpoints that fell out of their stream's retention.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_record::SequenceNumber;
use shardmill_tests::{Config, Found, Services, Tail, Worker, Writer, assert_each_once, leases, numbers};

const SHARD: &str = "shardId-000000000000";
const GONE: &str = "shardId-000000000099";
/// The local Kinesis keeps times of arrival in whole seconds.
const NEXT_SECOND: Duration = Duration::from_millis(1_100);

/// A stream of one shard with records 0 to 400, of which a worker has processed the first hundred and those before 200
/// are gone.
async fn trimmed() -> (Services, Vec<Found>) {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let mut worker = Worker::start_ready(&services, &Config::copy()).await;
    worker.until_records(100).await;
    worker.stop().await;
    writer.put(300).await;
    let input = Tail::all(&services, "input").await;
    assert_eq!(services.trim("input", SHARD, Some(number(&input[200]))).await, 200);
    (services, input)
}

fn number(record: &Found) -> &SequenceNumber {
    &record.position.sequence_number
}

async fn gaps(worker: &Worker) -> f64 {
    worker.metric("shardmill_stream_gaps_total", r#"processor="copy",stream="input",left="records""#).await
}

/// One line that says what is known.
fn assert_told(worker: &Worker, input: &[Found]) {
    let told = worker.logged("WARN", "out of the stream's retention");
    let [told] = &told[..] else { panic!("one line: {told:?}") };
    assert_eq!((&told["stream"], &told["shard"]), (&"input".into(), &SHARD.into()), "{told}");
    assert_eq!(told["checkpoint"], number(&input[99]).as_str(), "{told}");
    assert_eq!(told["first"], number(&input[200]).as_str(), "{told}");
    assert!(told["first_arrived"].as_str().is_some_and(|time| time.starts_with("20")), "{told}");
    assert_eq!(told["checkpoint_arrived"], "not known", "{told}");
}

#[tokio::test]
async fn by_default_work_goes_on_with_the_oldest_record_and_the_gap_is_told_and_counted() {
    let (services, input) = trimmed().await;
    let mut worker = Worker::start_ready(&services, &Config::copy()).await;
    worker.until_records(200).await;
    assert_told(&worker, &input);
    assert_eq!(gaps(&worker).await, 1.0);
    worker.stop().await;
    let expected = (0..100).chain(200..400).collect();
    assert_eq!(numbers(&Tail::all(&services, "output").await), expected);

    // Its checkpoint is a record that is there.
    let mut worker = Worker::start_ready(&services, &Config::copy()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(gaps(&worker).await, 0.0);
    assert_eq!(worker.logged("WARN", "").len(), 0, "{}", worker.stderr());
    worker.stop().await;
    assert_eq!(Tail::all(&services, "output").await.len(), 300);
}

#[tokio::test]
async fn with_latest_what_is_left_is_passed_over_once_and_a_restart_skips_nothing_more() {
    let (services, input) = trimmed().await;
    tokio::time::sleep(NEXT_SECOND).await;
    let config = Config::copy().stream(r#"reset = "latest""#);
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until("the gap", async |worker| (gaps(worker).await > 0.0).then_some(())).await;
    assert_told(&worker, &input);
    worker.stop().await;
    assert!(leases::rows(&services, config.lease_table()).await[SHARD].checkpoint.position().is_some());

    // Between the skip and the next checkpoint.
    tokio::time::sleep(NEXT_SECOND).await;
    let mut again = Writer::new(&services, "input", 20);
    let extra = again.put(50).await;
    tokio::time::sleep(NEXT_SECOND).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(50).await;
    assert_eq!(gaps(&worker).await, 0.0, "it was counted when it was found");
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_eq!(output.len(), 150, "records 100 to 400 are passed over, and nothing else");
    assert_eq!(numbers(&output[100..]), extra.collect());
}

#[tokio::test]
async fn with_fail_the_shard_is_stopped_and_nothing_is_passed_over() {
    let (services, input) = trimmed().await;
    let failing = Config::copy().stream(r#"reset = "fail""#);
    let before = leases::rows(&services, failing.lease_table()).await;
    let mut worker = Worker::start(&services, &failing);
    let reason = worker
        .until("the shard to be stopped", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            let (status, text) = worker.get("/readyz").await;
            (status == 503 && text.contains("is stopped")).then_some(text)
        })
        .await;
    for part in [SHARD, "stream `input`", number(&input[99]).as_str(), number(&input[200]).as_str(), "reset"] {
        assert!(reason.contains(part), "{part} in {reason}");
    }
    assert_told(&worker, &input);
    assert_eq!(gaps(&worker).await, 1.0);
    worker.stop().await;
    let after = leases::rows(&services, failing.lease_table()).await;
    assert_eq!(before[SHARD].checkpoint, after[SHARD].checkpoint, "the checkpoint stays");
    assert_eq!(Tail::all(&services, "output").await.len(), 100);

    let mut worker = Worker::start_ready(&services, &Config::copy()).await;
    worker.until_records(200).await;
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await[..100], 0..100);
}

#[tokio::test]
async fn a_shard_that_holds_nothing_any_more_is_told_and_read_on() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let mut worker = Worker::start_ready(&services, &Config::copy()).await;
    worker.until_records(100).await;
    worker.stop().await;
    services.trim("input", SHARD, None).await;

    for reset in ["earliest", "latest"] {
        let config = Config::copy().stream(&format!("reset = {reset:?}"));
        let mut worker = Worker::start_ready(&services, &config).await;
        let labels = r#"stream="input",left="nothing""#;
        worker
            .until("the gap", async |worker| {
                (worker.metric("shardmill_stream_gaps_total", labels).await > 0.0).then_some(())
            })
            .await;
        if reset == "latest" {
            writer.put(50).await;
            worker.until_records(50).await;
        }
        worker.stop().await;
    }
    assert_each_once(&Tail::all(&services, "output").await, 0..150);
}

/// A lease of a shard that the stream has dropped since: all of its records fell out of retention while nobody read it.
async fn with_a_parent_that_is_gone(services: &Services) {
    const TABLE: &str = "tests-copy";
    let mut worker = Worker::start_ready(services, &Config::copy()).await;
    worker.until("a lease", async |worker| (worker.metric("shardmill_shards", "").await > 0.0).then_some(())).await;
    worker.stop().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let key = |shard: &str| HashMap::from([("leaseKey".to_owned(), text(shard))]);
    let tables = &services.dynamodb;
    let row = tables.get_item().table_name(TABLE).set_key(Some(key(SHARD))).send().await.expect("a row");
    let mut gone = row.item.expect("a lease");
    gone.insert("leaseKey".to_owned(), text(GONE));
    gone.insert("checkpoint".to_owned(), text("49680693087424138352500264791529075966235063120325246978"));
    tables.put_item().table_name(TABLE).set_item(Some(gone)).send().await.expect("a row more");
    let child = tables.update_item().table_name(TABLE).set_key(Some(key(SHARD)));
    let child = child.update_expression("SET parentShardId = :parents");
    let parents = AttributeValue::Ss(vec![GONE.to_owned()]);
    child.expression_attribute_values(":parents", parents).send().await.expect("a child");
}

#[tokio::test]
async fn a_lease_whose_shard_is_gone_is_ended_and_the_shards_that_follow_are_read() {
    let services = Services::with_streams(1, 1).await;
    with_a_parent_that_is_gone(&services).await;
    Writer::new(&services, "input", 20).put(100).await;
    let mut worker = Worker::start_ready(&services, &Config::copy()).await;
    worker.until_records(100).await;
    let told = worker.logged("WARN", "does not list the shard any more");
    assert!(matches!(&told[..], [line] if line["shard"] == GONE && line["stream"] == "input"), "{told:?}");
    assert_eq!(worker.metric("shardmill_stream_gaps_total", r#"left="nothing""#).await, 1.0);
    worker.stop().await;
    let rows = leases::rows(&services, "tests-copy").await;
    assert!(rows[GONE].checkpoint.is_shard_end(), "{rows:?}");
    assert_each_once(&Tail::all(&services, "output").await, 0..100);
}

#[tokio::test]
async fn with_fail_a_lease_whose_shard_is_gone_stops_there_and_says_so() {
    let services = Services::with_streams(1, 1).await;
    with_a_parent_that_is_gone(&services).await;
    let config = Config::copy().stream(r#"reset = "fail""#);
    let mut worker = Worker::start(&services, &config);
    let stopped = async |worker: &mut Worker| {
        worker.logged("INFO", "admin server").first()?;
        let (status, body) = worker.get("/readyz").await;
        (status == 503 && body.contains("is stopped")).then_some(body)
    };
    let body = worker.until("a shard that is stopped", stopped).await;
    assert!(body.contains(GONE), "{body}");
    worker.stop().await;
    assert!(!leases::rows(&services, "tests-copy").await[GONE].checkpoint.is_shard_end());
}
