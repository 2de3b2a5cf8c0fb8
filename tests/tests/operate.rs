//! What an operator can do while a worker runs: look, pause, resume, restart, rewind. Over HTTP and with the commands.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use shardmill_tests::{
    Config, Fault, Finished, Proxy, Rule, Services, Tail, Worker, Writer, assert_each_once, assert_says, command,
    leases, numbers, run,
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

async fn until_done(worker: &mut Worker, count: u64) {
    worker
        .until(&format!("{count} records"), async |worker| (worker.records_done().await >= count).then_some(()))
        .await;
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
    until_done(&mut worker, 400).await;
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
    until_done(&mut worker, expected as u64).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(worker.records_done().await, expected as u64);
    operator.tells(&worker, &["resume", "copy"]).await;
    until_done(&mut worker, 800).await;
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
    until_done(&mut worker, 50).await;
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
    until_done(&mut worker, 100).await;
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

/// How often each number is in the output.
fn times(output: &[shardmill_tests::Found], number: u64) -> usize {
    output.iter().filter(|found| found.number == number).count()
}

#[tokio::test]
async fn a_rewind_of_one_shard_repeats_that_shard_and_a_successor_goes_on_from_there() {
    let services = Services::with_streams(2, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let mut writer = Writer::new(&services, "input", 40);
    writer.put(300).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    until_done(&mut worker, 300).await;
    let before = leases::rows(&services, config.lease_table()).await;
    let said = operator.tells(&worker, &["rewind", "copy", "--shard", FIRST, "--to", "trim-horizon"]).await;
    assert_says("a rewind", &said, &[FIRST, "is rewound"]);
    let keys = writer.keys_of(FIRST).await;
    let again: BTreeSet<u64> = (0..300).filter(|number| keys.contains(&writer.key_of_number(*number))).collect();
    assert!(!again.is_empty() && again.len() < 300);
    until_done(&mut worker, 300 + again.len() as u64).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    for number in 0..300 {
        assert_eq!(times(&output, number), if again.contains(&number) { 2 } else { 1 }, "record {number}");
    }
    let after = leases::rows(&services, config.lease_table()).await;
    assert_eq!(after[FIRST].epoch, before[FIRST].epoch + 1, "the fencing token has grown");
    let told = worker.logged("WARN", "is rewound by an operator's order");
    assert_eq!((told.len(), told[0]["shard"].as_str()), (1, Some(FIRST)), "{told:?}");
    leases::assert_released_at_the_end(&after, &Tail::all(&services, "input").await);
    let mut worker = Worker::start_ready(&services, &config).await;
    writer.put(10).await;
    until_done(&mut worker, 10).await;
    worker.stop().await;
    assert_eq!(Tail::all(&services, "output").await.len(), 310 + again.len());
}

#[tokio::test]
async fn a_rewind_to_a_time_repeats_what_came_since_and_one_to_the_tip_passes_over_what_is_there() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    tokio::time::sleep(NEXT_SECOND).await;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time after 1970");
    // Milliseconds are taken as well as RFC 3339.
    let since = (since.as_millis() / 1000 * 1000).to_string();
    writer.put(100).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    until_done(&mut worker, 200).await;
    operator.tells(&worker, &["rewind", "copy", "--to", &since]).await;
    until_done(&mut worker, 300).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(worker.records_done().await, 300);
    let output = Tail::all(&services, "output").await;
    assert!((0..100).all(|number| times(&output, number) == 1) && (100..200).all(|number| times(&output, number) == 2));

    // A paused shard is rewound, and goes on there when it is resumed.
    operator.tells(&worker, &["pause", "copy"]).await;
    until_state(&mut worker, "paused", 1).await;
    writer.put(100).await;
    tokio::time::sleep(NEXT_SECOND).await;
    operator.tells(&worker, &["rewind", "copy", "--to", "latest"]).await;
    let row = leases::rows(&services, config.lease_table()).await[FIRST].clone();
    assert_eq!(row.checkpoint.to_string(), "LATEST");
    assert!(row.start_at.is_some(), "what a KCL does not read, and this project does");
    until_state(&mut worker, "paused", 1).await;
    tokio::time::sleep(NEXT_SECOND).await;
    let kept = writer.put(50).await;
    operator.tells(&worker, &["resume", "copy"]).await;
    until_done(&mut worker, 350).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_eq!(output.len(), 350, "100 records are passed over");
    assert_eq!(numbers(&output[300..]), kept.collect());
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
    until_done(&mut worker, 100).await;
    assert_eq!(worker.get("/readyz").await.0, 200);
    assert_eq!(worker.metric("shardmill_shards_stopped", "").await, 0.0);
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..100);
}

