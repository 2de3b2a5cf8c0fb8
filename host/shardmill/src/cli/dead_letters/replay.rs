//! `shardmill dead-letters replay`

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use shardmill_cause::code;
use shardmill_producer::Ordering;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::places::Places;
use super::sender::{self, Ended, Queued, Sender};
use super::{Wanted, id, passed_over, places, show};
use crate::cli::pace::Pace;
use crate::cli::{Failure, output, stop_at_signal, text};
use crate::dead_letters::read::{Found, Letters};
use crate::dead_letters::replay::record;
use crate::unix_ms;

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill dead-letters replay --config shardmill.toml --dry-run
  shardmill dead-letters replay 9f3c --config shardmill.toml
  shardmill dead-letters replay -c shardmill.toml --processor enrich --reason timeout --since 2h
  shardmill dead-letters replay --folder /var/lib/shardmill/dead-letters --to orders-retry --rate 50
  shardmill dead-letters replay --stream enrich-failed --marks replayed.jsonl

Records of a key are sent in their order, whatever places their letters are in. A record goes once, also if its letter was \
stored twice or if several processors gave it up: whoever reads the stream gets it again, processors that had no trouble with \
it included. --to sends it elsewhere.

With --config, records go back to streams that the letter's processor reads, and to no others: whoever can write to a place can \
write a letter that names any stream. Without it letters are taken at their word: look at --dry-run first, or say --to. What a processor got from another one, and gave \
up, came from no stream: it goes where --to says.

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

/// How a replay goes about it.
struct Run<'a> {
    arguments: &'a Arguments,
    places: &'a Places,
    stop: &'a CancellationToken,
    bar: &'a ProgressBar,
}

/// What a replay has done besides sending.
#[derive(Debug, Default)]
struct Tally {
    /// Of a dry run: what each stream would get.
    would: BTreeMap<String, u64>,
    /// What had been sent before.
    passed_over: u64,
    /// Letters about records that had been met.
    repeats: u64,
    /// Records whose letters name streams that their processors do not read, or that came from another processor.
    unread: u64,
}

pub(super) async fn replay(arguments: &Arguments) -> Result<(), Failure> {
    let places = arguments.places.places(arguments.wanted.processor.as_deref())?;
    let stop = stop_at_signal()?;
    let from = places.open().await?;
    let book = if arguments.dry_run { places.marks()? } else { places.hold_marks()? };
    let filter = arguments.wanted.filter(arguments.id.as_deref(), &places);
    let mut letters = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(interrupted()),
        letters = Letters::open(&from, filter, unix_ms::now()) => letters?,
    };
    let ordering = if arguments.unordered { Ordering::None } else { Ordering::Key };
    let pace = Pace::new((arguments.rate > 0).then_some(arguments.rate), Instant::now());
    let mut sender = Sender::new(&places, book, ordering, pace, stop.clone());
    let mut tally = Tally::default();
    // All of them first: an id that is cut too short must send nothing.
    let named = match &arguments.id {
        Some(id) => show::all_of(&mut letters, id)?,
        None => Vec::new(),
    };
    let bar = bar(arguments.json);
    let run = Run { arguments, places: &places, stop: &stop, bar: &bar };
    let ended = run.send_all(named, &mut letters, &mut sender, &mut tally).await;
    bar.finish_and_clear();
    let sent: BTreeMap<&str, u64> = if arguments.dry_run {
        tally.would.iter().map(|(stream, count)| (stream.as_str(), *count)).collect()
    } else {
        sender.sent().filter(|(_, count)| *count > 0).collect()
    };
    let is_interrupted = matches!(ended, Err(Ended::Stopped));
    if arguments.json {
        let failed: Vec<_> = sender
            .failed
            .iter()
            .map(|(id, reason)| json!({ "id": id.to_string(), "reason": reason.to_string() }))
            .collect();
        let refused: serde_json::Map<_, _> = sender
            .refused()
            .map(|(stream, refused)| (stream.to_owned(), json!({ "left": refused.left, "reason": refused.reason })))
            .collect();
        output::line(text::json(&json!({
            "dry_run": arguments.dry_run,
            "sent": sent.values().sum::<u64>(),
            "to": sent,
            "sent_before": tally.passed_over,
            "repeats": tally.repeats,
            "of_others": letters.others(),
            "not_read": tally.unread,
            "failed": failed,
            "refused": refused,
            "interrupted": is_interrupted,
        })));
    } else {
        tell(arguments, &sent, &tally, letters.others());
        for (id, reason) in &sender.failed {
            output::say(format_args!("{id}: {reason}"));
        }
    }
    match ended {
        Err(Ended::Failed(failure)) => return Err(failure),
        Err(Ended::Stopped) => return Err(interrupted()),
        Ok(()) => {}
    }
    if let Some(failure) = sender::failure(sender.refused()) {
        return Err(failure);
    }
    if !sender.failed.is_empty() {
        return Err(Failure::running(format!("{} of the records cannot be sent", sender.failed.len()))
            .code(code::dead_letters::NOT_REPLAYED)
            .help("`shardmill dead-letters show ID --payload` writes the payload of one"));
    }
    if tally.unread > 0 {
        let message = format!(
            "{} records were left: by their letters they came from no stream that the processor reads which gave \
                               them up",
            tally.unread
        );
        return Err(Failure::running(message)
            .code(code::dead_letters::NOT_REPLAYED)
            .help("look at them with `list --json`; --to STREAM sends them where you say"));
    }
    letters.all_read()
}

