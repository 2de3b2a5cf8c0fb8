//! This program as the one that compiles guests, in a process of its own for each.

use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use shardmill_plugin::Compiler;

/// The command that does it, which no user types.
pub(crate) const COMMAND: &str = "compile-guest";

static COMPILER: OnceLock<Compiler> = OnceLock::new();

/// This process runs the `shardmill` program, so that it can be started again to compile. One that uses the host as a library
/// compiles by itself.
pub(crate) fn is_this_program() {
    // Also when its file has been replaced by another version meanwhile.
    let running = Path::new("/proc/self/exe");
    let program = if running.exists() { Some(running.to_owned()) } else { std::env::current_exe().ok() };
    if let Some(program) = program {
        COMPILER.get_or_init(|| Compiler::new(program, [COMMAND]));
    }
}

/// The program that compiles guests, if it is known.
pub(crate) fn compiler() -> Option<Compiler> {
    COMPILER.get().cloned()
}

/// Compiles one guest, from standard input to standard output.
pub(crate) fn compile(memory_bytes: u64) -> ExitCode {
    shardmill_plugin::compile_guest(memory_bytes)
}
