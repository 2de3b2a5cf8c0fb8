//! One command for all workers of a fleet: which version of a plugin they run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use shardmill_plugin::Digest;
use shardmill_tests::{
    Config, Finished, Leases, Services, Tail, Worker, Writer, another_build, assert_each_once, assert_says, command,
    eventually, paths, run,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;

const LIMIT: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Versions of `route`, and a configuration that names one of them.
struct Scene {
    services: Services,
    folder: TempDir,
    config: Config,
}

/// A module in a file.
#[derive(Debug, Clone)]
struct Version {
    path: PathBuf,
    /// The beginning of its digest, as logs and tables show it.
    digest: String,
}

impl Scene {
    async fn new(shards: i32) -> Scene {
        let services = Services::with_streams(shards, 1).await;
        Scene { services, folder: TempDir::new().expect("a temporary folder"), config: Config::copy() }
    }

    /// Another build of the same code.
    fn version(&self, name: &str) -> Version {
        let number = name.bytes().fold(0, |number, byte| number << 8 | u64::from(byte));
        let bytes = another_build(&std::fs::read(paths::plugin("route")).expect("the plugin"), number);
        let path = self.folder.path().join(format!("{name}.wasm"));
        std::fs::write(&path, &bytes).expect("a module");
        Version { path, digest: Digest::of(&bytes).short() }
    }

    /// A configuration of workers whose file is this one. What they fetch and compile they keep in a folder of that name.
    fn text(&self, file: &Version, cache: &str) -> String {
        let compiled = format!("{:?}", paths::compiled());
        let cache = self.folder.path().join(cache);
        self.config.clone().plugin_file(file.path.clone()).text().replace(&compiled, &format!("{cache:?}"))
    }

    fn start(&self, file: &Version) -> Worker {
        Worker::start_with(&self.services, &self.text(file, "cache"))
    }

    async fn start_many(&self, file: &Version, count: usize) -> Vec<Worker> {
        // The first one compiles.
        let mut first = self.start(file);
        first.ready().await;
        let mut workers: Vec<Worker> = (1..count).map(|_| self.start(file)).collect();
        workers.insert(0, first);
        for worker in &mut workers {
            worker.ready().await;
        }
        workers
    }

    /// Carries out a command about this fleet.
    async fn command(&self, file: &Version, arguments: &[&str]) -> Finished {
        let path = self.folder.path().join("shardmill.toml");
        std::fs::write(&path, self.text(file, "cache")).expect("a configuration file");
        let mut shardmill = command();
        shardmill.args(arguments).arg("--config").arg(&path).envs(self.services.environment()).env("USER", "ops");
        run(shardmill).await
    }

    /// The same, which must be carried out; what it prints as JSON.
    async fn done(&self, file: &Version, arguments: &[&str]) -> Value {
        let done = self.command(file, &[arguments, &["--json"]].concat()).await;
        assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
        serde_json::from_str(&done.stdout).expect("JSON")
    }
}

/// What a worker runs, by the metrics.
async fn runs(worker: &Worker, version: &Version) -> bool {
    let digest = format!("digest=\"{}\"", version.digest);
    worker.metric("shardmill_plugin_running_info", &digest).await > 0.0
}

async fn count(workers: &[Worker], version: &Version) -> usize {
    let mut count = 0;
    for worker in workers {
        count += usize::from(runs(worker, version).await);
    }
    count
}

/// What the decisions so far were, the last one first.
async fn decisions(scene: &Scene, file: &Version) -> Vec<String> {
    let history = scene.done(file, &["plugin", "history", "copy"]).await;
    let entries = history["history"].as_array().expect("entries").iter();
    entries.map(|entry| entry["what"].as_str().expect("what it was").to_owned()).collect()
}

/// Puts a module in the place of another one, as a whole.
fn replace(path: &Path, with: &Version) {
    let new = path.with_extension("new");
    std::fs::copy(&with.path, &new).expect("a module");
    std::fs::rename(&new, path).expect("another module");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A small HTTP server with a module at the address that is returned: `answer` says what the nth request gets, from 0, or
/// that there is nothing.
async fn serve(answer: impl Fn(usize) -> BoxFuture<'static, Option<Vec<u8>>> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut asked = 0;
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = connection.read_u8().await else { break };
                head.push(byte);
            }
            let body = answer(asked);
            asked += 1;
            tokio::spawn(async move {
                let (status, body) = body.await.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                // Whoever has asked may be gone.
                let _ = connection.write_all(&[head.as_bytes(), &body].concat()).await;
                let _ = connection.shutdown().await;
            });
        }
    });
    format!("http://{address}/route.wasm")
}

