//! Plugins that are wrong. What can be known before it runs is refused with the file, the processor, the reason and what
//! to do; what goes wrong while it runs stops its shard loudly, and nothing is lost. A cache of compiled code that cannot
//! be used is a warning.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use shardmill_record::Position;
use shardmill_tests::{
    Config, Finished, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, assert_says, command,
    leases, numbers, paths, positions, run,
};
use tempfile::TempDir;
use tokio::process::Command;

#[path = "../../host/plugin/tests/it/forge.rs"]
mod forge;

use forge::{SPIN, TRAP, component, growing, section, starting, with_core_module};

const WRONG_CONFIGURATION: Option<i32> = Some(78);
const BATCH: &str = "shardmill:processor/batch@0.1.0";
const COLUMNAR: &str = "shardmill:processor/columnar@0.1.0";
const SHARD: &str = "shardId-000000000000";

fn assert_refused(what: &str, finished: &Finished, said: &[&str]) {
    assert_eq!(finished.code, WRONG_CONFIGURATION, "{what}: {finished:?}");
    assert_eq!(finished.stdout, "", "{what}");
    assert_says(what, &finished.stderr, said);
    assert!(!finished.stderr.contains("panicked at host/"), "{what}: {}", finished.stderr);
}

async fn inspect(file: &Path) -> Finished {
    let mut child = command();
    child.args(["plugin", "inspect"]).arg(file);
    run(child).await
}

/// A command with a configuration whose processor `suspect` has this plugin.
async fn with_plugin(subcommand: &str, plugin: &Path, settings: &str) -> Finished {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("shardmill.toml");
    let (plugin, compiled) = (plugin.display(), paths::compiled());
    let text = format!(
        "application = \"tests\"\ncache-dir = {compiled:?}\n[admin]\nenabled = false\n[defaults.processor.grants]\nclocks = true\nmetrics = true\n[processors.suspect]\nstream = \"input\"\nplugin = '{plugin}'\n{settings}\n"
    );
    fs::write(&path, text).expect("a configuration file");
    let mut child = command();
    // A region, and no service: nothing here comes so far as to ask one.
    child.arg(subcommand).arg("--config").arg(&path).env("AWS_REGION", "us-east-1");
    run(child).await
}

fn plugin(name: &str) -> Vec<u8> {
    fs::read(paths::plugin(name)).expect("a plugin")
}

// === what a file is ===

