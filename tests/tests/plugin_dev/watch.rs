//! `shardmill plugin test --watch`: again with each change, until it is told to stop.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use shardmill_tests::{Process, eventually, paths};

use crate::cli::{Events, Folder, plugin};

const LIMIT: Duration = Duration::from_secs(60);

/// What was told in the last run, when there are so many that have ended.
async fn run_of(process: &mut Process, number: usize) -> Events {
    eventually(LIMIT, &format!("run {number}"), async || {
        assert!(process.ended().is_none(), "it goes on: {}", process.stderr());
        let told = process.stdout();
        // The last line may not be whole.
        let whole = told.rsplit_once('\n').map(|(whole, _)| whole)?;
        let lines: Vec<&str> = whole.lines().collect();
        let ends: Vec<usize> =
            lines.iter().enumerate().filter(|(_, line)| line.contains("\"event\":\"end\"")).map(|(at, _)| at).collect();
        let last = *ends.get(number - 1)?;
        let first = lines[..last].iter().rposition(|line| line.contains("\"event\":\"start\""))?;
        Some(Events::read(&lines[first..=last].join("\n")))
    })
    .await
}

async fn says(process: &Process, words: &str, times: usize) {
    eventually(LIMIT, words, async || (process.stderr().matches(words).count() >= times).then_some(())).await;
}

/// As an editor writes it.
fn replace(path: &Path, content: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    fs::write(&new, content).expect("a file");
    fs::rename(&new, path).expect("another file in its place");
}

#[tokio::test]
async fn it_is_done_again_when_a_file_changes_and_ends_well() {
    let folder = Folder::new();
    let records = folder.write("records.txt", "one\n");
    let wasm = folder.join("deep/plugin.wasm");
    fs::create_dir_all(folder.join("deep")).expect("a folder");
    fs::copy(paths::plugin("guest_rows"), &wasm).expect("a plugin");
    let config = |what: &str| {
        format!(
            "application = \"a\"\n[processors.p]\nstream = \"s\"\nplugin = \"deep/plugin.wasm\"\ngrants = {{ clocks = true, metrics = true }}\nconfig = {{ do = \"{what}\" }}\n\
             [processors.p.outputs.out]\nstream = \"o\"\n[processors.p.outputs.copies]\nstream = \"o\"\n"
        )
    };
    let toml = folder.write("shardmill.toml", config("echo"));
    let output = folder.join("output");
    fs::create_dir(&output).expect("a folder");
    let arguments = ["test", "--config", "shardmill.toml", "--records", "records.txt", "--watch", "--json"];
    let mut process = Process::start(folder.command(&arguments), &output);
    let first = run_of(&mut process, 1).await;
    assert_eq!((first.outputs(), &first.one("start")["run"]), (vec!["one".to_owned()], &json!(1)));
    says(&process, "watching 3 files and folders", 1).await;

    // As it was: no change.
    replace(&records, "one\n");
    fs::write(&records, "one\ntwo\n").expect("records");
    assert_eq!(run_of(&mut process, 2).await.outputs(), ["one", "two"]);
    says(&process, "watching", 2).await;
    replace(&toml, config("count"));
    assert_eq!(run_of(&mut process, 3).await.outputs(), ["1"]);
    says(&process, "watching", 3).await;
    // What makes no sense is told, and waited for.
    replace(&toml, "application = 7");
    says(&process, "shardmill.toml", 1).await;
    says(&process, "watching", 4).await;
    replace(&toml, config("panic"));
    let crashed = run_of(&mut process, 4).await;
    assert_eq!(crashed.end()["failed"], 2);
    says(&process, "2 of 2 records failed", 1).await;
    says(&process, "watching", 5).await;
    replace(&wasm, b"no plugin");
    says(&process, "is not WebAssembly", 1).await;
    says(&process, "watching", 6).await;
    replace(&toml, config("echo").replace("config = { do = \"echo\" }", ""));
    says(&process, "watching", 7).await;
    replace(&wasm, fs::read(paths::plugin("guest_poison")).expect("a plugin"));
    assert_eq!(run_of(&mut process, 5).await.one("start")["module"]["form"], "columnar");
    says(&process, "watching", 8).await;
    let told = process.stdout();
    process.terminate();
    assert_eq!(process.wait(LIMIT).await.code(), Some(0), "{}", process.stderr());
    assert_eq!(told.matches("\"event\":\"end\"").count(), 5, "no change, no run");
    assert!(!told.contains('\u{1b}'), "it is no terminal");
}

