//! Plugins and the configuration are other ones while everything runs: what is good takes over between two batches, what is
//! not changes nothing and says why.

mod configuration;
mod deploys;
mod files;
mod grants;
mod load;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use shardmill_tests::{Config, Services, Worker, paths, raw};
use tempfile::TempDir;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A folder with plugins of a test's own, and the token.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(TempDir::new().expect("a temporary folder"));
        std::fs::write(folder.path("token"), TOKEN).expect("a token");
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a file in the place of another one, as a whole.
    fn replace(&self, name: &str, bytes: &[u8]) {
        let new = self.path("new");
        std::fs::write(&new, bytes).expect("a file");
        std::fs::rename(&new, self.path(name)).expect("another file");
    }

    /// A configuration whose processor `copy` has a plugin of this folder, of which it uses the output `out`.
    fn config(&self, plugin: &str) -> Config {
        Config::copy()
            .plugin("guest_columnar")
            .admin(&format!("token-file = {:?}", self.path("token")))
            .others("[processors.copy.outputs.out]\nstream = \"output\"\n")
            .plugin_file(self.path(plugin))
    }
}

/// The component of a guest.
fn guest(name: &str) -> Vec<u8> {
    std::fs::read(paths::plugin(name)).expect("a plugin")
}

/// What `/status` says of a processor's plugin.
async fn plugin(worker: &Worker, processor: &str) -> Value {
    let (code, text) = worker.get("/status").await;
    assert_eq!(code, 200, "{text}");
    let mut status: Value = serde_json::from_str(&text).expect("JSON");
    status[processor]["plugin"].take()
}

/// Waits until another plugin than this one runs; its digest.
async fn until_other(worker: &mut Worker, processor: &str, digest: &str) -> String {
    worker
        .until(&format!("another plugin of {processor} than {digest}"), async |worker| {
            let running = plugin(worker, processor).await["digest"].as_str().expect("a digest").to_owned();
            (running != digest).then_some(running)
        })
        .await
}

/// Waits until a version is refused; why.
async fn until_refused(worker: &mut Worker, processor: &str, said: &str) -> String {
    worker
        .until(&format!("a refusal that says {said:?}"), async |worker| {
            let reason = plugin(worker, processor).await["refused"]["reason"].as_str()?.to_owned();
            reason.contains(said).then_some(reason)
        })
        .await
}

/// How many plugins were to be other ones, with this result.
async fn reloads(worker: &Worker, processor: &str, result: &str) -> u64 {
    let labels = format!("processor=\"{processor}\",result=\"{result}\"");
    worker.metric("shardmill_plugin_reloads_total", &labels).await as u64
}

async fn deploy(worker: &Worker, processor: &str, bytes: Vec<u8>) -> (u16, Value) {
    let path = format!("/v1/processors/{processor}/deploy");
    let (code, text) = worker.send(&path, TOKEN, &[], bytes).await;
    (code, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// Deploys what must be taken.
async fn must_deploy(worker: &Worker, processor: &str, bytes: Vec<u8>) -> Value {
    let (code, answer) = deploy(worker, processor, bytes).await;
    assert_eq!(code, 200, "{answer}");
    answer
}

/// The stamps that records of a stream have, by key, in order: the number of each record and its stamp.
async fn stamps(services: &Services, stream: &str) -> BTreeMap<String, Vec<(u64, u64)>> {
    let mut stamps: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for (key, data) in raw::user_records(services, stream).await {
        let data: Value = serde_json::from_slice(&data).expect("JSON");
        let number = |name: &str| data[name].as_u64().unwrap_or_else(|| panic!("{name} in {data}"));
        stamps.entry(key).or_default().push((number("n"), number("stamp")));
    }
    stamps
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("a file");
}