#[tokio::test]
async fn a_file_that_cannot_be_a_plugin_is_refused_with_its_reason_and_a_remedy() {
    let route = plugin("route");
    // Its function returns nothing where its type promises a number.
    let mistyped = [section(1, &[1, 0x60, 0, 1, 0x7f]), section(3, &[1, 0]), section(10, &[1, 2, 0, 0x0b])];
    let of_wasi_0_3 = ["wasi:cli/stdout@0.3.0", "wasi:clocks/system-clock@0.3.0"];
    let files: [(&str, Vec<u8>, &[&str]); 15] = [
        ("garbage", b"this is not it".to_vec(), &["is not WebAssembly", "cargo build --target wasm32-wasip2"]),
        ("empty", Vec::new(), &["is not WebAssembly"]),
        ("core", b"\0asm\x01\0\0\0".to_vec(), &["is a core module", "wasm-tools component new"]),
        ("cut", route[..route.len() / 2].to_vec(), &["is not valid WebAssembly", "build it or copy it again"]),
        ("hollow", component(&[], &[]), &["is not a processor", "it exports nothing", BATCH, COLUMNAR]),
        ("world", component(&[], &["wasi:cli/run@0.2.6"]), &["is not a processor", "wasi:cli/run@0.2.6", BATCH]),
        (
            "version",
            component(&[], &["shardmill:processor/batch@0.2.0"]),
            &["shardmill:processor/batch@0.2.0", "this host runs version 0.1.0", "rebuild the guest"],
        ),
        (
            "logging",
            component(&["shardmill:processor/logging@0.2.0"], &[BATCH]),
            &["shardmill:processor/logging@0.2.0", "another version of the contract", "rebuild the guest"],
        ),
        ("both", component(&[], &[BATCH, COLUMNAR]), &["exports both", "export one of them"]),
        (
            "wasi-0.3",
            component(&of_wasi_0_3, &[BATCH]),
            &[of_wasi_0_3[0], of_wasi_0_3[1], "this host offers WASI 0.2", "wasm32-wasip2"],
        ),
        (
            "network",
            component(&["wasi:sockets/tcp@0.2.6"], &[BATCH]),
            &["wasi:sockets/tcp@0.2.6", "sockets are never granted", "build the guest without them"],
        ),
        (
            "database",
            component(&["acme:database/query@1.0.0"], &[BATCH]),
            &["acme:database/query@1.0.0", "this host does not have it", "build the guest without it"],
        ),
        ("rows", component(&[], &[BATCH]), &["does not fulfil the contract", BATCH, "`init`", "rebuild it"]),
        ("columns", component(&[], &[COLUMNAR]), &["does not fulfil the contract", COLUMNAR, "rebuild it"]),
        ("mistyped", with_core_module(route, &mistyped, 1), &["cannot be compiled", "type mismatch", "build it"]),
    ];
    let folder = TempDir::new().expect("a temporary folder");
    for (name, bytes, said) in files {
        let file = folder.path().join(name).with_extension("wasm");
        fs::write(&file, bytes).expect("a file");
        let path = file.display().to_string();
        let said = [&[path.as_str()][..], said].concat();
        assert_refused(&format!("inspect {name}"), &inspect(&file).await, &said);
        for subcommand in ["check", "run"] {
            let finished = with_plugin(subcommand, &file, "").await;
            assert_refused(&format!("{subcommand} {name}"), &finished, &[&["processor suspect"][..], &said].concat());
        }
    }
}

// === what a file does when it starts ===

#[tokio::test]
async fn a_plugin_that_does_not_start_is_refused_with_its_reason_and_a_remedy() {
    let folder = TempDir::new().expect("a temporary folder");
    let forged = |name: &str, sections: &[Vec<u8>], instances| {
        let file = folder.path().join(name).with_extension("wasm");
        fs::write(&file, with_core_module(plugin("guest_columnar"), sections, instances)).expect("a file");
        file
    };
    let rows = paths::plugin("guest_rows");
    let brief = r#"limits = { start-timeout = "500ms" }"#;
    let small = r#"limits = { memory = "64 MiB" }"#;
    let starts: [(PathBuf, String, &[&str]); 8] = [
        (
            rows.clone(),
            "grants = { clocks = false }".to_owned(),
            &["wasi:clocks/monotonic-clock@0.2", "add `clocks = true` to [processors.suspect.grants]"],
        ),
        (
            rows.clone(),
            r#"config = { init = "refuse" }"#.to_owned(),
            &["`threshold` is missing", "correct its `config`"],
        ),
        (rows.clone(), r#"config = { init = "trap" }"#.to_owned(), &["crashed", "init went wrong"]),
        (
            rows,
            format!("{brief}\nconfig = {{ init = \"spin\" }}"),
            &["longer than the 500ms", "raise", "limit of time"],
        ),
        (forged("trap", &starting(TRAP), 1), String::new(), &["crashed", "unreachable"]),
        (forged("spin", &starting(SPIN), 1), brief.to_owned(), &["longer than the 500ms", "raise", "limit of time"]),
        // 320 pages are 20 MiB, four times.
        (forged("large", &[section(5, &[1, 0, 0xc0, 0x02])], 4), small.to_owned(), &["67108864", "raise", "memory"]),
        (forged("growing", &growing(320), 4), small.to_owned(), &["67108864", "raise", "memory"]),
    ];
    for (file, settings, said) in starts {
        let path = file.display().to_string();
        let said = [&["processor suspect", path.as_str()][..], said].concat();
        for subcommand in ["check", "run"] {
            let finished = with_plugin(subcommand, &file, &settings).await;
            assert_refused(&format!("{subcommand} {path} {settings}"), &finished, &said);
        }
        // It is a plugin, whatever becomes of it.
        let finished = inspect(&file).await;
        assert_eq!(finished.code, Some(0), "{path}: {finished:?}");
    }
}

// === what a plugin does with a batch ===

/// A processor whose guest goes wrong at one record: its name, the guest, what it does, how the metrics call that, and
/// what has to be said.
struct Mistake {
    name: &'static str,
    plugin: &'static str,
    does: &'static str,
    kind: &'static str,
    said: &'static [&'static str],
}

