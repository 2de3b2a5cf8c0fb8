//! `shardmill tail`

use std::process::Stdio;
use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use serde_json::{Value, json};
use shardmill_tests::{
    Environment, Fault, Found, Process, Proxy, Rule, Services, Tail, Writer, assert_each_once, assert_order_of_keys,
    command, eventually, raw, run, within,
};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cli::{fails, finish, found, json_lines, lines, of, stdout, told};

const FIRST: &str = "shardId-000000000000";
const SECOND: &str = "shardId-000000000001";
const LIMIT: Duration = Duration::from_secs(60);

/// Everything that is in a stream now.
const ALL: [&str; 6] = ["--from", "trim-horizon", "--until-idle", "0s", "--reads-per-second", "5"];

fn tail_of<'a>(stream: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["tail", stream], arguments].concat()
}

fn all_of<'a>(stream: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["tail", stream], &ALL[..], arguments].concat()
}

/// A tail that goes on.
struct Running {
    process: Process,
    _folder: TempDir,
}

impl Running {
    fn start(services: &impl Environment, arguments: &[&str]) -> Running {
        let folder = TempDir::new().expect("a temporary folder");
        Running { process: Process::start(of(services, arguments), folder.path()), _folder: folder }
    }

    /// What it has printed, whole lines only.
    fn lines(&self) -> Vec<Value> {
        let stdout = self.process.stdout();
        let whole = stdout.rfind('\n').map_or("", |end| &stdout[..=end]);
        lines(whole)
    }

    async fn until(&mut self, count: u64) -> Vec<Found> {
        eventually(LIMIT, "the records", async || {
            assert!(self.process.ended().is_none(), "{}", self.process.stderr());
            let lines = self.lines();
            (lines.len() as u64 >= count).then(|| found(&lines))
        })
        .await
    }

    async fn until_said(&self, said: &str) {
        eventually(LIMIT, said, async || self.process.stderr().contains(said).then_some(())).await;
    }

    async fn stop(&mut self) {
        self.process.terminate();
        let status = self.process.wait(LIMIT).await;
        assert_eq!(status.code(), Some(0), "{}", self.process.stderr());
    }
}

#[tokio::test]
async fn all_that_is_in_a_stream_is_shown_once_in_the_order_of_keys_with_its_positions() {
    let services = Services::with_streams(3, 1).await;
    let mut writer = Writer::new(&services, "input", 40).with_aggregates();
    writer.put(1_500).await;
    let shown = found(&json_lines(&services, &all_of("input", &["--json"])).await);
    assert_each_once(&shown, 0..1_500);
    assert_order_of_keys(&shown);
    let sorted = |mut records: Vec<Found>| {
        records.sort_by_key(|record| record.number);
        records
    };
    assert_eq!(sorted(shown), sorted(Tail::all(&services, "input").await));
    // The same for people.
    let finished = finish(&services, &all_of("input", &[])).await;
    assert_eq!((finished.code, finished.stdout.lines().count()), (Some(0), 1_500));
    assert!(finished.stderr.contains("1500 records shown, 0 passed over."), "{}", finished.stderr);
    let line = finished.stdout.lines().next().expect("a line");
    assert!(line.contains(" shardId-00000000000") && line.contains(r#" {"n":"#), "{line}");
    // By its ARN as well.
    let arn = services.arn("input").await;
    assert_eq!(json_lines(&services, &all_of(&arn, &["--json"])).await.len(), 1_500);
}

#[tokio::test]
async fn splits_and_merges_are_followed_parents_first() {
    let services = Services::with_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 60).with_aggregates();
    writer.put(300).await;
    let mut tail = Running::start(&services, &tail_of("input", &["--from", "trim-horizon", "--json"]));
    tail.until(300).await;
    writer.put(200).await;
    services.split("input", FIRST).await;
    writer.put(200).await;
    // The upper half of the first shard lies beside the second one.
    services.merge("input", "shardId-000000000003", SECOND).await;
    writer.put(200).await;
    let shown = tail.until(writer.count()).await;
    services.split("input", "shardId-000000000004").await;
    writer.put(200).await;
    let all = tail.until(writer.count()).await;
    tail.stop().await;
    assert!(all.starts_with(&shown));
    assert_each_once(&all, 0..writer.count());
    assert_order_of_keys(&all);
    // A history that is over is shown in the same order, and ends.
    let history = found(&json_lines(&services, &all_of("input", &["--json"])).await);
    assert_each_once(&history, 0..writer.count());
    assert_order_of_keys(&history);
}

#[tokio::test]
async fn a_change_of_the_shard_count_is_followed_on_a_service_of_others() {
    let services = Services::kinesis_local_and_dynalite().await.and_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 60).with_aggregates();
    let arguments = ["--from", "trim-horizon", "--json", "--reads-per-second", "5"];
    let mut tail = Running::start(&services, &tail_of("input", &arguments));
    for count in [4, 2] {
        writer.put(150).await;
        services.scale("input", count).await;
    }
    writer.put(150).await;
    let shown = tail.until(writer.count()).await;
    tail.stop().await;
    assert_each_once(&shown, 0..writer.count());
    assert_order_of_keys(&shown);
}

