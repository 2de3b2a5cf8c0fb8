//! `shardmill plugin deploy`, `list`, `history` and `rollback`: which version of a plugin a fleet runs.

mod deploy;
mod history;
mod list;
mod place;
mod progress;
mod rollback;
mod wait;

use clap::Subcommand;

use super::Failure;
pub(super) use deploy::{FleetArguments, deploy};
pub(in crate::cli) use list::Listed;
pub(in crate::cli) use place::{Place, failed};
pub(in crate::cli) use progress::life;

const EXAMPLES: &str = "\
Examples:
  shardmill plugin deploy orders https://plugins.example/orders-1.5.wasm -c shardmill.toml --wait
  shardmill plugin list -c shardmill.toml              what is wanted, and what does each worker run?
  shardmill plugin history orders -c shardmill.toml
  shardmill plugin rollback orders -c shardmill.toml   back to what was there before

Which version is wanted is kept in the sidecar table of the processor's consumer. Each worker looks
there every 4 s or so (twice `scan` in [leases]). Exit status of a --wait: 1 if not all workers that
live run it in the end.";

/// What else is about the versions that a fleet runs.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Command {
    /// Show which version of each plugin a fleet should run, and what each worker runs.
    #[command(after_help = EXAMPLES)]
    List(list::Arguments),
    /// Show which versions of a plugin a fleet was to run, when and by whom.
    #[command(after_help = EXAMPLES)]
    History(history::Arguments),
    /// Let a fleet run what was there before, or another version of the history.
    #[command(after_help = EXAMPLES)]
    Rollback(rollback::Arguments),
}

pub(super) async fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List(arguments) => list::list(arguments).await,
        Command::History(arguments) => history::history(arguments).await,
        Command::Rollback(arguments) => rollback::rollback(arguments).await,
    }
}
