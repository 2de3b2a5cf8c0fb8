//! `shardmill put --spool`: what an outage holds up waits on the disk, and nothing that was accepted is lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use shardmill_tests::{
    Environment, Fault, Finished, Process, Proxy, Rule, Services, assert_says, command, eventually, raw, run,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const KEYS: u64 = 20;

fn line(number: u64) -> String {
    format!("{{\"n\":{number},\"key\":\"key-{}\"}}", number % KEYS)
}

/// A file with the lines of these numbers.
fn file(folder: &Path, name: &str, numbers: std::ops::Range<u64>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, numbers.map(|number| line(number) + "\n").collect::<String>()).expect("a file");
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn put(services: &impl Environment, spool: &Path, arguments: &[&str]) -> tokio::process::Command {
    let mut child = command();
    child.args(["put", "input", "--key-field", "/key", "--spool-after", "300ms"]).args(arguments);
    child.env("SHARDMILL_SPOOL", spool).envs(services.environment());
    child
}

async fn drain(services: &impl Environment, spool: &Path) -> Finished {
    let mut child = command();
    child.args(["spool", "drain", "--aggregate", "--json"]).env("SHARDMILL_SPOOL", spool).envs(services.environment());
    run(child).await
}

/// The numbers of the whole lines of results that say that a record is safe.
fn accepted(results: &str, first: u64) -> Vec<u64> {
    let whole = results.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let results = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let safe = results.filter(|result| result["stored"] == true || result["spooled"] == true);
    safe.map(|result| first + result["line"].as_u64().expect("a line's number") - 1).collect()
}

fn spooled(results: &str) -> usize {
    results.matches("\"spooled\":true").count()
}

