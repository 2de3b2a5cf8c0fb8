//! Files that change, in all the ways in which files are replaced.

use std::os::unix::fs::symlink;
use std::time::Duration;

use shardmill_tests::{
    Config, Services, Tail, Worker, Writer, another_build, assert_each_once, assert_order_of_keys, assert_says,
};

use super::{Folder, guest, plugin, reloads, until_other, until_refused, write};

/// As long as a file is given that is no whole one, and more.
const LONGER_THAN_PATIENCE: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_file_takes_over_when_it_is_whole_however_it_is_replaced_and_its_end_is_told() {
    let services = Services::with_streams(2, 1).await;
    let folder = Folder::new();
    let good = guest("guest_columnar");
    // As Kubernetes lays out a ConfigMap: the file is a link to one behind a link to a folder.
    for version in ["v1", "v2"] {
        std::fs::create_dir(folder.path(version)).expect("a folder");
    }
    write(&folder.path("v1/plugin.wasm"), &good);
    write(&folder.path("v2/plugin.wasm"), &another_build(&good, 1));
    symlink("v1", folder.path("data")).expect("a link");
    symlink("data/plugin.wasm", folder.path("plugin.wasm")).expect("a link");
    let mut worker = Worker::start_ready(&services, &folder.config("plugin.wasm")).await;
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let first = plugin(&worker, "copy").await["digest"].as_str().expect("a digest").to_owned();

    // The link in the middle is another one.
    symlink("v2", folder.path("data.new")).expect("a link");
    std::fs::rename(folder.path("data.new"), folder.path("data")).expect("another link");
    let second = until_other(&mut worker, "copy", &first).await;
    writer.put(100).await;

    // It is written in place, with a pause in the middle: half of it never counts.
    let whole = another_build(&good, 2);
    let (head, tail) = whole.split_at(whole.len() / 2);
    write(&folder.path("v2/plugin.wasm"), head);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let running = plugin(&worker, "copy").await;
    assert_eq!((&running["digest"], &running["refused"]), (&second.as_str().into(), &serde_json::Value::Null));
    write(&folder.path("v2/plugin.wasm"), &[head, tail].concat());
    let third = until_other(&mut worker, "copy", &second).await;
    assert_eq!(reloads(&worker, "copy", "refused").await, 0);
    writer.put(100).await;

    // It is gone, which nobody who runs minds; and it is back.
    std::fs::rename(folder.path("v2/plugin.wasm"), folder.path("aside")).expect("a file");
    worker
        .until("the file's end is told", async |worker| {
            let trouble = plugin(worker, "copy").await["file"].as_str()?.to_owned();
            trouble.contains("there is no such file any more").then_some(())
        })
        .await;
    let (code, text) = worker.get("/readyz").await;
    assert_eq!(code, 200, "{text}");
    assert_says("/readyz", &text, &["plugin.wasm cannot be read", "the next start needs it"]);
    writer.put(100).await;
    worker.until_records_of("input", 400).await;
    std::fs::rename(folder.path("aside"), folder.path("v2/plugin.wasm")).expect("a file");
    worker.until("the file is back", async |worker| plugin(worker, "copy").await["file"].is_null().then_some(())).await;
    assert_eq!(plugin(&worker, "copy").await["digest"], third.as_str());
    worker.stop().await;
    let told = worker.logged("WARN", "the plugin's file cannot be read");
    assert_eq!(told.len(), 1, "{told:?}");
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..400);
    assert_order_of_keys(&output);
}

/// A configuration under which guests of other kinds than the running one do not start.
fn strict(folder: &Folder) -> Config {
    folder
        .config("plugin.wasm")
        .processor("grants = { clocks = false }")
        .guest("do = \"stamp\"\nstamp = 1\ninit = \"refuse\"")
}

#[tokio::test]
async fn a_file_that_is_refused_changes_nothing_and_is_told_until_a_good_one_comes() {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    folder.replace("plugin.wasm", &guest("guest_columnar"));
    let mut worker = Worker::start_ready(&services, &strict(&folder)).await;
    let first = plugin(&worker, "copy").await["digest"].clone();
    let mut writer = Writer::new(&services, "input", 10);
    let mut refused = 0;
    for (bytes, said) in [
        (guest("guest_rows"), "wasi:clocks/"),
        (guest("route"), "it does not start"),
        (b"this is not it".to_vec(), "is not WebAssembly"),
        (b"\0asm\x0d\0\x01\0".to_vec(), "is not a processor"),
    ] {
        writer.put(50).await;
        folder.replace("plugin.wasm", &bytes);
        until_refused(&mut worker, "copy", said).await;
        refused += 1;
        assert_eq!(plugin(&worker, "copy").await["digest"], first);
        assert_eq!(reloads(&worker, "copy", "refused").await, refused);
    }
    let (code, text) = worker.get("/readyz").await;
    assert_eq!(code, 200, "what runs is as good as it was: {text}");
    assert_says("/readyz", &text, &["plugin.wasm", "is refused", "is not a processor"]);
    let told = worker.logged("WARN", "a version of the plugin is refused");
    assert_eq!(told.len() as u64, refused, "each once: {told:?}");
    assert!(told.iter().all(|line| line["reason"].is_string() && line["processor"] == "copy"), "{told:?}");

    // What ran before is what is there again: nothing is to be done, and nothing more to be said.
    folder.replace("plugin.wasm", &guest("guest_columnar"));
    worker
        .until("nothing is refused", async |worker| plugin(worker, "copy").await["refused"].is_null().then_some(()))
        .await;
    let good = another_build(&guest("guest_columnar"), 1);
    folder.replace("plugin.wasm", &good);
    until_other(&mut worker, "copy", first.as_str().expect("a digest")).await;
    assert_eq!(worker.get("/readyz").await, (200, "ready\n".to_owned()));
    worker.until_records_of("input", 200).await;
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..200);
}

#[tokio::test]
async fn a_guest_whose_init_hangs_is_ended_and_with_watching_off_no_file_is_looked_at() {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    folder.replace("plugin.wasm", &guest("guest_columnar"));
    let config = folder
        .config("plugin.wasm")
        .processor("limits = { start-timeout = \"2s\" }")
        .guest("init = \"spin\"")
        .others("[reload]\nwatch = false\n");
    let mut worker = Worker::start_ready(&services, &config).await;
    folder.replace("plugin.wasm", &guest("guest_rows"));
    tokio::time::sleep(LONGER_THAN_PATIENCE).await;
    assert!(plugin(&worker, "copy").await["refused"].is_null(), "nobody watches");
    worker.hang_up();
    let reason = until_refused(&mut worker, "copy", "it does not start").await;
    assert!(reason.contains("2s"), "{reason}");
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(50).await;
    worker.until_records_of("input", 50).await;
    assert_eq!(reloads(&worker, "copy", "switched").await, 0);
    worker.stop().await;
}
