//! Plugins that are sent to a worker, and what becomes of shards meanwhile.

use serde_json::Value;
use shardmill_tests::{
    Config, Guests, Services, Tail, Worker, Writer, another_build, assert_each_once, assert_says, command, raw, run,
};

use super::{Folder, TOKEN, deploy, guest, must_deploy, plugin, reloads, until_other, until_refused};

#[tokio::test]
async fn a_plugin_that_is_sent_runs_until_the_file_is_another_one() {
    let services = Services::with_streams(2, 1).await;
    let folder = Folder::new();
    let good = guest("guest_columnar");
    folder.replace("plugin.wasm", &good);
    folder.replace("sent.wasm", &another_build(&good, 1));
    let mut worker = Worker::start_ready(&services, &folder.config("plugin.wasm")).await;
    let first = plugin(&worker, "copy").await["digest"].as_str().expect("a digest").to_owned();
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;

    let says = async |worker: &Worker, file: &str, processor: &str| {
        let mut child = command();
        child.args(["plugin", "deploy", processor]).arg(folder.path(file)).args(["--admin", &worker.admin()]);
        child.arg("--token-file").arg(folder.path("token"));
        run(child).await
    };
    let finished = says(&worker, "sent.wasm", "copy").await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let sent = until_other(&mut worker, "copy", &first).await;
    let lasts = ["until this worker's next start", "plugin.wasm"];
    assert_says("a deploy", &finished.stdout, &[&[first.as_str(), sent.as_str()][..], &lasts].concat());
    let shown = plugin(&worker, "copy").await;
    assert!(shown["from"].as_str().is_some_and(|from| from.ends_with("sent.wasm")), "{shown}");
    let finished = says(&worker, "sent.wasm", "copy").await;
    assert_says("the same again", &finished.stdout, &["runs already"]);

    // What is refused, and what is no deploy.
    folder.replace("bad.wasm", b"this is not it");
    let finished = says(&worker, "bad.wasm", "copy").await;
    assert_eq!(finished.code, Some(78), "{finished:?}");
    assert_says("a bad one", &finished.stderr, &["bad.wasm is not WebAssembly"]);
    let finished = says(&worker, "sent.wasm", "other").await;
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert_says("another processor", &finished.stderr, &["there is no processor `other`", "copy"]);
    let path = "/v1/processors/copy/deploy";
    let digest = [("x-shardmill-digest", first.as_str())];
    let (code, text) = worker.send(path, TOKEN, &digest, another_build(&good, 7)).await;
    assert_eq!(code, 422, "{text}");
    assert_says("another digest", &text, &[&first, "is expected"]);
    let (code, text) = worker.send(path, TOKEN, &[("x-shardmill-digest", "abc")], good.clone()).await;
    assert_eq!(code, 400, "{text}");
    let (code, _) = worker.send(path, "0123456789abcdef", &[], b"small: it is not read".to_vec()).await;
    assert_eq!(code, 401);
    assert_eq!(plugin(&worker, "copy").await["digest"], sent.as_str());
    let mut child = command();
    child.args(["status", "--admin", &worker.admin()]);
    let shown = run(child).await.stdout;
    assert_says("status", &shown, &[&format!("plugin of copy: {}", &sent[..12]), "sent.wasm", "is refused"]);

    // Nobody has touched the file: a reload leaves what was sent. And then somebody has.
    worker.hang_up();
    worker.until("a reload", async |worker| worker.logged("INFO", "was read again").pop()).await;
    assert_eq!(plugin(&worker, "copy").await["digest"], sent.as_str());
    folder.replace("plugin.wasm", &another_build(&good, 2));
    let third = until_other(&mut worker, "copy", &sent).await;
    assert_ne!(third, first);
    writer.put(100).await;
    worker.until_records_of("input", 200).await;
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..200);
}

