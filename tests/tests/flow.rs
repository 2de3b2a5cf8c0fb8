//! Lanes, batchers, filters and pipelines with the real binary: whatever dies in between, nothing is lost and keys keep their
//! order.

use std::collections::BTreeSet;

use serde_json::Value;
use shardmill_tests::{
    Config, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, firsts, leases, numbers, paths, raw,
};
use tempfile::TempDir;

/// A processor that hands on what it gets to the output `on`, which leads there.
fn stage(name: &str, leads_to: &str, lines: &str) -> String {
    let plugin = paths::plugin("route");
    format!(
        r#"
[processors.{name}]
plugin = {plugin:?}
{lines}
[processors.{name}.config]
field = "/n"
default = "on"
[processors.{name}.outputs.on]
{leads_to}
"#
    )
}

/// `copy` hands on to its output `on` as well.
fn leads_on(config: Config) -> Config {
    config.plugin("route").guest("field = \"/n\"").guest("default = \"on\"")
}

/// `copy` reads the stream `input`, and the others follow: each hands everything to the next, and the last one to the stream
/// `output`.
fn chain(lines: &str) -> Config {
    let sections = [
        "[processors.copy.outputs.on]\nto = \"processor:second\"\n".to_owned(),
        stage("second", "to = \"processor:third\"", ""),
        stage("third", "stream = \"output\"", lines),
    ];
    let config =
        Config::copy().others(&sections.concat()).top(r#"worker-id = "worker-0""#).top("worker-runs-once = true");
    leads_on(config)
}

/// Kills the worker now and then while records come, and returns what has come out in the end.
async fn survives(services: &Services, config: &Config, keys: u64) {
    let mut writer = Writer::new(services, "input", keys).with_aggregates();
    let mut output = Tail::new(services, "output").await;
    for _ in 0..4 {
        let mut worker = Worker::start(services, config);
        let known = output.count().await;
        worker
            .until("outputs", async |_| {
                writer.put(200).await;
                (output.count().await > known + 100).then_some(())
            })
            .await;
        writer.put(500).await;
        worker.kill().await;
    }
    let mut worker = Worker::start(services, config);
    let input = Tail::all(services, "input").await;
    let expected = numbers(&input);
    worker
        .until("all outputs", async |_| {
            output.poll().await;
            numbers(output.found()).is_superset(&expected).then_some(())
        })
        .await;
    worker.stop().await;
    output.poll().await;
    assert_eq!(numbers(output.found()), expected, "nothing is lost, and nothing comes from nowhere");
    assert_order_of_keys(&firsts(output.found()));
    leases::assert_released_at_the_end(&leases::rows(services, config.lease_table()).await, &input);
}

#[tokio::test]
async fn lanes_survive_kills_and_keep_keys_in_order() {
    let services = Services::with_streams(3, 3).await;
    let config = Config::copy()
        .top(r#"worker-id = "worker-0""#)
        .top("worker-runs-once = true")
        .processor("parallelism = 4\nbatch = { records = 25 }")
        .processor(r#"checkpoint-interval = "300ms""#);
    survives(&services, &config, 200).await;
}

#[tokio::test]
async fn a_pipeline_survives_kills_and_keeps_keys_in_order() {
    let services = Services::with_streams(3, 3).await;
    let config =
        chain("parallelism = 3").processor("batch = { records = 25 }").processor(r#"checkpoint-interval = "300ms""#);
    survives(&services, &config, 200).await;
}

#[tokio::test]
async fn a_checkpoint_waits_for_the_last_of_a_chain_and_a_stop_there_is_told_with_its_name() {
    let services = Services::with_streams(1, 1).await;
    // The last one sends to a stream that is not there.
    let sections = [
        "[processors.copy.outputs.on]\nto = \"processor:second\"\n".to_owned(),
        stage("second", "stream = \"absent\"", ""),
    ];
    let config = Config::copy().others(&sections.concat());
    let config = leads_on(config);
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(50).await;
    let mut worker = Worker::start(&services, &config);
    let reason = worker
        .until("the shard is stopped", async |worker| {
            Some(worker.logged("ERROR", "the shard is stopped").first()?["reason"].as_str()?.to_owned())
        })
        .await;
    for said in ["processor `second`", "absent"] {
        assert!(reason.contains(said), "{reason}");
    }
    assert_eq!(worker.records_done().await, 0);
    worker.stop().await;
    // The stream is made, and everything goes on from the beginning.
    services.create_stream("absent", 1).await;
    let mut worker = Worker::start(&services, &config);
    let mut output = Tail::new(&services, "absent").await;
    worker.until("all outputs", async |_| (output.count().await >= 50).then_some(())).await;
    worker.stop().await;
    output.poll().await;
    assert_each_once(output.found(), 0..50);
}

#[tokio::test]
async fn a_cycle_ends_where_it_may_go_no_further() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let letters = folder.path().join("letters");
    let failure = format!(
        "limits = {{ instances = 1 }}\nfailure = {{ then = \"dead-letter\" }}\nretry = {{ attempts = 1 }}\ndead-letters = {{ folder = {:?} }}",
        letters.display().to_string()
    );
    let sections = [
        "[processors.copy.outputs.on]\nto = \"processor:again\"\n".to_owned(),
        stage("again", "to = \"processor:again\"", &failure),
    ];
    let config = Config::copy().top("max-hops = 5").others(&sections.concat());
    let config = leads_on(config);
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(40).await;
    let mut worker = Worker::start(&services, &config);
    worker
        .until("all is given up", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            (worker.metric("shardmill_records_done_total", "processor=\"copy\"").await >= 40.0).then_some(())
        })
        .await;
    worker.stop().await;
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(&letters).expect("a folder").map(|entry| entry.expect("a file").path()) {
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            let letter: Value = serde_json::from_str(line).expect("a line of JSON");
            let reason = letter["reason"].as_str().unwrap_or_default();
            assert!(reason.contains("through 5 processors"), "{letter}");
            assert_eq!(letter["processor"], "again");
            found.insert((letter["shard"].to_string(), letter["sequence_number"].to_string()));
        }
    }
    assert_eq!(found.len(), 40, "each where its first cause stands");
}

#[tokio::test]
async fn a_filter_lets_through_what_its_patterns_say_and_the_rest_is_done() {
    let services = Services::with_streams(2, 1).await;
    let filter =
        r#"filter = { patterns = ['{"data": {"n": [{"numeric": [">=", 100, "<", 200]}]}}', '{"data": {"n": [7]}}'] }"#;
    let mut writer = Writer::new(&services, "input", 20).with_aggregates();
    writer.put(300).await;
    writer.put_data("k", b"not JSON").await;
    let mut worker = Worker::start(&services, &Config::copy().processor(filter));
    worker.until_records_of("input", 101).await;
    worker
        .until("all is filtered", async |worker| {
            (worker.metric("shardmill_records_filtered_total", "").await >= 200.0).then_some(())
        })
        .await;
    let filtered = worker.metric("shardmill_records_filtered_total", "").await;
    assert!((filtered - 200.0).abs() < 0.5, "{filtered}");
    worker.stop().await;
    let expected: BTreeSet<u64> = (100..200).chain([7]).collect();
    let copies = raw::user_records(&services, "output").await;
    assert_eq!(copies.len(), expected.len());
    assert_eq!(numbers(&Tail::all(&services, "output").await), expected);
}
