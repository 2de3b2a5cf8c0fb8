//! Child processes and what they use up.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use shardmill_tests::{Process, Services, command, isolated};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::{Instant, sleep};

/// In what `/proc` counts: 100 a second on every machine that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// A start that takes longer has failed.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at a process that starts.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a process has used since it began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// User and system time of all its threads.
    pub(crate) cpu_seconds: f64,
    /// The most memory that it had, in MiB.
    pub(crate) peak_mib: f64,
}

/// A `shardmill run`, killed when this is dropped.
pub(crate) struct Host {
    process: Process,
    folder: TempDir,
    http: reqwest::Client,
    address: Option<String>,
}

/// What one `shardmill run` is to do.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Another application has other leases.
    pub(crate) application: String,
    pub(crate) stream: String,
    /// Where compiled plugins are kept.
    pub(crate) cache: PathBuf,
    pub(crate) plugin: PathBuf,
}

/// A bare loop over GetRecords, killed when this is dropped.
pub(crate) struct Loop {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

// === impl Usage ===

impl Usage {
    /// # Panics
    /// If there is no such process.
    pub(crate) fn of(process: u32) -> Self {
        let read = |file: &str| {
            std::fs::read_to_string(format!("/proc/{process}/{file}")).expect("a child that lives is in /proc")
        };
        let stat = read("stat");
        // The second field is the program's name in brackets, and may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |field: usize| -> f64 { fields[field].parse().expect("a number of ticks") };
        let status = read("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has memory");
        let peak_kib: f64 = peak.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        // utime and stime are fields 14 and 15 of the whole line.
        Self { cpu_seconds: (ticks(11) + ticks(12)) / TICKS_PER_SECOND, peak_mib: peak_kib / 1024.0 }
    }
}

// === impl Job ===

impl Job {
    /// The limits of AWS' shards on reads are lifted: the local backend has none.
    fn config(&self) -> String {
        let Self { application, stream, cache, plugin } = self;
        format!(
            r#"application = "{application}"
cache-dir = {cache:?}

[admin]
listen = "127.0.0.1:0"

[log]
format = "json"

[streams.{stream}]
reads-per-second = 1000
bytes-per-second = "1 TiB"

[processors.count]
stream = "{stream}"
plugin = {plugin:?}
config = {{ byte = 97, silent = true }}
"#
        )
    }
}

// === impl Host ===

impl Host {
    pub(crate) fn start(services: &Services, job: &Job) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().join("shardmill.toml");
        std::fs::write(&path, job.config()).expect("a configuration file");
        let mut run = command();
        run.arg("run").arg("--config").arg(&path).envs(services.environment());
        let process = Process::start(run, folder.path());
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().expect("an HTTP client");
        Self { process, folder, http, address: None }
    }

    /// Returns when the admin server listens, which is after the plugin has been loaded.
    pub(crate) async fn listening(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let log = std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
            let mut lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            self.address = lines.find_map(|line| line["address"].as_str().map(str::to_owned));
            if self.address.is_some() {
                return;
            }
            self.must_live("it listens");
            assert!(Instant::now() < deadline, "the host does not listen:\n{log}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// User records that are done. The host has to be [listening](Self::listening).
    pub(crate) async fn records_done(&mut self) -> u64 {
        let address = self.address.as_deref().expect("the host listens");
        let answer = self.http.get(format!("http://{address}/metrics")).send().await;
        let text = match answer {
            Ok(answer) => answer.text().await.expect("a body"),
            Err(error) => {
                self.must_live("its records are done");
                panic!("the host does not answer: {error}");
            }
        };
        let line = text.lines().find(|line| line.starts_with("shardmill_records_done_total{"));
        line.and_then(|line| line.rsplit_once(' ')).map_or(0, |(_, count)| count.parse().expect("a count"))
    }

    /// Returns when so many records are done, looking so often.
    pub(crate) async fn until_done(&mut self, records: u64, look_every: Duration) {
        while self.records_done().await < records {
            sleep(look_every).await;
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.process.id())
    }

    /// Lets it release its leases and end.
    pub(crate) async fn stop(mut self) {
        self.process.terminate();
        let status = self.process.wait(Duration::from_secs(30)).await;
        assert!(status.success(), "the host ended with {status}:\n{}", self.process.stderr());
    }

    fn must_live(&mut self, before: &str) {
        if let Some(status) = self.process.ended() {
            panic!("the host ended with {status} before {before}:\n{}", self.process.stderr());
        }
    }
}

// === impl Loop ===

impl Loop {
    /// Starts this program again as a loop that reads so many records.
    pub(crate) fn start(services: &Services, stream: &str, records: u64) -> Self {
        let mut command = isolated(std::env::current_exe().expect("this program knows where it is"));
        command.args(["sdk-loop", "--stream", stream, "--records", &records.to_string()]);
        command.envs(services.environment()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program can be run");
        let stdout = child.stdout.take().expect("standard output is a pipe");
        Self { child, lines: BufReader::new(stdout).lines() }
    }

    /// Returns when it says this.
    pub(crate) async fn says(&mut self, word: &str) {
        let line = self.lines.next_line().await.expect("a line");
        assert_eq!(line.as_deref(), Some(word), "what the loop says");
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.child.id().expect("it has not ended"))
    }

    pub(crate) async fn stop(mut self) {
        self.child.kill().await.expect("it can be killed");
    }
}
