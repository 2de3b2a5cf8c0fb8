//! The binary as a child process.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::paths;
use crate::wait::within;

/// The most that a command may take which does its work and ends.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// A child process, which is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Pid,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// What a command has done.
#[derive(Debug)]
pub struct Finished {
    /// The exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

/// The binary; see [`isolated`].
pub fn command() -> Command {
    isolated(paths::binary())
}

/// A program, with nothing of the surroundings that could lead it to a real AWS account or change its output.
pub fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("AWS_")
            || text.starts_with("SHARDMILL_")
            || ["RUST_LOG", "NO_COLOR", "NODE_OPTIONS"].contains(&&*text)
        {
            command.env_remove(&name);
        }
    }
    command.env("AWS_EC2_METADATA_DISABLED", "true").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command to its end.
pub async fn run(command: Command) -> Finished {
    run_within(COMMAND_LIMIT, command).await
}

/// Runs a command to its end, which takes no longer than this.
pub async fn run_within(limit: Duration, mut command: Command) -> Finished {
    let output = within(limit, &format!("the end of {:?}", command.as_std()), command.output()).await;
    let output = output.expect("the binary can be run");
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

/// Asserts that a text holds these words, however it is framed and broken to fit a screen.
pub fn assert_says(what: &str, text: &str, said: &[&str]) {
    let unbroken = unframed(text);
    for words in said {
        assert!(unbroken.contains(&unframed(words)), "{what}: {words:?} is not said in\n{text}");
    }
}

fn unframed(text: &str) -> String {
    text.chars().filter(|character| !character.is_whitespace() && !"│|├╰─▶┬╭·×".contains(*character)).collect()
}

// === impl Process ===

impl Process {
    /// Starts a command; what it writes goes to files in this folder.
    pub fn start(mut command: Command, folder: &Path) -> Process {
        let (stdout, stderr) = (folder.join("stdout"), folder.join("stderr"));
        let create = |path: &Path| Stdio::from(File::create(path).expect("a file for a child's output"));
        let child = command.stdout(create(&stdout)).stderr(create(&stderr)).spawn().expect("the binary can be run");
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("a child has an id");
        Process { child, pid, stdout, stderr }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// What it has written to standard output.
    pub fn stdout(&self) -> String {
        std::fs::read_to_string(&self.stdout).expect("a child's standard output")
    }

    /// What it has written to standard error.
    pub fn stderr(&self) -> String {
        // The last character of a process that was killed may be cut.
        String::from_utf8_lossy(&std::fs::read(&self.stderr).expect("a child's standard error")).into_owned()
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends SIGTERM.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGHUP.
    pub fn hang_up(&mut self) {
        self.signal(Signal::HUP);
    }

    /// Sends SIGSTOP: it does nothing before [`Process::resume`].
    pub fn suspend(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Sends SIGCONT.
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Sends SIGKILL and waits for the end.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(10)).await;
    }

    /// Waits for the end.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        within(limit, "the end of a process", self.child.wait()).await.expect("a child can be waited for")
    }

    fn signal(&mut self, signal: Signal) {
        // An id belongs to the child for as long as nobody has asked for its exit status.
        assert!(self.ended().is_none(), "the process has ended by itself: {:?}\n{}", self.ended(), self.stderr());
        kill_process(self.pid, signal).expect("a child takes signals");
    }
}
