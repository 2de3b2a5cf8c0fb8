//! The binary's commands about streams, and what they print.

use serde_json::Value;
use shardmill_record::{Position, SequenceNumber};
use shardmill_tests::{Environment, Finished, Found, assert_says, command, run};
use tokio::process::Command;

/// A command on these services.
pub(crate) fn of(services: &impl Environment, arguments: &[&str]) -> Command {
    let mut child = command();
    child.args(arguments).envs(services.environment());
    child
}

/// Runs a command to its end.
pub(crate) async fn finish(services: &impl Environment, arguments: &[&str]) -> Finished {
    run(of(services, arguments)).await
}

/// A command that ends well; its standard output.
pub(crate) async fn stdout(services: &impl Environment, arguments: &[&str]) -> String {
    let finished = finish(services, arguments).await;
    assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
    finished.stdout
}

/// The JSON lines of a command that ends well.
pub(crate) async fn json_lines(services: &impl Environment, arguments: &[&str]) -> Vec<Value> {
    lines(&stdout(services, arguments).await)
}

/// The one JSON line of a command that ends well.
pub(crate) async fn json(services: &impl Environment, arguments: &[&str]) -> Value {
    let mut lines = json_lines(services, arguments).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// JSON lines.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// A command that fails with this status and says this.
pub(crate) async fn fails(services: &impl Environment, arguments: &[&str], code: i32, said: &[&str]) {
    told(&finish(services, arguments).await, arguments, code, said);
}

/// Asserts how a command has failed.
pub(crate) fn told(finished: &Finished, arguments: &[&str], code: i32, said: &[&str]) {
    assert_eq!(finished.code, Some(code), "{arguments:?}: {finished:?}");
    assert_says(&arguments.join(" "), &finished.stderr, said);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
}

/// The records of the tests' writer in what `shardmill tail --json` has printed.
pub(crate) fn found(lines: &[Value]) -> Vec<Found> {
    let found = |line: &Value| {
        let text = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("{name} in {line}")).to_owned();
        let payload: Value = serde_json::from_str(&text("data")).expect("the writer's payload");
        let sequence_number = SequenceNumber::parse(&text("sequence_number")).expect("a sequence number");
        let position = Position::new(sequence_number, line["sub_sequence_number"].as_u64().expect("a number"));
        assert_eq!(text("position"), position.to_string());
        assert_eq!(payload["key"], line["partition_key"], "{line}");
        Found {
            number: payload["n"].as_u64().expect("a number"),
            key: text("partition_key"),
            shard: text("shard"),
            position,
            arrival: line["arrived_at"].as_u64().expect("a time"),
        }
    };
    lines.iter().map(found).collect()
}
