//! A guest may do what the configuration grants, and nothing else; and what it is trusted with is in nothing that others
//! read.

mod server;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use server::Server;
use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Environment, Finished, Guests, Services, Worker, assert_says, command, paths, run};
use tempfile::TempDir;

const WRONG_CONFIGURATION: Option<i32> = Some(78);
/// What is in the environment of the worker, and in a file.
const KEY: &str = "k3y-of-the-guest";
const TOKEN: &str = "t0ken \"with\" quotes\nand a second l1ne";
/// Words of them that nothing else says.
const WORDS: [&str; 3] = ["k3y-of", "t0ken", "second l1ne"];

// === what is refused, and how it is told ===

/// A command with a configuration whose processor `asks` has the guest that asks for everything.
async fn with_grants(folder: &Path, subcommand: &[&str], lines: &str) -> Finished {
    let path = folder.join("shardmill.toml");
    let (plugin, compiled) = (paths::plugin("guest_reach"), paths::compiled());
    let text = format!(
        "application = \"tests\"\ncache-dir = {compiled:?}\n[admin]\nenabled = false\n[processors.asks]\nstream = \"input\"\nplugin = {plugin:?}\n[processors.asks.outputs.out]\nstream = \"output\"\n{lines}"
    );
    fs::write(&path, text).expect("a configuration file");
    let mut child = command();
    // A region, and no service: nothing here comes so far as to ask one.
    child.args(subcommand).arg("--config").arg(&path).env("AWS_REGION", "us-east-1").env_remove("REACH_KEY");
    run(child).await
}

const ALL: &str = "[processors.asks.grants]\nclocks = true\nrandom = true\nmetrics = true\nhttp = { hosts = [\"api.example.com\"] }\n";

#[tokio::test]
async fn what_a_guest_asks_for_is_denied_until_a_line_grants_it() {
    let folder = TempDir::new().expect("a temporary folder");
    for subcommand in ["check", "run"] {
        let finished = with_grants(folder.path(), &[subcommand], "").await;
        assert_eq!(finished.code, WRONG_CONFIGURATION, "{finished:?}");
        assert_says(
            subcommand,
            &finished.stderr,
            &[
                "wasi:clocks/monotonic-clock@0.2",
                "add `clocks = true` to [processors.asks.grants]",
                "wasi:random/random@0.2",
                "add `random = true`",
                "shardmill:processor/metrics@0.1.0",
                "add `metrics = true`",
                "wasi:http/outgoing-handler@0.2",
                "add `http = { hosts = [\"HOST\"] }`",
            ],
        );
    }
    let inspected = inspect(&["--json"]).await;
    let json: Value = serde_json::from_str(&inspected.stdout).expect("JSON");
    assert_eq!(json["needs"], json!(["clocks", "random", "metrics", "http"]));
    let inspected = inspect(&[]).await;
    assert_says("inspect", &inspected.stdout, &["grants = { clocks = true, random = true, metrics = true, http = "]);

    let granted = with_grants(folder.path(), &["check"], ALL).await;
    assert_eq!(granted.code, Some(0), "{granted:?}");
    assert_says(
        "check",
        &granted.stdout,
        &[
            "may read the clocks and wait",
            "may draw random numbers",
            "may show metrics of its own",
            "may send DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT to api.example.com",
        ],
    );
    let by_default = ALL.replace("processors.asks", "defaults.processor");
    let granted = with_grants(folder.path(), &["check", "--json"], &by_default).await;
    let json: Value = serde_json::from_str(&granted.stdout).expect("JSON");
    let grants = &json["processors"][0]["grants"];
    assert_eq!((&grants["clocks"], &grants["http"]["hosts"]), (&true.into(), &json!(["api.example.com"])), "{json}");
}

async fn inspect(arguments: &[&str]) -> Finished {
    let mut child = command();
    child.args(["plugin", "inspect"]).args(arguments).arg(paths::plugin("guest_reach"));
    run(child).await
}

