//! A worker that gives records up: its letters are real, and so is what becomes of them.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, Aggregator};
use shardmill_record::{HashKey, SequenceNumber, UserRecord};
use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Fault, Leases, Proxy, Rule, Services, Worker, leases};
use tempfile::TempDir;

use crate::letters::{json_line, json_lines};

const END_LIMIT: Duration = Duration::from_secs(30);
const WAITING: &str = "shardmill_dead_letters_waiting";
const STORED: &str = "shardmill_dead_letters_stored_total";
const FAILURES: &str = "shardmill_dead_letters_failures_total";

fn poison(number: u64, bytes: usize) -> Vec<u8> {
    format!(r#"{{"poison":"final","n":{number},"pad":"{}"}}"#, "x".repeat(bytes)).into_bytes()
}

fn good(number: u64) -> Raw {
    Raw::new(format!("key-{number}"), format!(r#"{{"n":{number}}}"#))
}

/// A processor that gives poison records up, to this place.
fn giving_up(place: &str) -> Config {
    Config::copy()
        .plugin("guest_poison")
        .processor(r#"failure = { then = "dead-letter" }"#)
        .others(&format!("[processors.copy.dead-letters]\n{place}"))
}

fn in_folder(folder: &Path) -> Config {
    giving_up(&format!("folder = {folder:?}"))
}

/// The letters in the files of a folder, as they are.
fn lines(folder: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("a file").path());
    let letters = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    letters
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).expect("a file of letters");
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            whole.map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<_>>()
        })
        .collect()
}

/// Asserts that the checkpoint of the one shard has not passed a record.
async fn assert_not_passed(services: &Services, number: &str) {
    let number = SequenceNumber::parse(number).expect("a sequence number");
    for row in leases::rows(services, "tests-copy").await.values() {
        let checkpoint = row.checkpoint.position().map(|position| position.sequence_number.clone());
        assert!(checkpoint.is_none_or(|checkpoint| checkpoint < number), "{row:?} has passed {number}");
    }
}

#[tokio::test]
async fn records_that_are_sent_again_come_back_to_the_worker_as_they_were() {
    let services = Services::with_streams(1, 1).await;
    let home = TempDir::new().expect("a temporary folder");
    let folder = home.path().join("letters");
    let config = in_folder(&folder);
    let mut aggregator = Aggregator::default();
    let hash_key = HashKey::new(7);
    for (number, explicit_hash_key) in [(1, Some(hash_key)), (2, None)] {
        let data = poison(number, 0).into();
        aggregator.push(&UserRecord { partition_key: format!("key-{number}"), explicit_hash_key, data });
    }
    let (data, first) = aggregator.finish().expect("records");
    let aggregate = Raw { hash_key: Some(first.to_string()), ..Raw::new(AGGREGATE_PARTITION_KEY, data.to_vec()) };
    raw::put(&services, "input", &[aggregate, Raw::new("key-3", poison(3, 0)), good(4)]).await;

    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until("letters", async |_| (lines(&folder).len() == 3).then_some(())).await;
    let path = home.path().join("shardmill.toml");
    std::fs::write(&path, config.text()).expect("a configuration file");
    let config = path.to_str().expect("a path in UTF-8");
    let replayed = json_line(&services, &["replay", "-c", config, "--json"]).await;
    let arn = services.arn("input").await;
    assert_eq!(replayed["to"], serde_json::json!({ (arn.as_str()): 3 }), "{replayed}");
    // It gives them up again, where they stand now.
    worker.until("letters about what was sent again", async |_| (lines(&folder).len() == 6).then_some(())).await;
    worker.stop().await;
    let letters = lines(&folder);
    for number in 1..=3 {
        let key = format!("key-{number}");
        let of_key: Vec<&Value> = letters.iter().filter(|letter| letter["partition_key"] == *key).collect();
        let [before, after] = of_key[..] else { panic!("{of_key:?}") };
        for what in ["partition_key", "explicit_hash_key", "data", "stream", "stream_arn", "application", "processor"] {
            assert_eq!(before[what], after[what], "{what}");
        }
        assert_ne!(before["id"], after["id"]);
        let expected = if number == 1 { Value::from(hash_key.to_string()) } else { Value::Null };
        assert_eq!((&before["explicit_hash_key"], &before["stream_arn"]), (&expected, &Value::from(arn.as_str())));
    }
}