const fn rows(name: &'static str, does: &'static str, kind: &'static str, said: &'static [&'static str]) -> Mistake {
    Mistake { name, plugin: "guest_rows", does, kind, said }
}

const fn columns(name: &'static str, does: &'static str, said: &'static [&'static str]) -> Mistake {
    Mistake { name, plugin: "guest_columnar", does, kind: "invalid-outcome", said }
}

const TOO_LARGE: &[&str] = &["more than 1048576 bytes in one call", "raise the processor's limit of an outcome"];

const MISTAKES: &[Mistake] = &[
    rows("crash", "panic", "trap", &["the guest crashed", "record 0 is not what I thought"]),
    rows("loop", "spin", "timeout", &["longer than the 2s", "raise the processor's limit of time"]),
    rows("bomb", "memory", "memory", &["may have 33554432", "raise the processor's memory limit"]),
    rows("huge", "huge", "invalid-outcome", TOO_LARGE),
    rows("index", "index-outside", "invalid-outcome", &["`done` names record 1000000"]),
    rows("failed", "failed-outside", "invalid-outcome", &["`failed` names record 1000000"]),
    rows("cause", "cause-outside", "invalid-outcome", &["output 0 has the cause Record(1000000)"]),
    rows("hash-key", "bad-hash-key", "invalid-outcome", &["output 0"]),
    rows("position", "bad-checkpoint", "invalid-outcome", &["checkpoint", "LATEST"]),
    columns("huge-columns", "huge", TOO_LARGE),
    columns("text", "invalid-utf8", &["output 0 has a partition key that is not UTF-8"]),
    columns("length", "long-length", &["output 0 ends after the arena's"]),
    columns("rest", "long-arena", &["1 bytes of the arena follow the last output"]),
    columns("column", "missing-cause", &["the column `causes` has"]),
    columns("name", "name-index", &["output 1 has the name number 7"]),
    columns("nowhere", "unknown-name", &["output 0 is for `nowhere`", "add it to the configuration"]),
    columns("skipped", "index-outside", &["`skipped` names record 1000000"]),
];

const RECORDS: u64 = 300;
const WRONG_AT: u64 = 170;

/// A worker with all those processors, each with an output of its own; with a good plugin in the place of theirs when
/// they are mended.
fn with_mistakes(mended: bool) -> String {
    let mut text = Config::copy().text();
    for Mistake { name, plugin, does, .. } in MISTAKES {
        let timeout = if *does == "spin" { "2s" } else { "20s" };
        let (plugin, config) = if mended {
            (paths::plugin("route"), "field = \"/n\"\ndefault = \"out\"".to_owned())
        } else {
            let on = format!("'\"n\":{WRONG_AT},'");
            (paths::plugin(plugin), format!("do = {does:?}\non = {on}\nhooks = \"silent\""))
        };
        write!(
            text,
            r#"
[processors.{name}]
stream = "input"
plugin = {plugin:?}
batch = {{ records = 50 }}
retry = {{ attempts = 2, backoff = "10ms" }}
limits = {{ batch-timeout = "{timeout}", memory = "32 MiB", outcome = "1 MiB", instances = 2 }}
[processors.{name}.config]
{config}
[processors.{name}.outputs.out]
stream = "out-{name}"
"#
        )
        .expect("a text takes more text");
    }
    text
}

