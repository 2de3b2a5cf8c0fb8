//! `shardmill stream delete`

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use shardmill_cause::code;
use shardmill_record::StreamArn;
use shardmill_stream::Kind;
use tokio::time::sleep;

use super::description::Description;
use super::interruptible;
use super::refusal::{Order, refused};
use super::wait;
use crate::cli::access::Access;
use crate::cli::{Failure, access, output, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill stream delete orders              asks before
  shardmill stream delete orders --yes
  shardmill stream delete orders --yes --with-consumers --no-wait

Its records are gone with it, and so is its name until a stream is made again. Workers that read it stop with an error.";

/// DescribeStreamSummary takes 20 calls a second in an account.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The first looks come sooner.
const FIRST_LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    stream: String,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Delete its consumers with enhanced fan-out as well, without which a stream that has some is kept.
    #[arg(long)]
    with_consumers: bool,
    /// Come back when the service has taken the order, not when the stream is gone.
    #[arg(long)]
    no_wait: bool,
    /// Print JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: access::Arguments,
}

pub(super) async fn delete(arguments: &Arguments) -> Result<(), Failure> {
    let access = arguments.access.open(&arguments.stream).await?;
    let description = interruptible(&access, Description::of(&access)).await?;
    if !arguments.yes {
        interruptible(&access, ask(&description)).await?;
    }
    let request = access.client.delete_stream().enforce_consumer_deletion(arguments.with_consumers);
    let stream = &arguments.stream;
    let request = if StreamArn::is_meant(stream) { request.stream_arn(stream) } else { request.stream_name(stream) };
    let asked = async { request.send().await.map_err(|error| refused(&access, Order::Delete, &error)) };
    interruptible(&access, asked).await?;
    if !arguments.no_wait {
        until_gone(&access, &description.name, arguments.json).await?;
    }
    if arguments.json {
        output::line(text::json(&json!({ "stream": description.name, "deleted": !arguments.no_wait })));
    } else if arguments.no_wait {
        output::line(format_args!("the deletion of {} is under way.", description.name));
    } else {
        output::line(format_args!("{} is deleted.", description.name));
    }
    Ok(())
}

/// On a thread of its own, so that Ctrl-C ends it.
async fn ask(description: &Description) -> Result<(), Failure> {
    let Description { name, retention_hours, .. } = description;
    let shards = text::counted(description.open().count() as u64, "open shard");
    output::say(format_args!("{name}: {shards}, with the records of {retention_hours} h"));
    if !std::io::stdin().is_terminal() {
        let failure = Failure::running(format!("nobody can be asked whether {name} is to be deleted"))
            .code(code::command::NOT_ASKED);
        return Err(failure.help("--yes deletes it"));
    }
    output::ask("Delete it for good? [y/N] ");
    let read = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).map(|_| answer)
    });
    match read.await {
        Ok(Ok(answer)) if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") => Ok(()),
        Ok(Ok(_no)) => Err(Failure::running(format!("{name} is kept")).code(code::command::NOT_ASKED)),
        Ok(Err(error)) => Err(Failure::running(format!("the answer cannot be read: {error}"))
            .code(code::command::NOT_ASKED)
            .help("--yes does not ask")),
        Err(_broken) => {
            Err(Failure::running("the answer cannot be read").code(code::command::NOT_ASKED).help("--yes does not ask"))
        }
    }
}

async fn until_gone(access: &Access, name: &str, quiet: bool) -> Result<(), Failure> {
    let bar = wait::bar(quiet);
    let waited = access.unless_stopped(look_until_gone(access, name, &bar)).await;
    bar.finish_and_clear();
    waited.unwrap_or_else(|| {
        let failure = Failure::running(format!("interrupted: the deletion of {name} is under way"))
            .code(code::command::INTERRUPTED);
        Err(failure.help("the service goes on with it"))
    })
}

async fn look_until_gone(access: &Access, name: &str, bar: &ProgressBar) -> Result<(), Failure> {
    let mut pause = FIRST_LOOK;
    loop {
        match access.kinesis.describe(&access.stream).await {
            Ok(info) => bar.set_message(format!("the deletion of {name}: {}", info.status)),
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            Err(error) if error.is_transient() => bar.set_message(text::line(&error.to_string())),
            Err(error) => return Err(error.into()),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_EVERY);
    }
}
