//! `shardmill dead-letters replay`

use std::collections::{BTreeMap, HashSet};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use shardmill_producer::Ordering;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::sender::{Ended, Pace, Queued, Sender};
use super::{Wanted, id, now, places, show};
use crate::cli::{Failure, output, stop_at_signal};
use crate::dead_letters::identity::Identity;
use crate::dead_letters::read::{Found, Letters};
use crate::dead_letters::replay::record;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill dead-letters replay --config shardmill.toml --dry-run
  shardmill dead-letters replay 9f3c --config shardmill.toml
  shardmill dead-letters replay -c shardmill.toml --processor enrich --reason timeout --since 2h
  shardmill dead-letters replay --folder /var/lib/shardmill/dead-letters --to orders-retry --rate 50
  shardmill dead-letters replay --stream enrich-failed --marks replayed.jsonl

Records of a key are sent in their order. A record goes once, also if its letter was stored twice or if several processors \
gave it up: whoever reads the stream gets it again, processors that had no trouble with it included. --to sends it elsewhere.

What has been sent is noted, and a later replay passes over it; one that was interrupted goes on where it was. Letters of a \
folder are noted in the file .replayed beside them. A stream cannot be marked: without --marks FILE everything in it is sent \
each time.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only the letter with this id, or the beginning of it.
    #[arg(value_name = "ID", value_parser = id)]
    id: Option<String>,
    #[command(flatten)]
    places: places::Arguments,
    #[command(flatten)]
    wanted: Wanted,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Send to this stream, by its name or ARN, instead of the stream that each record came from.
    #[arg(long, value_name = "STREAM")]
    to: Option<String>,
    /// Send nothing; tell what would be sent.
    #[arg(long)]
    dry_run: bool,
    /// Send also what has been sent before.
    #[arg(long)]
    again: bool,
    /// Send so many records a second at most; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 500)]
    rate: u32,
    /// Do without the order of keys: many times as fast.
    #[arg(long)]
    unordered: bool,
    /// Print the result as JSON, one line.
    #[arg(long)]
    json: bool,
}

/// What a replay has done besides sending.
#[derive(Debug, Default)]
struct Tally {
    /// Of a dry run: what each stream would get.
    would: BTreeMap<String, u64>,
    /// What had been sent before.
    passed_over: u64,
    /// Records that have been met already, in a letter of another consumer.
    shared: Vec<(usize, Identity, String)>,
    /// Records that were met.
    met: HashSet<Identity>,
}

pub(super) async fn replay(arguments: &Arguments) -> Result<(), Failure> {
    let places = arguments.places.places(arguments.wanted.processor.as_deref())?;
    let stop = stop_at_signal()?;
    let filter = arguments.wanted.filter(arguments.id.as_deref());
    let mut letters = Letters::new(places.open().await?, filter, now());
    let book = if arguments.dry_run { places.marks()? } else { places.hold_marks()? };
    let ordering = if arguments.unordered { Ordering::None } else { Ordering::Key };
    let pace = Pace::new(arguments.rate, Instant::now());
    let mut sender = Sender::new(&places, book, ordering, pace, stop.clone());
    let mut tally = Tally::default();
    let bar = bar(arguments.json);
    // All of them first: an id that is cut too short must send nothing.
    let named = match &arguments.id {
        Some(id) => tokio::select! {
            biased;
            () = stop.cancelled() => return Err(interrupted()),
            found = show::all_of(&mut letters, id) => found?,
        },
        None => Vec::new(),
    };
    let ended = send_all(arguments, named, &mut letters, &mut sender, &mut tally, &stop, &bar).await;
    bar.finish_and_clear();
    let noted = note_shared(&mut sender, &tally);
    let repeats = letters.repeats() + tally.shared.len() as u64;
    let sent: BTreeMap<&str, u64> = if arguments.dry_run {
        tally.would.iter().map(|(stream, count)| (stream.as_str(), *count)).collect()
    } else {
        sender.sent().collect()
    };
    let is_interrupted = matches!(ended, Err(Ended::Stopped));
    if arguments.json {
        let failed: Vec<_> = sender
            .failed
            .iter()
            .map(|(id, reason)| json!({ "id": id.to_string(), "reason": reason.to_string() }))
            .collect();
        output::line(json!({
            "dry_run": arguments.dry_run,
            "sent": sent.values().sum::<u64>(),
            "to": sent,
            "sent_before": tally.passed_over,
            "repeats": repeats,
            "failed": failed,
            "interrupted": is_interrupted,
        }));
    } else {
        tell(arguments, &sent, tally.passed_over, repeats);
        for (id, reason) in &sender.failed {
            eprintln!("{id}: {reason}");
        }
    }
    match ended {
        Err(Ended::Failed(failure)) => return Err(failure),
        Err(Ended::Stopped) => return Err(interrupted()),
        Ok(()) => noted?,
    }
    match sender.failed.len() {
        0 => Ok(()),
        count => Err(Failure::running(format!("{count} of the records cannot be sent"))
            .help("`shardmill dead-letters show ID --payload` writes the payload of one")),
    }
}