#[tokio::test]
async fn a_plugin_that_goes_wrong_stops_its_shard_before_the_batch_and_loses_nothing() {
    let services = Services::with_streams(1, 1).await;
    for mistake in MISTAKES {
        services.create_stream(&format!("out-{}", mistake.name), 1).await;
    }
    let mut writer = Writer::new(&services, "input", 50);
    writer.put(RECORDS).await;
    let mut worker = Worker::start_with(&services, &with_mistakes(false));
    worker
        .until("every shard is stopped", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            (worker.metric("shardmill_shards_stopped", "").await as usize == MISTAKES.len()).then_some(())
        })
        .await;
    let (status, text) = worker.get("/readyz").await;
    assert_eq!(status, 503);
    for Mistake { name, kind, said, .. } in MISTAKES {
        let prefix = format!("processor {name}:");
        let sentence = text.lines().find(|line| line.starts_with(&prefix)).expect("a sentence for each");
        for words in [&[SHARD][..], *said].concat() {
            assert!(sentence.contains(words), "{name}: {words:?} is not said in {sentence}");
        }
        let labels = format!("processor=\"{name}\",kind=\"{kind}\"");
        assert_eq!(worker.metric("shardmill_attempts_failed_total", &labels).await, 2.0, "{labels}");
        let errors = worker.logged("ERROR", "the shard is stopped");
        let errors: Vec<_> = errors.iter().filter(|line| line["processor"] == *name).collect();
        assert_eq!(errors.len(), 1, "{name}: {errors:?}");
        assert!(
            errors[0]["message"].as_str().is_some_and(|message| message.contains("`shardmill restart`")),
            "{errors:?}"
        );
    }
    // A good processor beside them does not notice.
    let mut output = Tail::new(&services, "output").await;
    worker.until("all outputs", async |_| (output.count().await as u64 >= RECORDS).then_some(())).await;
    worker.stop().await;

    // What stands before the checkpoint is where it belongs, and nothing else.
    let input = positions(&Tail::all(&services, "input").await);
    let at = |number: u64| -> &Position { &input[&number].1 };
    for Mistake { name, .. } in MISTAKES {
        let rows = leases::rows(&services, &format!("tests-{name}")).await;
        let checkpoint = rows[SHARD].checkpoint.position().expect("a checkpoint before the batch").clone();
        assert!(checkpoint < *at(WRONG_AT), "{name}: {checkpoint} is not before the record {}", at(WRONG_AT));
        let before: BTreeSet<u64> = (0..RECORDS).filter(|number| *at(*number) <= checkpoint).collect();
        let sent = Tail::all(&services, &format!("out-{name}")).await;
        assert_eq!(numbers(&sent), before, "{name}");
        assert_eq!(sent.len(), before.len(), "{name}");
    }

    let mut worker = Worker::start_with(&services, &with_mistakes(true));
    worker.ready().await;
    for Mistake { name, .. } in MISTAKES {
        let mut sent = Tail::new(&services, &format!("out-{name}")).await;
        worker.until(name, async |_| (sent.count().await as u64 >= RECORDS).then_some(())).await;
    }
    worker.stop().await;
    for Mistake { name, .. } in MISTAKES {
        let sent = Tail::all(&services, &format!("out-{name}")).await;
        assert_each_once(&sent, 0..RECORDS);
        assert_order_of_keys(&sent);
    }
}

// === the cache of compiled code ===

/// A configuration of two plugins with this cache folder.
fn with_cache(directory: &Path) -> String {
    let text = Config::copy().and_guest("other", "guest_columnar", "", "").text();
    let (ours, theirs) = (format!("cache-dir = {:?}", paths::compiled()), format!("cache-dir = {directory:?}"));
    assert!(text.contains(&ours), "{text}");
    text.replace(&ours, &theirs)
}

/// Lines about a cache folder.
fn about_cache<'a>(lines: impl IntoIterator<Item = &'a Value>, directory: &Path) -> Vec<&'a Value> {
    let directory = directory.display().to_string();
    lines.into_iter().filter(|line| line["directory"] == *directory).collect()
}

