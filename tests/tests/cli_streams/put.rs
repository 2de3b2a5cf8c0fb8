//! `shardmill put`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use shardmill_tests::{
    Environment, Fault, Finished, Process, Proxy, Rule, Services, assert_each_once, assert_order_of_keys, command,
    eventually, firsts, raw, run, within,
};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::cli::{fails, finish, found, json, json_lines, lines, of, stdout, told};

const LIMIT: Duration = Duration::from_secs(60);
const ALL: [&str; 7] = ["--from", "trim-horizon", "--until-idle", "0s", "--reads-per-second", "5", "--json"];

/// What is in a stream, as `shardmill tail` shows it.
pub(crate) async fn in_stream(services: &Services, stream: &str) -> Vec<Value> {
    json_lines(services, &[&["tail", stream], &ALL[..]].concat()).await
}

/// A file of numbered JSON lines over so many keys.
pub(crate) fn numbered(folder: &Path, count: u64, keys: u64) -> PathBuf {
    let path = folder.join("numbered.jsonl");
    let line = |number: u64| format!("{{\"n\":{number},\"key\":\"key-{}\"}}\n", number * 7 % keys);
    std::fs::write(&path, (0..count).map(line).collect::<String>()).expect("a file");
    path
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Runs a command with this on its standard input.
pub(crate) async fn with_input(services: &impl Environment, arguments: &[&str], input: &[u8]) -> Finished {
    let mut child = of(services, arguments);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("the binary can be run");
    let mut stdin = child.stdin.take().expect("standard input");
    // It may have ended without reading.
    let _ = stdin.write_all(input).await;
    drop(stdin);
    let output = within(LIMIT, "the end", child.wait_with_output()).await.expect("an end");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test]
async fn json_lines_are_stored_in_the_order_of_their_keys_and_results_say_where() {
    let services = Services::with_streams(3, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let file = numbered(folder.path(), 2_000, 50);
    let results = folder.path().join("results.jsonl");
    let said =
        stdout(&services, &["put", "input", text(&file), "--key-field", "/key", "--results", text(&results)]).await;
    assert_eq!(said, "2000 records stored in input.\n");
    let shown = in_stream(&services, "input").await;
    let records = found(&shown);
    assert_each_once(&records, 0..2_000);
    assert_order_of_keys(&records);
    let kinesis_records = raw::kinesis_records(&services, "input").await.len();
    assert!(kinesis_records < 500, "they go in aggregates: {kinesis_records}");

    let results = lines(&std::fs::read_to_string(&results).expect("results"));
    let stored: BTreeMap<u64, &Value> = records.iter().map(|record| record.number).zip(&shown).collect();
    assert_eq!(results.len(), 2_000);
    for (number, result) in (0..).zip(&results) {
        assert_eq!((&result["line"], &result["stored"]), (&json!(number + 1), &json!(true)), "{result}");
        for name in ["shard", "sequence_number", "sub_sequence_number"] {
            assert_eq!(result[name], stored[&number][name], "{name} of {result}");
        }
        assert_eq!((&result["stream"], &result["attempts"]), (&json!("input"), &json!(1)), "{result}");
        assert!(result["latency_ms"].is_u64() && result["message_id"] == number, "{result}");
    }
}

#[tokio::test]
async fn lines_of_standard_input_go_to_all_shards_as_they_come() {
    let services = Services::with_streams(4, 1).await;
    let mut child = of(&services, &["put", "input", "--results", "-"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child");
    let mut stdin = child.stdin.take().expect("standard input");
    let payload = "a\u{1b}[2J \u{e9}";
    stdin.write_all(format!("{payload}\r\n\n").as_bytes()).await.expect("a line is taken");
    // Before there is more.
    eventually(LIMIT, "the first line", async || {
        let found = raw::user_records(&services, "input").await;
        (found.len() == 1).then(|| assert_eq!(found[0].1, payload.as_bytes()))
    })
    .await;
    let rest: String = (1..100).map(|number| format!("line {number}\n")).collect();
    stdin.write_all(rest.as_bytes()).await.expect("lines are taken");
    drop(stdin);
    let output = within(LIMIT, "the end", child.wait_with_output()).await.expect("an end");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("100 records stored in input."), "{output:?}");
    let results = lines(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert_eq!((&results[0]["file"], &results[0]["line"]), (&json!("standard input"), &json!(1)));
    assert_eq!(results[1]["line"], 3, "an empty line is counted and passed over");
    let shown = in_stream(&services, "input").await;
    let distinct =
        |name: &str| shown.iter().map(|line| line[name].to_string()).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!((shown.len(), distinct("partition_key"), distinct("shard")), (100, 100, 4));
}

/// A timer for each would take minutes.
#[tokio::test]
async fn many_small_records_do_not_wait_for_each_other() {
    let services = Services::with_streams(1, 1).await;
    let input: String = (0..80_000).map(|number| format!("{number}\n")).collect();
    let finished = with_input(&services, &["put", "input", "--key", "k"], input.as_bytes()).await;
    assert_eq!(finished.stdout, "80000 records stored in input.\n", "{finished:?}");
    let found = raw::user_records(&services, "input").await;
    let numbers: Vec<&[u8]> = found.iter().map(|(_, data)| &data[..]).collect();
    let expected: Vec<String> = (0..80_000).map(|number: u32| number.to_string()).collect();
    assert!(numbers == expected.iter().map(String::as_bytes).collect::<Vec<_>>(), "in the order of the lines");
}

#[tokio::test]
async fn rows_of_csv_are_objects_or_stay_rows_and_go_alone_if_wanted() {
    let services = Services::with_streams(2, 2).await;
    let folder = TempDir::new().expect("a temporary folder");
    let (one, other) = (folder.path().join("1.csv"), folder.path().join("2.csv"));
    std::fs::write(&one, "carrier,flight,remark\r\nUA,1545,\"late, \"\"very\"\"\"\r\nAA,1141,\r\n").expect("a file");
    std::fs::write(&other, "flight,carrier,remark\n725,B6,\"two\nlines\"\n").expect("a file");
    let sums = json(
        &services,
        &["put", "input", text(&one), text(&other), "--key-column", "carrier", "--no-aggregate", "--json"],
    )
    .await;
    assert_eq!((&sums["stored"], &sums["read"], &sums["not_stored"]), (&json!(3), &json!(3), &json!(0)), "{sums}");
    let mut records = raw::kinesis_records(&services, "input").await;
    records.sort();
    let record = |key: &str, data: &str| (key.to_owned(), data.as_bytes().to_vec());
    assert_eq!(
        records,
        [
            record("AA", r#"{"carrier":"AA","flight":"1141","remark":""}"#),
            record("B6", r#"{"flight":"725","carrier":"B6","remark":"two\nlines"}"#),
            record("UA", r#"{"carrier":"UA","flight":"1545","remark":"late, \"very\""}"#),
        ]
    );
    let tabs = b"UA\t1545\tx,y\nAA\t1141\t\n";
    let arguments = ["put", "output", "-", "--key-column", "2", "--no-header", "--delimiter", "\\t", "--no-aggregate"];
    let finished = with_input(&services, &arguments, tabs).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let mut records = raw::kinesis_records(&services, "output").await;
    records.sort();
    assert_eq!(records, [record("1141", "AA\t1141\t"), record("1545", "UA\t1545\tx,y")]);
}

#[tokio::test]
async fn what_is_no_record_is_told_with_its_line_and_the_others_are_stored() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let results = folder.path().join("results.jsonl");
    let long_key = "k".repeat(257);
    let input = format!("{{\"k\":1}}\noops\n{{\"x\":1}}\n{{\"k\":\"{long_key}\"}}\n{{\"k\":2}}\n");
    let arguments = ["put", "input", "--key-field", "/k", "--json", "--results", text(&results)];
    let finished = with_input(&services, &arguments, input.as_bytes()).await;
    told(
        &finished,
        &arguments,
        1,
        &[
            "standard input, line 2: it is not JSON",
            "standard input, line 3: there is nothing at /k",
            "standard input, line 4: its partition key has 257 characters",
            "3 of 5 records are not stored: 1 invalid, 2 unreadable",
            "the first record that is not stored is standard input, line 2",
        ],
    );
    let sums: Value = serde_json::from_str(&finished.stdout).expect("one line of JSON");
    assert_eq!(sums["reasons"], json!({ "invalid": 1, "unreadable": 2 }));
    assert_eq!((&sums["stored"], &sums["first_not_stored"]["line"]), (&json!(2), &json!(2)));
    let results = lines(&std::fs::read_to_string(&results).expect("results"));
    let reasons: Vec<&Value> = results.iter().map(|result| &result["reason"]).collect();
    assert_eq!(reasons, [&Value::Null, &json!("unreadable"), &json!("unreadable"), &json!("invalid"), &Value::Null]);
    assert_eq!(in_stream(&services, "input").await.len(), 2);
}

#[tokio::test]
async fn failures_of_the_service_are_waited_out_and_repeats_are_told() {
    let services = Services::with_streams(2, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let file = numbered(folder.path(), 3_000, 40);
    let proxy = Proxy::new(&services, 7);
    let link = proxy.link("put");
    let code = "ProvisionedThroughputExceededException";
    let throttled = proxy.inject(Rule::new(Fault::Partial { chance: 0.3, code }).probability(0.3));
    let lost = proxy.inject(Rule::new(Fault::AnswerLost).operation("PutRecords").after(2).times(2));
    let sums = json(&link, &["put", "input", text(&file), "--key-field", "/key", "--rate", "4000", "--json"]).await;
    assert_eq!((&sums["stored"], &sums["not_stored"]), (&json!(3_000), &json!(0)), "{sums}");
    assert!(throttled.count() > 0 && lost.count() > 0, "nothing went wrong");
    let records = found(&in_stream(&services, "input").await);
    // A record whose answer is lost twice is there three times.
    let mut copies: BTreeMap<u64, u64> = BTreeMap::new();
    records.iter().for_each(|record| *copies.entry(record.number).or_default() += 1);
    let repeated = copies.values().filter(|copies| **copies > 1).count() as u64;
    let told = sums["may_be_repeated"].as_u64().expect("a number");
    assert!(repeated > 0 && repeated <= told, "{repeated} are repeated: {sums}");
    assert_each_once(&firsts(&records), 0..3_000);
    assert_order_of_keys(&firsts(&records));
}

#[tokio::test]
async fn a_reshard_meanwhile_loses_nothing() {
    let services = Services::with_streams(2, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let file = numbered(folder.path(), 3_000, 40);
    let arguments = ["put", "input", text(&file), "--key-field", "/key", "--rate", "1500", "--json"];
    let mut process = Process::start(of(&services, &arguments), folder.path());
    eventually(LIMIT, "the first records", async || {
        (!raw::kinesis_records(&services, "input").await.is_empty()).then_some(())
    })
    .await;
    services.split("input", "shardId-000000000000").await;
    services.merge("input", "shardId-000000000003", "shardId-000000000001").await;
    assert!(process.ended().is_none(), "the stream has changed too late");
    let status = process.wait(LIMIT).await;
    assert_eq!(status.code(), Some(0), "{}", process.stderr());
    let records = firsts(&found(&in_stream(&services, "input").await));
    assert_each_once(&records, 0..3_000);
    assert_order_of_keys(&records);
}

#[tokio::test]
async fn an_interrupted_put_stores_what_it_has_read_and_says_where_to_go_on() {
    let services = Services::with_streams(2, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let file = numbered(folder.path(), 1_000, 40);
    let arguments = ["put", "input", text(&file), "--key-field", "/key", "--rate", "50", "--json"];
    let mut process = Process::start(of(&services, &arguments), folder.path());
    eventually(LIMIT, "the first records", async || {
        (raw::user_records(&services, "input").await.len() > 5).then_some(())
    })
    .await;
    process.terminate();
    let status = process.wait(LIMIT).await;
    assert_eq!(status.code(), Some(1), "{}", process.stderr());
    let sums: Value = serde_json::from_str(&process.stdout()).expect("one line of JSON");
    assert_eq!((&sums["interrupted"], &sums["ended"]), (&json!(true), &json!("interrupted")), "{sums}");
    let stored = sums["stored"].as_u64().expect("a number");
    assert!(stored < 1_000, "{sums}");
    assert_eq!(sums["reasons"], json!({ "stopped": 1_000 - stored }), "all of the file was read: {sums}");
    assert_eq!(sums["first_not_stored"]["line"], stored + 1, "{sums}");
    assert!(process.stderr().contains("interrupted"), "{}", process.stderr());
    assert_each_once(&found(&in_stream(&services, "input").await), 0..stored);
    // From there on.
    let content = std::fs::read_to_string(&file).expect("the file");
    let rest: String = content.lines().skip(stored as usize).map(|line| format!("{line}\n")).collect();
    let finished = with_input(&services, &["put", "input", "--key-field", "/key"], rest.as_bytes()).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let records = found(&in_stream(&services, "input").await);
    assert_each_once(&records, 0..1_000);
    assert_order_of_keys(&records);
}

#[tokio::test]
async fn records_whose_time_is_over_are_told() {
    let services = Services::with_streams(1, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("put");
    proxy.inject(Rule::new(Fault::Reset).operation("PutRecords"));
    let arguments = ["put", "input", "--ttl", "1s", "--results", "-"];
    let finished = with_input(&link, &arguments, b"one\ntwo\n").await;
    told(&finished, &arguments, 69, &["2 of 2 records are not stored: 2 expired", "its time to live is over"]);
    let results = lines(&finished.stdout);
    assert_eq!((results.len(), &results[1]["reason"]), (2, &json!("expired")), "{results:?}");
    assert!(raw::kinesis_records(&services, "input").await.is_empty());
}

#[tokio::test]
async fn mistakes_are_told_with_their_exit_statuses() {
    let services = Services::with_streams(1, 1).await;
    let folder = TempDir::new().expect("a temporary folder");
    let file = numbered(folder.path(), 10, 3);
    let file = text(&file);
    fails(&services, &["put", "nowhere", file], 69, &["nowhere", "the first record that is not stored", "line 1"])
        .await;
    let missing = ["put", "input", file, "/nowhere/at/all.jsonl"];
    fails(&services, &missing, 1, &["/nowhere/at/all.jsonl cannot be read", "No such file"]).await;
    let column = ["put", "input", file, "--key-column", "id"];
    fails(&services, &column, 1, &["numbered.jsonl: there is no column `id`"]).await;
    let results = ["put", "input", file, "--results", "/nowhere/at/all"];
    fails(&services, &results, 1, &["results cannot be written to /nowhere/at/all", "nothing was sent"]).await;
    for (rest, said) in [
        (&["--key", "a", "--key-field", "/b"][..], "cannot be used with"),
        (&["--key-field", "id"], "write /id"),
        (&["--key-field", "/id", "--format", "csv"], "--format jsonl"),
        (&["--key-column", "id", "--format", "lines"], "--format csv"),
        (&["--no-header"], "--format csv"),
        (&["--delimiter", "ab"], "one ASCII character"),
        (&["--rate", "0"], "1.."),
        (&["--ttl", "1ms"], "record-ttl"),
    ] {
        fails(&services, &[&["put", "input", file], rest].concat(), 2, &[said]).await;
    }
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("put");
    proxy.inject(Rule::new(Fault::Refused("AccessDeniedException")).operation("PutRecords"));
    fails(&link, &["put", "input", file], 77, &["refuses records (AccessDeniedException)", "line 1"]).await;
    assert!(in_stream(&services, "input").await.is_empty(), "no mistake has stored anything");

    let mut child = command();
    child.args(["put", "input", file]).env("HOME", folder.path());
    told(&run(child).await, &["put"], 78, &["no AWS region is set"]);
    // Nothing to do is no mistake.
    let finished = finish(&services, &["put", "input"]).await;
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), "0 records stored in input.\n"), "{finished:?}");
}
