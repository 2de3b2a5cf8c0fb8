//! `shardmill spool`: look at records that wait on the disk for their stream, send them, or drop them.

mod drain;
mod drop;
mod list;
mod shown;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use shardmill_cause::code;
use shardmill_spool::Spool;

use super::Failure;
use crate::cli::text;
use crate::config::{Log, LogFormat};
use crate::telemetry;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List what is in a spool, by stream, and the records that are set aside.
    #[command(after_help = list::EXAMPLES)]
    List(list::Arguments),
    /// Send what is in a spool, and remove it when its stream has it.
    #[command(after_help = drain::EXAMPLES)]
    Drain(drain::Arguments),
    /// Drop records of a spool unsent.
    #[command(after_help = drop::EXAMPLES)]
    Drop(drop::Arguments),
}

/// Which spool.
#[derive(Debug, Args)]
struct Folder {
    /// The spool's folder.
    #[arg(long, value_name = "DIR", env = "SHARDMILL_SPOOL")]
    folder: PathBuf,
}

pub(super) async fn run(command: &Command) -> Result<(), Failure> {
    telemetry::init(&Log { format: LogFormat::Human, filter: "warn".to_owned() })?;
    match command {
        Command::List(arguments) => list::list(arguments).await,
        Command::Drain(arguments) => drain::drain(arguments).await,
        Command::Drop(arguments) => drop::drop_records(arguments).await,
    }
}

// === impl Folder ===

impl Folder {
    /// Opens the spool for this process alone.
    async fn open(&self) -> Result<Spool, Failure> {
        Spool::open_existing(&self.folder).await.map_err(|error| {
            let is_in_use = matches!(error, shardmill_spool::Error::InUse { .. });
            let failure = Failure::from(error);
            if is_in_use {
                return failure.help(
                    "what a running program has in its spool, its metrics shardmill_spool_… say; it sends it by itself",
                );
            }
            failure
        })
    }
}

/// The stream must be known to the spool, if it is named and the spool knows any: a name that was mistyped is no stream that
/// has nothing.
fn check_stream(spool: &Spool, stream: Option<&str>) -> Result<(), Failure> {
    let known = spool.depth().streams;
    let is_unknown = |stream: &&str| !known.is_empty() && !known.contains_key(*stream);
    let Some(stream) = stream.filter(is_unknown) else { return Ok(()) };
    let names: Vec<String> = known.into_keys().map(|name| text::line(&name)).collect();
    let failure =
        Failure::running(format!("the spool has no stream `{}`", text::line(stream))).code(code::command::NO_SUCH);
    Err(failure.help(format!("its streams: {}", names.join(", "))))
}