#[tokio::test]
async fn few_records_of_a_batch_are_tolerated_and_their_letters_kept() {
    let services = Services::with_streams(1, 1).await;
    let home = TempDir::new().expect("a temporary folder");
    let mut records: Vec<Raw> = (1..=9).map(good).collect();
    records.push(Raw::new("key", poison(10, 0)));
    raw::put(&services, "input", &records).await;
    let config = in_folder(home.path())
        .processor(r#"batch = { records = 10, wait = "5s" }"#)
        .text()
        .replace(r#"then = "dead-letter""#, r#"tolerance = "10%""#);
    let mut worker = Worker::start_with(&services, &config);
    worker.ready().await;
    worker.until("a letter", async |_| (lines(home.path()).len() == 1).then_some(())).await;
    worker.until_records(9).await;
    let labels = r#"why="final",then="tolerated-dead-letter""#;
    assert_eq!(worker.metric("shardmill_records_given_up_total", labels).await, 1.0);
    assert_eq!(worker.get("/readyz").await.0, 200, "nothing is stopped");
    worker.stop().await;
}

#[tokio::test]
async fn a_file_that_may_not_grow_is_followed_by_another_one_and_ends_no_worker() {
    let services = Services::with_streams(1, 1).await;
    let home = TempDir::new().expect("a temporary folder");
    let mut worker = Worker::start_ready(&services, &in_folder(home.path())).await;
    // Room for one letter.
    worker.limit_files(Some(700_000));
    for number in 1..=3 {
        raw::put(&services, "input", &[Raw::new("key", poison(number, 400_000))]).await;
        worker.until("its letter", async |_| (lines(home.path()).len() as u64 == number).then_some(())).await;
    }
    assert!(worker.metric(FAILURES, r#"place="folder""#).await >= 1.0, "there was something to survive");
    worker.stop().await;
}

#[tokio::test]
async fn a_place_that_takes_nothing_holds_the_checkpoint_and_a_stop_and_the_record_is_given_up_later() {
    let services = Services::with_streams(1, 1).await;
    let home = TempDir::new().expect("a temporary folder");
    let config = in_folder(home.path()).leases(Leases::Brief).top(r#"shutdown-timeout = "3s""#);
    let mut worker = Worker::start_ready(&services, &config).await;
    // No room for one letter.
    worker.limit_files(Some(300_000));
    raw::put(&services, "input", &[good(1), good(2)]).await;
    let poisoned = raw::put(&services, "input", &[Raw::new("key", poison(3, 400_000))]).await;
    raw::put(&services, "input", &[good(4)]).await;
    worker
        .until("attempts to store", async |worker| {
            (worker.metric(FAILURES, r#"place="folder""#).await >= 3.0).then_some(())
        })
        .await;
    assert_eq!(worker.metric(WAITING, r#"place="folder""#).await, 1.0);
    assert_not_passed(&services, &poisoned[0]).await;
    worker.terminate().await;
    assert_not_passed(&services, &poisoned[0]).await;
    assert_eq!(lines(home.path()), Vec::<Value>::new());

    let mut successor = Worker::start_ready(&services, &config).await;
    successor.until("the letter", async |_| (lines(home.path()).len() == 1).then_some(())).await;
    assert_eq!(lines(home.path())[0]["sequence_number"], *poisoned[0]);
    successor.until_records(1).await;
    successor.stop().await;
}

#[tokio::test]
async fn a_folder_with_no_room_is_waited_for_and_taken_up_again() {
    let services = Services::with_streams(1, 1).await;
    let home = TempDir::new().expect("a temporary folder");
    let mut worker = Worker::start_ready(&services, &in_folder(home.path())).await;
    worker.limit_files(Some(300_000));
    raw::put(&services, "input", &[Raw::new("key", poison(1, 400_000))]).await;
    let line = worker
        .until("a line about it", async |worker| worker.logged("WARN", "cannot be stored; trying on").first().cloned())
        .await;
    assert!(line["message"].as_str().is_some_and(|text| text.contains("limit on the size of files")), "{line}");
    worker.limit_files(None);
    worker.until("the letter", async |_| (lines(home.path()).len() == 1).then_some(())).await;
    worker.until("its end", async |worker| worker.logged("INFO", "are stored again").first().map(drop)).await;
    assert_eq!(worker.metric(WAITING, "").await, 0.0);
    worker.stop().await;
}

#[tokio::test]
async fn a_stream_that_throttles_or_fails_is_waited_for_and_taken_up_again() {
    for fault in [Fault::Refused("ProvisionedThroughputExceededException"), Fault::Status(503)] {
        let services = Services::with_streams(1, 1).await;
        services.create_stream("failed", 1).await;
        let proxy = Proxy::new(&services, 7);
        let link = proxy.link("worker");
        let trouble = proxy.inject(Rule::new(fault).operation("PutRecords").stream("failed"));
        let mut worker = Worker::start_ready(&link, &giving_up("stream = \"failed\"")).await;
        let poisoned = raw::put(&services, "input", &[Raw::new("key", poison(1, 0))]).await;
        worker.until_within(END_LIMIT, "attempts", async |_| (trouble.count() >= 3).then_some(())).await;
        let place = r#"place="stream""#;
        assert_eq!(worker.metric(WAITING, place).await, 1.0);
        assert_not_passed(&services, &poisoned[0]).await;
        trouble.end();
        worker.until("the letter", async |worker| (worker.metric(STORED, place).await >= 1.0).then_some(())).await;
        assert_eq!(worker.metric(WAITING, place).await, 0.0);
        // A refusal is counted; what passes by itself is not.
        assert_eq!(worker.metric(FAILURES, place).await, 0.0);
        worker.stop().await;
        let listed = json_lines(&services, &["list", "--stream", "failed", "--json"]).await;
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0]["sequence_number"], *poisoned[0]);
    }
}
