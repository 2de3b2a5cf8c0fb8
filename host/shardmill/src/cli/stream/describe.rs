//! `shardmill stream describe`

use clap::Args;

use super::description::Description;
use super::interruptible;
use crate::cli::{Failure, access, output, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill stream describe orders
  shardmill stream describe orders --open
  shardmill stream describe orders --json | jq '.shards[] | select(.open) | .id'

A closed shard is listed until its last record is older than what the stream keeps. Hash keys go from 0 to 2^128 - 1; a
record goes to the shard that takes the MD5 of its partition key, or its explicit hash key.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    stream: String,
    /// Show open shards only.
    #[arg(long)]
    open: bool,
    /// Print JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: access::Arguments,
}

pub(super) async fn describe(arguments: &Arguments) -> Result<(), Failure> {
    let access = arguments.access.open(&arguments.stream).await?;
    let description = interruptible(&access, Description::of(&access)).await?;
    if arguments.json {
        output::line(text::json(&description.json(!arguments.open)));
        return Ok(());
    }
    for (name, value) in description.facts() {
        output::line(format_args!("{name:<12} {}", text::line(&value)));
    }
    output::line(description.table(!arguments.open));
    Ok(())
}
