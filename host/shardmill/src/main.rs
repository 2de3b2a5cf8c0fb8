//! The `shardmill` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    shardmill::cli::run(shardmill::cli::arguments())
}
