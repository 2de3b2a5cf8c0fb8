//! Plugins that are wrong: what is refused before anything of it runs, what does not start, and what goes wrong with a
//! record.

use std::fmt::Write as _;

use shardmill_cause::code::{Code, command, engine, plugin};
use shardmill_tests::{Config, Services, Tail, Worker, Writer, leases, numbers, paths, positions};

use crate::row::{Expected, Folder, Row, Unasked, finish};

#[path = "../../../host/plugin/tests/it/forge.rs"]
mod forge;

use forge::{SPIN, TRAP, component, growing, section, starting, with_core_module};

const BATCH: &str = "shardmill:processor/batch@0.1.0";
const COLUMNAR: &str = "shardmill:processor/columnar@0.1.0";
const SHARD: &str = "shardId-000000000000";

pub(crate) async fn rows() -> Vec<Row> {
    let mut rows = of_files().await;
    rows.extend(of_starts().await);
    rows.push(of_a_trial().await);
    rows.extend(of_records().await);
    rows
}

fn guest(name: &str) -> Vec<u8> {
    std::fs::read(paths::plugin(name)).expect("a plugin")
}

/// `shardmill run` with a plugin ends so, and nobody is asked.
async fn refused(given: &str, file: &str, settings: &str, code: Code) -> Row {
    let (folder, services) = (Folder::new(), Unasked::new());
    let compiled = paths::compiled();
    let text = format!(
        "application = \"tests\"\ncache-dir = {compiled:?}\nadmin = {{ enabled = false }}\n[processors.suspect]\nstream = \"input\"\nplugin = '{file}'\n{settings}\n"
    );
    let path = folder.write("shardmill.toml", text);
    let finished = finish(&services, &["run", "--config", &path]).await;
    services.assert(given);
    Row::of(given, &finished, Expected { exit: 78, code }, "no service was asked, so no lease was taken")
}

async fn of_files() -> Vec<Row> {
    let route = guest("route");
    // Its function returns nothing where its type promises a number.
    let mistyped = [section(1, &[1, 0x60, 0, 1, 0x7f]), section(3, &[1, 0]), section(10, &[1, 2, 0, 0x0b])];
    let whole = component(&[], &[BATCH]);
    let cut = whole[..whole.len() - 3].to_vec();
    let another = "shardmill:processor/batch@0.2.0";
    let files: [(&str, Vec<u8>, &str, Code); 11] = [
        ("a text", b"this is not it".to_vec(), "", plugin::NOT_WASM),
        ("an empty file", Vec::new(), "", plugin::NOT_WASM),
        ("a core module", b"\0asm\x01\0\0\0".to_vec(), "", plugin::CORE_MODULE),
        ("a component that was cut short", cut, "", plugin::BROKEN),
        ("a component that exports nothing", component(&[], &[]), "", plugin::NOT_A_PROCESSOR),
        ("a component of both forms", component(&[], &[BATCH, COLUMNAR]), "", plugin::NOT_A_PROCESSOR),
        ("one with the contract's name and other types", component(&[], &[BATCH]), "", plugin::NOT_A_PROCESSOR),
        ("one for another version of the contract", component(&[], &[another]), "", plugin::OTHER_VERSION),
        ("one that wants sockets", component(&["wasi:sockets/tcp@0.2.6"], &[BATCH]), "", plugin::NOT_GRANTED),
        ("code that is not valid", with_core_module(route.clone(), &mistyped, 1), "", plugin::COMPILE),
        ("one that is larger than allowed", route, "limits = { plugin-size = \"1 KiB\" }", plugin::TOO_LARGE),
    ];
    let folder = Folder::new();
    let mut rows = Vec::new();
    for (given, bytes, settings, code) in files {
        let file = folder.write("plugin.wasm", bytes);
        rows.push(refused(given, &file, settings, code).await);
    }
    rows
}

async fn of_starts() -> Vec<Row> {
    let folder = Folder::new();
    let rows = paths::plugin("guest_rows").display().to_string();
    let clocks = "grants = { clocks = true, metrics = true }\n";
    let init = |does: &str| format!("{clocks}config = {{ init = {does:?} }}");
    let forged = |name: &str, sections: &[Vec<u8>], instances| {
        folder.write(name, with_core_module(guest("guest_columnar"), sections, instances))
    };
    let brief = format!("{clocks}limits = {{ start-timeout = \"500ms\" }}");
    let small = format!("{clocks}limits = {{ memory = \"64 MiB\" }}");
    vec![
        of_one_import(refused("one that wants what it is not granted", &rows, "", plugin::NOT_GRANTED).await),
        refused("one that refuses its configuration", &rows, &init("refuse"), plugin::INIT_REFUSED).await,
        refused("one that panics at its start", &rows, &init("trap"), plugin::TRAP).await,
        refused("one that ends in `unreachable`", &forged("trap.wasm", &starting(TRAP), 1), clocks, plugin::TRAP).await,
        refused("one that never starts", &forged("spin.wasm", &starting(SPIN), 1), &brief, plugin::TIMEOUT).await,
        refused("one that grows beyond its limit", &forged("grow.wasm", &growing(320), 4), &small, plugin::MEMORY)
            .await,
    ]
}

