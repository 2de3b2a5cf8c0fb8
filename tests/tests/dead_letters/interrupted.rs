//! Replays that are interrupted or killed, and two at a time.

use std::time::Duration;

use shardmill_tests::{Process, Services, assert_says, command, eventually, raw};
use tempfile::TempDir;

use crate::letters::{assert_holds, dead_letters, json_line, letters, write};

const LETTERS: u64 = 60;

/// Starts a replay of ten records a second, and waits until it has sent some.
async fn under_way(services: &Services, folder: &TempDir) -> Process {
    services.create_stream("orders", 2).await;
    write(folder.path(), "a.jsonl", &letters(1..=LETTERS));
    let mut child = command();
    child.args(["dead-letters", "replay", "--rate", "10", "--folder"]).arg(folder.path()).envs(services.environment());
    let process = Process::start(child, folder.path());
    eventually(Duration::from_secs(30), "the first records", async || {
        (!raw::user_records(services, "orders").await.is_empty()).then_some(())
    })
    .await;
    process
}

#[tokio::test]
async fn a_replay_that_is_interrupted_goes_on_where_it_was() {
    let (services, folder) = (Services::start().await, TempDir::new().expect("a temporary folder"));
    let path = folder.path().to_str().expect("a path in UTF-8").to_owned();
    let mut process = under_way(&services, &folder).await;
    // Somebody else's at the same time would send everything twice.
    let second = dead_letters(&services, &["replay", "--folder", &path]).await;
    assert_eq!(second.code, Some(69), "{second:?}");
    assert_says("the second", &second.stderr, &["another replay is under way", "wait for it to end"]);
    process.terminate();
    let status = process.wait(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(1), "{}", process.stderr());
    assert_says("the first", &process.stderr(), &["the replay was interrupted", "the same command goes on"]);
    let rest = json_line(&services, &["replay", "--folder", &path, "--json"]).await;
    let before = rest["sent_before"].as_u64().expect("a number");
    assert!(before > 0 && before < LETTERS, "{rest}");
    assert_eq!(rest["sent"], LETTERS - before, "{rest}");
    assert_holds(&services, "orders", &letters(1..=LETTERS)).await;
}

#[tokio::test]
async fn a_replay_that_is_killed_leaves_nothing_out() {
    let (services, folder) = (Services::start().await, TempDir::new().expect("a temporary folder"));
    let path = folder.path().to_str().expect("a path in UTF-8").to_owned();
    let mut process = under_way(&services, &folder).await;
    process.kill().await;
    let rest = json_line(&services, &["replay", "--folder", &path, "--json"]).await;
    let found = raw::user_records(&services, "orders").await;
    for letter in letters(1..=LETTERS) {
        assert!(found.contains(&(letter.key, letter.data)), "{} is not there: {rest}", letter.number);
    }
    // What was sent and not yet noted goes twice: one call's worth at most.
    assert!(found.len() as u64 <= LETTERS + 10, "{} records", found.len());
}
