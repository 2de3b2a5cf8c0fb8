//! `shardmill spool drop`

use std::collections::BTreeMap;
use std::io::{BufRead as _, IsTerminal as _};
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use shardmill_cause::code;
use shardmill_spool::{Counted, Selection, Spool};
use tokio_util::sync::CancellationToken;

use super::{Folder, check_stream, shown};
use crate::cli::{Failure, output, stop_at_signal, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill spool drop --folder /var/lib/orders --older-than 7days
  shardmill spool drop --folder /var/lib/orders --stream orders --yes
  shardmill spool drop --folder /var/lib/orders --set-aside

Dropped records are gone for good, though their payloads may stand on the disk until something is written over them. Without \
--yes it says how many they are, and asks; the spool is free meanwhile.";

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

/// Records of each stream.
type Counts = BTreeMap<String, Counted>;

pub(super) async fn drop_records(arguments: &Arguments) -> Result<(), Failure> {
    drop_asking(arguments, async |counted| ask(counted)).await
}

/// `ask` fails if they are not to be dropped.
async fn drop_asking(
    arguments: &Arguments,
    mut ask: impl AsyncFnMut(&Counts) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut spool = arguments.folder.open().await?;
    check_stream(&spool, arguments.stream.as_deref())?;
    let stored_before = match arguments.older_than {
        Some(age) => Some(
            SystemTime::now()
                .checked_sub(age)
                .ok_or_else(|| Failure::running("--older-than is too long").code(code::command::USAGE))?,
        ),
        None => None,
    };
    let selection = Selection { stream: arguments.stream.clone(), stored_before, set_aside: arguments.set_aside };
    let mut agreed = Counts::new();
    loop {
        let counted = spool.count(selection.clone()).await?;
        if arguments.yes || is_within(&counted, &agreed) {
            break;
        }
        // The program that it belongs to may be started while somebody thinks about it.
        spool.close().await?;
        ask(&counted).await?;
        agreed = counted;
        spool = arguments.folder.open().await?;
    }
    let stop = stop_at_signal()?;
    let (mut dropped, mut is_stopped) = (BTreeMap::new(), false);
    let ended = drop_all(&spool, &selection, &stop, &mut dropped).await;
    let ended = ended.map(|is_done| is_stopped = !is_done);
    tell(arguments, &dropped, is_stopped);
    let closed = spool.close().await;
    ended?;
    closed?;
    if is_stopped {
        return Err(Failure::running("dropping was interrupted")
            .code(code::command::INTERRUPTED)
            .help("the same command drops the rest"));
    }
    Ok(())
}

/// Whether there are no more of each stream than was agreed to.
fn is_within(counted: &Counts, agreed: &Counts) -> bool {
    counted.iter().all(|(stream, counted)| agreed.get(stream).is_some_and(|agreed| counted.records <= agreed.records))
}

/// Bit by bit, so that it can be interrupted; whether it was not.
async fn drop_all(
    spool: &Spool,
    selection: &Selection,
    stop: &CancellationToken,
    dropped: &mut BTreeMap<String, u64>,
) -> Result<bool, Failure> {
    while !stop.is_cancelled() {
        let some = spool.discard(selection.clone()).await?;
        if some.is_empty() {
            return Ok(true);
        }
        some.into_iter().for_each(|(stream, records)| *dropped.entry(stream).or_default() += records);
    }
    Ok(false)
}

fn ask(counted: &Counts) -> Result<(), Failure> {
    for (stream, Counted { records, bytes }) in counted {
        output::say(format_args!(
            "{} of {} ({})",
            text::counted(*records, "record"),
            text::line(stream),
            shown::size(*bytes)
        ));
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::running("nobody can be asked whether they are to be dropped")
            .code(code::command::NOT_ASKED)
            .help("--yes drops them"));
    }
    output::ask("Drop them for good? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(_) if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") => Ok(()),
        Ok(_) => Err(Failure::running("nothing was dropped").code(code::command::NOT_ASKED)),
        Err(error) => Err(Failure::running(format!("the answer cannot be read: {error}"))
            .code(code::command::NOT_ASKED)
            .help("--yes does not ask")),
    }
}

fn tell(arguments: &Arguments, dropped: &BTreeMap<String, u64>, is_stopped: bool) {
    let all: u64 = dropped.values().sum();
    if arguments.json {
        output::line(json!({ "dropped": all, "of": dropped, "interrupted": is_stopped }));
        return;
    }
    for (stream, records) in dropped {
        output::line(format_args!("{} of {} dropped.", text::counted(*records, "record"), text::line(stream)));
    }
    if all == 0 {
        output::line("0 records dropped.");
    }
}

#[cfg(test)]
mod tests {
    use shardmill_record::UserRecord;
    use shardmill_spool::{Metrics, Options};

    use super::*;

    #[tokio::test]
    async fn nobody_is_kept_from_the_spool_while_somebody_is_asked() {
        let home = tempfile::tempdir().unwrap();
        let record = UserRecord { partition_key: "k".to_owned(), explicit_hash_key: None, data: "data".into() };
        let opened = async || Spool::open(home.path(), Options::default(), Metrics::default()).await.unwrap();
        let store = async || {
            let spool = opened().await;
            spool.store("orders", vec![record.clone()]).await.unwrap();
            spool.close().await.unwrap();
        };
        store().await;
        let folder = Folder { folder: home.path().to_owned() };
        let arguments = Arguments { folder, stream: None, older_than: None, set_aside: false, yes: false, json: false };
        let mut asked = Vec::new();
        let ask = async |counted: &Counts| {
            asked.push(counted["orders"].records);
            // What came meanwhile is asked about too.
            if asked.len() < 3 {
                store().await;
            }
            Ok(())
        };
        drop_asking(&arguments, ask).await.unwrap();
        assert_eq!(asked, [1, 2, 3]);
        // Closed, and not only dropped: the folder is one's at a time.
        let spool = opened().await;
        assert_eq!(spool.depth_of("orders").records, 0);
        spool.close().await.unwrap();
        store().await;
        let refused = drop_asking(&arguments, async |_counted| Err(Failure::running("no"))).await;
        assert!(refused.is_err());
        assert_eq!(opened().await.depth_of("orders").records, 1);
    }
}
