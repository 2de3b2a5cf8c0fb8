//! What a plugin is granted is another thing while everything runs: secrets that are changed, gone or hanging, and grants that
//! are added and taken back.

use std::collections::BTreeMap;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Services, Worker, another_build, assert_says};

use super::{Folder, TOKEN, deploy, guest, must_deploy, plugin};

/// What the guest of these tests imports.
const NEEDED: &str = "random = true, http = { hosts = [\"api.example.com\"] }";

/// A worker whose processor `copy` has a secret in a file.
struct Scene {
    services: Services,
    folder: Folder,
    worker: Worker,
    asked: usize,
}

// === impl Scene ===

impl Scene {
    async fn start() -> Self {
        let services = Services::with_streams(1, 1).await;
        services.create_stream("asides", 1).await;
        let folder = Folder::new();
        folder.replace("plugin.wasm", &guest("guest_reach"));
        folder.replace("key", b"first-one");
        let mut worker = Worker::start(&services, &configuration(&folder, &secret(&folder), 1));
        worker.ready().await;
        Self { services, folder, worker, asked: 0 }
    }

    /// What the guest finds in its environment now.
    async fn environment(&mut self) -> Value {
        self.asked += 1;
        let key = self.asked.to_string();
        raw::put(&self.services, "input", &[Raw::new(key.clone(), json!({ "do": "environment" }).to_string())]).await;
        let services = &self.services;
        self.worker
            .until("the guest's answer", async |_| {
                let records: BTreeMap<_, _> = raw::kinesis_records(services, "output").await.into_iter().collect();
                let mut told: Value = serde_json::from_slice(records.get(&key)?).expect("JSON");
                Some(told["environment"].take())
            })
            .await
    }

    /// Reads the configuration again; whether it is taken, and what is said of it.
    async fn reload(&self) -> (bool, String) {
        let (code, text) = self.worker.post("/v1/reload", Some(TOKEN), "").await;
        assert!(matches!(code, 200 | 422), "{code}: {text}");
        (code == 200, text)
    }

    /// Instances that were made for the processor that is beside.
    async fn made_beside(&self) -> f64 {
        self.worker.metric("shardmill_plugin_instances_created_total", "processor=\"beside\"").await
    }
}

fn secret(folder: &Folder) -> String {
    format!("{NEEDED}, secrets = {{ KEY = {{ file = {:?} }} }}", folder.path("key"))
}

/// `beside`: a number in the configuration of another processor.
fn configuration(folder: &Folder, grants: &str, beside: u32) -> Config {
    let others = format!("grants = {{ {NEEDED} }}");
    folder
        .config("plugin.wasm")
        .others("[defaults.output]\naggregate = false\n[reload]\nwatch = false\n")
        .processor(&format!("grants = {{ {grants} }}"))
        .and_guest("beside", "guest_reach", &others, &format!("number = {beside}"))
}

