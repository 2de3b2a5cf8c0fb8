//! This program as the one that compiles guests, in a process of its own for each.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Once, OnceLock};

use shardmill_plugin::Compiler;

/// The command that does it, which no user types.
pub(crate) const COMMAND: &str = "compile-guest";

/// The program, or why it cannot be found.
static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// This process runs the `shardmill` program, so that it can be started again to compile. One that uses the host as a library
/// compiles by itself.
pub(crate) fn is_this_program() {
    PROGRAM.get_or_init(|| find(Path::new("/proc/self/exe"), std::env::current_exe));
}

/// Where this program is: as it runs, also when its file has been replaced by another version meanwhile.
fn find(running: &Path, file: impl FnOnce() -> io::Result<PathBuf>) -> Result<PathBuf, String> {
    if running.exists() {
        return Ok(running.to_owned());
    }
    file().map_err(|error| format!("{} is not there, and nothing else says what runs: {error}", running.display()))
}

/// The program that compiles guests, if it is known.
pub(crate) fn compiler() -> Option<Compiler> {
    static WARNED: Once = Once::new();
    match PROGRAM.get()? {
        Ok(program) => Some(Compiler::new(program, [COMMAND])),
        Err(reason) => {
            WARNED.call_once(|| {
                tracing::warn!(
                    reason,
                    "guests are compiled in this process, and the memory that this takes is not bounded: mount /proc"
                );
            });
            None
        }
    }
}

/// Compiles one guest, from standard input to standard output.
pub(crate) fn compile(memory_bytes: u64) -> ExitCode {
    shardmill_plugin::compile_guest(memory_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_one_that_runs_or_its_file_or_it_is_said_why_there_is_none() {
        let file = || Ok(PathBuf::from("/usr/bin/shardmill"));
        assert_eq!(find(Path::new("/"), file), Ok(PathBuf::from("/")));
        assert_eq!(find(Path::new("/nowhere/exe"), file), Ok(PathBuf::from("/usr/bin/shardmill")));
        let reason = find(Path::new("/nowhere/exe"), || Err(io::ErrorKind::NotFound.into())).unwrap_err();
        assert!(reason.starts_with("/nowhere/exe is not there"), "{reason}");
    }
}
