//! `shardmill plugin`: what a person needs who writes a processor, without a stream; and another version for a worker.

mod bench;
mod deploy;
pub(super) mod fleet;
mod heard;
mod inspect;
mod latency;
mod new;
mod records;
mod room;
mod shown;
mod test;
mod watch;

use clap::Subcommand;

pub(super) use self::inspect::describe;
use super::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Write a Rust crate that is a processor, with tests, records to try it with, and a configuration to run it.
    #[command(after_help = new::EXAMPLES)]
    New(new::Arguments),
    /// Hand records to a plugin, as a worker would, and show what it makes of them.
    #[command(after_help = test::EXAMPLES)]
    Test(test::Arguments),
    /// Hand records to a plugin again and again, and tell how fast it is.
    #[command(after_help = bench::EXAMPLES)]
    Bench(bench::Arguments),
    /// Print what a component exports and imports, and whether this host takes it.
    Inspect(inspect::Arguments),
    /// Let a running worker, or all workers of a fleet, go on with another version of a processor's plugin.
    #[command(after_help = deploy::EXAMPLES)]
    Deploy(Box<deploy::Arguments>),
    #[command(flatten)]
    Fleet(fleet::Command),
}

pub(super) async fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::New(arguments) => new::new(arguments),
        Command::Test(arguments) => test::test(arguments).await,
        Command::Bench(arguments) => bench::bench(arguments).await,
        Command::Inspect(arguments) => inspect::inspect(arguments).await,
        Command::Deploy(arguments) => deploy::deploy(arguments).await,
        Command::Fleet(command) => fleet::run(command).await,
    }
}