#[tokio::test]
async fn a_command_builds_when_a_source_changes() {
    let folder = Folder::new();
    folder.write("src/deep/records", "one\n");
    let poison = plugin("guest_poison");
    let output = folder.join("output");
    fs::create_dir(&output).expect("a folder");
    let build = "echo built >> builds && grep -v broken src/deep/records > records.txt";
    let arguments =
        ["test", &poison, "--records", "records.txt", "--json", "--watch", "--build", build, "--sources", "src"];
    let mut process = Process::start(folder.command(&arguments), &output);
    assert_eq!(run_of(&mut process, 1).await.outputs(), ["one"]);
    says(&process, "watching", 1).await;
    folder.write("src/deep/records", "two\n");
    assert_eq!(run_of(&mut process, 2).await.outputs(), ["two"]);
    says(&process, "watching", 2).await;
    // A build that fails is told, and nothing is tried before one has gone well.
    folder.write("src/deep/records", "broken\n");
    says(&process, "failed: exit status: 1", 1).await;
    says(&process, "watching", 3).await;
    folder.write("src/deep/other", "a new file");
    says(&process, "failed: exit status: 1", 2).await;
    says(&process, "watching", 4).await;
    folder.write("src/deep/records", "three\n");
    assert_eq!(run_of(&mut process, 3).await.outputs(), ["three"]);
    says(&process, "watching", 5).await;
    // What is built may be changed by hand: no source has changed.
    replace(&folder.join("records.txt"), "four\n");
    assert_eq!(run_of(&mut process, 4).await.outputs(), ["four"]);
    let builds = fs::read_to_string(folder.join("builds")).expect("a file");
    assert_eq!(builds.lines().count(), 5, "{builds}");
    process.terminate();
    assert_eq!(process.wait(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn a_run_that_would_take_for_ever_is_broken_off_by_the_next_change() {
    let folder = Folder::new();
    folder.write("records.txt", "one\ntwo\n");
    let wasm = plugin("guest_rows");
    let config = |what: &str| {
        format!(
            "application = \"a\"\n[processors.p]\nstream = \"s\"\nplugin = {wasm:?}\ngrants = {{ clocks = true, metrics = true }}\nconfig = {{ do = \"{what}\" }}\n\
             limits = {{ batch-timeout = \"1h\" }}\n[processors.p.outputs.out]\nstream = \"o\"\n"
        )
    };
    let toml = folder.write("shardmill.toml", config("spin"));
    let output = folder.join("output");
    fs::create_dir(&output).expect("a folder");
    let arguments = ["test", "--config", "shardmill.toml", "--records", "records.txt", "--watch", "--json"];
    let mut process = Process::start(folder.command(&arguments), &output);
    eventually(LIMIT, "it begins", async || process.stdout().contains("\"run\":1").then_some(())).await;
    replace(&toml, config("echo"));
    let second = run_of(&mut process, 1).await;
    assert_eq!((&second.one("start")["run"], second.outputs()), (&json!(2), vec!["one".to_owned(), "two".to_owned()]));
    assert!(process.stderr().contains("this run is broken off"), "{}", process.stderr());
    // And by the end.
    says(&process, "watching", 1).await;
    replace(&toml, config("spin"));
    eventually(LIMIT, "it spins", async || process.stdout().contains("\"run\":3").then_some(())).await;
    process.terminate();
    assert_eq!(process.wait(LIMIT).await.code(), Some(0), "{}", process.stderr());
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused() {
    let folder = Folder::new();
    let poison = plugin("guest_poison");
    folder.fails(2, &["test", &poison, "--records", "-", "--watch"], &["standard input can be read once"]).await;
    folder.write("records.txt", "one\n");
    let build = ["test", &poison, "--records", "records.txt", "--watch", "--build", "true"];
    folder.fails(2, &build, &["src is not there", "--sources"]).await;
    folder.fails(2, &["test", &poison, "--records", "records.txt", "--build", "true"], &["--watch"]).await;
}
