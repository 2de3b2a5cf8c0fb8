//! Runs the command that makes a plugin of its sources.

use std::os::fd::AsFd as _;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use shardmill_cause::code;
use tokio::process::Command;

use crate::cli::{Failure, text};

/// The command and all that it has started; they are ended with this.
struct Group(Option<Pid>);

/// Runs a command of the shell to its end. What it prints goes to standard error: standard output is for results.
///
/// # Errors
/// If it cannot be run, or does not end well.
pub(super) async fn build(command: &str) -> Result<(), Failure> {
    let shown = text::line(command);
    let cannot = |error: std::io::Error| {
        Failure::running(format!("`{shown}` cannot be run: {error}")).code(code::command::RECORDS_FAIL)
    };
    let err = std::io::stderr().as_fd().try_clone_to_owned().map_err(cannot)?;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(err).process_group(0).kill_on_drop(true);
    let mut child = shell.spawn().map_err(cannot)?;
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let status = child.wait().await.map_err(cannot)?;
    group.0 = None;
    if status.success() {
        return Ok(());
    }
    Err(Failure::running(format!("`{shown}` failed: {status}"))
        .code(code::command::RECORDS_FAIL)
        .help("it is run again when a source changes"))
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            // It may have ended by itself.
            let _ended = kill_process_group(group, Signal::TERM);
        }
    }
}
