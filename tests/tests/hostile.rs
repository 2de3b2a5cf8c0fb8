//! Hostile guests beside a good one, in one host: the good one's records all come through and its shards never stop, the
//! host stays within its memory, and the metrics and the log name who it was. And files that are bombs for a compiler.

use std::fs;
use std::path::Path;

use shardmill_tests::{
    Config, Finished, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, assert_says, command,
    memory, paths, run,
};
use tempfile::TempDir;

#[path = "../../host/plugin/tests/it/forge.rs"]
#[expect(dead_code, reason = "made for other tests too")]
mod forge;

use forge::{leb, section, with_core_module};

const SHARDS: i32 = 2;
const RECORDS: u64 = 3_000;

/// A processor whose guest is hostile to each batch: its name, what it does, and what the metrics count, with these labels
/// behind the processor's.
struct Hostile {
    name: &'static str,
    does: &'static str,
    counted: &'static str,
    labels: &'static str,
}

const fn fails(name: &'static str, does: &'static str, labels: &'static str) -> Hostile {
    Hostile { name, does, counted: "shardmill_plugin_call_failures_total", labels }
}

const TIMEOUT: &str = ",call=\"process-batch\",kind=\"timeout\"";
const MEMORY: &str = ",call=\"process-batch\",kind=\"memory\"";
const OUTCOME: &str = ",call=\"process-batch\",kind=\"invalid-outcome\"";
const TRAP: &str = ",call=\"process-batch\",kind=\"trap\"";

const HOSTILE: &[Hostile] = &[
    fails("spins", "spin", TIMEOUT),
    fails("bombs", "memory", MEMORY),
    fails("floods", "huge", OUTCOME),
    fails("crashes", "panic", TRAP),
    fails("recurses", "recurse", TRAP),
    fails("exits", "exit", TRAP),
    fails("sleeps", "sleep", TIMEOUT),
    Hostile { name: "lies", does: "index-outside", counted: "shardmill_attempts_failed_total", labels: "" },
    Hostile { name: "logs", does: "log-flood", counted: "shardmill_plugin_log_lines_dropped_total", labels: "" },
    Hostile { name: "prints", does: "print-flood", counted: "shardmill_plugin_log_lines_dropped_total", labels: "" },
    Hostile { name: "measures", does: "measure", counted: "shardmill_plugin_guest_metrics_dropped_total", labels: "" },
];