#[tokio::test]
async fn a_poison_record_is_passed_over_by_a_rewind_behind_it() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(50).await;
    writer.put_data("key-1", b"poison").await;
    let mut worker = Worker::start(&services, &operator.config());
    worker
        .until("a stopped shard", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            worker.get("/readyz").await.1.contains("is stopped").then_some(())
        })
        .await;
    tokio::time::sleep(NEXT_SECOND).await;
    operator.tells(&worker, &["rewind", "copy", "--to", "latest"]).await;
    until_state(&mut worker, "running", 1).await;
    tokio::time::sleep(NEXT_SECOND).await;
    writer.put(50).await;
    until_done(&mut worker, 100).await;
    assert_eq!(worker.get("/readyz").await.0, 200);
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..100);
}

#[tokio::test]
async fn a_rewind_does_not_wait_for_outputs_that_are_not_taken() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let throttled = Rule::new(Fault::Refused("ProvisionedThroughputExceededException")).operation("PutRecords");
    let rule = proxy.inject(throttled);
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let mut worker = Worker::start_ready(&link, &config).await;
    worker.until("refused outputs", async |_| (rule.count() > 0).then_some(())).await;
    tokio::time::sleep(NEXT_SECOND).await;
    operator.tells(&worker, &["rewind", "copy", "--to", "latest"]).await;
    tokio::time::sleep(NEXT_SECOND).await;
    proxy.calm();
    let kept = writer.put(50).await;
    until_done(&mut worker, 50).await;
    worker.stop().await;
    assert_eq!(numbers(&Tail::all(&services, "output").await), kept.collect());
}

/// Milliseconds since 1970, in whole seconds as the local Kinesis keeps them.
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time after 1970");
    (since.as_millis() / 1000 * 1000).to_string()
}

#[tokio::test]
async fn a_rewind_of_all_over_closed_shards_is_refused_until_they_are_left_out() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let mut writer = Writer::new(&services, "input", 40);
    writer.put(100).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    until_done(&mut worker, 100).await;
    services.split("input", FIRST).await;
    leases::until_ended(&mut worker, &services, config.lease_table(), &[FIRST]).await;
    until_state(&mut worker, "running", 2).await;
    tokio::time::sleep(NEXT_SECOND).await;
    let after_split = now();
    writer.put(100).await;
    until_done(&mut worker, 200).await;

    let refused = operator.says(&worker, &["rewind", "copy", "--to", "trim-horizon"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_says("a rewind over a split", &refused.stderr, &["closed", FIRST, "nothing was done", "--open-only"]);
    tokio::time::sleep(NEXT_SECOND).await;
    assert_eq!(worker.records_done().await, 200);

    // After the split there is nothing that they hold.
    let said = operator.tells(&worker, &["rewind", "copy", "--to", &after_split]).await;
    assert!(!said.contains(FIRST), "{said}");
    until_done(&mut worker, 300).await;
    let said = operator.tells(&worker, &["rewind", "copy", "--to", "trim-horizon", "--open-only", "--json"]).await;
    let json: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(json["shards"].as_array().map(Vec::len), Some(2), "{json}");
    until_done(&mut worker, 400).await;
    // Longer ago than the stream keeps anything.
    let said = operator.tells(&worker, &["rewind", "copy", "--to", "2020-01-01T00:00:00Z", "--open-only"]).await;
    assert_says("a time that is gone", &said, &["the oldest record that there is", "24 h"]);
    until_done(&mut worker, 500).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert!((0..100).all(|number| times(&output, number) == 1) && (100..200).all(|number| times(&output, number) == 4));
}

#[tokio::test]
async fn a_rewind_of_all_names_the_shards_of_other_workers_and_fails() {
    let services = Services::with_streams(2, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    Writer::new(&services, "input", 40).put(200).await;
    let mut workers = Vec::new();
    for id in ["one", "other", "idle"] {
        let config = config.clone().top(&format!("worker-id = {id:?}"));
        workers.push(Worker::start_ready(&services, &config).await);
    }
    let [one, other, idle] = &mut workers[..] else { panic!("three workers") };
    let held = async |worker: &Worker| worker.status().await["shards"].as_object().map_or(0, serde_json::Map::len);
    one.until("a shard each", async |one| {
        let counts = [held(one).await, held(other).await, held(idle).await];
        (counts.iter().all(|count| *count < 2) && counts.iter().sum::<usize>() == 2).then_some(())
    })
    .await;
    let mut said = Vec::new();
    for worker in [&*one, &*other, &*idle] {
        let finished = operator.says(worker, &["rewind", "copy", "--to", "latest"]).await;
        assert_eq!(finished.code, Some(1), "{finished:?}");
        said.push((held(worker).await, finished));
    }
    for (held, Finished { stdout, stderr, .. }) in said {
        match held {
            0 => assert_says(
                "none",
                &(stdout + &stderr),
                &["has it: ask that one", "no shard of copy", "nothing was done"],
            ),
            _ => assert_says(
                "one of two",
                &(stdout + &stderr),
                &["is rewound", "left as it is", "has it: ask that one", "1 of 2"],
            ),
        }
    }
    for worker in &mut workers {
        worker.stop().await;
    }
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
