//! A `shardmill run`.

use std::process::ExitStatus;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::process::{Process, command};
use crate::wait::LOOK_EVERY;
use crate::{Config, Environment, Histogram};

/// A plugin may have to be compiled, on a machine that runs other tests.
const START_LIMIT: Duration = Duration::from_secs(40);
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// How much of its log is shown when a test fails.
const SHOWN_LINES: usize = 80;

/// A worker, which is killed when this is dropped.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    http: reqwest::Client,
    folder: TempDir,
    /// The admin server's, once it is in the log, which may be long later.
    address: OnceLock<String>,
}

// === impl Worker ===

impl Worker {
    /// Starts a worker on services, or on a link to them; see [`Worker::ready`].
    pub fn start(services: &impl Environment, config: &Config) -> Worker {
        Worker::start_with(services, &config.text())
    }

    /// Starts a worker with the text of a configuration.
    pub fn start_with(services: &impl Environment, config: &str) -> Worker {
        Worker::start_arguments(services, config, &[])
    }

    /// Starts a worker that is to end by itself, or whatever else these arguments of `shardmill run` say.
    pub fn start_arguments(services: &impl Environment, config: &str, arguments: &[&str]) -> Worker {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().join("shardmill.toml");
        std::fs::write(&path, config).expect("a configuration file");
        let mut run = command();
        run.arg("run").arg("--config").arg(&path).args(arguments).envs(services.environment());
        let process = Process::start(run, folder.path());
        let http = reqwest::Client::builder().timeout(Duration::from_secs(10)).build().expect("an HTTP client");
        Worker { process, http, folder, address: OnceLock::new() }
    }

    /// Starts a worker and waits until it is ready.
    pub async fn start_ready(services: &impl Environment, config: &Config) -> Worker {
        let mut worker = Worker::start(services, config);
        worker.ready().await;
        worker
    }

    /// Waits until `/readyz` says so.
    pub async fn ready(&mut self) {
        self.until_within(START_LIMIT, "readiness", async |worker| {
            worker.address()?;
            (worker.get("/readyz").await.0 == 200).then_some(())
        })
        .await;
    }

    /// Looks again and again until there is something; fails if the worker ends meanwhile.
    pub async fn until<T>(&mut self, what: &str, look: impl AsyncFnMut(&mut Worker) -> Option<T>) -> T {
        self.until_within(Duration::from_secs(60), what, look).await
    }

    /// [`Worker::until`] with another limit.
    pub async fn until_within<T>(
        &mut self,
        limit: Duration,
        what: &str,
        mut look: impl AsyncFnMut(&mut Worker) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self.process.ended();
            assert!(ended.is_none(), "waiting for {what}: the worker has ended with {ended:?}");
            if let Some(found) = look(self).await {
                return found;
            }
            assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// What the admin server answers: status and body.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let response = self.http.get(format!("{}{path}", self.admin())).send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a body"))
    }

    /// What the admin server answers to a command: status and body.
    pub async fn post(&self, path: &str, token: Option<&str>, body: &str) -> (u16, String) {
        let mut request = self.http.post(format!("{}{path}", self.admin())).body(body.to_owned());
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a body"))
    }

    /// What the admin server answers to these bytes, with headers: status and body.
    pub async fn send(&self, path: &str, token: &str, headers: &[(&str, &str)], body: Vec<u8>) -> (u16, String) {
        let request = self.http.post(format!("{}{path}", self.admin())).bearer_auth(token).body(body);
        // A plugin may have to be compiled.
        let request = request.timeout(START_LIMIT);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = request.send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a body"))
    }

    /// Puts another configuration in the place of the one that it was started with, as a whole.
    pub fn replace_config(&self, text: &str) {
        let [new, path] = ["shardmill.toml.new", "shardmill.toml"].map(|name| self.folder.path().join(name));
        std::fs::write(&new, text).expect("a configuration file");
        std::fs::rename(&new, &path).expect("another configuration file");
    }

