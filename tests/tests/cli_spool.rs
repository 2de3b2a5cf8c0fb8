//! `shardmill spool` from a user's side: list, drain and drop, on the local backend.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use shardmill_record::UserRecord;
use shardmill_spool::{Metrics, Options, Spool};
use shardmill_tests::{
    Environment as _, Fault, Finished, Process, Proxy, Rule, Services, assert_says, command, eventually, raw, run,
};
use tempfile::TempDir;

/// The record with this number, of one of three keys.
fn record(number: u64) -> UserRecord {
    let data = format!("record {number}");
    UserRecord { partition_key: format!("key {}", number % 3), explicit_hash_key: None, data: data.into() }
}

fn records(numbers: impl IntoIterator<Item = u64>) -> Vec<UserRecord> {
    numbers.into_iter().map(record).collect()
}

async fn opened(folder: &Path) -> Spool {
    Spool::open(folder, Options::default(), Metrics::default()).await.expect("a spool")
}

/// A folder with a spool that holds these records.
async fn spool(contents: &[(&str, Vec<UserRecord>)]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let spool = opened(folder.path()).await;
    for (stream, records) in contents {
        spool.store(stream, records.clone()).await.expect("it stores");
    }
    spool.close().await.expect("it closes");
    folder
}

async fn shardmill_spool(services: &Services, folder: &Path, arguments: &[&str]) -> Finished {
    let mut child = command();
    child.arg("spool").args(arguments).env("SHARDMILL_SPOOL", folder).envs(services.environment());
    run(child).await
}

/// The same, which must end with this exit status; its standard output.
async fn ends(services: &Services, folder: &Path, code: i32, arguments: &[&str]) -> String {
    let finished = shardmill_spool(services, folder, arguments).await;
    assert_eq!(finished.code, Some(code), "{arguments:?}: {finished:?}");
    finished.stdout
}

