//! `shardmill stream`: makes streams, shows them, changes their shards, and deletes them.
//!
//! What may be done is decided by plain functions on what a stream is ([`reshard`]); [`refusal`] says what a service that
//! refuses means by it, and [`wait`] waits for what takes its time.

mod create;
mod delete;
mod describe;
mod description;
mod list;
mod refusal;
mod reshard;
mod scale;
mod split_merge;
mod wait;

use clap::{Args, Subcommand};
use shardmill_cause::code;

use self::description::Description;
pub(super) use self::reshard::Error as ReshardError;
use super::access::Access;
use super::{Failure, access, output, text};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a stream, and wait until it can be used.
    #[command(after_help = create::EXAMPLES)]
    Create(create::Arguments),
    /// Show which streams there are.
    #[command(after_help = list::EXAMPLES)]
    List(list::Arguments),
    /// Show a stream and its shards: what they take, which are open, and what came from what.
    #[command(after_help = describe::EXAMPLES)]
    Describe(describe::Arguments),
    /// Split a shard in two.
    #[command(after_help = split_merge::SPLIT_EXAMPLES)]
    Split(split_merge::SplitArguments),
    /// Merge two shards that lie beside each other.
    #[command(after_help = split_merge::MERGE_EXAMPLES)]
    Merge(split_merge::MergeArguments),
    /// Change how many shards a stream has.
    #[command(after_help = scale::EXAMPLES)]
    Scale(scale::Arguments),
    /// Delete a stream with all that is in it.
    #[command(after_help = delete::EXAMPLES)]
    Delete(delete::Arguments),
}

/// What the commands that change something have in common.
#[derive(Debug, Args)]
struct Change {
    /// Come back when the service has taken the order, not when it is carried out.
    #[arg(long)]
    no_wait: bool,
    /// Print the stream as JSON afterwards, one line, as `shardmill stream describe --json` does.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: access::Arguments,
}

pub(super) async fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Create(arguments) => create::create(arguments).await,
        Command::List(arguments) => list::list(arguments).await,
        Command::Describe(arguments) => describe::describe(arguments).await,
        Command::Split(arguments) => split_merge::split(arguments).await,
        Command::Merge(arguments) => split_merge::merge(arguments).await,
        Command::Scale(arguments) => scale::scale(arguments).await,
        Command::Delete(arguments) => delete::delete(arguments).await,
    }
}

// === impl Change ===

impl Change {
    /// After the service has taken an order: waits for it, and tells what the stream is like then. `what` is the order, for
    /// who interrupts, `done` a sentence about it.
    async fn settle(
        &self,
        access: &Access,
        what: &str,
        done: impl FnOnce(&Description) -> String,
    ) -> Result<(), Failure> {
        if !self.no_wait {
            wait::until_active(access, what, self.json).await?;
        }
        let description = interruptible(access, Description::of(access)).await?;
        if self.json {
            output::line(text::json(&description.json(true)));
        } else if self.no_wait {
            output::line(format_args!("{what} is under way; `shardmill stream describe {}` shows it.", access.stream));
        } else {
            output::line(done(&description));
        }
        Ok(())
    }
}

/// The result of a call, unless somebody wants an end first.
async fn interruptible<T>(access: &Access, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    access.unless_stopped(call).await.unwrap_or_else(|| {
        let help = format!("`shardmill stream describe {}` shows what has been done", access.stream);
        Err(Failure::running("interrupted").code(code::command::INTERRUPTED).help(help))
    })
}
