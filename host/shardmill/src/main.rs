//! The `shardmill` binary.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    shardmill::cli::run(shardmill::cli::Arguments::parse())
}
