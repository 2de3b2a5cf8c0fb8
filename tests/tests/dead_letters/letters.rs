//! Letters as `docs/dead-letters.md` says that they are written.

use std::path::Path;

use aws_smithy_types::base64;
use serde_json::{Value, json};
use shardmill_tests::{Environment, Finished, Services, command, run};

/// When the first letter was given up, in milliseconds since 1970: 15 June 2025, 15:06:40.
pub(crate) const GIVEN_UP: u64 = 1_750_000_000_000;

/// A record that was given up.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) number: u64,
    pub(crate) application: &'static str,
    pub(crate) processor: &'static str,
    pub(crate) stream: &'static str,
    /// In place of the stream's own.
    pub(crate) arn: Option<String>,
    pub(crate) key: String,
    pub(crate) hash_key: Option<String>,
    pub(crate) reason: &'static str,
    pub(crate) data: Vec<u8>,
    /// In milliseconds since 1970.
    pub(crate) given_up_at: u64,
}

impl Letter {
    /// The record with this number of the stream `orders`, one of five keys.
    pub(crate) fn new(number: u64) -> Letter {
        let key = format!("key-{}", number % 5);
        let data = format!(r#"{{"n":{number},"key":"{key}"}}"#).into_bytes();
        Letter {
            number,
            application: "tests",
            processor: "enrich",
            stream: "orders",
            arn: None,
            key,
            hash_key: None,
            reason: "no such customer",
            data,
            given_up_at: GIVEN_UP + number * 1000,
        }
    }

    /// One line of a file, or a record of a stream.
    pub(crate) fn json(&self) -> String {
        let mut letter = json!({
            "dead_letter": 1,
            "id": "not looked at",
            "application": self.application,
            "processor": self.processor,
            "stream": self.stream,
            "stream_arn": self.arn.clone().unwrap_or_else(|| arn(self.stream)),
            "shard": "shardId-000000000000",
            "sequence_number": format!("4957{:010}", self.number),
            "sub_sequence_number": 0,
            "partition_key": self.key,
            "arrived_at": GIVEN_UP - 60_000 + self.number,
            "given_up_at": self.given_up_at,
            "attempts": 3,
            "reason": self.reason,
            "plugin": "9f".repeat(32),
            "worker": "worker-1",
            "lease_epoch": 7,
            "data": base64::encode(&self.data),
        });
        if let Some(key) = &self.hash_key {
            letter["explicit_hash_key"] = key.as_str().into();
        }
        letter.to_string()
    }
}

/// The ARN of a stream of the built-in services.
pub(crate) fn arn(stream: &str) -> String {
    format!("arn:aws:kinesis:us-east-1:000000000000:stream/{stream}")
}

/// Letters of ordinary records.
pub(crate) fn letters(numbers: impl IntoIterator<Item = u64>) -> Vec<Letter> {
    numbers.into_iter().map(Letter::new).collect()
}

/// A file of a folder.
pub(crate) fn write(folder: &Path, file: &str, letters: &[Letter]) {
    let lines: String = letters.iter().map(|letter| letter.json() + "\n").collect();
    std::fs::write(folder.join(file), lines).expect("a file of letters");
}

/// Runs `shardmill dead-letters`.
pub(crate) async fn dead_letters(services: &impl Environment, arguments: &[&str]) -> Finished {
    let mut child = command();
    child.arg("dead-letters").args(arguments).envs(services.environment());
    run(child).await
}

/// The same, which must end with this exit status; its standard output.
pub(crate) async fn ends(services: &impl Environment, code: i32, arguments: &[&str]) -> String {
    let finished = dead_letters(services, arguments).await;
    assert_eq!(finished.code, Some(code), "{arguments:?}: {finished:?}");
    finished.stdout
}

/// The JSON lines of a command that ends well.
pub(crate) async fn json_lines(services: &impl Environment, arguments: &[&str]) -> Vec<Value> {
    let stdout = ends(services, 0, arguments).await;
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The one JSON line of a command that ends well.
pub(crate) async fn json_line(services: &impl Environment, arguments: &[&str]) -> Value {
    json_line_of(services, 0, arguments).await
}

/// The one JSON line of a command that ends with this exit status.
pub(crate) async fn json_line_of(services: &impl Environment, code: i32, arguments: &[&str]) -> Value {
    let stdout = ends(services, code, arguments).await;
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// The ids of a listing, by number.
pub(crate) fn id_of(listed: &[Value], number: u64) -> String {
    let sequence_number = format!("4957{number:010}");
    let found = listed.iter().find(|line| line["sequence_number"] == *sequence_number);
    found.and_then(|line| line["id"].as_str()).unwrap_or_else(|| panic!("{number} in {listed:?}")).to_owned()
}

/// Asserts that a stream holds the records of these letters, each once, and those of a key in order.
pub(crate) async fn assert_holds(services: &Services, stream: &str, letters: &[Letter]) {
    let found = shardmill_tests::raw::user_records(services, stream).await;
    let expected: Vec<(String, Vec<u8>)> =
        letters.iter().map(|letter| (letter.key.clone(), letter.data.clone())).collect();
    let by_key = |records: &[(String, Vec<u8>)]| {
        let mut records = records.to_vec();
        // Stable: the order of a key stays.
        records.sort_by(|left, right| left.0.cmp(&right.0));
        records
    };
    assert_eq!(by_key(&found), by_key(&expected), "in {stream}");
}