#[tokio::test]
async fn one_command_deploys_to_all_workers_and_another_brings_back_what_was_there_before() {
    let mut scene = Scene::new(6).await;
    // One of them dies.
    scene.config = scene.config.leases(Leases::Seconds(3));
    let [one, two] = ["one", "two"].map(|name| scene.version(name));
    let mut writer = Writer::new(&scene.services, "input", 100).with_aggregates();
    let mut workers = scene.start_many(&one, 3).await;
    writer.put(500).await;
    assert_eq!(count(&workers, &one).await, 3);
    let deployed = scene.done(&one, &["plugin", "deploy", "copy", text(&two.path), "--wait"]).await;
    assert_eq!((&deployed["waited"]["run_it"], &deployed["waited"]["undone"]), (&3.into(), &Value::Null), "{deployed}");
    assert_eq!(count(&workers, &two).await, 3);
    writer.put(500).await;

    // One is killed and started again with its old file: it runs what is wanted from its first batch on.
    let mut killed = workers.pop().expect("a worker");
    killed.kill().await;
    let mut restarted = scene.start(&one);
    restarted.ready().await;
    assert!(runs(&restarted, &two).await && !runs(&restarted, &one).await, "{}", restarted.stderr());
    workers.push(restarted);

    eventually(LIMIT, "three workers that live, and run what is wanted", async || {
        let listed = scene.done(&one, &["plugin", "list"]).await;
        let workers = listed["processors"]["copy"]["workers"].as_object().expect("workers").clone();
        let alive: Vec<&Value> = workers.values().filter(|worker| worker["life"] == "alive").collect();
        (alive.len() == 3 && alive.iter().all(|worker| worker["state"] == "as-wanted")).then_some(())
    })
    .await;
    let rolled = scene.done(&one, &["plugin", "rollback", "copy", "--wait"]).await;
    assert_eq!(rolled["waited"]["run_it"], 3, "{rolled}");
    assert_eq!(count(&workers, &one).await, 3);
    let again = scene.command(&one, &["plugin", "rollback", "copy"]).await;
    assert_eq!(again.code, Some(2), "{again:?}");
    assert_says("rollback", &again.stderr, &["nothing before"]);
    let history = scene.done(&one, &["plugin", "history", "copy"]).await;
    let what: Vec<&Value> = history["history"].as_array().expect("entries").iter().map(|it| &it["what"]).collect();
    assert_eq!(what, ["rollback", "deploy", "file"]);
    assert!(history["history"][1]["by"].as_str().is_some_and(|by| by.starts_with("ops@")), "{history}");

    // The fleet as its tables have it, with workers and without.
    let status = scene.done(&one, &["status"]).await;
    let consumer = &status["consumers"]["copy"];
    let alive = consumer["workers"].as_object().expect("workers").values().filter(|worker| worker["life"] == "alive");
    assert!(alive.clone().count() == 3 && alive.clone().all(|worker| worker["build"] == env!("CARGO_PKG_VERSION")));
    let led = consumer["leader"].as_str().expect("a leader");
    assert_eq!(consumer["workers"][led]["leads"], true, "{status}");
    let leases = consumer["leases"].as_object().expect("leases");
    assert!(leases.len() == 6 && leases.values().all(|lease| lease["checkpoint"].is_string()), "{status}");
    writer.put(200).await;
    let all = writer.count();
    let mut output = Tail::new(&scene.services, "output").await;
    workers[0].until("all outputs", async |_| (output.count().await as u64 >= all).then_some(())).await;
    for worker in &mut workers {
        worker.stop().await;
    }
    let shown = scene.command(&one, &["status"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_says(
        "status",
        &shown.stdout,
        &["application tests", "lease table tests-copy", &one.digest, "shardId-000000000005"],
    );
    let status = scene.done(&one, &["status"]).await;
    assert!(status["consumers"]["copy"]["leases"]["shardId-000000000000"]["owner"].is_null(), "{status}");
    assert!(
        status["plugins"]["copy"]["wanted"]["digest"].as_str().is_some_and(|wanted| wanted.starts_with(&one.digest))
    );
}

#[tokio::test]
async fn a_share_of_the_workers_runs_a_version_first_and_nothing_is_repeated_in_a_roll_out() {
    let scene = Scene::new(3).await;
    let [one, two] = ["one", "two"].map(|name| scene.version(name));
    let mut writer = Writer::new(&scene.services, "input", 50);
    let mut workers = scene.start_many(&one, 3).await;
    writer.put(200).await;
    let deploy = ["plugin", "deploy", "copy", text(&two.path), "--wait"];
    let some = scene.done(&one, &[&deploy[..], &["--share", "34%"]].concat()).await;
    assert_eq!((&some["waited"]["run_it"], &some["waited"]["should_run_it"]), (&1.into(), &1.into()), "{some}");
    assert_eq!((count(&workers, &two).await, count(&workers, &one).await), (1, 2));
    let first = runs(&workers[0], &two).await;
    writer.put(200).await;
    let all = scene.done(&one, &["plugin", "deploy", "copy", "--share", "100%", "--wait"]).await;
    assert_eq!(all["waited"]["run_it"], 3, "{all}");
    assert_eq!((count(&workers, &two).await, count(&workers, &one).await), (3, 0));
    assert!(!first || workers[0].logged("INFO", "another version of the plugin").len() == 1, "who was first stayed so");
    let all = writer.count();
    let mut output = Tail::new(&scene.services, "output").await;
    workers[0].until("all outputs", async |_| (output.count().await as u64 >= all).then_some(())).await;
    for worker in &mut workers {
        worker.stop().await;
    }
    assert_each_once(&Tail::all(&scene.services, "output").await, 0..all);
}

#[tokio::test]
async fn a_worker_that_cannot_have_the_module_says_so_and_goes_on_with_the_old_one() {
    let mut scene = Scene::new(2).await;
    scene.config = scene.config.leases(Leases::Seconds(3));
    let [one, two, three] = ["one", "two", "three"].map(|name| scene.version(name));
    // What one has fetched the other one must not find.
    let mut workers = Vec::new();
    for cache in ["cache", "another"] {
        workers.push(Worker::start_with(&scene.services, &scene.text(&one, cache)));
    }
    for worker in &mut workers {
        worker.ready().await;
    }

    // Not what the command has seen there.
    let [good, bad] = [&two, &three].map(|version| std::fs::read(&version.path).expect("a module"));
    let answers = [good.clone(), bad];
    let changed = serve(move |nth| {
        let body = answers[usize::from(nth > 0)].clone();
        Box::pin(async move { Some(body) })
    })
    .await;
    let deploy =
        |url: &str| ["plugin", "deploy", "copy", text(&two.path), "--as", url, "--wait=30s"].map(str::to_owned);
    let arguments = deploy(&changed);
    let refused = scene.command(&one, &arguments.each_ref().map(String::as_str)).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_says("deploy", &refused.stderr, &["holds another module", &three.digest, &two.digest, "rollback copy"]);
    assert_eq!(count(&workers, &one).await, 2);
    for worker in &workers {
        let (status, body) = worker.get("/readyz").await;
        assert_eq!(status, 200, "{body}");
        assert_says("/readyz", &body, &["processor copy", &two.digest, "holds another module", &one.digest]);
        assert!(worker.metric("shardmill_plugin_as_wanted", "processor=\"copy\"").await < 0.5);
    }

    // One has it, and the other one comes too late. The next command is tried at once.
    let is_back = Arc::new(AtomicBool::new(false));
    let is_there = Arc::clone(&is_back);
    let scarce = serve(move |nth| {
        let body = (nth < 2 || is_there.load(Ordering::SeqCst)).then(|| good.clone());
        Box::pin(async move { body })
    })
    .await;
    let arguments = deploy(&scarce);
    let partly = scene.command(&one, &arguments.each_ref().map(String::as_str)).await;
    assert_eq!(partly.code, Some(1), "{partly:?}");
    assert_says("deploy", &partly.stderr, &["1 of 2 workers run it", "HTTP status 404"]);
    assert_eq!((count(&workers, &two).await, count(&workers, &one).await), (1, 1));
    let listed = scene.done(&one, &["plugin", "list", "copy"]).await;
    let troubled: Vec<&Value> = listed["processors"]["copy"]["workers"]
        .as_object()
        .expect("workers")
        .values()
        .filter(|worker| worker["state"] == "trouble")
        .collect();
    assert!(troubled.len() == 1 && troubled[0]["trouble"].as_str().is_some_and(|it| it.contains("404")), "{listed}");
    is_back.store(true, Ordering::SeqCst);
    let mended = scene.command(&one, &arguments.each_ref().map(String::as_str)).await;
    assert_eq!(mended.code, Some(0), "{mended:?}");
    assert_eq!(count(&workers, &two).await, 2);
}

#[tokio::test]
async fn a_new_file_is_newer_than_what_was_deployed_and_the_old_one_is_not() {
    let scene = Scene::new(2).await;
    let [one, two, three] = ["one", "two", "three"].map(|name| scene.version(name));
    let mut old = scene.start(&one);
    old.ready().await;
    let refused =
        scene.command(&one, &["plugin", "deploy", "copy", text(&scene.folder.path().join("none.wasm"))]).await;
    assert_eq!(refused.code, Some(78), "{refused:?}");
    let odd = scene.folder.path().join("odd.wasm");
    std::fs::write(&odd, "no module").expect("a file");
    let refused = scene.command(&one, &["plugin", "deploy", "copy", text(&odd)]).await;
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert_says("deploy", &refused.stderr, &["is not WebAssembly"]);
    let zeros = "0".repeat(64);
    let other = ["plugin", "deploy", "copy", text(&two.path), "--sha256", &zeros];
    let refused = scene.command(&one, &other).await;
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert_says("deploy", &refused.stderr, &["holds another module"]);
    let away = scene.command(&one, &["plugin", "deploy", "copy", "https://127.0.0.1:9/a.wasm?token=secret"]).await;
    assert_eq!(away.code, Some(69), "{away:?}");
    assert!(!away.stderr.contains("secret"), "{away:?}");
    let open = scene.command(&one, &["plugin", "deploy", "copy", "http://plugins.example/a.wasm"]).await;
    assert_eq!(open.code, Some(2), "{open:?}");
    scene.done(&one, &["plugin", "deploy", "copy", text(&two.path), "--wait"]).await;
    // An image with another file, beside a worker that has not been replaced yet.
    let mut new = scene.start(&three);
    new.ready().await;
    assert!(runs(&new, &three).await, "{}", new.stderr());
    assert_eq!(new.logged("INFO", "the plugin's file is newer").len(), 1, "{}", new.stderr());
    old.stop().await;
    let mut old = scene.start(&one);
    old.ready().await;
    assert!(runs(&old, &two).await, "{}", old.stderr());
    new.stop().await;
    let mut new = scene.start(&three);
    new.ready().await;
    assert!(runs(&new, &three).await, "{}", new.stderr());
    assert_eq!(decisions(&scene, &one).await, ["file", "deploy", "file"]);
    // The next command is for both.
    scene.done(&one, &["plugin", "deploy", "copy", text(&two.path), "--wait"]).await;
    assert!(runs(&old, &two).await && runs(&new, &two).await);
}

#[tokio::test]
async fn a_file_that_was_replaced_can_be_gone_back_to_and_what_one_worker_is_told_stays_until_the_next_command() {
    let mut scene = Scene::new(1).await;
    let token = scene.folder.path().join("token");
    std::fs::write(&token, TOKEN).expect("a token");
    scene.config = scene.config.admin(&format!("token-file = {token:?}"));
    let [one, two, three] = ["one", "two", "three"].map(|name| scene.version(name));
    let own = Version { path: scene.folder.path().join("own.wasm"), ..one.clone() };
    replace(&own.path, &one);
    let mut worker = scene.start(&own);
    worker.ready().await;
    let kept = scene.folder.path().join("cache/modules");
    eventually(LIMIT, "the file is known and kept", async || {
        let is_known = decisions(&scene, &own).await == ["file"];
        (is_known && std::fs::read_dir(&kept).is_ok_and(|mut kept| kept.next().is_some())).then_some(())
    })
    .await;
    replace(&own.path, &two);
    eventually(LIMIT, "the other file is known", async || {
        (decisions(&scene, &own).await == ["file", "file"]).then_some(())
    })
    .await;
    assert!(runs(&worker, &two).await, "{}", worker.stderr());
    scene.done(&own, &["plugin", "rollback", "copy", "--wait"]).await;
    assert!(runs(&worker, &one).await, "{}", worker.stderr());

    let module = std::fs::read(&three.path).expect("a module");
    let (status, answer) = worker.send("/v1/processors/copy/deploy", TOKEN, &[], module).await;
    assert_eq!(status, 200, "{answer}");
    worker.until("what it was told", async |worker| runs(worker, &three).await.then_some(())).await;
    eventually(LIMIT, "a worker that was told by itself", async || {
        let listed = scene.done(&own, &["plugin", "list"]).await;
        let workers = listed["processors"]["copy"]["workers"].as_object().expect("workers").clone();
        workers.values().any(|worker| worker["state"] == "local").then_some(())
    })
    .await;
    assert_says("/readyz", &worker.get("/readyz").await.1, &["this worker was told", &three.digest, &one.digest]);
    scene.done(&own, &["plugin", "deploy", "copy", text(&two.path), "--wait"]).await;
    assert!(runs(&worker, &two).await, "{}", worker.stderr());
    worker.stop().await;
}

#[tokio::test]
async fn of_two_operators_that_deploy_at_once_one_is_told_and_a_stage_is_deployed_as_any_processor() {
    let mut scene = Scene::new(1).await;
    let behind = format!(
        r#"
[processors.behind]
plugin = {:?}
config = {{ field = "/n", default = "copies" }}
[processors.behind.outputs.copies]
stream = "done"
"#,
        paths::plugin("route")
    );
    scene.services.create_stream("done", 1).await;
    scene.config = scene.config.others(&behind);
    let [one, two, three] = ["one", "two", "three"].map(|name| scene.version(name));
    let staged =
        |scene: &Scene| scene.text(&one, "cache").replace(r#"stream = "output""#, r#"to = "processor:behind""#);
    let mut worker = Worker::start_with(&scene.services, &staged(&scene));
    worker.ready().await;
    let config = scene.folder.path().join("staged.toml");
    std::fs::write(&config, staged(&scene)).expect("a configuration file");
    let shardmill = |arguments: &[&str]| {
        let mut shardmill = command();
        shardmill.args(arguments).arg("--config").arg(&config).envs(scene.services.environment());
        run(shardmill)
    };

    // The first one waits for its module, and meanwhile a second one is quicker.
    let (asked, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (is_asked, may_go_on) = (Arc::clone(&asked), Arc::clone(&go_on));
    let body = std::fs::read(&three.path).expect("a module");
    let slow = serve(move |_| {
        is_asked.notify_one();
        let (may_go_on, body) = (Arc::clone(&may_go_on), body.clone());
        Box::pin(async move {
            may_go_on.notified().await;
            Some(body)
        })
    })
    .await;
    let first = shardmill(&["plugin", "deploy", "behind", &slow]);
    let second = async {
        asked.notified().await;
        let second = shardmill(&["plugin", "deploy", "behind", text(&two.path), "--wait"]).await;
        go_on.notify_one();
        second
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(second.code, Some(0), "{second:?}");
    assert_eq!(first.code, Some(1), "{first:?}");
    assert_says("deploy", &first.stderr, &["somebody else has decided meanwhile", &two.digest, "nothing was done"]);

    // A processor that no worker has yet keeps nobody from seeing the rest.
    let more = format!("{}\n[processors.more]\nstream = \"more\"\nplugin = {:?}\n", staged(&scene), one.path);
    std::fs::write(&config, more).expect("a configuration file");
    for arguments in [&["status", "--json"][..], &["plugin", "list", "--json"]] {
        let partly = shardmill(arguments).await;
        assert_eq!(partly.code, Some(69), "{partly:?}");
        assert_says("stderr", &partly.stderr, &["tests-more", "does not exist"]);
        let shown: Value = serde_json::from_str(&partly.stdout).expect("JSON");
        let plugins = if arguments[0] == "status" { &shown["plugins"] } else { &shown["processors"] };
        assert!(plugins["behind"]["wanted"]["digest"].is_string(), "{shown}");
        let unseen = if arguments[0] == "status" { &shown["consumers"]["more"] } else { &plugins["more"] };
        assert!(unseen["error"].is_string(), "{shown}");
    }

    let digest = format!("processor=\"behind\",digest=\"{}\"", two.digest);
    assert!(worker.metric("shardmill_plugin_running_info", &digest).await > 0.0);
    assert!(runs(&worker, &one).await, "the one before it runs what it ran");
    let mut writer = Writer::new(&scene.services, "input", 10);
    writer.put(50).await;
    let mut output = Tail::new(&scene.services, "done").await;
    worker.until("all outputs", async |_| (output.count().await >= 50).then_some(())).await;
    worker.stop().await;
}
