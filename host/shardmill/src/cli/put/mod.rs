//! `shardmill put`: lines, JSON lines and rows of CSV become records of a stream.
//!
//! [`read`] reads the input on a thread of its own and [`parse`] makes records of it; [`sending`] puts them at their [`pace`],
//! and notes in a [`tally`] and in the [`results`] what has become of each.

mod pace;
mod parse;
mod read;
mod results;
mod sending;
mod source;
mod starts;
mod tally;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use clap::{ArgGroup, Args, ValueEnum};
use futures::stream::FuturesOrdered;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shardmill_cause::with_causes;
use shardmill_producer::{Metrics, Options, Ordering, Producer};
use shardmill_spool::{Full, Spool};
use tokio::time::Instant;

use self::pace::Pace;
use self::parse::{Format, Key};
use self::read::{Input, Rules};
use self::results::Results;
use self::sending::{Ended, Sending};
use self::tally::Tally;
use super::{Failure, access, output, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill put orders events.jsonl --key-field /user/id
  shardmill put orders *.csv --key-column customer --rate 500
  shardmill put orders access.log --key web-1               one key, so that the order of the lines is kept
  tail -F access.log | shardmill put orders                 another key for each line, over all shards
  shardmill put orders events.jsonl --key-field /id --results results.jsonl
  shardmill put flights rows.csv --format csv --endpoint-url http://127.0.0.1:4567
  tail -F access.log | shardmill put orders --spool /var/lib/orders     what an outage holds up waits on the disk

Without a key option each record has a key of its own. The input is taken for JSON lines with --key-field, for CSV with
--key-column, else for lines, unless --format says so. Empty lines are passed over. A row of CSV becomes a JSON object of
texts, with the names of its file's first row.

What cannot be read as a record or is not stored is told with its line, and the others are sent; the exit status is 1
then. Ctrl-C stops reading and waits up to 10 s for what has been read. A record may be stored twice where an answer of
the service was lost. --results has a JSON object for each record, in the order of the input: whether it is `stored`, and
its shard, sequence_number, sub_sequence_number, attempts and latency_ms, or the reason and the error.

With --spool records go to the disk when nothing could be stored for --spool-after, when their time is over, when the stream refuses
them, and when Ctrl-C does not leave them the time; their results say `spooled`. At the end the command waits while the spool gets
emptier. Where something stays in it, the exit status is 75.";

/// What is pending has to be stored within its time to live by a stream with a single shard: 1 MiB a second.
const PENDING_RECORDS: usize = 20_000;
const PENDING_BYTES: usize = 16 << 20;
/// With `--large-records`, which is what a stream can be made to take at most (AWS limit).
const LARGE: usize = 10 << 20;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("keys").args(["key", "key_field", "key_column"]))]
pub(super) struct Arguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    stream: String,
    /// Files to read, one after another; `-` and none stand for standard input.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How the input is written.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The partition key of all records.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Where in a JSON line the partition key is: a JSON pointer, such as /user/id.
    #[arg(long, value_name = "POINTER", value_parser = pointer)]
    key_field: Option<String>,
    /// Which column of CSV the partition key is: its name, or with --no-header its number, from 1.
    #[arg(long, value_name = "COLUMN")]
    key_column: Option<String>,
    /// The first row of CSV is a record as well. Payloads are rows then, as they are.
    #[arg(long)]
    no_header: bool,
    /// What separates the columns of CSV; \t for a tab.
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// Send so many records a second at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Do without the order of keys: faster.
    #[arg(long)]
    unordered: bool,
    /// Send each record as a Kinesis record of its own, not in KPL aggregates.
    #[arg(long)]
    no_aggregate: bool,
    /// Send also records of more than 1 MiB, as far as the stream takes them: up to 10 MiB.
    #[arg(long)]
    large_records: bool,
    /// A folder for what the stream does not take: nothing that is there is lost, whatever happens to this process. It is sent
    /// when the stream takes it, by this command or the next one with the folder, or by `shardmill spool drain`.
    #[arg(long, value_name = "DIR", env = "SHARDMILL_SPOOL")]
    spool: Option<PathBuf>,
    /// How much of the disk the spool may take.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB", requires = "spool")]
    spool_size: ByteSize,
    /// What happens when the spool is full: `refuse` gives up what comes, `drop-oldest` what is there.
    #[arg(long, value_enum, default_value = "refuse", requires = "spool")]
    spool_when_full: WhenFull,
    /// For how long nothing may have been stored before records go to the spool.
    #[arg(long, value_name = "TIME", default_value = "5s", requires = "spool", value_parser = humantime::parse_duration)]
    spool_after: Duration,
    /// How long a record is tried before it is given up, or goes to the spool.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Write there what has become of each record, one line of JSON for each; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Print the sums as JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: access::Arguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WhenFull {
    Refuse,
    DropOldest,
}

