//! Records, and tests that run themselves again as another process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use shardmill_record::UserRecord;
use shardmill_spool::{Metrics, Options, Spool, Spooled};
use tempfile::TempDir;

/// The folder of a test that runs again as another process.
const HERE: &str = "SHARDMILL_TEST_SPOOL";

/// Where a test that has been run again is to work; `None` in the first process.
pub(crate) fn is_child() -> Option<PathBuf> {
    std::env::var_os(HERE).map(Into::into)
}

/// This program, with one test, in a shell which sees to it that a file that is too large is an error and no signal.
pub(crate) fn again(test: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap '' XFSZ; exec "$0" --exact --nocapture "$1""#]);
    command.arg(std::env::current_exe().expect("a program knows where it is")).arg(test).env(HERE, folder);
    command
}

/// Runs a test again in a process of its own, with a folder; there it is that folder.
pub(crate) fn alone(test: &str) -> Option<PathBuf> {
    let folder = is_child();
    if folder.is_none() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let output = again(test, home.path()).output().expect("this program can be run");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    }
    folder
}

/// What a process leaves that is killed: the files as they are at this moment.
pub(crate) fn left_by_a_killed_one(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        fs::copy(&path, copy.path().join(path.file_name().expect("a name"))).expect("a copy");
    }
    copy
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

pub(crate) async fn opened(folder: &Path) -> Spool {
    Spool::open(folder, Options::default(), Metrics::default()).await.expect("a spool")
}

/// The record with this number of a key.
pub(crate) fn record(key: u64, number: u64) -> UserRecord {
    let data = format!("{number} {}", "x".repeat((number * 37 % 500) as usize));
    UserRecord { partition_key: format!("key {key}"), explicit_hash_key: None, data: data.into() }
}

/// Key and number of a record, which is whole.
pub(crate) fn parse(found: &UserRecord) -> (u64, u64) {
    let key = found.partition_key.strip_prefix("key ").and_then(|key| key.parse().ok()).expect("a key");
    let text = std::str::from_utf8(&found.data).expect("text");
    let number = text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    assert_eq!(*found, record(key, number), "it is whole");
    (key, number)
}

pub(crate) async fn all(spool: &Spool, stream: &str) -> Vec<Spooled> {
    spool.front(stream, usize::MAX, u64::MAX).await.expect("what waits")
}