    /// Sends SIGHUP: it reads its configuration again.
    pub fn hang_up(&mut self) {
        self.process.hang_up();
    }

    /// The admin server's URL.
    pub fn admin(&self) -> String {
        format!("http://{}", self.address().expect("the admin server's address is in the log"))
    }

    /// What `/status` says of the processor `copy`.
    pub async fn status(&self) -> Value {
        let (status, text) = self.get("/status").await;
        assert_eq!(status, 200, "{text}");
        let mut status: Value = serde_json::from_str(&text).expect("JSON");
        status["copy"].take()
    }

    /// The sum of a metric over all its labels that contain this text; 0 if it is not there.
    pub async fn metric(&self, name: &str, labels: &str) -> f64 {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        let samples = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, found_labels) = series.split_once('{').unwrap_or((series, ""));
            (found == name && found_labels.contains(labels)).then(|| value.parse::<f64>().expect("a number"))
        });
        samples.sum()
    }

    /// A histogram, over all its labels.
    pub async fn histogram(&self, name: &str) -> Histogram {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        Histogram::read(&text, name)
    }

    /// User records that the guest has processed or passed over.
    pub async fn records_done(&self) -> u64 {
        let counted = self.metric("shardmill_records_done_total", "").await;
        (counted + self.metric("shardmill_records_skipped_total", "").await) as u64
    }

    /// Waits until the guest has processed or passed over so many user records, also if the admin server has not been
    /// started yet.
    pub async fn until_records(&mut self, count: u64) {
        let is_done = async |worker: &mut Worker| {
            worker.address()?;
            (worker.records_done().await >= count).then_some(())
        };
        self.until(&format!("{count} records"), is_done).await;
    }

    /// Waits until so many records of this stream are processed; likewise.
    pub async fn until_records_of(&mut self, stream: &str, count: u64) {
        let labels = format!("stream=\"{stream}\"");
        let is_done = async |worker: &mut Worker| {
            worker.address()?;
            (worker.metric("shardmill_records_done_total", &labels).await as u64 >= count).then_some(())
        };
        self.until(&format!("{count} records of {stream}"), is_done).await;
    }

    /// The log's lines.
    pub fn log(&self) -> Vec<Value> {
        // A line may be half written.
        self.process.stderr().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The log's lines of a level, such as `ERROR`, whose message contains a text.
    pub fn logged(&self, level: &str, message: &str) -> Vec<Value> {
        let matches = |line: &Value| {
            line["level"] == level && line["message"].as_str().is_some_and(|found| found.contains(message))
        };
        self.log().into_iter().filter(matches).collect()
    }

    /// Everything that it wrote to standard error.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until it ends by itself.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        self.process.wait(limit).await
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.process.terminate();
        self.process.wait(STOP_LIMIT).await
    }

    /// Sends SIGTERM, and asserts that it ends well.
    pub async fn stop(&mut self) {
        let status = self.terminate().await;
        assert_eq!(status.code(), Some(0), "after SIGTERM");
    }

    /// Sends SIGSTOP, as if its machine slept.
    pub fn suspend(&mut self) {
        self.process.suspend();
    }

    /// Sends SIGCONT.
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// From now on none of its files grows beyond so many bytes, as on a full disk; `None` for what this process may.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a process has an id");
        prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).expect("a limit");
    }

    /// Sends SIGKILL and waits until nothing that it has sent is on its way any more.
    pub async fn kill(&mut self) {
        self.process.kill().await;
        sleep(Duration::from_millis(300)).await;
    }

    fn address(&self) -> Option<&str> {
        if self.address.get().is_none()
            && let Some(found) = self.log().iter().find_map(|line| line["address"].as_str().map(str::to_owned))
        {
            self.address.get_or_init(|| found);
        }
        self.address.get().map(String::as_str)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let stderr = self.process.stderr();
            let lines: Vec<&str> = stderr.lines().collect();
            let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            eprintln!("--- the worker's log, {} lines of {} ---\n{}\n---", shown.len(), lines.len(), shown.join("\n"));
        }
    }
}