/// What else a guest imports its compiler knows.
pub(crate) fn of_one_import(row: Row) -> Row {
    let says = row.says.split(", ").next().unwrap_or_default().to_owned() + ", …";
    Row { says, ..row }
}

/// Records without a stream.
async fn of_a_trial() -> Row {
    let (folder, services) = (Folder::new(), Unasked::new());
    let records = folder.write("records.jsonl", "{\"n\":1}\n{\"n\":2}\n");
    let file = paths::plugin("guest_rows").display().to_string();
    let grants = "clocks = true, metrics = true";
    let config = r#"{"do":"reject","on":"\"n\":2"}"#;
    let given = "one that rejects a record of `plugin test`";
    let arguments = ["plugin", "test", &file, "--records", &records, "--grants", grants, "--guest-config", config];
    let before = folder.files();
    let finished = finish(&services, &arguments).await;
    services.assert(given);
    assert_eq!(folder.files(), before);
    let kept = "no service was asked: it is a trial; the records' file is as it was";
    Row::of(given, &finished, Expected { exit: 1, code: command::RECORDS_FAIL }, kept)
}

/// A processor whose guest goes wrong at one record: what it does, in words, and the code of that.
const MISTAKES: &[(&str, &str, &str, Code)] = &[
    ("panic", "guest_rows", "a guest that panics at a record", plugin::TRAP),
    ("spin", "guest_rows", "a guest that computes without end", plugin::TIMEOUT),
    ("memory", "guest_rows", "a guest that wants too much memory", plugin::MEMORY),
    ("index-outside", "guest_rows", "an outcome about a record that is not there", plugin::INVALID_OUTCOME),
    ("unknown-name", "guest_columnar", "an output that is not configured", plugin::INVALID_OUTCOME),
    ("invalid-utf8", "guest_columnar", "a partition key that is not UTF-8", plugin::INVALID_OUTCOME),
    ("huge", "guest_rows", "an outcome that is too large", plugin::INVALID_OUTCOME),
    ("reject", "guest_rows", "a guest that rejects a batch", plugin::GUEST_REJECT),
    ("retry", "guest_rows", "a guest that asks for attempts without end", plugin::GUEST_RETRY),
    ("stop-shard", "guest_rows", "a guest that stops its shard", plugin::GUEST_STOP),
];

const RECORDS: u64 = 100;
const WRONG_AT: u64 = 55;

/// A worker with all those processors, and a good one beside them.
fn with_mistakes() -> String {
    let mut text = Config::copy().text();
    for (does, plugin, ..) in MISTAKES {
        let (plugin, on) = (paths::plugin(plugin), format!("'\"n\":{WRONG_AT},'"));
        write!(
            text,
            r#"
[processors.{does}]
stream = "input"
plugin = {plugin:?}
batch = {{ records = 10 }}
retry = {{ attempts = 2, backoff = "10ms" }}
limits = {{ batch-timeout = "2s", memory = "32 MiB", outcome = "1 MiB", instances = 2 }}
config = {{ do = {does:?}, on = {on}, hooks = "silent" }}
[processors.{does}.outputs.out]
stream = "out-{does}"
"#
        )
        .expect("a text takes more text");
    }
    text
}

async fn of_records() -> Vec<Row> {
    let services = Services::with_streams(1, 1).await;
    for (does, ..) in MISTAKES {
        services.create_stream(&format!("out-{does}"), 1).await;
    }
    Writer::new(&services, "input", 10).put(RECORDS).await;
    let mut worker = Worker::start_with(&services, &with_mistakes());
    let all_stopped = async |worker: &mut Worker| {
        let stopped = worker.logged("ERROR", "the shard is stopped");
        (stopped.len() == MISTAKES.len()).then_some(stopped)
    };
    let stopped = worker.until("every shard of theirs is stopped", all_stopped).await;
    let mut output = Tail::new(&services, "output").await;
    worker.until("the outputs of the good one", async |_| (output.count().await as u64 >= RECORDS).then_some(())).await;
    let input = positions(&Tail::all(&services, "input").await);
    let mut rows = Vec::new();
    for (does, _, given, code) in MISTAKES {
        let line = stopped.iter().find(|line| line["processor"] == *does).expect("a line for each");
        let reason = line["reason"].as_str().expect("a reason");
        assert!(reason.ends_with(&format!("({code})")), "{given}: {reason}");
        let held = &leases::rows(&services, &format!("tests-{does}")).await[SHARD];
        assert!(held.owner.is_some(), "{given}: {held:?}");
        let checkpoint = held.checkpoint.position().expect("a checkpoint before the record");
        assert!(*checkpoint < input[&WRONG_AT].1, "{given}: {checkpoint}");
        let sent = numbers(&Tail::all(&services, &format!("out-{does}")).await);
        assert!(sent.iter().all(|number| input[number].1 <= *checkpoint), "{given}: {sent:?}");
        let kept = "its lease is held, its checkpoint stands before the record, nothing behind that was sent; other \
                    processors of the worker go on";
        // The line has the code of the stop, and its reason that of what has caused it.
        rows.push(Row { code: *code, ..Row::of_log(given, line, engine::SHARD_STOPPED, kept) });
    }
    rows
}