#[tokio::test]
async fn a_secret_is_read_each_time_that_a_plugin_is_loaded_and_one_that_is_missing_changes_nothing() {
    let mut scene = Scene::start().await;
    let good = guest("guest_reach");
    assert_eq!(scene.environment().await, json!({ "KEY": "first-one" }));
    scene.folder.replace("key", b"second-one");
    assert!(scene.reload().await.0);
    assert_eq!(scene.environment().await, json!({ "KEY": "second-one" }));
    scene.folder.replace("key", b"third-one");
    must_deploy(&scene.worker, "copy", another_build(&good, 1)).await;
    assert_eq!(scene.environment().await, json!({ "KEY": "third-one" }));
    // The same plugin is another version with another secret, and no other one without.
    assert_eq!(must_deploy(&scene.worker, "copy", another_build(&good, 1)).await["switched"], false);
    scene.folder.replace("key", b"fourth-one");
    assert_eq!(must_deploy(&scene.worker, "copy", another_build(&good, 1)).await["switched"], true);
    assert_eq!(scene.environment().await, json!({ "KEY": "fourth-one" }));

    // It is gone, hangs, or was never there: what runs goes on, and nothing is made for anybody.
    let made = scene.made_beside().await;
    let running = plugin(&scene.worker, "copy").await["digest"].clone();
    std::fs::remove_file(scene.folder.path("key")).expect("a file that was there");
    let said = |why| ["`KEY` of `grants.secrets`".to_owned(), scene.folder.path("key").display().to_string(), why];
    let gone = said("cannot be read".to_owned());
    let hangs = said("it is no regular file".to_owned());
    scene.worker.replace_config(&configuration(&scene.folder, &secret(&scene.folder), 2).text());
    for expected in [&gone, &hangs] {
        let expected = expected.each_ref().map(String::as_str);
        let (code, refused) = deploy(&scene.worker, "copy", another_build(&good, 2)).await;
        assert_eq!(code, 422, "{refused}");
        assert_says("a deploy", &refused.to_string(), &expected);
        let (is_taken, refused) = scene.reload().await;
        assert!(!is_taken, "{refused}");
        assert_says("a reload", &refused, &expected);
        assert_says("/readyz", &scene.worker.get("/readyz").await.1, &expected);
        if scene.folder.path("key").exists() {
            break;
        }
        let pipe = scene.folder.path("key");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    }
    let unset = format!("{NEEDED}, secrets = {{ KEY = {{ env = \"REACH_NO_SUCH_KEY\" }} }}");
    scene.worker.replace_config(&configuration(&scene.folder, &unset, 3).text());
    let (is_taken, refused) = scene.reload().await;
    assert!(!is_taken, "{refused}");
    assert_says("a reload", &refused, &["REACH_NO_SUCH_KEY is not set", "`KEY` of `grants.secrets`"]);
    assert_eq!(plugin(&scene.worker, "copy").await["digest"], running);
    assert_eq!(scene.made_beside().await, made);
    assert_eq!(scene.environment().await, json!({ "KEY": "fourth-one" }));

    scene.folder.replace("key", b"fifth-one");
    scene.worker.replace_config(&configuration(&scene.folder, &secret(&scene.folder), 2).text());
    assert!(scene.reload().await.0);
    assert_eq!(scene.environment().await, json!({ "KEY": "fifth-one" }));
    assert!(scene.made_beside().await > made);
    scene.worker.stop().await;
    let log = scene.worker.stderr();
    assert!(!log.contains("-one"), "a secret is in the log");
}

#[tokio::test]
async fn grants_are_added_and_taken_back_while_everything_runs() {
    let mut scene = Scene::start().await;
    assert_eq!(scene.environment().await, json!({ "KEY": "first-one" }));
    let more = format!("{}, environment = {{ REGION = \"north\" }}", secret(&scene.folder));
    for (grants, expected) in [
        (more.as_str(), json!({ "KEY": "first-one", "REGION": "north" })),
        (NEEDED, json!({})),
        (&secret(&scene.folder), json!({ "KEY": "first-one" })),
    ] {
        scene.worker.replace_config(&configuration(&scene.folder, grants, 1).text());
        let (is_taken, told) = scene.reload().await;
        assert!(is_taken, "{grants}: {told}");
        assert_eq!(scene.environment().await, expected, "{grants}");
    }
    // What it cannot do without is not taken from it: that would be its end.
    let without = secret(&scene.folder).replace("random = true", "random = false");
    scene.worker.replace_config(&configuration(&scene.folder, &without, 1).text());
    let (is_taken, refused) = scene.reload().await;
    assert!(!is_taken, "{refused}");
    assert_says("a reload", &refused, &["wasi:random/random", "add `random = true` to [processors.copy.grants]"]);
    assert_eq!(scene.environment().await, json!({ "KEY": "first-one" }));
    scene.worker.stop().await;
}