fn interrupted() -> Failure {
    Failure::running("the replay was interrupted")
        .code(code::command::INTERRUPTED)
        .help("the same command goes on where it was, by what has been noted")
}

// === impl Run ===

impl Run<'_> {
    /// Those that are named, and then what comes.
    async fn send_all(
        &self,
        named: Vec<Vec<Found>>,
        letters: &mut Letters,
        sender: &mut Sender<'_>,
        tally: &mut Tally,
    ) -> Result<(), Ended> {
        let arguments = self.arguments;
        let mut named = named.into_iter();
        let mut chosen = 0;
        while let Some(found) = named.next().or_else(|| letters.next()) {
            if self.stop.is_cancelled() {
                return Err(Ended::Stopped);
            }
            let copies: u64 = found.iter().map(|found| found.copies).sum();
            tally.repeats += copies.saturating_sub(1);
            self.bar.inc(copies);
            self.bar.set_length(self.bar.position() + letters.left() as u64);
            let places: BTreeSet<usize> = found.iter().flat_map(|found| &found.places).copied().collect();
            let may_go = |found: &&Found| arguments.to.is_some() || self.places.may_return(&found.letter);
            let Some(Found { letter, identity, .. }) = found.iter().find(may_go) else {
                tally.unread += 1;
                continue;
            };
            // By its ARN: another region or account may have a stream of that name.
            let to = arguments.to.as_deref().unwrap_or(&letter.stream_arn);
            if !arguments.again && sender.book.contains(identity) {
                tally.passed_over += 1;
                if !arguments.dry_run {
                    sender.sent_before(*identity, places, to)?;
                }
                continue;
            }
            if arguments.limit.is_some_and(|limit| chosen >= limit) {
                break;
            }
            chosen += 1;
            if arguments.dry_run {
                *tally.would.entry(to.to_owned()).or_default() += 1;
            } else {
                sender.add(to, Queued { identity: *identity, places, record: record(letter) }).await?;
            }
        }
        sender.finish().await
    }
}

fn tell(arguments: &Arguments, sent: &BTreeMap<&str, u64>, tally: &Tally, others: u64) {
    let (verb, end) = if arguments.dry_run { ("would be sent", " (a dry run)") } else { ("sent", "") };
    let records = |count: u64| text::counted(count, "record");
    if sent.is_empty() {
        output::line(format_args!("{} {verb}{end}.", records(0)));
    }
    for (stream, count) in sent {
        output::line(format_args!("{} {verb} to {}{end}.", records(*count), text::line(stream)));
    }
    if tally.passed_over > 0 {
        let count = records(tally.passed_over);
        output::line(format_args!("{count} passed over, sent before; --again sends them again."));
    }
    if tally.repeats > 0 {
        output::line(format_args!("{} letters about records that had been met.", tally.repeats));
    }
    if others > 0 {
        output::line(passed_over(others).trim_start());
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
