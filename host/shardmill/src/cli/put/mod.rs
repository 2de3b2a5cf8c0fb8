//! `shardmill put`: lines, JSON lines and rows of CSV become records of a stream.
//!
//! [`read`] reads the input on a thread of its own, and [`parse`] and [`columns`] make records of it; [`sending`] puts
//! them at their pace, and notes in a [`tally`] and in the [`results`] what has become of each.

mod arguments;
mod columns;
mod input;
mod json;
mod parse;
mod quotes;
mod read;
mod results;
mod rows;
mod sending;
mod source;
mod starts;
pub(super) mod tail_json;
mod tally;

use std::collections::VecDeque;
use std::path::Path;

use futures::stream::FuturesOrdered;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shardmill_cause::{Coded, code, with_causes};
use shardmill_producer::{Metrics, Producer};
use tokio::time::Instant;

pub(super) use self::arguments::{Arguments, EXAMPLES};
pub(super) use self::input::InputArguments;
pub(super) use self::parse::{Bad, Format, Key};
pub(super) use self::read::{Error as InputError, Input, Reading, Rules};
use self::results::Results;
use self::sending::{Ended, Sending};
pub(super) use self::source::{Item, Place};
use self::tally::Tally;
use super::pace::Pace;
use super::{Failure, output, text};

pub(super) async fn put(arguments: &Arguments) -> Result<(), Failure> {
    let rules = arguments.rules()?;
    let options = arguments.options();
    options.check().map_err(|error| Failure::usage(error.to_string()).code(code::producer::OPTIONS))?;
    let input = Input::open(&arguments.files).map_err(|error| unreadable(&error))?;
    results::check(arguments.results.as_deref(), &input, arguments.overwrite)?;
    let access = arguments.access.open(&arguments.stream).await?;
    let spool = arguments.open_spool().await?;
    let results = Results::open(arguments.results.as_deref())?;
    let bar = bar(input.bytes(), arguments.json || results.are_printed());
    let tally = Tally::new(input.names());
    let input = input.start(rules).map_err(|error| {
        Failure::running(format!("the input cannot be read: {error}")).code(code::input::UNREADABLE)
    })?;
    let (client, stream) = (access.producer.clone(), arguments.stream.clone());
    let (metrics, seed) = (Metrics::default(), rand::random());
    let producer = match &spool {
        Some(spool) => Producer::start_with_spool(client, stream, options, metrics, seed, spool)?,
        None => Producer::start(client, stream, options, metrics, seed),
    };
    let mut sending = Sending {
        producer,
        spool,
        input,
        pace: Pace::new(arguments.rate, Instant::now()),
        stop: &access.stop,
        tally,
        results,
        bar: &bar,
        read: VecDeque::new(),
        unsettled: FuturesOrdered::new(),
    };
    let ended = sending.run().await;
    bar.finish_and_clear();
    let left = sending.spooled();
    let Sending { tally, results, spool, .. } = sending;
    let told = tell(arguments, &tally, left, &results, &ended);
    if let Some(spool) = spool {
        spool.close().await?;
    }
    let failures = [failure(&arguments.stream, &tally, &ended), untold(results, &tally, &ended), told.err()];
    let mut failures = failures.into_iter().flatten();
    match (failures.next(), &arguments.spool) {
        (Some(first), _) => {
            failures.for_each(|other| output::say(text::lines(&other.message())));
            Err(first)
        }
        (None, Some(folder)) if left > 0 => Err(waits(left, &arguments.stream, folder)),
        (None, _) => Ok(()),
    }
}

/// What is to be said of how it has ended, if that is not well.
fn failure(stream: &str, tally: &Tally, ended: &Ended) -> Option<Failure> {
    let help = |what: &str| match tally.unread(ended) {
        [] => tally.help(what),
        files => tally.help(&format!("{what}; not read: {}", files.join(", "))),
    };
    match ended {
        Ended::Whole | Ended::Refused => tally.failure(stream),
        Ended::Input(error) => Some(unreadable(error).help(help("what was read before has been sent"))),
        Ended::Interrupted => {
            let failure = Failure::running("interrupted: what comes later in the input is not sent")
                .code(code::command::INTERRUPTED);
            Some(failure.help(help(if tally.lost() == 0 { "what was read before is stored" } else { "" })))
        }
        // Told by the results themselves.
        Ended::Untold => None,
    }
}

/// What is to be said of results that could not be written.
fn untold(results: Results, tally: &Tally, ended: &Ended) -> Option<Failure> {
    let what = match ended {
        Ended::Untold => "what comes later in the input is not sent",
        _other => "what became of the records is told in sum only",
    };
    results.into_failure().map(|failure| failure.help(tally.help(what)))
}

/// Prints the sums. They do not change how it has ended where nobody reads them.
fn tell(arguments: &Arguments, tally: &Tally, left: u64, results: &Results, ended: &Ended) -> Result<(), Failure> {
    let stream = &arguments.stream;
    let said = if arguments.json { text::json(&tally.json(stream, left, ended)) } else { tally.sentence(stream, left) };
    // Results are alone on standard output.
    if results.are_printed() {
        output::say(said);
        return Ok(());
    }
    match output::try_line(said) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::running(format!("standard output cannot be written: {error}"))
                .code(code::command::NOT_WRITTEN))
        }
        _printed => Ok(()),
    }
}

/// Records stay in the spool.
fn waits(records: u64, stream: &str, folder: &Path) -> Failure {
    let folder = text::line(&folder.display().to_string());
    let (records, verb) = (text::counted(records, "record"), if records == 1 { "waits" } else { "wait" });
    Failure::deferred(format!("{records} of {stream} {verb} in the spool {folder}: the stream does not take them now"))
        .code(code::input::WAITS)
        .help(format!(
            "`shardmill spool drain --folder {folder}` sends them, and so does the next `shardmill put` with it"
        ))
}

fn unreadable(error: &read::Error) -> Failure {
    Failure::running(with_causes(error)).code(error.code())
}

/// On a terminal: how much of the input has been read, or of an input without an end how much is stored.
fn bar(bytes: Option<u64>, quiet: bool) -> ProgressBar {
    let bar = bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let template = match bytes {
        Some(_) => "  {bar:40} {bytes}/{total_bytes} read, {msg} records stored  {elapsed}",
        None => "  {spinner} {bytes} read, {msg} records stored  {elapsed}",
    };
    let style = ProgressStyle::with_template(template);
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("0");
    bar
}
