//! `shardmill demo`: what it prints is what is in its input.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::config::{BehaviorVersion, Region};
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::ShardIteratorType;
use serde::Deserialize;
use serde_json::Value;
use shardmill_tests::{Finished, Process, command, eventually, paths, run};
use tempfile::TempDir;

#[derive(Deserialize)]
struct Flight {
    carrier: String,
    dep_delay: Option<f64>,
}

#[derive(Debug, Default, PartialEq)]
struct Delays {
    count: u64,
    sum: f64,
    longest: f64,
}

/// The delays by carrier, straight from the file.
fn expected(minutes: f64) -> (u64, BTreeMap<String, Delays>) {
    let path = paths::repository().join("demo/flights-3-days.jsonl");
    let text = std::fs::read_to_string(path).expect("the demo's input");
    let mut carriers: BTreeMap<String, Delays> = BTreeMap::new();
    for line in text.lines() {
        let flight: Flight = serde_json::from_str(line).expect("a flight");
        if let Some(delay) = flight.dep_delay.filter(|delay| *delay > minutes) {
            let delays = carriers.entry(flight.carrier).or_default();
            delays.count += 1;
            delays.sum += delay;
            delays.longest = delays.longest.max(delay);
        }
    }
    (text.lines().count() as u64, carriers)
}

/// Runs the demo in an empty folder: it needs nothing there.
async fn demo(arguments: &[&str], environment: &[(&str, &str)]) -> Finished {
    let folder = TempDir::new().expect("a temporary folder");
    let mut demo = command();
    demo.arg("demo").args(arguments).envs(environment.iter().copied()).current_dir(folder.path());
    let finished = run(demo).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    finished
}

async fn demo_as_json(arguments: &[&str]) -> Value {
    let finished = demo(&[&["--json"], arguments].concat(), &[]).await;
    assert_eq!(finished.stderr, "", "machines get the result and nothing else");
    serde_json::from_str(&finished.stdout).expect("one JSON document")
}

fn assert_shows(report: &Value, minutes: u32) {
    let (flights, carriers) = expected(f64::from(minutes));
    assert_eq!((&report["flights"], &report["minutes"]), (&flights.into(), &minutes.into()));
    let rows = report["airlines"].as_array().expect("rows");
    assert_eq!(rows.len(), carriers.len());
    for row in rows {
        let delays = &carriers[row["carrier"].as_str().expect("a carrier")];
        let number = |key: &str| row[key].as_f64().expect("a number");
        assert_eq!(row["late_flights"], delays.count, "{row}");
        assert_eq!(number("longest_delay_minutes"), delays.longest, "{row}");
        let mean = delays.sum / delays.count as f64;
        assert!((number("mean_delay_minutes") - mean).abs() < 1e-9, "{row}, {mean}");
    }
    let counts: Vec<u64> = rows.iter().filter_map(|row| row["late_flights"].as_u64()).collect();
    assert!(counts.is_sorted_by(|left, right| left >= right), "most late flights first: {counts:?}");
}

#[tokio::test]
async fn the_result_is_the_delays_in_the_input() {
    assert_shows(&demo_as_json(&[]).await, 15);
}

#[tokio::test]
async fn minutes_set_what_counts_as_late() {
    assert_shows(&demo_as_json(&["--minutes", "60"]).await, 60);
}

#[tokio::test]
async fn a_person_gets_a_table_without_escape_codes_where_there_is_no_terminal() {
    let (flights, carriers) = expected(15.0);
    for environment in [&[][..], &[("NO_COLOR", "1")]] {
        let finished = demo(&[], environment).await;
        assert!(!finished.stdout.contains('\x1b') && !finished.stderr.contains('\x1b'), "{finished:?}");
        for (carrier, delays) in &carriers {
            let numbers = [
                delays.count.to_string(),
                format!("{:.1}", delays.sum / delays.count as f64),
                format!("{:.0}", delays.longest),
            ];
            let has_all = |line: &str| {
                let cells: Vec<&str> = line.split(['│', '┆']).map(str::trim).collect();
                cells.windows(3).any(|three| three == numbers)
            };
            assert!(finished.stdout.lines().any(has_all), "{carrier}: {numbers:?} in\n{}", finished.stdout);
        }
        let late: u64 = carriers.values().map(|delays| delays.count).sum();
        assert!(finished.stdout.contains(&format!("{late} of {flights} flights")), "{}", finished.stdout);
    }
}

/// `script` (of util-linux, on every Debian) gives the demo a terminal.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn on_a_terminal_progress_is_shown() {
    let (flights, _) = expected(15.0);
    let folder = TempDir::new().expect("a temporary folder");
    let mut terminal = tokio::process::Command::new("script");
    let demo = format!("'{}' demo", paths::binary().display());
    terminal.args(["--quiet", "--return", "--command", &demo, "/dev/null"]).current_dir(folder.path());
    let finished = run(terminal).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stdout.contains(&format!("/{flights} records")), "{finished:?}");
}

#[tokio::test]
async fn with_follow_it_runs_on_for_records_of_ones_own() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut follow = command();
    follow.args(["demo", "--follow"]).current_dir(folder.path());
    let mut demo = Process::start(follow, folder.path());
    let limit = Duration::from_secs(60);

    // The table of what was in the input comes first, then where to go on.
    let ready = eventually(limit, "the line that tells of the admin server", async || {
        assert!(demo.ended().is_none(), "the demo has ended: {}", demo.stderr());
        demo.stderr().split_whitespace().find(|word| word.ends_with("/readyz")).map(str::to_owned)
    })
    .await;
    let (flights, _) = expected(15.0);
    let shown = demo.stdout();
    assert!(shown.contains(&format!("of {flights} flights")), "{shown}");
    let kinesis = shown.split_whitespace().find(|word| word.starts_with("http://")).expect("Kinesis' address");
    assert_eq!(reqwest::get(&ready).await.expect("an answer").status(), 200);

    let client = client(kinesis);
    let late = Blob::new(r#"{"carrier":"OWN","dep_delay":99,"flight":1,"origin":"JFK","dest":"LAX"}"#);
    client.put_record().stream_name("flights").partition_key("OWN").data(late).send().await.expect("a put");
    eventually(limit, "the own flight in the output", async || holds(&client, "delays", "OWN").await.then_some(()))
        .await;

    demo.terminate();
    assert_eq!(demo.wait(limit).await.code(), Some(0), "{}", demo.stderr());
}

fn client(endpoint: &str) -> Client {
    let config = aws_sdk_kinesis::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "tests"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    Client::from_conf(config.build())
}

/// Whether a record of the stream has this text in it, in an aggregate or alone.
async fn holds(client: &Client, stream: &str, text: &str) -> bool {
    let listed = client.list_shards().stream_name(stream).send().await.expect("a listing of shards");
    for shard in listed.shards() {
        let iterator = client.get_shard_iterator().stream_name(stream).shard_id(shard.shard_id());
        let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.expect("an iterator");
        let read = client.get_records().set_shard_iterator(iterator.shard_iterator).send().await.expect("records");
        let mut payloads = read.records().iter().map(|record| String::from_utf8_lossy(record.data().as_ref()));
        if payloads.any(|payload| payload.contains(text)) {
            return true;
        }
    }
    false
}
