//! The configuration, read again.

use shardmill_tests::{Config, Services, Worker, Writer, another_build, assert_says, command, run};

use super::{Folder, TOKEN, guest, plugin, reloads, stamps};

/// With a stamp, and a filter of the log.
fn stamping(folder: &Folder, stamp: u64) -> Config {
    folder.config("plugin.wasm").guest(&format!("do = \"stamp\"\nstamp = {stamp}"))
}

async fn until_read_again(worker: &mut Worker, times: usize) {
    worker
        .until("a reload", async |worker| (worker.logged("INFO", "was read again").len() >= times).then_some(()))
        .await;
}

#[tokio::test]
async fn what_can_be_applied_is_and_what_needs_a_restart_is_named() {
    let services = Services::with_streams(2, 1).await;
    let folder = Folder::new();
    folder.replace("plugin.wasm", &guest("guest_columnar"));
    let quiet = |config: Config| config.text().replace("[log]\n", "[log]\nfilter = \"info\"\n");
    let off = |text: String| format!("{text}[reload]\nwatch = false\n");
    let mut worker = Worker::start_with(&services, &off(quiet(stamping(&folder, 1))));
    worker.ready().await;
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    worker.until_records_of("input", 100).await;

    // A version of the plugin, the log, and something that waits.
    let config = stamping(&folder, 2).processor("batch = { records = 7 }");
    let text = off(quiet(config)).replace("filter = \"info\"", "filter = \"debug\"");
    worker.replace_config(&text);
    worker.hang_up();
    until_read_again(&mut worker, 1).await;
    let told = worker.logged("INFO", "was read again").remove(0);
    assert_eq!(told["applied"], "log.filter, processors.copy.config", "{told}");
    let told = worker.logged("WARN", "these keys stay as they were");
    assert_eq!(told[0]["keys"], "processors.copy.batch.records", "{told:?}");
    let (code, text) = worker.get("/readyz").await;
    assert_eq!(code, 200, "{text}");
    assert_says("/readyz", &text, &["needs a restart: processors.copy.batch.records"]);
    writer.put(100).await;
    worker.until_records_of("input", 200).await;
    worker
        .until("a line of the new filter", async |worker| {
            worker.log().into_iter().find(|line| line["level"] == "DEBUG")
        })
        .await;

    // What is wrong changes nothing, and says where.
    for (text, said) in [
        (
            off(quiet(stamping(&folder, 3))).replace("scan = \"200ms\"", "scan = \"soon\""),
            &["shardmill.toml:", "soon"][..],
        ),
        (
            off(quiet(stamping(&folder, 3))).replace("application", "applications"),
            &["shardmill.toml:1", "applications"],
        ),
        (off(quiet(stamping(&folder, 3).processor("grants = { clocks = 7 }"))), &["shardmill.toml:", "boolean"]),
    ] {
        worker.replace_config(&text);
        let (code, text) = worker.post("/v1/reload", Some(TOKEN), "").await;
        assert_eq!(code, 422, "{text}");
        assert_says("a bad configuration", &text, said);
        assert_says("/readyz", &worker.get("/readyz").await.1, said);
    }
    assert_eq!(worker.post("/v1/reload", None, "").await.0, 401);

    // One that the guest does not start with changes nothing either, whatever else is in it.
    folder.replace("plugin.wasm", &guest("guest_rows"));
    let text = off(quiet(stamping(&folder, 3).guest("init = \"refuse\"")));
    worker.replace_config(&text);
    let mut child = command();
    child.args(["reload", "--admin", &worker.admin()]).env("SHARDMILL_ADMIN_TOKEN", TOKEN);
    let finished = run(child).await;
    assert_eq!(finished.code, Some(78), "{finished:?}");
    assert_says("reload", &finished.stderr, &["processor copy", "`threshold` is missing"]);
    writer.put(100).await;
    worker.until_records_of("input", 300).await;

    // Mended, it is taken with all that goes with it.
    folder.replace("plugin.wasm", &guest("guest_columnar"));
    worker.replace_config(&off(quiet(stamping(&folder, 3))));
    let mut child = command();
    child.args(["reload", "--admin", &worker.admin()]).env("SHARDMILL_ADMIN_TOKEN", TOKEN);
    let finished = run(child).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_says("reload", &finished.stdout, &["applied: processors.copy.config", "applied: log.filter"]);
    assert_eq!(worker.get("/readyz").await, (200, "ready\n".to_owned()));
    writer.put(100).await;
    worker.until_records_of("input", 400).await;
    worker.stop().await;
    for (key, stamps) in stamps(&services, "output").await {
        for (number, stamp) in stamps {
            assert_eq!(stamp, [1, 2, 2, 3][number as usize / 100], "record {number} of {key}");
        }
    }
}

#[tokio::test]
async fn a_configuration_that_is_watched_is_applied_and_may_name_a_plugin_that_comes_later() {
    let services = Services::with_streams(1, 1).await;
    let folder = Folder::new();
    folder.replace("plugin.wasm", &guest("guest_columnar"));
    let mut worker = Worker::start_ready(&services, &stamping(&folder, 1)).await;
    worker.replace_config(&stamping(&folder, 2).text());
    until_read_again(&mut worker, 1).await;
    assert_eq!(reloads(&worker, "copy", "switched").await, 1);
    let of_later = || stamping(&folder, 3).plugin_file(folder.path("later.wasm"));
    // First it is a file that is refused, then one that is good: of what the file of the configuration names.
    folder.replace("later.wasm", b"\0asm\x0d\0\x01\0");
    worker.replace_config(&of_later().text());
    worker
        .until("a refusal", async |worker| worker.get("/readyz").await.1.contains("is not taken").then_some(()))
        .await;
    folder.replace("later.wasm", &another_build(&guest("guest_columnar"), 1));
    until_read_again(&mut worker, 2).await;
    let shown = plugin(&worker, "copy").await;
    assert!(shown["from"].as_str().is_some_and(|from| from.ends_with("later.wasm")), "{shown}");
    Writer::new(&services, "input", 5).put(20).await;
    worker.until_records_of("input", 20).await;
    worker.stop().await;
    let stamps = stamps(&services, "output").await;
    assert!(stamps.values().flatten().all(|(_, stamp)| *stamp == 3), "{stamps:?}");
}
