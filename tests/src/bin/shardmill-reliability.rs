//! Integers through producer, processor and output stream, of which every one is accounted for; `docs/reliability.md` says
//! what that shows and what it does not.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use futures::FutureExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use shardmill_tests::reliability::{Event, Options, Plant, run};
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "\
Examples:
  shardmill-reliability                                  5,000,000 integers over 2 shards
  shardmill-reliability --records 200000 --json          fewer, as lines of JSON
  shardmill-reliability --records 300000 --plant swallowed
                                                         does it find a record that is lost? Ends with 1

Exit status: 0 every integer came out once and in the order of its key, 1 not so, 2 wrong usage, 130 interrupted.";

/// What a shell reports of a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// Sends integers through the library producer, a worker with a processor and an output stream, all on this machine, and
/// accounts for each.
#[derive(Debug, Parser)]
#[command(name = "shardmill-reliability", version, about, after_help = EXAMPLES)]
struct Arguments {
    /// How many integers go through, from 0 on.
    #[arg(long, value_name = "N", default_value_t = 5_000_000, value_parser = at_least(1))]
    records: u64,
    /// Shards of the input stream, and of the output stream.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=500))]
    shards: u16,
    /// Of so many integers there is a pit stop: none below may be missing, repeated or out of order.
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = at_least(1_000))]
    pit_stop: u64,
    /// What the partition keys are called, and so to which shards they go.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The run ends when nothing new has come out for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = at_least(1))]
    patience: u64,
    /// Lets writes of the processor go wrong, to see that the run finds it and ends with 1.
    #[arg(long, value_name = "FAULT")]
    plant: Option<Plant>,
    /// Print JSON: a line for each pit stop, and one for the end.
    #[arg(long)]
    json: bool,
}

fn at_least(least: u64) -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(least..)
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { records, shards, pit_stop, seed, patience, plant, json } = Arguments::parse();
    let options = Options { records, shards, pit_stop, seed, patience: Duration::from_secs(patience), plant };
    let bar = bar(records);
    if !json {
        print(&bar, &options);
    }
    let tell = |event: Event<'_>| match event {
        Event::Progress(found) => bar.set_position(found),
        Event::PitStop(pit_stop) if json => print(&bar, pit_stop.json()),
        Event::PitStop(pit_stop) => print(&bar, pit_stop),
    };
    // What cannot be started panics, with the reason; processes that were started end with what holds them.
    let ended = tokio::select! {
        ended = AssertUnwindSafe(run(&options, tell)).catch_unwind() => ended,
        () = interrupted() => {
            let found = bar.position();
            bar.finish_and_clear();
            eprintln!("interrupted after {found} integers, of which nothing is said");
            return ExitCode::from(INTERRUPTED);
        }
    };
    bar.finish_and_clear();
    let Ok(report) = ended else { return ExitCode::FAILURE };
    if json {
        print(&bar, report.json());
    } else {
        print(&bar, report.to_string().trim_end());
    }
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// On a terminal: how far it is.
fn bar(records: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("  {wide_bar} {human_pos}/{human_len} integers  {elapsed}");
    ProgressBar::new(records).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print(bar: &ProgressBar, line: impl Display) {
    bar.suspend(|| {
        // A reader that has gone wants no more; the exit status says the rest.
        let _gone = writeln!(std::io::stdout(), "{line}");
    });
}

/// Ctrl-C, or SIGTERM.
async fn interrupted() {
    let [mut interrupt, mut terminate] = [SignalKind::interrupt(), SignalKind::terminate()]
        .map(|kind| signal(kind).expect("a handler for a signal can be installed"));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