#[tokio::test]
async fn a_secret_that_is_not_there_is_told_and_one_that_is_there_is_not_shown() {
    let folder = TempDir::new().expect("a temporary folder");
    let token = folder.path().join("token");
    fs::write(&token, TOKEN).expect("a file");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("rights");
    // Whoever opens it waits for somebody to write.
    mknodat(CWD, folder.path().join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let secrets = |secrets: &str| format!("{ALL}secrets = {{ {secrets} }}\n");
    for (lines, said) in [
        (
            "KEY = { env = \"REACH_KEY\" }",
            &["environment variable REACH_KEY is not set", "`KEY` of `grants.secrets`"][..],
        ),
        ("KEY = { file = \"absent\" }", &["absent", "cannot be read"]),
        ("KEY = { file = \"pipe\" }", &["pipe", "it is no regular file"]),
        ("KEY = \"hunter22\"", &["a secret is not written here", "{ env = ", "{ file = "]),
        ("KEY = { env = \"A\", file = \"b\" }", &["a secret is in one place"]),
        ("1KEY = { env = \"A\" }", &["`1KEY` is no name of a variable"]),
    ] {
        let refused = with_grants(folder.path(), &["check"], &secrets(lines)).await;
        assert_eq!(refused.code, WRONG_CONFIGURATION, "{lines}: {refused:?}");
        assert_says(lines, &refused.stderr, said);
    }
    // What somebody has written where a secret is to be named is in nothing that is printed; nor is what stands beside it.
    let written = [
        ("secrets = { KEY = \"hunter22\" }", "a secret is not written here"),
        ("secrets = { PIN = 13572468 }", "a secret is not written here"),
        ("secrets = { PIN = 13572468.5 }", "a secret is not written here"),
        ("secrets = { KEY = [\"hunter22\"] }", "a secret is not written here"),
        ("secrets = \"hunter22\"", "a secret is not written here"),
        ("secrets = { KEY = { value = \"hunter22\" } }", "unknown field `value`"),
        ("secrets = { KEY = \"hunter22 }", "unclosed inline table"),
        ("secret = { KEY = \"hunter22\" }", "unknown field `secret`"),
        ("secrets = { KEY = \"hunter22\" }\nclock = true", "unknown field `clock`"),
        ("clock = true\nsecrets = { KEY = \"hunter22\" }", "unknown field `clock`"),
    ];
    for (place, (lines, said)) in written.into_iter().enumerate() {
        let subcommand = ["check", "run"][place % 2];
        let finished = with_grants(folder.path(), &[subcommand], &format!("{ALL}{lines}\n")).await;
        assert_eq!(finished.code, WRONG_CONFIGURATION, "{lines}: {finished:?}");
        assert_says(lines, &finished.stderr, &["shardmill.toml:", said]);
        let all = format!("{}{}", finished.stdout, finished.stderr);
        assert!(!all.contains("hunter") && !all.contains("1357"), "{subcommand} {lines}: {all}");
    }
    for arguments in [&["check"][..], &["check", "--json"]] {
        let good = with_grants(folder.path(), arguments, &secrets("TOKEN = { file = \"token\" }")).await;
        assert_eq!(good.code, Some(0), "{good:?}");
        let all = format!("{}{}", good.stdout, good.stderr);
        assert_says("check", &all, &["TOKEN", "token", "every user of this machine can read the secret's file"]);
        assert!(WORDS.iter().all(|word| !all.contains(word)), "{all}");
    }
}

// === a worker ===

/// Services, with variables besides.
struct With(BTreeMap<String, String>);

impl Environment for With {
    fn environment(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

fn worker_environment(services: &Services) -> With {
    let mut variables = services.environment().clone();
    let root = paths::repository().join("host/plugin/tests/tls/root.pem");
    variables.extend([
        ("REACH_KEY".to_owned(), KEY.to_owned()),
        ("REACH_PLACE".to_owned(), "here".to_owned()),
        ("SSL_CERT_FILE".to_owned(), root.display().to_string()),
        // What the host and its WASI may say of guests is said.
        ("RUST_LOG".to_owned(), "info,shardmill=trace,shardmill_plugin=trace,wasmtime_wasi=trace".to_owned()),
    ]);
    With(variables)
}

fn configuration(server: &Server, folder: &Path) -> String {
    let Server { http, https, .. } = server;
    let (token, letters) = (folder.join("token"), folder.join("letters"));
    let each = format!(
        "batch = {{ records = 1 }}\nretry = {{ attempts = 1 }}\nfailure = {{ then = \"dead-letter\" }}\ndead-letters = {{ folder = {letters:?} }}\n"
    );
    let open = format!(
        r#"{each}
[processors.open.grants]
random = true
environment = {{ REGION = "north", PLACE = {{ from = "REACH_PLACE" }} }}
secrets = {{ KEY = {{ env = "REACH_KEY" }}, TOKEN = {{ file = {token:?} }} }}
[processors.open.grants.http]
hosts = ["http://127.0.0.1:{http}", "localhost:{https}"]
allow-private = ["127.0.0.1/32"]
timeout = "2s"
concurrency = 3
response-bytes = "64 KiB"
"#
    );
    let closed = format!(
        "{each}[processors.closed.grants]\nrandom = true\nhttp = {{ hosts = [\"http://localhost:{http}\"] }}\n"
    );
    Guests::new()
        .top("[defaults.output]\naggregate = false\n")
        .with("open", "guest_reach", "", ["input", "output"], &open)
        .with("closed", "guest_reach", "", ["others", "asides"], &closed)
        .text()
}

async fn put(services: &Services, stream: &str, tasks: &[Value]) {
    let records: Vec<Raw> =
        tasks.iter().enumerate().map(|(place, task)| Raw::new(place.to_string(), task.to_string())).collect();
    raw::put(services, stream, &records).await;
}

/// What came of each task, by its place.
async fn outcomes(services: &Services, stream: &str) -> BTreeMap<usize, Value> {
    let records = raw::kinesis_records(services, stream).await;
    let outcome =
        |(key, data): (String, Vec<u8>)| (key.parse().expect("a place"), serde_json::from_slice(&data).expect("JSON"));
    records.into_iter().map(outcome).collect()
}

/// All that is in the files of a folder.
fn contents(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("a file").path());
    files.map(|path: PathBuf| fs::read_to_string(path).unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_guest_reaches_what_it_is_granted_and_keeps_what_it_knows_to_itself() {
    let services = Services::with_streams(1, 1).await;
    services.create_stream("others", 1).await;
    services.create_stream("asides", 1).await;
    let (server, folder) = (Server::start().await, TempDir::new().expect("a temporary folder"));
    fs::write(folder.path().join("token"), format!("{TOKEN}\n")).expect("a file");
    let plain = format!("http://127.0.0.1:{}", server.http);
    let fetch = |url: String| json!({ "do": "fetch", "url": url });
    let many = json!({ "do": "fetch", "url": format!("{plain}/busy"), "times": 12, "authorization": "Bearer $KEY" });
    let said = |what: &str| json!({ "do": what, "text": "it is $KEY, and $TOKEN" });
    let tasks = [
        json!({ "do": "environment" }),
        fetch(format!("{plain}/hello")),
        fetch(format!("https://localhost:{}/secure", server.https)),
        fetch("https://elsewhere.example.com/?key=$KEY".to_owned()),
        fetch(format!("{plain}/redirect")),
        fetch(format!("{plain}/slow")),
        fetch(format!("{plain}/large")),
        fetch(format!("{plain}/dies")),
        many,
        json!({ "do": "sleep", "ms": 10 }),
        json!({ "do": "random" }),
        json!({ "do": "measure", "label": "$KEY" }),
        said("say"),
        said("fail"),
        said("skip"),
        said("reject"),
        said("panic"),
        json!({ "do": "emit", "output": "$KEY" }),
        json!({ "do": "sleep", "ms": 0 }),
    ];
    put(&services, "input", &tasks).await;
    let localhost = format!("http://localhost:{}/", server.http);
    put(&services, "others", &[fetch(localhost), json!({ "do": "environment" })]).await;
    let mut worker = Worker::start_with(&worker_environment(&services), &configuration(&server, folder.path()));
    worker
        .until("the last of the tasks", async |_| {
            let last = tasks.len() - 1;
            let done = outcomes(&services, "output").await.contains_key(&last);
            (done && outcomes(&services, "asides").await.len() == 2).then_some(())
        })
        .await;
    let outcome = outcomes(&services, "output").await;

    // What is granted.
    let variables = json!({ "REGION": "north", "PLACE": "here", "KEY": KEY, "TOKEN": TOKEN });
    assert_eq!(outcome[&0], json!({ "environment": variables, "arguments": 0 }));
    let answer = |place: usize| &outcome[&place]["answers"][0];
    assert_eq!((&answer(1)["status"], &answer(1)["bytes"]), (&200.into(), &"GET /hello HTTP/1.1".len().into()));
    assert_eq!(answer(2)["status"], 200, "{}", answer(2));
    assert_eq!(outcome[&8]["answers"].as_array().map(Vec::len), Some(12));
    assert!(outcome[&8]["answers"].as_array().expect("answers").iter().all(|answer| answer["status"] == 200));
    assert_eq!(server.busiest(), 3, "as many requests at a time as are granted");
    assert_eq!((&outcome[&9]["slept"], outcome[&10]["random"].is_u64()), (&10.into(), true));

    // What is not, or not so long and so much.
    assert_eq!(answer(3)["error"], "ErrorCode::HttpRequestDenied");
    assert_eq!((&answer(4)["status"], &answer(4)["location"]), (&302.into(), &"http://elsewhere.example.com/".into()));
    assert_eq!(answer(5)["error"], "ErrorCode::HttpResponseTimeout");
    assert!(answer(6)["broken"].as_str().is_some_and(|error| error.contains("65536")), "{}", answer(6));
    assert!(answer(6)["bytes"].as_u64() <= Some(65536), "{}", answer(6));
    assert!(answer(7)["error"].is_string(), "{}", answer(7));
    let asides = outcomes(&services, "asides").await;
    assert_eq!(asides[&0]["answers"][0]["error"], "ErrorCode::DestinationIpProhibited");
    assert_eq!(asides[&1]["environment"], json!({}));
    // Each that was granted once: nothing was followed, nothing tried again.
    assert_eq!(server.requests(), 1 + 1 + 1 + 1 + 1 + 1 + 12);

    // What others read.
    let results = ["answered", "refused", "timeout", "too-large", "failed"];
    let mut counted = Vec::new();
    for result in results {
        let labels = format!("processor=\"open\",result=\"{result}\"");
        counted.push(worker.metric("shardmill_plugin_http_requests_total", &labels).await);
    }
    assert_eq!(counted, [15.0, 1.0, 1.0, 1.0, 1.0], "{results:?}");
    let refusals = worker.logged("WARN", "HTTP request is refused");
    assert_eq!(refusals.len(), 2, "{refusals:?}");
    let letters = contents(&folder.path().join("letters"));
    assert_eq!(letters.lines().count(), 4, "{letters}");
    let (_, metrics) = worker.get("/metrics").await;
    let (_, status) = worker.get("/status").await;
    let (_, ready) = worker.get("/readyz").await;
    worker.stop().await;
    let log = worker.stderr();
    for (what, text) in [
        ("the log", &log),
        ("dead letters", &letters),
        ("metrics", &metrics),
        ("the status", &status),
        ("readyz", &ready),
    ] {
        for word in WORDS {
            let told = text.lines().find(|line| line.contains(word));
            assert_eq!(told, None, "{word} is in {what}");
        }
    }
    for said in ["said: it is ***, and ***", "printed: it is ***, and ***", "warned: it is ***, and ***"] {
        assert!(log.contains(said), "{said}");
    }
    assert!(metrics.contains(r#"shardmill_guest_told_total{processor="open",label="***"} 1"#), "{metrics}");
    assert!(letters.matches("it is ***, and ***").count() >= 3, "{letters}");
}
