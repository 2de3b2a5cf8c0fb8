//! Independent emulators, as `scripts/emulators.sh` sets them up. Each run is a process with a folder of its own, and
//! listens on a free port of loopback, which it chooses itself and tells: nothing collides.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;

use super::Services;
use crate::paths;
use crate::process::{Process, isolated};
use crate::wait::eventually;

/// They are slow to start on a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What the emulators from npm ask for; `loopback.cjs` gives them another port, and tells it under this one.
const ASKED_PORT: &str = "2";
const OTHER_PORT: &str = "1";

impl Services {
    /// Streams in `kinesis-local` and lease tables in `dynalite`.
    ///
    /// `kinesis-local` knows most of what Kinesis does. It is slow (about 1,000 records a second), gives closed shards
    /// an ending sequence number that is none of theirs, and takes `AT_TRIM_HORIZON` for all shards. `dynalite` has no
    /// transactions, and does not return the row on which a condition failed.
    pub async fn kinesis_local_and_dynalite() -> Services {
        let folder = TempDir::new().expect("a temporary folder");
        let ((kinesis, kinesis_endpoint), (dynamodb, dynamodb_endpoint)) =
            tokio::join!(kinesis_local(folder.path()), dynalite(folder.path()));
        let environment = environment(&kinesis_endpoint, &dynamodb_endpoint);
        Services::new(environment, vec![kinesis, dynamodb], folder)
    }

    /// Streams and lease tables in `ministack`.
    ///
    /// Its `MillisBehindLatest` is the age of the next record, its sequence numbers have leading zeros and are found
    /// as texts. Not for resharding: it deletes the parent with what nobody has read yet.
    pub async fn ministack() -> Services {
        let folder = TempDir::new().expect("a temporary folder");
        let (process, endpoint) = ministack(folder.path()).await;
        Services::new(environment(&endpoint, &endpoint), vec![process], folder)
    }
}

fn environment(kinesis: &str, dynamodb: &str) -> BTreeMap<String, String> {
    [
        ("AWS_ENDPOINT_URL_KINESIS", kinesis),
        ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

async fn kinesis_local(folder: &Path) -> (Process, String) {
    let package = paths::emulator("kinesis-local").await.join("node_modules/kinesis-local");
    let mut node = node(&package.join("main.js"));
    node.env("KINESIS_MOCK_CERT_PATH", package.join("server.json"))
        .envs([("KINESIS_MOCK_PLAIN_PORT", ASKED_PORT), ("KINESIS_MOCK_TLS_PORT", OTHER_PORT), ("SHARD_LIMIT", "500")])
        // Long enough for the states between to be seen, and no longer.
        .envs(["CREATE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS"].map(|change| (format!("{change}_DURATION"), "100ms")));
    start(node, &folder.join("kinesis-local"), &format!("port {ASKED_PORT} is ")).await
}

async fn dynalite(folder: &Path) -> (Process, String) {
    let package = paths::emulator("dynalite").await.join("node_modules/dynalite");
    let mut node = node(&package.join("cli.js"));
    node.args(["--port", ASKED_PORT, "--createTableMs", "100"]);
    start(node, &folder.join("dynalite"), &format!("port {ASKED_PORT} is ")).await
}

async fn ministack(folder: &Path) -> (Process, String) {
    let mut command = isolated(paths::emulator("ministack").await.join("bin/ministack"));
    command.envs([("BIND_HOST", "127.0.0.1"), ("GATEWAY_PORT", "0"), ("SERVICES", "kinesis,dynamodb")]);
    start(command, &folder.join("ministack"), "Running on http://").await
}

fn node(script: &Path) -> Command {
    let mut node = isolated("node");
    node.arg("--require").arg(paths::repository().join("tests/emulators/loopback.cjs")).arg(script);
    node
}

/// Starts an emulator in a folder, and waits until it says, after `announcement`, where it listens.
async fn start(mut command: Command, folder: &Path, announcement: &str) -> (Process, String) {
    std::fs::create_dir(folder).expect("a folder for an emulator");
    command.current_dir(folder).env("HOME", folder).env("TMPDIR", folder);
    let mut process = Process::start(command, folder);
    let address = eventually(START_LIMIT, &format!("the address of {}", folder.display()), async || {
        let text = [process.stdout(), process.stderr()].concat();
        assert!(process.ended().is_none(), "the emulator in {} has ended: {text}", folder.display());
        let (_, rest) = text.split_once(announcement)?;
        // A line may be half written.
        let (address, _) = rest.split_once(char::is_whitespace)?;
        Some(address.to_owned())
    })
    .await;
    (process, format!("http://{address}"))
}
