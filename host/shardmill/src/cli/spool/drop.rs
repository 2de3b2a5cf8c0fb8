//! `shardmill spool drop`

use std::collections::BTreeMap;
use std::io::{BufRead as _, IsTerminal as _};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use shardmill_spool::{Counted, Selection, Spool};

use super::{Folder, check_stream, shown};
use crate::cli::{Failure, output, stop_at_signal};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill spool drop --folder /var/lib/orders --older-than 7days
  shardmill spool drop --folder /var/lib/orders --stream orders --yes
  shardmill spool drop --folder /var/lib/orders --set-aside

Dropped records are gone for good. Without --yes it says how many they are, and asks.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    folder: Folder,
    /// Only records of this stream, by the name or ARN by which `list` shows it.
    #[arg(long, value_name = "STREAM")]
    stream: Option<String>,
    /// Only records that have been in the spool for longer than this, such as 2h or 7days.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older_than: Option<Duration>,
    /// Only records that are set aside.
    #[arg(long)]
    set_aside: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Print the result as JSON, one line.
    #[arg(long)]
    json: bool,
}

pub(super) async fn drop_records(arguments: &Arguments) -> Result<(), Failure> {
    let spool = arguments.folder.open().await?;
    check_stream(&spool, arguments.stream.as_deref())?;
    let stored_before = match arguments.older_than {
        Some(age) => {
            Some(SystemTime::now().checked_sub(age).ok_or_else(|| Failure::running("--older-than is too long"))?)
        }
        None => None,
    };
    let selection = Selection { stream: arguments.stream.clone(), stored_before, set_aside: arguments.set_aside };
    let counted = spool.count(selection.clone()).await?;
    let all: u64 = counted.values().map(|counted| counted.records).sum();
    if all > 0 && !arguments.yes {
        ask(&counted)?;
    }
    let (dropped, ended) = drop_all(&spool, &selection).await;
    tell(arguments, &dropped, ended.is_ok());
    spool.close().await?;
    ended
}

/// Bit by bit, so that it can be interrupted.
async fn drop_all(spool: &Spool, selection: &Selection) -> (BTreeMap<String, u64>, Result<(), Failure>) {
    let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
    let stop = match stop_at_signal() {
        Ok(stop) => stop,
        Err(failure) => return (dropped, Err(failure)),
    };
    loop {
        if stop.is_cancelled() {
            let failure = Failure::running("dropping was interrupted").help("the same command drops the rest");
            return (dropped, Err(failure));
        }
        match spool.discard(selection.clone()).await {
            Ok(some) if some.is_empty() => return (dropped, Ok(())),
            Ok(some) => some.into_iter().for_each(|(stream, records)| *dropped.entry(stream).or_default() += records),
            Err(error) => return (dropped, Err(error.into())),
        }
    }
}

fn ask(counted: &BTreeMap<String, Counted>) -> Result<(), Failure> {
    for (stream, Counted { records, bytes }) in counted {
        output::say(format_args!("{} of {} ({})", shown::records(*records), shown::line(stream), shown::size(*bytes)));
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::running("nobody can be asked whether they are to be dropped").help("--yes drops them"));
    }
    output::ask("Drop them for good? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(_) if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") => Ok(()),
        Ok(_) => Err(Failure::running("nothing was dropped")),
        Err(error) => Err(Failure::running(format!("the answer cannot be read: {error}")).help("--yes does not ask")),
    }
}

fn tell(arguments: &Arguments, dropped: &BTreeMap<String, u64>, is_done: bool) {
    let all: u64 = dropped.values().sum();
    if arguments.json {
        output::line(json!({ "dropped": all, "of": dropped, "interrupted": !is_done }));
        return;
    }
    for (stream, records) in dropped {
        output::line(format_args!("{} of {} dropped.", shown::records(*records), shown::line(stream)));
    }
    if all == 0 {
        output::line("0 records dropped.");
    }
}
