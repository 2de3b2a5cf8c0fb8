//! Others' codecs of the KPL's aggregates, as `scripts/emulators.sh` sets them up.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::paths;
use crate::process::isolated;
use crate::wait::within;

/// They are slow to start on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that writes and reads aggregates; see `tests/emulators/aggregates.py`. It ends with this.
#[derive(Debug)]
pub struct Codec {
    /// Where it comes from.
    pub name: &'static str,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

// === impl Codec ===

impl Codec {
    /// `aws-kinesis-agg` of PyPI.
    pub async fn python() -> Self {
        let mut command = isolated(paths::emulator("kinesis-agg-python").await.join("bin/python"));
        command.arg(paths::repository().join("tests/emulators/aggregates.py"));
        Self::start("PyPI", command)
    }

    /// `aws-kinesis-agg` of npm.
    pub async fn node() -> Self {
        let mut command = isolated("node");
        command.env("NODE_PATH", paths::emulator("kinesis-agg-node").await.join("node_modules"));
        command.arg(paths::repository().join("tests/emulators/aggregates.cjs"));
        Self::start("npm", command)
    }

    fn start(name: &'static str, mut command: Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("the codec of {name} can be run: {error}"));
        let stdin = child.stdin.take().expect("standard input is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("standard output is a pipe")).lines();
        Self { name, stdin, stdout, _child: child }
    }

    /// Its answer to one question.
    pub async fn ask(&mut self, question: &Value) -> Value {
        let asked = async {
            self.stdin.write_all(format!("{question}\n").as_bytes()).await.expect("the codec listens");
            self.stdout.next_line().await.expect("the codec writes UTF-8").expect("the codec lives")
        };
        let answer = within(LIMIT, &format!("an answer of the codec of {}", self.name), asked).await;
        serde_json::from_str(&answer).expect("JSON")
    }
}