pub(super) async fn put(arguments: &Arguments) -> Result<(), Failure> {
    let rules = arguments.rules()?;
    let options = arguments.options();
    options.check().map_err(|error| Failure::usage(error.to_string()))?;
    let input = Input::open(&arguments.files).map_err(|error| unreadable(&error))?;
    let access = arguments.access.open(&arguments.stream).await?;
    let spool = arguments.open_spool().await?;
    let results = Results::open(arguments.results.as_deref())?;
    let bar = bar(input.bytes(), arguments.json || results.are_printed());
    let tally = Tally::new(input.names());
    let input = input.start(rules).map_err(|error| Failure::running(format!("the input cannot be read: {error}")))?;
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
    arguments.tell(&tally, left, &results, matches!(ended, Ok(Ended::Interrupted)));
    if let Some(spool) = spool {
        spool.close().await?;
    }
    let ended = match ended? {
        Ended::Whole | Ended::Refused => tally.failure(&arguments.stream).map_or(Ok(()), Err),
        Ended::Input(error) => Err(unreadable(&error).help(tally.help("what was read before has been sent"))),
        Ended::Interrupted => {
            Err(Failure::running("interrupted: what comes later in the input is not sent").help(tally.help("")))
        }
    };
    match (ended, &arguments.spool) {
        (Ok(()), Some(folder)) if left > 0 => Err(waits(left, &arguments.stream, folder)),
        (ended, _) => ended,
    }
}

// === impl Arguments ===

impl Arguments {
    fn rules(&self) -> Result<Rules, Failure> {
        let key = match (&self.key, &self.key_field, &self.key_column) {
            (Some(key), _, _) => Key::Fixed(key.clone()),
            (_, Some(pointer), _) => Key::Field(pointer.clone()),
            (_, _, Some(column)) => Key::Column(column.clone()),
            (None, None, None) => Key::Random,
        };
        let format = self.format.unwrap_or_else(|| key.implies());
        if !key.is_of(format) {
            return Err(Failure::usage("--key-field is for --format jsonl, and --key-column for --format csv"));
        }
        if format != Format::Csv && self.no_header {
            return Err(Failure::usage("--no-header is for --format csv"));
        }
        Ok(Rules { format, key, has_header: !self.no_header, delimiter: self.delimiter })
    }

    fn options(&self) -> Options {
        let options = Options::default();
        Options {
            ordering: if self.unordered { Ordering::None } else { Ordering::Key },
            aggregate: !self.no_aggregate,
            record_max_bytes: if self.large_records { LARGE } else { options.record_max_bytes },
            record_ttl: self.ttl,
            spool_after: self.spool_after,
            pending_max_records: PENDING_RECORDS,
            pending_max_bytes: PENDING_BYTES,
            ..options
        }
    }

    async fn open_spool(&self) -> Result<Option<Spool>, Failure> {
        let Some(folder) = &self.spool else { return Ok(None) };
        let when_full = match self.spool_when_full {
            WhenFull::Refuse => Full::Refuse,
            WhenFull::DropOldest => Full::DropOldest,
        };
        let options = shardmill_spool::Options { bytes: self.spool_size.as_u64(), when_full };
        Ok(Some(Spool::open(folder, options, shardmill_spool::Metrics::default()).await?))
    }

    fn tell(&self, tally: &Tally, left: u64, results: &Results, is_interrupted: bool) {
        let said = if self.json {
            text::json(&tally.json(&self.stream, left, is_interrupted))
        } else {
            tally.sentence(&self.stream, left)
        };
        // Results are alone on standard output.
        if results.are_printed() { eprintln!("{said}") } else { output::line(said) }
    }
}

/// Records stay in the spool.
fn waits(records: u64, stream: &str, folder: &Path) -> Failure {
    let folder = text::line(&folder.display().to_string());
    let (records, verb) =
        if records == 1 { ("1 record".to_owned(), "waits") } else { (format!("{records} records"), "wait") };
    Failure::deferred(format!("{records} of {stream} {verb} in the spool {folder}: the stream does not take them now"))
        .help(format!(
            "`shardmill spool drain --folder {folder}` sends them, and so does the next `shardmill put` with it"
        ))
}

fn unreadable(error: &read::Error) -> Failure {
    Failure::running(with_causes(error))
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

fn pointer(text: &str) -> Result<String, String> {
    if text.starts_with('/') || text.is_empty() {
        return Ok(text.to_owned());
    }
    Err(format!("a JSON pointer begins with a slash: write /{text}"))
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _other => Err("one ASCII character is expected, or \\t for a tab".to_owned()),
    }
}