#[tokio::test]
async fn deploys_of_one_processor_come_one_after_the_other() {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    let good = guest("guest_columnar");
    folder.replace("plugin.wasm", &good);
    let mut worker = Worker::start_ready(&services, &folder.config("plugin.wasm")).await;
    let first = plugin(&worker, "copy").await["digest"].clone();
    let sent = (1..=3).map(|number| must_deploy(&worker, "copy", another_build(&good, number)));
    let answers = futures::future::join_all(sent).await;
    // Whatever their order, each has followed another one: a chain from the first to what runs.
    let mut at = first;
    for _ in &answers {
        let next = answers.iter().find(|answer| answer["from"] == at).unwrap_or_else(|| panic!("{at}: {answers:?}"));
        assert_eq!(next["switched"], true, "{answers:?}");
        at = next["to"].clone();
    }
    assert_eq!(plugin(&worker, "copy").await["digest"], at);
    assert_eq!(reloads(&worker, "copy", "switched").await, 3);
    worker.stop().await;
}

/// A guest that crashes with each record that holds `poison`, in a configuration under which the mended one does not.
fn crashing(folder: &Folder, attempts: u32) -> Config {
    let retry = format!("retry = {{ attempts = {attempts}, backoff = \"100ms\", max-backoff = \"300ms\" }}");
    folder.config("plugin.wasm").processor(&retry).guest("do = \"exit\"\non = \"poison\"\nhooks = \"silent\"")
}

async fn until_text(worker: &mut Worker, path: &str, said: &str) {
    worker
        .until(&format!("{path} that says {said:?}"), async |worker| {
            worker.logged("INFO", "admin server").first()?;
            worker.get(path).await.1.contains(said).then_some(())
        })
        .await;
}

#[tokio::test]
async fn a_batch_that_fails_again_and_again_gets_the_mended_plugin_at_its_next_attempt() {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    folder.replace("plugin.wasm", &guest("guest_rows"));
    let mut writer = Writer::new(&services, "input", 5).poisoned(10, "trap");
    writer.put(10).await;
    let mut worker = Worker::start(&services, &crashing(&folder, 1_000_000));
    until_text(&mut worker, "/status", "retrying").await;
    assert_eq!(must_deploy(&worker, "copy", guest("guest_columnar")).await["stopped_shards"], 0);
    worker.until_records_of("input", 10).await;
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..10);
}

#[tokio::test]
async fn a_stopped_shard_stays_stopped_until_it_is_restarted_and_then_has_the_mended_plugin() {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    folder.replace("plugin.wasm", &guest("guest_rows"));
    let mut writer = Writer::new(&services, "input", 5).poisoned(10, "trap");
    writer.put(10).await;
    let mut worker = Worker::start(&services, &crashing(&folder, 2));
    until_text(&mut worker, "/readyz", "is stopped").await;
    assert_eq!(must_deploy(&worker, "copy", guest("guest_columnar")).await["stopped_shards"], 1);
    let told = worker.logged("WARN", "stay so until `shardmill restart`");
    assert_eq!(told.len(), 1, "{}", worker.stderr());
    assert_says("/readyz", &worker.get("/readyz").await.1, &["is stopped"]);
    assert_eq!(worker.records_done().await, 0);
    let (code, text) = worker.post("/v1/processors/copy/restart", Some(TOKEN), "").await;
    assert_eq!(code, 200, "{text}");
    worker.until_records_of("input", 10).await;
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..10);
}

#[tokio::test]
async fn a_dead_letter_names_the_version_that_had_the_record() {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    let (old, new) = (guest("guest_poison"), another_build(&guest("guest_poison"), 1));
    folder.replace("plugin.wasm", &old);
    let config = folder
        .config("plugin.wasm")
        .processor("failure = { then = \"dead-letter\" }\nretry = { attempts = 1 }")
        .processor(&format!("dead-letters = {{ folder = {:?} }}", folder.path("letters")));
    let mut worker = Worker::start_ready(&services, &config).await;
    let mut writer = Writer::new(&services, "input", 5).poisoned(10, "final");
    let before = plugin(&worker, "copy").await["digest"].clone();
    writer.put(10).await;
    worker.until_records_of("input", 9).await;
    let after = must_deploy(&worker, "copy", new).await["to"].clone();
    writer.put(10).await;
    worker.until_records_of("input", 18).await;
    worker.stop().await;
    let mut letters: Vec<Value> = Vec::new();
    for entry in std::fs::read_dir(folder.path("letters")).expect("a folder of letters") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = std::fs::read_to_string(&path).expect("letters");
            letters.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")));
        }
    }
    letters.sort_by_key(|letter| letter["sequence_number"].to_string());
    let plugins: Vec<&Value> = letters.iter().map(|letter| &letter["plugin"]).collect();
    assert_eq!(plugins, [&before, &after], "{letters:?}");
}