/// The command under a limit on the size of files, in the shell's units of 512 or 1024 bytes: what is larger is cut off,
/// as on a full disk.
fn limited(command: &Command, units: u32) -> Command {
    let command = command.as_std();
    let mut limited = Command::new("sh");
    // The signal that goes with the limit would end the process.
    limited.args(["-c", &format!(r#"trap '' XFSZ; ulimit -f {units}; exec "$0" "$@""#)]);
    limited.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null()).kill_on_drop(true);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// What `shardmill check` says of a cache folder, once it has found that all is well.
async fn check_with_cache(directory: &Path, units: Option<u32>) -> Vec<Value> {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("shardmill.toml");
    fs::write(&path, with_cache(directory)).expect("a configuration file");
    let mut child = command();
    child.arg("check").arg("--config").arg(&path);
    if let Some(units) = units {
        child = limited(&child, units);
    }
    let finished = run(child).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stdout.contains("the configuration is good"), "{finished:?}");
    let lines: Vec<Value> = finished.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    about_cache(&lines, directory).into_iter().cloned().collect()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the cache folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

fn assert_warning(line: &Value, reason: &str) {
    assert_eq!(line["level"], "WARN", "{line}");
    assert!(line["reason"].as_str().is_some_and(|text| text.contains(reason)), "{reason:?} in {line}");
}

#[tokio::test]
async fn a_full_disk_costs_the_cache_and_one_warning() {
    let folder = TempDir::new().expect("a temporary folder");
    let directory = folder.path().join("compiled");
    // Large enough for the memory of a guest, which is a file too.
    let said = check_with_cache(&directory, Some(200)).await;
    assert_eq!(said.len(), 1, "{said:?}");
    assert_warning(&said[0], "too large");
    assert_eq!(files(&directory), Vec::<PathBuf>::new());
    assert_eq!(check_with_cache(&directory, None).await, Vec::<Value>::new());
    assert_eq!(files(&directory).len(), 2);
}

#[tokio::test]
async fn damaged_files_of_the_cache_are_told_and_replaced() {
    let folder = TempDir::new().expect("a temporary folder");
    let directory = folder.path().join("compiled");
    assert_eq!(check_with_cache(&directory, None).await, Vec::<Value>::new());
    let damages: [fn(&mut Vec<u8>); 3] = [
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| bytes.clear(),
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        },
    ];
    for damage in damages {
        let files = files(&directory);
        assert_eq!(files.len(), 2, "{files:?}");
        let mut bytes = fs::read(&files[0]).expect("compiled code");
        damage(&mut bytes);
        fs::write(&files[0], bytes).expect("a damaged file");
        let said = check_with_cache(&directory, None).await;
        assert_eq!(said.len(), 1, "{said:?}");
        assert_warning(&said[0], "damaged");
        assert_eq!(check_with_cache(&directory, None).await, Vec::<Value>::new(), "it is whole again");
    }
}

#[tokio::test]
async fn a_worker_runs_without_its_cache() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, b"").expect("a file");
    let damaged = folder.path().join("compiled");
    assert_eq!(check_with_cache(&damaged, None).await, Vec::<Value>::new());
    for path in files(&damaged) {
        fs::write(path, b"shardmill-code-1").expect("a damaged file");
    }
    let services = Services::with_streams(1, 1).await;
    services.create_stream("asides", 1).await;
    let mut writer = Writer::new(&services, "input", 50);
    for (directory, warnings, reason) in [(&file, 1, "cannot be made"), (&damaged, 2, "damaged")] {
        writer.put(200).await;
        let mut worker = Worker::start_with(&services, &with_cache(directory));
        let mut output = Tail::new(&services, "output").await;
        worker.until("all outputs", async |_| (output.count().await as u64 >= writer.count()).then_some(())).await;
        worker.stop().await;
        let log = worker.log();
        let said = about_cache(&log, directory);
        assert_eq!(said.len(), warnings, "{said:?}");
        said.iter().for_each(|line| assert_warning(line, reason));
    }
    assert_each_once(&Tail::all(&services, "output").await, 0..writer.count());
}
