//! Running the command, and reading what it prints.

use std::path::{Path, PathBuf};

use serde_json::Value;
use shardmill_tests::{Finished, assert_says, command, paths, run};
use tempfile::TempDir;
use tokio::process::Command;

/// A folder for a test, with files.
pub(crate) struct Folder(TempDir);

// === impl Folder ===

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(TempDir::new().expect("a temporary folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, content).expect("a file");
        path
    }

    /// `shardmill plugin …` in this folder. Where nothing says what a plugin of the tests may do, it may do what it asks for.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut child = command();
        // What is compiled is compiled once for all tests.
        let cache = paths::target().join("test-cache");
        child.arg("plugin").args(arguments).current_dir(self.path()).env("XDG_CACHE_HOME", cache);
        let has_grants = arguments.iter().any(|argument| matches!(*argument, "--grants" | "--config"));
        if matches!(arguments.first(), Some(&("test" | "bench"))) && !has_grants {
            child.args(["--grants", "clocks = true, random = true, metrics = true"]);
        }
        child
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Finished {
        run(self.command(arguments)).await
    }

    /// What a command prints that ends so.
    pub(crate) async fn stdout(&self, code: i32, arguments: &[&str]) -> String {
        let finished = self.run(arguments).await;
        assert_eq!(finished.code, Some(code), "{arguments:?}: {}\n{}", finished.stdout, finished.stderr);
        finished.stdout
    }

    /// The events that a test tells which ends so.
    pub(crate) async fn events(&self, code: i32, arguments: &[&str]) -> Events {
        Events::read(&self.stdout(code, &[&["test"], arguments, &["--json"]].concat()).await)
    }

    /// A command that fails: with this status, and these words.
    pub(crate) async fn fails(&self, code: i32, arguments: &[&str], said: &[&str]) {
        let finished = self.run(arguments).await;
        assert_eq!(finished.code, Some(code), "{arguments:?}: {}\n{}", finished.stdout, finished.stderr);
        assert_says(&format!("{arguments:?}"), &finished.stderr, said);
        assert!(!finished.stderr.contains("panicked at host/"), "{}", finished.stderr);
    }
}

/// What a test has told, line by line.
#[derive(Debug)]
pub(crate) struct Events(pub(crate) Vec<Value>);

// === impl Events ===

impl Events {
    pub(crate) fn read(text: &str) -> Events {
        let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Events(text.lines().map(line).collect())
    }

    /// All of this name.
    pub(crate) fn all(&self, event: &str) -> Vec<&Value> {
        self.0.iter().filter(|value| value["event"] == event).collect()
    }

    /// The only one of this name.
    pub(crate) fn one(&self, event: &str) -> &Value {
        let all = self.all(event);
        assert_eq!(all.len(), 1, "{event} in {:#?}", self.0);
        all[0]
    }

    pub(crate) fn end(&self) -> &Value {
        self.one("end")
    }

    /// The payloads of all outputs, in order.
    pub(crate) fn outputs(&self) -> Vec<String> {
        let outputs = self.0.iter().filter_map(|event| event["outputs"].as_array()).flatten();
        outputs.map(|output| output["data"].as_str().expect("a text").to_owned()).collect()
    }
}

/// A plugin's file as an argument.
pub(crate) fn plugin(name: &str) -> String {
    text(&paths::plugin(name)).to_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
