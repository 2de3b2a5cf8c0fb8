//! What an operator can do while a worker runs: look, pause, resume, restart, rewind. Over HTTP and with the commands.

mod rewind;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use shardmill_tests::{
    Config, Finished, Services, Tail, Worker, Writer, assert_each_once, assert_says, command, leases, run,
};
use tempfile::TempDir;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const FIRST: &str = "shardId-000000000000";
/// The local Kinesis keeps times of arrival in whole seconds.
const NEXT_SECOND: Duration = Duration::from_millis(1_100);

/// A token's file, and a configuration that names it.
struct Operator {
    _folder: TempDir,
    token: PathBuf,
}

impl Operator {
    fn new() -> Operator {
        let folder = TempDir::new().expect("a temporary folder");
        let token = folder.path().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).expect("a token");
        Operator { _folder: folder, token }
    }

    fn config(&self) -> Config {
        Config::copy().admin(&format!("token-file = {:?}", self.token))
    }

    /// A command of the binary against a worker.
    async fn says(&self, worker: &Worker, arguments: &[&str]) -> Finished {
        let mut child = command();
        child.args(arguments).args(["--admin", &worker.admin()]);
        child.arg("--token-file").arg(&self.token);
        run(child).await
    }

    /// The same, which must be carried out.
    async fn tells(&self, worker: &Worker, arguments: &[&str]) -> String {
        let finished = self.says(worker, arguments).await;
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
        finished.stdout
    }
}

/// Waits until so many shards are in a state.
async fn until_state(worker: &mut Worker, state: &str, count: usize) {
    worker
        .until(&format!("{count} shards that are {state}"), async |worker| {
            let status = worker.status().await;
            let found = status["shards"].as_object().into_iter().flatten().filter(|(_, shard)| shard["state"] == state);
            (found.count() == count).then_some(())
        })
        .await;
}

#[tokio::test]
async fn a_paused_processor_rests_with_its_leases_and_goes_on_where_it_was() {
    let services = Services::with_streams(2, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let mut writer = Writer::new(&services, "input", 40);
    writer.put(400).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(400).await;
    let said = operator.tells(&worker, &["pause", "copy"]).await;
    assert_says("a pause", &said, &[FIRST, "shardId-000000000001", "of stream input"]);
    until_state(&mut worker, "paused", 2).await;
    assert_eq!(worker.metric("shardmill_shards_paused", r#"processor="copy""#).await, 2.0);
    writer.put(400).await;
    let reads = worker.metric("shardmill_stream_reads_total", "").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(worker.metric("shardmill_stream_reads_total", "").await, reads, "nothing is read");
    assert_eq!(worker.records_done().await, 400);
    let (ready, text) = worker.get("/readyz").await;
    assert_eq!(ready, 200, "somebody wants it so: {text}");
    assert_says("/readyz", &text, &["ready", &format!("shard {FIRST} of stream input is paused")]);
    let rows = leases::rows(&services, config.lease_table()).await;
    assert!(rows.values().all(|row| row.owner.is_some()), "{rows:?}");

    // One of them, then the other.
    operator.tells(&worker, &["resume", "copy", "--shard", FIRST]).await;
    until_state(&mut worker, "running", 1).await;
    let of_first = writer.keys_of(FIRST).await;
    let expected = (0..800).filter(|number| *number < 400 || of_first.contains(&writer.key_of_number(*number))).count();
    worker.until_records(expected as u64).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(worker.records_done().await, expected as u64);
    operator.tells(&worker, &["resume", "copy"]).await;
    worker.until_records(800).await;
    assert_eq!(worker.get("/readyz").await, (200, "ready\n".to_owned()));
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..800);
}

#[tokio::test]
async fn a_paused_worker_stops_as_any_other_and_its_successor_knows_nothing_of_the_pause() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let mut worker = Worker::start_ready(&services, &operator.config()).await;
    until_state(&mut worker, "running", 1).await;
    operator.tells(&worker, &["pause", "copy"]).await;
    until_state(&mut worker, "paused", 1).await;
    Writer::new(&services, "input", 10).put(50).await;
    worker.stop().await;
    assert_eq!(Tail::all(&services, "output").await.len(), 0);
    let mut worker = Worker::start_ready(&services, &operator.config()).await;
    worker.until_records(50).await;
    worker.stop().await;
}

#[tokio::test]
async fn commands_need_the_token_and_without_one_there_are_none() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let mut open = Worker::start_ready(&services, &Config::copy()).await;
    let (code, text) = open.post("/v1/processors/copy/pause", Some(TOKEN), "").await;
    assert_eq!(code, 404, "{text}");
    assert_says("without a token", &text, &["token-file", "[admin]"]);
    let finished = operator.says(&open, &["pause", "copy"]).await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert_says("the command", &finished.stderr, &["token-file"]);
    open.stop().await;

    let mut worker = Worker::start_ready(&services, &operator.config()).await;
    until_state(&mut worker, "running", 1).await;
    let path = "/v1/processors/copy/pause";
    for token in [None, Some(""), Some("0123456789abcdef0123456789abcdeF"), Some("0123456789abcdef")] {
        let (code, text) = worker.post(path, token, "").await;
        assert_eq!(code, 401, "{token:?}: {text}");
    }
    let mut child = command();
    child.args(["pause", "copy", "--admin", &worker.admin()]).env("SHARDMILL_ADMIN_TOKEN", "another-token-of-24-chars");
    let finished = run(child).await;
    assert_eq!(finished.code, Some(77), "{finished:?}");
    assert_says("another token", &finished.stderr, &["--token-file"]);
    until_state(&mut worker, "running", 1).await;

    // What is wrong with a command is said, and nothing is done.
    for (path, body, code, said) in [
        ("/v1/processors/copy/stop", "", 404, &["`stop`", "pause, resume, restart and rewind"][..]),
        ("/v1/processors/other/pause", "", 404, &["`other`", "copy"]),
        (path, "{\"shard\": []}", 400, &["shard", "shards"]),
        (path, "{\"to\": \"latest\"}", 400, &["rewind alone"]),
        (path, "{\"shards\": [\"shardId-000000000000\", \"shardId-000000000007\"]}", 404, &["000000000007", FIRST]),
        ("/v1/processors/copy/rewind", "", 400, &["`to`", "trim-horizon"]),
        ("/v1/processors/copy/rewind", "{\"to\": \"yesterday\"}", 400, &["yesterday", "trim-horizon"]),
        ("/v1/processors/copy/rewind", "{\"to\": \"2999-01-01T00:00:00Z\"}", 400, &["2999", "still to come"]),
    ] {
        let (got, text) = worker.post(path, Some(TOKEN), body).await;
        assert_eq!(got, code, "{path} {body}: {text}");
        assert_says(path, &text, said);
    }
    until_state(&mut worker, "running", 1).await;
    let (code, text) = worker.post(path, Some(TOKEN), "{\"shards\": [\"shardId-000000000000\"]}").await;
    assert_eq!(code, 200, "{text}");
    until_state(&mut worker, "paused", 1).await;
    // Reading needs none.
    assert_eq!(worker.get("/v1/status").await.0, 200);
    for (body, done) in [("", "\"done\":true"), ("{\"shards\": [\"shardId-000000000000\"]}", "\"done\":false")] {
        let (_, text) = worker.post("/v1/processors/copy/restart", Some(TOKEN), body).await;
        assert_says("a restart of what is not stopped", &text, &["is not stopped", done]);
    }
    worker.stop().await;
    assert!(!worker.stderr().contains(TOKEN), "the token is never logged");
}