#[tokio::test]
async fn latest_shows_what_comes_and_ctrl_c_is_a_good_end() {
    let services = Services::with_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(20).await;
    // The local service tells times of arrival in whole seconds, up to one ahead.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let mut tail = Running::start(&services, &["tail", "input"]);
    tail.until_said("2 shards of input; Ctrl-C ends it.").await;
    writer.put(5).await;
    eventually(LIMIT, "the new records", async || (tail.process.stdout().lines().count() >= 5).then_some(())).await;
    services.split("input", FIRST).await;
    tail.until_said(&format!("{FIRST} has ended, and is followed by shardId-000000000002 and shardId-000000000003."))
        .await;
    writer.put(5).await;
    eventually(LIMIT, "the newest records", async || (tail.process.stdout().lines().count() >= 10).then_some(())).await;
    tail.stop().await;
    let stdout = tail.process.stdout();
    let numbers: Vec<u64> = stdout.lines().map(|line| number(line.split_once('{').expect("a payload").1)).collect();
    assert_eq!(numbers.len(), 10, "{stdout}");
    assert!(numbers.iter().all(|number| *number >= 20), "{stdout}");
    tail.until_said("10 records shown, 0 passed over.").await;
}

fn number(payload: &str) -> u64 {
    let digits = payload.strip_prefix(r#""n":"#).expect("a number");
    digits.split(',').next().and_then(|digits| digits.parse().ok()).expect("a number")
}

#[tokio::test]
async fn filters_choose_by_key_text_and_field_and_a_number_ends_it() {
    let services = Services::with_streams(2, 1).await;
    let writer = Writer::new(&services, "input", 1);
    for (key, data) in [
        ("a", r#"{"n":1,"user":{"name":"Ada"}}"#),
        ("b", r#"{"n":2,"user":{"name":"Bob"}}"#),
        ("a", r#"{"n":3,"user":{"name":"Bob"}}"#),
        ("c", "no JSON: Bob"),
    ] {
        writer.put_data(key, data.as_bytes()).await;
    }
    let shown = async |arguments: &[&str]| -> Vec<String> {
        let mut data: Vec<String> = json_lines(&services, &all_of("input", &[arguments, &["--json"]].concat()))
            .await
            .iter()
            .map(|line| line["data"].as_str().expect("a text").chars().take(6).collect())
            .collect();
        data.sort();
        data
    };
    assert_eq!(shown(&["--key", "a"]).await, [r#"{"n":1"#, r#"{"n":3"#]);
    assert_eq!(shown(&["--key", "b", "--key", "c"]).await, ["no JSO", r#"{"n":2"#]);
    assert_eq!(shown(&["--contains", "Bob", "--contains", "JSON"]).await, ["no JSO"]);
    assert_eq!(shown(&["--where", "/user/name=Bob"]).await, [r#"{"n":2"#, r#"{"n":3"#]);
    assert_eq!(shown(&["--where", "/user/name=Bob", "--where", "/n=3.0"]).await, [r#"{"n":3"#]);
    assert!(shown(&["--where", "/user/name=Eve"]).await.is_empty());

    // Ends by itself, without being idle.
    let some = ["tail", "input", "--from", "trim-horizon", "--contains", "Bob", "--max-records", "2", "--json"];
    assert_eq!(json_lines(&services, &some).await.len(), 2);
    let finished = finish(&services, &all_of("input", &["--key", "c"])).await;
    assert!(finished.stderr.contains("1 record shown, 3 passed over."), "{finished:?}");
}

#[tokio::test]
async fn a_tail_goes_on_behind_a_position_or_with_it_also_within_an_aggregate() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 7).with_large_aggregates();
    writer.put(50).await;
    let shard = ["--shard", FIRST, "--until-idle", "0s", "--json"];
    let all = json_lines(&services, &all_of("input", &["--json"])).await;
    let position = all[20]["position"].as_str().expect("a position");
    assert!(!position.ends_with("/0"), "it is within an aggregate: {position}");
    let after = json_lines(&services, &tail_of("input", &[&["--after", position], &shard[..]].concat())).await;
    assert_eq!(after, all[21..]);
    let with = json_lines(&services, &tail_of("input", &[&["--from", position], &shard[..]].concat())).await;
    assert_eq!(with, all[20..]);
    let whole = all[0]["sequence_number"].as_str().expect("a number");
    let whole = json_lines(&services, &tail_of("input", &[&["--from", whole], &shard[..]].concat())).await;
    assert_eq!(whole, all);
    // A time before all of them.
    assert_eq!(json_lines(&services, &["tail", "input", "--from", "1h", "--until-idle", "0s", "--json"]).await, all);
}

#[tokio::test]
async fn a_position_that_is_not_kept_any_more_is_told() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 1);
    writer.put(6).await;
    let all = found(&json_lines(&services, &all_of("input", &["--json"])).await);
    services.trim("input", FIRST, Some(&all[4].position.sequence_number)).await;
    let position = all[1].position.to_string();
    let finished =
        finish(&services, &["tail", "input", "--shard", FIRST, "--after", &position, "--until-idle", "0s"]).await;
    assert_eq!((finished.code, finished.stdout.lines().count()), (Some(0), 2), "{finished:?}");
    assert!(finished.stderr.contains("is not kept any more; shardId-000000000000 begins with"), "{finished:?}");
    // Who reads JSON has to know of it as well.
    let arguments = ["tail", "input", "--shard", FIRST, "--after", &position, "--until-idle", "0s", "--json"];
    let finished = finish(&services, &arguments).await;
    assert_eq!(lines(&finished.stdout).len(), 2, "{finished:?}");
    assert!(finished.stderr.contains("is not kept any more; shardId-000000000000 begins with"), "{finished:?}");
}

#[tokio::test]
async fn one_shard_alone_is_read_to_its_end() {
    let services = Services::with_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    services.split("input", FIRST).await;
    writer.put(100).await;
    // Without --until-idle: a closed shard has an end.
    let finished = finish(&services, &["tail", "input", "--from", "trim-horizon", "--shard", FIRST, "--json"]).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let shown = found(&lines(&finished.stdout));
    let expected = Tail::all(&services, "input").await.into_iter().filter(|record| record.shard == FIRST).count();
    assert_eq!(shown.len(), expected);
    assert!(shown.iter().all(|record| record.shard == FIRST && record.number < 100));
    let finished = finish(&services, &["tail", "input", "--from", "trim-horizon", "--shard", FIRST]).await;
    assert!(finished.stderr.contains("is followed by shardId-000000000002 and"), "{finished:?}");
}

/// What a terminal would obey, in every place of a record.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;title\u{7}\r\n\u{9b}31m\u{202e}gnp.exe\u{7f}\0";

#[tokio::test]
async fn what_a_terminal_would_obey_does_not_reach_it_and_bytes_are_in_base64() {
    let services = Services::with_streams(1, 1).await;
    let key = "k\u{1b}[2J\u{202e}";
    let put = services.kinesis.put_record().stream_name("input").partition_key(key);
    put.data(Blob::new(HOSTILE)).send().await.expect("a record");
    let bytes = b"\x1b[31m\xff\x00";
    raw::put(&services, "input", &[raw::Raw::new("bytes", bytes)]).await;
    let text = stdout(&services, &all_of("input", &[])).await;
    let json = stdout(&services, &all_of("input", &["--json"])).await;
    for printed in [&text, &json] {
        let obeyed = |character: char| character.is_control() && character != '\n' || character == '\u{202e}';
        assert!(!printed.chars().any(obeyed), "{printed:?}");
        assert_eq!(printed.lines().count(), 2);
    }
    assert!(text.contains("a\\u{1b}[2J") && text.contains("base64:G1szMW3/AA=="), "{text}");
    let lines = lines(&json);
    assert_eq!((&lines[0]["data"], &lines[0]["partition_key"]), (&json!(HOSTILE), &json!(key)));
    assert_eq!((&lines[1]["data_base64"], &lines[1]["data"]), (&json!("G1szMW3/AA=="), &Value::Null));
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_it_quietly() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 5).padded(2_000);
    writer.put(500).await;
    let mut child = of(&services, &tail_of("input", &["--from", "trim-horizon"]));
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary can be run");
    let mut lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
    within(LIMIT, "a line", lines.next_line()).await.expect("a line").expect("a line");
    drop(lines);
    // The pipe may have taken all that there was.
    writer.put(500).await;
    let output = within(LIMIT, "the end", child.wait_with_output()).await.expect("an end");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
}

#[tokio::test]
async fn a_service_that_fails_is_not_taken_for_an_idle_stream() {
    let services = Services::with_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(50).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("tail");
    // A page of each shard comes through.
    let fault = proxy.inject(Rule::new(Fault::Reset).operation("GetRecords").after(2));
    let arguments = ["--from", "trim-horizon", "--until-idle", "100ms", "--json"];
    let mut tail = Running::start(&link, &tail_of("input", &arguments));
    eventually(LIMIT, "many failures", async || (fault.count() >= 8).then_some(())).await;
    assert!(tail.process.ended().is_none(), "{}", tail.process.stderr());
    writer.put(50).await;
    proxy.calm();
    let status = tail.process.wait(LIMIT).await;
    assert_eq!(status.code(), Some(0), "{}", tail.process.stderr());
    assert_each_once(&found(&tail.lines()), 0..100);
}

#[tokio::test]
async fn a_stream_that_is_deleted_meanwhile_ends_it_with_an_error() {
    let services = Services::with_streams(1, 1).await;
    let mut tail = Running::start(&services, &["tail", "input"]);
    tail.until_said("Ctrl-C ends it").await;
    services.delete_stream("input").await;
    let status = tail.process.wait(LIMIT).await;
    assert_eq!(status.code(), Some(1));
    tail.until_said("was deleted while it was read").await;
}

#[tokio::test]
async fn mistakes_are_told_with_their_exit_statuses() {
    let services = Services::with_streams(1, 1).await;
    fails(&services, &["tail", "nowhere"], 69, &["no stream `nowhere`", "us-east-1"]).await;
    let other = ["tail", "input", "--shard", "shardId-000000000007"];
    fails(&services, &other, 1, &["has no shard shardId-000000000007", "it has shardId-000000000000"]).await;
    for (arguments, said) in [
        (&["tail"][..], "<STREAM>"),
        (&["tail", "a b"], "the name of a stream is expected"),
        (&["tail", "input", "--from", "soon"], "trim-horizon"),
        (&["tail", "input", "--from", "2999-01-01"], "still to come"),
        (&["tail", "input", "--from", "49573382714902566085596925383615710959215759891365888"], "--shard ID"),
        (&["tail", "input", "--after", "4957/0"], "--shard"),
        (&["tail", "input", "--after", "4957/x", "--shard", FIRST], "place in an aggregate"),
        (&["tail", "input", "--where", "n=1"], "write /n=1"),
        (&["tail", "input", "--reads-per-second", "6"], "1..=5"),
        (&["tail", "input", "--max-records", "0"], "1.."),
        (&["tail", "--until-idle", "input"], "tail STREAM --until-idle"),
        (&["tail", "input", "--from", "1h", "--to", "2h"], "--to is not later than --from"),
        (&["tail", "input", "--to", "latest"], "\"now\", how long ago"),
        (&["tail", "input", "--json", "--output", "data"], "cannot be used with"),
        (&["tail", "input", "--separator", "x"], "--output data"),
        (&["tail", "input", "--endpoint-url", "localhost:4567"], "a URL is expected"),
    ] {
        fails(&services, arguments, 2, &[said]).await;
    }
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("tail");
    proxy.inject(Rule::new(Fault::Refused("AccessDeniedException")).operation("GetRecords"));
    fails(&link, &["tail", "input"], 77, &["GetRecords", "kinesis:GetRecords"]).await;
}

#[tokio::test]
async fn the_command_line_names_region_and_endpoint_where_nothing_else_does() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 1);
    writer.put(3).await;
    let home = TempDir::new().expect("a temporary folder");
    let bare = async |arguments: &[&str]| {
        let mut child = command();
        child.args(arguments).env("HOME", home.path());
        child.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local");
        run(child).await
    };
    let arguments = ["tail", "input"];
    told(&bare(&arguments).await, &arguments, 78, &["no AWS region is set", "--region"]);
    let endpoint = &services.environment()["AWS_ENDPOINT_URL_KINESIS"];
    let here = all_of("input", &["--region", "us-east-1", "--endpoint-url", endpoint, "--json"]);
    let finished = bare(&here).await;
    assert_eq!((finished.code, finished.stdout.lines().count()), (Some(0), 3), "{finished:?}");
    // An ARN has a region.
    let arn = services.arn("input").await;
    let finished = bare(&all_of(&arn, &["--endpoint-url", endpoint, "--json"])).await;
    assert_eq!((finished.code, finished.stdout.lines().count()), (Some(0), 3), "{finished:?}");
}