/// All of them on the good one's stream, tried again for as long as the test lasts.
fn config() -> String {
    let limits = r#"limits = { memory = "64 MiB", outcome = "1 MiB", batch-timeout = "500ms", instances = 2 }
batch = { records = 50 }
retry = { attempts = 1000000, backoff = "10ms", max-backoff = "50ms" }"#;
    let mut config = Config::copy().processor("batch = { records = 50 }").top(r#"memory = "64 MiB""#);
    config = config.top(r#"shutdown-timeout = "5s""#);
    for Hostile { name, does, .. } in HOSTILE {
        config = config.and_guest(name, "guest_rows", limits, &format!("do = {does:?}\nhooks = \"silent\""));
    }
    config.text()
}

#[tokio::test]
async fn a_good_processor_does_not_notice_hostile_ones_beside_it() {
    let services = Services::with_streams(SHARDS, SHARDS).await;
    services.create_stream("asides", 1).await;
    let mut worker = Worker::start_with(&services, &config());
    worker.ready().await;
    let mut writer = Writer::new(&services, "input", 50);
    for _ in 0..6 {
        writer.put(RECORDS / 6).await;
    }
    let mut output = Tail::new(&services, "output").await;
    worker.until("all outputs", async |_| (output.count().await as u64 >= RECORDS).then_some(())).await;
    // Each of the others has done it, again and again, and is named.
    for Hostile { name, counted, labels, .. } in HOSTILE {
        worker
            .until(name, async |worker| {
                let found = worker.metric(counted, &format!("processor=\"{name}\"{labels}")).await;
                (found >= 2.0).then_some(())
            })
            .await;
    }
    let log = worker.log();
    for name in ["spins", "bombs", "floods", "crashes", "logs", "prints"] {
        assert!(log.iter().any(|line| line["processor"] == *name), "{name} is not in the log");
    }
    assert_each_once(output.found(), 0..RECORDS);
    assert_order_of_keys(output.found());
    assert_eq!(worker.metric("shardmill_shards_stopped", "").await, 0.0, "shards are stopped");
    assert_eq!(worker.metric("shardmill_plugin_call_failures_total", "processor=\"copy\"").await, 0.0);
    assert_eq!(worker.metric("shardmill_lease_lost_total", "").await, 0.0, "leases are lost");
    // What records take, what two instances of each may have, and the process itself. They never have all of it at once.
    let most = (64 + 64 + (HOSTILE.len() as u64 + 1) * 2 * 64) << 20;
    let peak = memory::peak(worker.pid());
    assert!(peak < most, "{} MiB", peak >> 20);
    worker.stop().await;
}

// === files that are bombs for a compiler ===

/// What `shardmill check` says of a plugin within these limits.
async fn check(folder: &Path, plugin: &Path, limits: &str) -> Finished {
    let path = folder.join("shardmill.toml");
    let (plugin, cache) = (plugin.display(), folder.join("compiled"));
    let text = format!(
        "application = \"tests\"\ncache-dir = {cache:?}\n[admin]\nenabled = false\n[processors.suspect]\nstream = \"input\"\nplugin = '{plugin}'\nconfig = {{ field = \"/n\", default = \"copies\" }}\nlimits = {{ {limits} }}\n"
    );
    fs::write(&path, text).expect("a configuration file");
    let mut child = command();
    child.arg("check").arg("--config").arg(&path).env("AWS_REGION", "us-east-1");
    run(child).await
}

/// A plugin with so many functions of so much arithmetic each besides its own.
fn bomb(functions: usize, steps: usize) -> Vec<u8> {
    // x = x * x + 7
    let step = [0x20, 0, 0x20, 0, 0x7e, 0x42, 7, 0x7c, 0x21, 0];
    let body = [&[1, 1, 0x7e][..], &step.repeat(steps), &[0x0b]].concat();
    let body = [leb(body.len()), body].concat();
    let count = leb(functions);
    let declared = section(3, &[count.as_slice(), &[0].repeat(functions)].concat());
    let code = section(10, &[count.as_slice(), &body.repeat(functions)].concat());
    let route = fs::read(paths::plugin("route")).expect("a plugin");
    with_core_module(route, &[section(1, &[1, 0x60, 0, 0]), declared, code], 1)
}

#[tokio::test]
async fn a_file_that_would_take_the_compiler_long_or_much_is_refused_with_the_limit_and_a_remedy() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("bomb.wasm");
    fs::write(&file, bomb(200, 20_000)).expect("a file");
    let path = file.display().to_string();
    let refusals: [(&str, &[&str]); 3] = [
        (r#"compile-timeout = "300ms""#, &["takes longer than the 300ms", "raise `limits.compile-timeout`"]),
        (
            r#"compile-memory = "64 MiB""#,
            &["out of memory", "67108864 bytes of memory", "raise `limits.compile-memory`"],
        ),
        (r#"plugin-size = "1 MiB""#, &["1048576 are allowed", "raise `limits.plugin-size`"]),
    ];
    for (limits, said) in refusals {
        let finished = check(folder.path(), &file, limits).await;
        assert_eq!(finished.code, Some(78), "{limits}: {finished:?}");
        assert_says(limits, &finished.stderr, &[&["processor suspect", path.as_str()][..], said].concat());
        assert!(!finished.stderr.contains("panicked at host/"), "{limits}: {}", finished.stderr);
    }
    // Within its limits it is a plugin as any other, and is compiled in a process of its own, once.
    fs::write(&file, bomb(20, 20)).expect("a file");
    for _ in 0..2 {
        let finished = check(folder.path(), &file, "").await;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert!(!finished.stderr.contains("compiled in this"), "{}", finished.stderr);
    }
    let files = fs::read_dir(folder.path().join("compiled")).expect("the cache folder").count();
    assert_eq!(files, 1);
}
