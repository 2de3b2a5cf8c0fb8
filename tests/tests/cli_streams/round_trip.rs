//! Records out of a stream and into another one, and payloads as they are.

use std::process::Stdio;
use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use serde_json::{Value, json};
use shardmill_record::aggregate::Aggregator;
use shardmill_record::{HashKey, UserRecord};
use shardmill_tests::{Services, Writer, raw, within};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cli::{json_lines, of, stdout};
use crate::put::with_input;

const LIMIT: Duration = Duration::from_secs(60);
const ALL: [&str; 6] = ["--from", "trim-horizon", "--until-idle", "0s", "--reads-per-second", "5"];

fn all_of<'a>(stream: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["tail", stream], &ALL[..], arguments].concat()
}

fn record(key: &str, hash_key: Option<u128>, data: &'static [u8]) -> UserRecord {
    UserRecord { partition_key: key.to_owned(), explicit_hash_key: hash_key.map(HashKey::new), data: data.into() }
}

/// Puts an aggregate where its first record belongs.
async fn put_aggregate(services: &Services, records: &[UserRecord]) {
    let mut aggregator = Aggregator::with_capacity(1_000);
    records.iter().for_each(|record| aggregator.push(record));
    let (data, hash_key) = aggregator.finish().expect("an aggregate");
    let put = services.kinesis.put_record().stream_name("input").partition_key("a");
    put.explicit_hash_key(hash_key.to_string()).data(Blob::new(data)).send().await.expect("it is taken");
}

/// What of a line is the record and not its place.
fn content(line: &Value) -> Value {
    let mut content = json!({});
    for name in ["partition_key", "explicit_hash_key", "data", "data_base64"] {
        content[name] = line[name].clone();
    }
    content
}

#[tokio::test]
async fn what_tail_prints_can_be_put_and_is_the_same() {
    let services = Services::with_streams(1, 1).await;
    Writer::new(&services, "input", 5).with_aggregates().put(60).await;
    put_aggregate(
        &services,
        &[record("k\u{1b}", Some(7), b"\xff\0\n"), record("l", Some(8), "a\u{202e}\n".as_bytes())],
    )
    .await;
    let printed = stdout(&services, &all_of("input", &["--json"])).await;
    let finished = with_input(&services, &["put", "output", "--format", "tail-json"], printed.as_bytes()).await;
    assert_eq!(finished.stdout, "62 records stored in output.\n", "{finished:?}");
    let (before, after) = (
        json_lines(&services, &all_of("input", &["--json"])).await,
        json_lines(&services, &all_of("output", &["--json"])).await,
    );
    assert_eq!(before.iter().map(content).collect::<Vec<_>>(), after.iter().map(content).collect::<Vec<_>>());
    assert_eq!((&after[60]["explicit_hash_key"], &after[60]["data_base64"]), (&json!("7"), &json!("/wAK")));
    let finished = with_input(&services, &["put", "output", "--format", "tail-json"], b"{\"data\":\"x\"}\n").await;
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("missing field `partition_key`"), "{finished:?}");
}

#[tokio::test]
async fn payloads_are_printed_byte_for_byte() {
    let services = Services::with_streams(1, 1).await;
    let payloads: [&[u8]; 3] = [b"\xff\x1b[2J\n", b"", b"{\"a\":1}"];
    raw::put(&services, "input", &payloads.map(|data| raw::Raw::new("k", data))).await;
    for (arguments, separator) in [
        (&["--output", "data"][..], &b"\n"[..]),
        (&["--output", "data", "--separator", "\\0|"], b"\0|"),
        (&["--output", "data", "--separator", ""], b""),
    ] {
        let mut child = of(&services, &all_of("input", arguments));
        let output = within(LIMIT, "the end", child.output()).await.expect("an end");
        let expected: Vec<u8> = payloads.iter().flat_map(|data| [data, separator].concat()).collect();
        assert_eq!((output.status.code(), output.stdout), (Some(0), expected), "{arguments:?}");
    }
}

#[tokio::test]
async fn copies_in_a_shard_that_is_not_theirs_are_marked_or_left_out() {
    let services = Services::with_streams(2, 1).await;
    // One that came alone with a hash key of its own is where the service wanted it.
    let alone = raw::Raw { key: "alone".into(), hash_key: Some("5".into()), data: b"alone".to_vec() };
    let key = (0..).map(|number| format!("key {number}")).find(|key| HashKey::of_partition_key(key).get() >> 127 == 1);
    raw::put(
        &services,
        "input",
        &[alone, raw::Raw { hash_key: Some("6".into()), ..raw::Raw::new(key.expect("a key"), "b") }],
    )
    .await;
    let upper = u128::MAX - 1;
    put_aggregate(&services, &[record("a", Some(1), b"1"), record("b", Some(upper), b"2"), record("c", Some(3), b"3")])
        .await;
    let shown = json_lines(&services, &all_of("input", &["--json"])).await;
    let marks: Vec<_> = shown.iter().map(|line| (line["data"].as_str(), line["out_of_range"].as_bool())).collect();
    assert_eq!(
        marks,
        [(Some("alone"), None), (Some("b"), None), (Some("1"), None), (Some("2"), Some(true)), (Some("3"), None)]
    );
    let text = stdout(&services, &all_of("input", &[])).await;
    assert_eq!(text.matches("(out of range)").count(), 1, "{text}");
    let mut child = of(&services, &all_of("input", &["--json", "--out-of-range", "drop"]));
    let output = within(LIMIT, "the end", child.output()).await.expect("an end");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("4 records shown, 0 passed over, 1 dropped as out of range."), "{said}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("out_of_range"));
}

#[tokio::test]
async fn a_tail_ends_at_a_time_without_waiting_for_what_comes() {
    let services = Services::with_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    services.split("input", "shardId-000000000000").await;
    writer.put(100).await;
    let all = json_lines(&services, &all_of("input", &["--json"])).await;
    assert_eq!(all.len(), 200);
    // The local service tells times of arrival in whole seconds.
    let end = all.iter().map(|line| line["arrived_at"].as_u64().expect("a time")).max().expect("records") + 1;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    writer.put(100).await;
    let to = end.to_string();
    let arguments = ["tail", "input", "--from", "trim-horizon", "--to", &to, "--reads-per-second", "5", "--json"];
    let mut shown = json_lines(&services, &arguments).await;
    let sort = |lines: &mut Vec<Value>| lines.sort_by_key(|line| line["position"].to_string());
    let mut all = all;
    sort(&mut shown);
    sort(&mut all);
    assert_eq!(shown, all);
    // Up to now, in a stream to which nothing comes.
    let arguments = ["tail", "output", "--from", "trim-horizon", "--to", "now", "--json"];
    assert!(json_lines(&services, &arguments).await.is_empty());
}

#[tokio::test]
async fn a_tail_that_nobody_reads_ends_though_nothing_comes() {
    let services = Services::with_streams(1, 1).await;
    Writer::new(&services, "input", 5).put(3).await;
    let mut child = of(&services, &["tail", "input", "--from", "trim-horizon"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary can be run");
    let mut lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
    for _each in 0..3 {
        within(LIMIT, "a line", lines.next_line()).await.expect("a line").expect("a line");
    }
    drop(lines);
    let output = within(LIMIT, "the end", child.wait_with_output()).await.expect("an end");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