/// The numbers in a stream by their keys, without what comes again.
async fn firsts_by_key(services: &Services) -> BTreeMap<String, Vec<u64>> {
    let mut by_key: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (key, data) in raw::user_records(services, "input").await {
        let record: Value = serde_json::from_slice(&data).expect("JSON");
        let number = record["n"].as_u64().expect("a number");
        let numbers = by_key.entry(key).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    by_key
}

#[tokio::test]
async fn kill_9_during_an_outage_and_during_the_drain_loses_nothing_that_was_accepted() {
    let services = Services::with_streams(3, 1).await;
    let proxy = Proxy::new(&services, 7);
    let link = proxy.link("put");
    let folder = TempDir::new().expect("a temporary folder");
    let spool = folder.path().join("spool");
    let mut accepted_numbers = Vec::new();

    // The outage begins in the middle.
    let outage = proxy.inject(Rule::new(Fault::Status(503)).operation("PutRecords").after(10));
    let input = file(folder.path(), "first.jsonl", 0..20_000);
    let command = put(&link, &spool, &[&input, "--results", "-", "--rate", "4000"]);
    let home = TempDir::new().expect("a temporary folder");
    let mut process = Process::start(command, home.path());
    eventually(LIMIT, "records that went to the spool", async || (spooled(&process.stdout()) > 4_000).then_some(()))
        .await;
    process.kill().await;
    let results = process.stdout();
    accepted_numbers.extend(accepted(&results, 0));
    assert!(results.contains("\"stored\":true") && accepted_numbers.len() < 20_000, "{}", accepted_numbers.len());

    // The next one meets the same outage, then its end, and is killed while it sends what waits.
    let input = file(folder.path(), "second.jsonl", 20_000..20_500);
    let home = TempDir::new().expect("a temporary folder");
    let mut process = Process::start(put(&link, &spool, &[&input, "--results", "-"]), home.path());
    eventually(LIMIT, "all of the second file", async || (spooled(&process.stdout()) == 500).then_some(())).await;
    accepted_numbers.extend(accepted(&process.stdout(), 20_000));
    // Slowly enough to be caught.
    proxy.inject(Rule::new(Fault::Late(Duration::from_millis(30))).operation("PutRecords"));
    outage.end();
    eventually(LIMIT, "a part of what waits", async || {
        let sent = raw::user_records(&services, "input").await.len();
        (sent > accepted_numbers.len() / 4).then_some(())
    })
    .await;
    process.kill().await;
    proxy.calm();

    let drained = drain(&link, &spool).await;
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let result: Value = serde_json::from_str(&drained.stdout).expect("a line of JSON");
    assert!(result["sent"].as_u64() > Some(0) && result["left"] == 0, "killed before everything was sent: {result}");
    let found = firsts_by_key(&services).await;
    for key in 0..KEYS {
        let numbers = &found[&format!("key-{key}")];
        assert!(numbers.is_sorted(), "the order of a key is kept: {numbers:?}");
        let missing: Vec<_> =
            accepted_numbers.iter().filter(|number| **number % KEYS == key && !numbers.contains(number)).collect();
        assert!(missing.is_empty(), "accepted and lost: {missing:?}");
    }
}

#[tokio::test]
async fn what_stays_in_the_spool_is_told_and_sent_by_the_next_one() {
    let services = Services::with_streams(2, 1).await;
    let proxy = Proxy::new(&services, 7);
    let link = proxy.link("put");
    let folder = TempDir::new().expect("a temporary folder");
    let spool = folder.path().join("spool");
    let outage = proxy.inject(Rule::new(Fault::Reset).operation("PutRecords"));
    let input = file(folder.path(), "first.jsonl", 0..300);
    let finished = run(put(&link, &spool, &[&input, "--json"])).await;
    assert_eq!(finished.code, Some(75), "{finished:?}");
    assert_says("put", &finished.stderr, &["300 records of input wait in the spool", "shardmill spool drain --folder"]);
    let sums: Value = serde_json::from_str(&finished.stdout).expect("a line of JSON");
    for (name, value) in [("read", 300), ("spooled", 300), ("left_in_spool", 300), ("stored", 0), ("not_stored", 0)] {
        assert_eq!(sums[name], value, "{name} of {sums}");
    }
    assert!(firsts_by_key(&services).await.is_empty());

    // A folder is for one process; one that is interrupted leaves there what it has read.
    let slow = file(folder.path(), "slow.jsonl", 300..600);
    let home = TempDir::new().expect("a temporary folder");
    let mut process = Process::start(put(&link, &spool, &[&slow, "--results", "-", "--rate", "2"]), home.path());
    eventually(LIMIT, "a record in the spool", async || (spooled(&process.stdout()) > 0).then_some(())).await;
    let refused = run(put(&link, &spool, &[&input])).await;
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert_says("put", &refused.stderr, &["in use by", "one process"]);
    process.terminate();
    assert_eq!(process.wait(LIMIT).await.code(), Some(1), "{}", process.stderr());
    let more = accepted(&process.stdout(), 300).len() as u64;
    assert!(more > 0);

    outage.end();
    let input = file(folder.path(), "second.jsonl", 300 + more..600);
    let finished = run(put(&link, &spool, &[&input])).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let found = firsts_by_key(&services).await;
    for key in 0..KEYS {
        let expected: Vec<u64> = (0..600).filter(|number| number % KEYS == key).collect();
        assert_eq!(found[&format!("key-{key}")], expected);
    }
}

#[tokio::test]
async fn a_spool_for_a_stream_that_is_not_there_keeps_the_records_and_says_what_is_wrong() {
    let services = Services::start().await;
    let folder = TempDir::new().expect("a temporary folder");
    let spool = folder.path().join("spool");
    let input = file(folder.path(), "first.jsonl", 0..50);
    let finished = run(put(&services, &spool, &[&input])).await;
    assert_eq!(finished.code, Some(75), "{finished:?}");
    assert_says("put", &finished.stderr, &["create the stream", "50 records of input wait in the spool"]);
    services.create_stream("input", 1).await;
    let drained = drain(&services, &spool).await;
    assert_eq!(drained.code, Some(0), "{drained:?}");
    let expected: Vec<u64> = (0..50).filter(|number| number % KEYS == 3).collect();
    assert_eq!(firsts_by_key(&services).await["key-3"], expected);
}

#[tokio::test]
async fn a_spool_that_is_full_does_what_was_said() {
    let services = Services::with_streams(1, 1).await;
    let proxy = Proxy::new(&services, 7);
    let link = proxy.link("put");
    proxy.inject(Rule::new(Fault::Status(500)).operation("PutRecords"));
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("large.jsonl");
    let large = |number: u64| format!("{{\"n\":{number},\"key\":\"k\",\"text\":\"{}\"}}\n", "x".repeat(2_000));
    std::fs::write(&path, (0..2_000).map(large).collect::<String>()).expect("a file");
    let input = path.to_str().expect("a path in UTF-8");
    for (policy, code) in [("refuse", 1), ("drop-oldest", 75)] {
        let spool = folder.path().join(policy);
        let arguments = [input, "--spool-size", "1 MiB", "--spool-when-full", policy, "--json"];
        let finished = run(put(&link, &spool, &arguments)).await;
        assert_eq!(finished.code, Some(code), "{policy}: {finished:?}");
        let sums: Value = serde_json::from_str(&finished.stdout).expect("a line of JSON");
        let (kept, left) = (sums["spooled"].as_u64().expect("a count"), sums["left_in_spool"].as_u64());
        if policy == "refuse" {
            assert!((100..1_000).contains(&kept) && left == Some(kept), "{sums}");
            assert_eq!(sums["reasons"]["not-spooled"], 2_000 - kept, "{sums}");
            assert_says("put", &finished.stderr, &["is full"]);
        } else {
            assert!(kept == 2_000 && left < Some(1_000), "{sums}");
            assert_says("put", &finished.stderr, &["its oldest records are dropped"]);
        }
    }
}