#[tokio::test]
async fn status_is_shown_for_people_and_for_machines_and_an_address_without_a_worker_is_told() {
    let services = Services::with_streams(2, 1).await;
    let mut worker = Worker::start_ready(&services, &Config::copy().top(r#"worker-id = "worker-7""#)).await;
    Writer::new(&services, "input", 20).put(100).await;
    worker.until_records(100).await;
    until_state(&mut worker, "running", 2).await;
    let status = async |arguments: &[&str]| {
        let mut child = command();
        child.arg("status").args(arguments);
        run(child).await
    };
    let admin = worker.admin();
    let finished = status(&["--admin", &admin]).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_says("status", &finished.stdout, &["worker-7", "copy", "input", FIRST, "running", "0s"]);
    let finished = status(&["--json", "--admin", &admin]).await;
    let json: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!((&json["worker"], &json["unready"]), (&"worker-7".into(), &Value::Array(Vec::new())), "{json}");
    assert_eq!(json["processors"]["copy"]["shards"][FIRST]["state"], "running", "{json}");
    worker.stop().await;
    let finished = status(&["--admin", &admin]).await;
    assert_eq!(finished.code, Some(69), "{finished:?}");
    assert_says("nobody there", &finished.stderr, &[admin.trim_start_matches("http://"), "--admin URL"]);
    let finished = status(&["--admin", "https://127.0.0.1:1"]).await;
    assert_eq!(finished.code, Some(78), "{finished:?}");
}

#[tokio::test]
async fn a_stopped_shard_begins_again_without_a_restart_of_the_worker_once_the_cause_is_mended() {
    let services = Services::start().await;
    services.create_stream("input", 1).await;
    let operator = Operator::new();
    Writer::new(&services, "input", 20).put(100).await;
    let mut worker = Worker::start(&services, &operator.config());
    worker
        .until("a stopped shard", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            let (_, text) = worker.get("/readyz").await;
            text.contains("is stopped").then_some(())
        })
        .await;
    services.create_stream("output", 1).await;
    let said = operator.tells(&worker, &["restart", "copy"]).await;
    assert_says("a restart", &said, &[FIRST, "begins again"]);
    worker.until_records(100).await;
    assert_eq!(worker.get("/readyz").await.0, 200);
    assert_eq!(worker.metric("shardmill_shards_stopped", "").await, 0.0);
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..100);
}

#[tokio::test]
async fn a_server_on_loopback_is_asked_by_its_address_and_an_open_token_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;

    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let mode = |mode| std::fs::set_permissions(&operator.token, std::fs::Permissions::from_mode(mode)).expect("a mode");
    mode(0o644);
    let mut worker = Worker::start_ready(&services, &operator.config()).await;
    assert_eq!(worker.logged("WARN", "every user of this machine can read the token's file").len(), 1);
    let client = reqwest::Client::new();
    for path in ["/status", "/v1/status", "/metrics", "/readyz"] {
        let ask = async |host: &str| {
            let request = client.get(format!("{}{path}", worker.admin())).header("host", host);
            request.send().await.expect("an answer").status().as_u16()
        };
        assert_eq!(ask("rebound.example:9465").await, 421, "{path}");
        assert_eq!(ask("localhost:9465").await, 200, "{path}");
    }
    worker.stop().await;
    mode(0o600);
    let mut worker = Worker::start_ready(&services, &operator.config()).await;
    assert_eq!(worker.logged("WARN", "token's file").len(), 0);
    worker.stop().await;
}