/// The one JSON line of a command that ends well.
async fn json(services: &Services, folder: &Path, arguments: &[&str]) -> Value {
    let stdout = ends(services, folder, 0, arguments).await;
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// The user records of a stream: each key's in order.
async fn found(services: &Services, stream: &str) -> Vec<(String, Vec<u8>)> {
    let mut records = raw::user_records(services, stream).await;
    // Stable: the order of a key stays.
    records.sort_by(|left, right| left.0.cmp(&right.0));
    records
}

fn expected(records: &[UserRecord]) -> Vec<(String, Vec<u8>)> {
    let mut records: Vec<_> =
        records.iter().map(|record| (record.partition_key.clone(), record.data.to_vec())).collect();
    records.sort_by(|left, right| left.0.cmp(&right.0));
    records
}

#[tokio::test]
async fn what_waits_is_listed_sent_in_order_and_gone() {
    let services = Services::start().await;
    services.create_stream("orders", 2).await;
    services.create_stream("returns", 1).await;
    let folder = spool(&[("orders", records(0..40)), ("returns", records(40..50)), ("orders", records(50..700))]).await;
    let listed = json(&services, folder.path(), &["list", "--json"]).await;
    let orders = &listed["streams"][0];
    assert_eq!(
        (&orders["stream"], &orders["records"], &orders["set_aside"]),
        (&"orders".into(), &690.into(), &0.into())
    );
    assert!(orders["oldest_at"].as_u64() > Some(1_700_000_000_000), "{listed}");
    assert_eq!((&listed["streams"][1]["records"], &listed["set_aside"]), (&10.into(), &Value::Array(Vec::new())));
    let table = ends(&services, folder.path(), 0, &["list"]).await;
    for text in ["orders", "690", "returns", "ago)", "700 records wait to be sent, 0 set aside"] {
        assert!(table.contains(text), "{text:?} in\n{table}");
    }

    // One stream of them, and then the other one.
    let drained = json(&services, folder.path(), &["drain", "--stream", "returns", "--json"]).await;
    assert_eq!((&drained["sent"], &drained["left"], &drained["to"]["returns"]), (&10.into(), &0.into(), &10.into()));
    assert_eq!(found(&services, "returns").await, expected(&records(40..50)));
    assert!(found(&services, "orders").await.is_empty());
    let told = ends(&services, folder.path(), 0, &["drain", "--aggregate"]).await;
    assert!(told.contains("690 records sent to orders."), "{told}");
    assert_eq!(found(&services, "orders").await, expected(&records((0..40).chain(50..700))));
    let kinesis_records = raw::kinesis_records(&services, "orders").await.len();
    assert!(kinesis_records < 100, "{kinesis_records} Kinesis records: they were put together");

    let again = ends(&services, folder.path(), 0, &["drain"]).await;
    assert_eq!(again, "0 records sent.\n");
    let empty = ends(&services, folder.path(), 0, &["list"]).await;
    assert!(empty.starts_with("0 records wait to be sent, 0 set aside; the files take "), "{empty}");
    assert_eq!(found(&services, "orders").await.len(), 690);
}

#[tokio::test]
async fn what_a_stream_will_never_take_is_set_aside_and_keeps_nobody_back() {
    let services = Services::start().await;
    for stream in ["orders", "elsewhere"] {
        services.create_stream(stream, 1).await;
    }
    let mut odd = record(3);
    odd.partition_key = "\u{1b}[31m".repeat(80);
    let contents = [records(0..3), vec![odd], records(4..6)].concat();
    let folder = spool(&[("orders", contents)]).await;
    let finished = shardmill_spool(&services, folder.path(), &["drain", "--json"]).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert_says("drain", &finished.stderr, &["1 record cannot be sent", "shardmill spool list"]);
    let drained: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!((&drained["sent"], &drained["set_aside"], &drained["left"]), (&5.into(), &1.into(), &0.into()));
    let sent = records((0..3).chain(4..6));
    assert_eq!(found(&services, "orders").await, expected(&sent));

    let table = ends(&services, folder.path(), 0, &["list"]).await;
    for text in ["0 records wait to be sent, 1 set aside", "partition key has 400 characters", "\\u{1b}[31m"] {
        assert_says("list", &table, &[text]);
    }
    assert!(!table.contains('\u{1b}'), "{table:?}");
    let listed = json(&services, folder.path(), &["list", "--json"]).await;
    assert_eq!((&listed["set_aside"][0]["number"], &listed["set_aside"][0]["stream"]), (&4.into(), &"orders".into()));
    // It is tried once more where that is wanted, and is no better.
    ends(&services, folder.path(), 0, &["drain", "--to", "elsewhere"]).await;
    ends(&services, folder.path(), 1, &["drain", "--to", "elsewhere", "--set-aside"]).await;
    assert!(found(&services, "elsewhere").await.is_empty());
    let dropped = json(&services, folder.path(), &["drop", "--set-aside", "--yes", "--json"]).await;
    assert_eq!((&dropped["dropped"], &dropped["of"]["orders"]), (&1.into(), &1.into()), "{dropped}");
    ends(&services, folder.path(), 0, &["drain", "--set-aside"]).await;
}

#[tokio::test]
async fn a_drain_that_is_interrupted_goes_on_and_one_that_is_killed_leaves_nothing_out() {
    for is_killed in [false, true] {
        let services = Services::start().await;
        services.create_stream("orders", 2).await;
        let folder = spool(&[("orders", records(0..60))]).await;
        let mut child = command();
        child.args(["spool", "drain", "--rate", "10", "--folder"]).arg(folder.path()).envs(services.environment());
        let output = TempDir::new().expect("a temporary folder");
        let mut process = Process::start(child, output.path());
        eventually(Duration::from_secs(30), "the first records", async || {
            (!raw::user_records(&services, "orders").await.is_empty()).then_some(())
        })
        .await;
        // Nobody else can use the spool meanwhile.
        let second = shardmill_spool(&services, folder.path(), &["list"]).await;
        assert_eq!(second.code, Some(69), "{second:?}");
        assert_says("list", &second.stderr, &[&format!("in use by process {} on", process.id()), "shardmill_spool_"]);
        if is_killed {
            process.kill().await;
        } else {
            process.terminate();
            let status = process.wait(Duration::from_secs(20)).await;
            assert_eq!(status.code(), Some(1), "{}", process.stderr());
            assert_says("drain", &process.stderr(), &["interrupted", "goes on where it was"]);
        }
        let rest = json(&services, folder.path(), &["drain", "--json"]).await;
        let sent = rest["sent"].as_u64().expect("a number");
        assert!(sent > 0 && sent <= 60, "{rest}");
        let found = found(&services, "orders").await;
        if is_killed {
            // What was sent and not yet removed goes twice: one batch at most.
            assert!(found.len() <= 70, "{} records", found.len());
            for record in expected(&records(0..60)) {
                assert!(found.contains(&record), "{record:?} is not there");
            }
        } else {
            assert_eq!(found, expected(&records(0..60)));
        }
    }
}

#[tokio::test]
async fn a_drain_waits_for_a_stream_that_cannot_be_reached() {
    let mut services = Services::start().await;
    services.create_stream("orders", 1).await;
    let folder = spool(&[("orders", records(0..30))]).await;
    let mut child = command();
    child.args(["spool", "drain", "--folder"]).arg(folder.path()).envs(services.environment());
    let output = TempDir::new().expect("a temporary folder");
    let mut drain = Process::start(child, output.path());
    // Requests time out after six seconds.
    services.pause(Duration::from_secs(8)).await;
    let status = drain.wait(Duration::from_secs(60)).await;
    assert_eq!(status.code(), Some(0), "{}", drain.stderr());
    let found = found(&services, "orders").await;
    for record in expected(&records(0..30)) {
        assert!(found.contains(&record), "{record:?} is not there");
    }
}

#[tokio::test]
async fn a_stream_that_cannot_be_reached_holds_none_of_the_others_back() {
    let services = Services::start().await;
    for stream in ["first", "second", "third"] {
        services.create_stream(stream, 1).await;
    }
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("drain");
    let hangs = proxy.inject(Rule::new(Fault::Hang).stream("first"));
    let folder = spool(&[("first", records(0..10)), ("second", records(10..40)), ("third", records(40..50))]).await;
    let mut child = command();
    child.args(["spool", "drain", "--json", "--folder"]).arg(folder.path()).envs(link.environment());
    let output = TempDir::new().expect("a temporary folder");
    let mut drain = Process::start(child, output.path());
    for (stream, numbers) in [("second", 10..40), ("third", 40..50)] {
        eventually(Duration::from_secs(60), "all records of the others", async || {
            (found(&services, stream).await == expected(&records(numbers.clone()))).then_some(())
        })
        .await;
    }
    assert!(drain.ended().is_none() && hangs.count() > 0);
    hangs.end();
    let status = drain.wait(Duration::from_secs(60)).await;
    assert_eq!(status.code(), Some(0), "{}", drain.stderr());
    assert_eq!(found(&services, "first").await, expected(&records(0..10)));
    let drained: Value = serde_json::from_str(&drain.stdout()).expect("JSON");
    assert_eq!((&drained["sent"], &drained["to"]["second"], &drained["left"]), (&50.into(), &30.into(), &0.into()));
}

#[tokio::test]
async fn a_record_that_a_service_refuses_is_found_and_set_aside() {
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("drain");
    // Eight of them, four, two, and the first one alone.
    let refused = proxy.inject(Rule::new(Fault::Refused("ValidationException")).operation("PutRecords").times(4));
    let folder = spool(&[("orders", records(0..8))]).await;
    let mut child = command();
    child.args(["spool", "drain", "--json", "--folder"]).arg(folder.path()).envs(link.environment());
    let finished = run(child).await;
    assert_eq!((finished.code, refused.count()), (Some(1), 4), "{finished:?}");
    assert_says("drain", &finished.stderr, &["1 record cannot be sent"]);
    let drained: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!((&drained["sent"], &drained["set_aside"], &drained["left"]), (&7.into(), &1.into(), &0.into()));
    assert_eq!(found(&services, "orders").await, expected(&records(1..8)));
    let listed = json(&services, folder.path(), &["list", "--json"]).await;
    let aside = &listed["set_aside"][0];
    assert_eq!(aside["number"], Value::from(1));
    assert_says("list", aside["reason"].as_str().expect("a reason"), &["ValidationException"]);
}

#[tokio::test]
async fn a_record_that_the_disk_has_damaged_is_counted() {
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    let folder = spool(&[("orders", records(0..5))]).await;
    let file = folder.path().join("spool.db");
    let mut bytes = std::fs::read(&file).expect("a file");
    let at = bytes.windows(8).position(|window| window == b"record 3").expect("a payload");
    bytes[at] = b'R';
    std::fs::write(&file, bytes).expect("a file");
    let finished = shardmill_spool(&services, folder.path(), &["drain", "--json"]).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert_says("drain", &finished.stderr, &["damaged", "1 record cannot be sent", "shardmill spool list"]);
    let drained: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!((&drained["sent"], &drained["set_aside"], &drained["left"]), (&4.into(), &1.into(), &0.into()));
    assert_eq!(found(&services, "orders").await, expected(&records([0, 1, 2, 4])));
}

#[tokio::test]
async fn streams_are_listed_by_the_names_that_they_were_given() {
    let services = Services::start().await;
    let arn = format!("arn:aws:kinesis:us-east-1:000000000000:stream/{}", "o".repeat(100));
    let folder = spool(&[(&arn, records(0..2)), ("orders", records(2..3))]).await;
    let table = ends(&services, folder.path(), 0, &["list"]).await;
    assert_says("list", &table, &["orders"]);
    let listed = json(&services, folder.path(), &["list", "--json"]).await;
    assert_eq!((&listed["streams"][0]["stream"], &listed["streams"][1]["stream"]), (&arn.into(), &"orders".into()));
}

#[tokio::test]
async fn records_are_dropped_where_somebody_says_so() {
    let services = Services::start().await;
    let folder = spool(&[("orders", records(0..1500)), ("returns", records(0..10))]).await;
    let asked = shardmill_spool(&services, folder.path(), &["drop"]).await;
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert_says("drop", &asked.stderr, &["1500 records of orders", "10 records of returns", "--yes"]);
    let none = ends(&services, folder.path(), 0, &["drop", "--older-than", "1h"]).await;
    assert_eq!(none, "0 records dropped.\n", "they are young, and nobody is asked");
    let some = ends(&services, folder.path(), 0, &["drop", "--stream", "orders", "--yes"]).await;
    assert_eq!(some, "1500 records of orders dropped.\n");
    let listed = json(&services, folder.path(), &["list", "--json"]).await;
    assert_eq!((&listed["streams"][0]["records"], &listed["streams"][1]["records"]), (&0.into(), &10.into()));
    let rest = json(&services, folder.path(), &["drop", "--older-than", "0s", "--yes", "--json"]).await;
    assert_eq!((&rest["dropped"], &rest["interrupted"]), (&10.into(), &false.into()), "{rest}");
    // What a script names that has nothing is no mistake.
    ends(&services, folder.path(), 0, &["drop", "--stream", "orders"]).await;
    let never_used = spool(&[]).await;
    ends(&services, never_used.path(), 0, &["drain", "--stream", "orders"]).await;
}

#[tokio::test]
async fn mistakes_are_told_with_what_to_do() {
    let services = Services::start().await;
    services.create_stream("orders", 1).await;
    let folder = spool(&[("gone", records(0..3)), ("orders", records(3..5))]).await;
    let tell = async |folder: &Path, arguments: &[&str], code: i32, said: &[&str]| {
        let finished = shardmill_spool(&services, folder, arguments).await;
        assert_eq!(finished.code, Some(code), "{arguments:?}: {finished:?}");
        assert_says("spool", &finished.stderr, said);
        assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    };
    let here = folder.path();
    tell(here, &["drain", "--stream", "order"], 1, &["no stream `order`", "gone, orders"]).await;
    tell(here, &["drop", "--older-than", "long"], 2, &["long"]).await;
    tell(here, &["drain", "--rate", "0"], 2, &["--rate"]).await;
    tell(Path::new("/nowhere/at/all"), &["list"], 78, &["no spool in /nowhere/at/all"]).await;
    tell(Path::new("/nowhere/at/all"), &["drop", "--yes"], 78, &["no spool in /nowhere/at/all"]).await;
    assert!(!Path::new("/nowhere").exists());
    // One stream is not there: the other one gets its records.
    tell(here, &["drain"], 69, &["`gone`", "create the stream"]).await;
    assert_eq!(found(&services, "orders").await, expected(&records(3..5)));
    let listed = json(&services, here, &["list", "--json"]).await;
    assert_eq!((&listed["streams"][0]["stream"], &listed["streams"][0]["records"]), (&"gone".into(), &3.into()));

    let mut child = command();
    child.args(["spool", "drain", "--folder"]).arg(here).env("HOME", here);
    let finished = run(child).await;
    assert_eq!(finished.code, Some(78), "{finished:?}");
    assert_says("drain", &finished.stderr, &["no AWS region is set", "--region"]);
    let mut child = command();
    child.args(["spool", "list"]);
    let finished = run(child).await;
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert_says("list", &finished.stderr, &["--folder"]);

    std::fs::set_permissions(here, std::fs::Permissions::from_mode(0o777)).expect("a mode");
    tell(here, &["list"], 78, &["others may write to it", "chmod go-w"]).await;
    std::fs::set_permissions(here, std::fs::Permissions::from_mode(0o700)).expect("a mode");

    let file = here.join("spool.db");
    let mut bytes = std::fs::read(&file).expect("a file");
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&file, bytes).expect("a file");
    tell(here, &["list"], 1, &["spool.db is damaged", "keep a copy of"]).await;
    std::fs::write(&file, "something else").expect("a file");
    tell(here, &["list"], 1, &["spool.db is damaged"]).await;
}