#[tokio::test]
async fn a_trial_is_passed_before_a_version_is_taken_and_nothing_of_it_goes_anywhere() {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    let columnar = guest("guest_columnar");
    folder.replace("plugin.wasm", &columnar);
    let record = |number: u64| {
        format!("{{\"partition_key\":\"k\",\"data\":\"{{\\\"n\\\":{number},\\\"key\\\":\\\"k\\\"}}\"}}\n")
    };
    folder.replace("trial.jsonl", (0..5).map(record).collect::<String>().as_bytes());
    let config = folder
        .config("plugin.wasm")
        .processor("batch = { records = 2 }")
        .processor(&format!("reload = {{ trial = {:?} }}", folder.path("trial.jsonl")))
        .guest("do = \"exit\"\non = \"\\\"n\\\":3\"\nhooks = \"silent\"");
    let mut worker = Worker::start_ready(&services, &config).await;
    let (code, answer) = deploy(&worker, "copy", guest("guest_rows")).await;
    assert_eq!(code, 422, "{answer}");
    let reason = answer["error"].as_str().expect("a reason");
    assert_says("a trial", reason, &["trial.jsonl, lines 3 to 4", "it exited with status 1"]);
    must_deploy(&worker, "copy", another_build(&columnar, 1)).await;
    folder.replace("trial.jsonl", b"no record\n");
    let (code, answer) = deploy(&worker, "copy", another_build(&columnar, 2)).await;
    assert_eq!(code, 422, "{answer}");
    assert_says("no trial", &answer.to_string(), &["trial.jsonl cannot be used", "line 1"]);
    Writer::new(&services, "input", 5).put(10).await;
    worker.until_records_of("input", 10).await;
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..10);
}

#[tokio::test]
async fn a_stage_behind_another_processor_is_another_version_as_well() {
    let services = Services::with_streams(2, 1).await;
    let folder = Folder::new();
    let columnar = guest("guest_columnar");
    folder.replace("stage.wasm", &columnar);
    let text = Guests::new().with("first", "guest_columnar", "", ["input", "output"], "").text();
    let text = text.replace("[admin]\n", &format!("[admin]\ntoken-file = {:?}\n", folder.path("token")));
    let text = text.replace(
        "[processors.first.outputs.out]\nstream = \"output\"",
        "[processors.first.outputs.out]\nto = \"processor:second\"",
    );
    let stage = format!(
        "[processors.second]\nplugin = {:?}\nconfig = {{ do = \"stamp\", stamp = 3 }}\n[processors.second.outputs.out]\nstream = \"output\"\n",
        folder.path("stage.wasm")
    );
    let mut worker = Worker::start_with(&services, &format!("{text}{stage}"));
    worker.ready().await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(50).await;
    until_stage_done(&mut worker, 50).await;
    let first = plugin(&worker, "second").await["digest"].as_str().expect("a digest").to_owned();
    must_deploy(&worker, "second", another_build(&columnar, 1)).await;
    writer.put(50).await;
    until_stage_done(&mut worker, 100).await;
    folder.replace("stage.wasm", &another_build(&columnar, 2));
    let second = plugin(&worker, "second").await["digest"].as_str().expect("a digest").to_owned();
    let third = until_other(&mut worker, "second", &second).await;
    assert!(first != third && first != second);
    folder.replace("stage.wasm", b"");
    until_refused(&mut worker, "second", "is not WebAssembly").await;
    writer.put(50).await;
    until_stage_done(&mut worker, 150).await;
    worker.stop().await;
    assert_eq!(raw::user_records(&services, "output").await.len(), 150);
    assert_each_once(&Tail::all(&services, "output").await, 0..150);
}

async fn until_stage_done(worker: &mut Worker, records: u64) {
    worker
        .until("records of the stage", async |worker| {
            let done = worker.metric("shardmill_records_done_total", "processor=\"second\"").await;
            (done as u64 >= records).then_some(())
        })
        .await;
}
