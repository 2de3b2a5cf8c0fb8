//! The application of `tests/kcl` as a child process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use shardmill_record::{Position, SequenceNumber};
use shardmill_tests::{Config, Found, Process, Services, eventually, isolated, paths};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;

/// It checkpoints a shard after so many records.
pub(crate) const CHECKPOINT_EVERY: usize = 7;
/// How long its leases last.
const FAILOVER: Duration = Duration::from_secs(3);
/// It waits up to 30 s in an empty table, and the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A KCL application, which is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Kcl {
    process: Process,
    journal: PathBuf,
    _folder: TempDir,
}

/// How many records of a shard it processes at the most; then it waits, with its lease, to be stopped.
pub(crate) type Limits = BTreeMap<String, usize>;

#[derive(Deserialize)]
struct Payload {
    n: u64,
    key: String,
}

// === impl Kcl ===

impl Kcl {
    /// Starts it on the stream `input` and the lease table of a configuration.
    pub(crate) async fn start(services: &Services, config: &Config, worker: &str, limits: &Limits) -> Kcl {
        let folder = TempDir::new().expect("a temporary folder");
        let journal = folder.path().join("journal");
        let mut java = isolated("java");
        for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
            java.env_remove(proxy).env_remove(proxy.to_uppercase());
        }
        // Started soon and small, rather than fast in the long run.
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"])
            .args(["-cp", class_path().await, "shardmill.Application"])
            .args(["--application", config.lease_table(), "--stream", "input", "--worker", worker])
            .arg("--journal")
            .arg(&journal)
            .args(["--checkpoint-every", &CHECKPOINT_EVERY.to_string()])
            .args(["--failover-millis", &FAILOVER.as_millis().to_string()])
            .envs(services.environment());
        for (shard, limit) in limits {
            java.arg("--limit").arg(format!("{shard}={limit}"));
        }
        let process = Process::start(java, folder.path());
        Kcl { process, journal, _folder: folder }
    }

    /// What it has processed up to now, in this order.
    pub(crate) fn journal(&self) -> Vec<Found> {
        let text = std::fs::read_to_string(&self.journal).unwrap_or_default();
        // The last line may be half written.
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(found).collect()
    }

    /// Looks again and again until there is something; fails if it ends meanwhile.
    pub(crate) async fn until<T>(&mut self, what: &str, mut look: impl AsyncFnMut(&Kcl) -> Option<T>) -> T {
        eventually(LIMIT, what, async || {
            let ended = self.process.ended();
            assert!(ended.is_none(), "waiting for {what}: the KCL has ended with {ended:?}");
            look(self).await
        })
        .await
    }

    /// Waits until it has done so many records of each of these shards, and waits itself to be stopped.
    pub(crate) async fn until_at(&mut self, limits: &Limits) {
        self.until("the KCL to reach its limits", async |kcl| {
            let said = kcl.process.stderr();
            let is_at_its_limit = |shard: &String| said.contains(&format!("{shard} is at its limit\n"));
            limits.keys().all(is_at_its_limit).then_some(())
        })
        .await;
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// Sends SIGTERM, and asserts that its graceful shutdown has worked.
    pub(crate) async fn stop(&mut self) {
        self.process.terminate();
        let status = self.process.wait(STOP_LIMIT).await;
        assert_eq!(status.code(), Some(0), "after SIGTERM");
    }

    /// Sends SIGKILL, and waits until nothing that it has sent is on its way any more.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

impl Drop for Kcl {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the KCL has said ---\n{}\n---", self.process.stderr());
        }
    }
}

/// For each shard so many records that about half of them are done, and that the last one is in the middle of an aggregate
/// and not one of those that are checkpointed.
pub(crate) fn halves(input: &[Found]) -> Limits {
    let mut shards: BTreeMap<&str, Vec<&Position>> = BTreeMap::new();
    for record in input {
        shards.entry(&record.shard).or_default().push(&record.position);
    }
    let half = |(shard, positions): (&str, Vec<&Position>)| {
        let is_inside = |limit: &usize| {
            let [done, next] = [limit - 1, *limit].map(|index| positions.get(index));
            let is_inside = |done: &Position, next: &Position| {
                done.sub_sequence_number > 0 && done.sequence_number == next.sequence_number
            };
            done.zip(next).is_some_and(|(done, next)| is_inside(done, next))
        };
        let mut limits = (positions.len() / 2..positions.len()).filter(|limit| limit % CHECKPOINT_EVERY != 0);
        let limit = limits.find(is_inside);
        (shard.to_owned(), limit.expect("an aggregate in the second half"))
    };
    shards.into_iter().map(half).collect()
}

fn found(line: &str) -> Found {
    let parts: Vec<&str> = line.trim_end().splitn(4, '\t').collect();
    let [shard, sequence_number, sub_sequence_number, payload] = parts[..] else { panic!("{line:?} in the journal") };
    let payload: Payload = serde_json::from_str(payload).unwrap_or_else(|error| panic!("{error}: {line}"));
    Found {
        number: payload.n,
        key: payload.key,
        shard: shard.to_owned(),
        position: Position::new(
            SequenceNumber::parse(sequence_number).expect("a sequence number"),
            sub_sequence_number.parse().expect("a sub-sequence number"),
        ),
        arrival: 0,
    }
}

/// It is built if `make kcl` has not done it.
async fn class_path() -> &'static str {
    static CLASS_PATH: OnceCell<String> = OnceCell::const_new();
    CLASS_PATH
        .get_or_init(async || {
            let script = paths::repository().join("scripts/kcl.sh");
            let output = Command::new(&script).kill_on_drop(true).output().await;
            let output = output.unwrap_or_else(|error| panic!("{error}: {}", script.display()));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end().to_owned()
        })
        .await
}