fn interrupted() -> Failure {
    Failure::running("the replay was interrupted").help("the same command goes on where it was, by what has been noted")
}

/// Those that are named, and then what comes.
async fn send_all(
    arguments: &Arguments,
    named: Vec<Found>,
    letters: &mut Letters,
    sender: &mut Sender<'_>,
    tally: &mut Tally,
    stop: &CancellationToken,
    bar: &ProgressBar,
) -> Result<(), Ended> {
    let mut named = named.into_iter();
    let mut chosen = 0;
    loop {
        let found = match named.next() {
            Some(found) => Some(found),
            None => tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Ended::Stopped),
                found = letters.next() => found?,
            },
        };
        let Some(Found { letter, identity, place }) = found else { break };
        bar.inc(1);
        if let Some(left) = letters.left() {
            bar.set_length(bar.position() + left as u64);
        }
        let to = arguments.to.as_deref().unwrap_or(&letter.stream);
        if !tally.met.insert(identity) {
            tally.shared.push((place, identity, to.to_owned()));
            continue;
        }
        if !arguments.again && sender.book.contains(&identity) {
            tally.passed_over += 1;
            continue;
        }
        if arguments.limit.is_some_and(|limit| chosen >= limit) {
            break;
        }
        chosen += 1;
        if arguments.dry_run {
            *tally.would.entry(to.to_owned()).or_default() += 1;
        } else {
            sender.add(to, Queued { identity, place, record: record(&letter) }).await?;
        }
    }
    sender.finish().await
}

/// Notes records that were sent in the places of their other letters as well.
fn note_shared(sender: &mut Sender<'_>, tally: &Tally) -> Result<(), Failure> {
    for (place, identity, to) in &tally.shared {
        if sender.book.contains(identity) {
            sender.book.add(*place, &[*identity], to)?;
        }
    }
    Ok(())
}

fn tell(arguments: &Arguments, sent: &BTreeMap<&str, u64>, passed_over: u64, repeats: u64) {
    let (verb, end) = if arguments.dry_run { ("would be sent", " (a dry run)") } else { ("sent", "") };
    let records = |count: u64| if count == 1 { "1 record".to_owned() } else { format!("{count} records") };
    if sent.values().all(|count| *count == 0) {
        output::line(format_args!("{} {verb}{end}.", records(0)));
    }
    for (stream, count) in sent.iter().filter(|(_, count)| **count > 0) {
        output::line(format_args!("{} {verb} to {stream}{end}.", records(*count)));
    }
    if passed_over > 0 {
        output::line(format_args!("{} passed over, sent before; --again sends them again.", records(passed_over)));
    }
    if repeats > 0 {
        output::line(format_args!("{repeats} letters about records that had been met."));
    }
}

/// On a terminal: how far it is.
fn bar(quiet: bool) -> ProgressBar {
    let bar = ProgressBar::no_length();
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("  {wide_bar} {pos}/{len} letters  {per_sec}  {elapsed}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
