//! What the command line of `shardmill put` says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use clap::{ArgGroup, Args, ValueEnum};
use shardmill_producer::{Options, Ordering};
use shardmill_spool::{Full, Spool};

use super::parse::{Format, Key};
use super::read::Rules;
use crate::cli::{Failure, access};

pub(crate) const EXAMPLES: &str = "\
Examples:
  shardmill put orders events.jsonl --key-field /user/id
  shardmill put orders *.csv --key-column customer --rate 500
  shardmill put orders access.log --key web-1               one key, so that the order of the lines is kept
  tail -F access.log | shardmill put orders                 another key for each line, over all shards
  shardmill put orders events.jsonl --key-field /id --results results.jsonl
  shardmill put flights rows.tsv --no-quotes --endpoint-url http://127.0.0.1:4567
  shardmill tail orders --from 1h --to now --json | shardmill put copy --format tail-json
  tail -F access.log | shardmill put orders --spool /var/lib/orders     what an outage holds up waits on the disk

Without a key option each record has a key of its own; a number is a key as it is written. The input is taken for JSON lines
with --key-field, for CSV with --key-column, else for what the names of its files say (.csv, .tsv, .jsonl, .ndjson), else for
lines, unless --format says so. Empty lines are passed over. A row of CSV becomes a JSON object of texts, with the names of
its file's first row.

What cannot be read as a record or is not stored is told with its line, and the others are sent; the exit status is 1
then. Ctrl-C stops reading and waits up to 10 s for what has been sent; what has been read and not sent counts as `stopped`.
A record may be stored twice where an answer of the service was lost, or the stream's shards changed. --results has a JSON
object for each record, in the order of the input: whether it is `stored`, and its shard, sequence_number,
sub_sequence_number, attempts and latency_ms, or the reason and the error. With --json, `ended` is whole, interrupted,
refused (the stream takes nothing), input (which cannot be read on) or results (which cannot be written).

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
pub(crate) struct Arguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    pub(super) stream: String,
    /// Files to read, one after another; `-` and none stand for standard input.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// How the input is written.
    #[arg(long, value_enum)]
    pub(super) format: Option<Format>,
    /// The partition key of all records.
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// Where in a JSON line the partition key is: a JSON pointer, such as /user/id.
    #[arg(long, value_name = "POINTER", value_parser = pointer)]
    pub(super) key_field: Option<String>,
    /// Which column of CSV the partition key is: its name, or with --no-header its number, from 1.
    #[arg(long, value_name = "COLUMN")]
    pub(super) key_column: Option<String>,
    /// The first row of CSV is a record as well. Payloads are rows then, byte for byte.
    #[arg(long)]
    pub(super) no_header: bool,
    /// What separates the columns of CSV; \t for a tab. A comma unless this is named, for files named .tsv a tab.
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    pub(super) delimiter: Option<u8>,
    /// Take quotes in CSV for characters like others, as many programs do that write tabs.
    #[arg(long)]
    pub(super) no_quotes: bool,
    /// Send so many records a second at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// Do without the order of keys: faster.
    #[arg(long)]
    pub(super) unordered: bool,
    /// Send each record as a Kinesis record of its own, not in KPL aggregates.
    #[arg(long)]
    pub(super) no_aggregate: bool,
    /// Send also records of more than 1 MiB, as far as the stream takes them: up to 10 MiB.
    #[arg(long)]
    pub(super) large_records: bool,
    /// A folder for what the stream does not take: nothing that is there is lost, whatever happens to this process. It is sent
    /// when the stream takes it, by this command or the next one with the folder, or by `shardmill spool drain`.
    #[arg(long, value_name = "DIR", env = "SHARDMILL_SPOOL")]
    pub(super) spool: Option<PathBuf>,
    /// How much of the disk the spool may take.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB", requires = "spool")]
    pub(super) spool_size: ByteSize,
    /// What happens when the spool is full: `refuse` gives up what comes, `drop-oldest` what is there.
    #[arg(long, value_enum, default_value = "refuse", requires = "spool")]
    pub(super) spool_when_full: WhenFull,
    /// For how long nothing may have been stored before records go to the spool.
    #[arg(long, value_name = "TIME", default_value = "5s", requires = "spool", value_parser = humantime::parse_duration)]
    spool_after: Duration,
    /// How long a record is tried before it is given up, or goes to the spool.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    pub(super) ttl: Duration,
    /// Write there what has become of each record, one line of JSON for each; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    pub(super) results: Option<PathBuf>,
    /// Write results over a file that has something in it.
    #[arg(long, requires = "results")]
    pub(super) overwrite: bool,
    /// Print the sums as JSON, one line.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) access: access::Arguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum WhenFull {
    Refuse,
    DropOldest,
}

// === impl Arguments ===

impl Arguments {
    pub(super) fn rules(&self) -> Result<Rules, Failure> {
        let key = match (&self.key, &self.key_field, &self.key_column) {
            (Some(key), _, _) => Key::Fixed(key.clone()),
            (_, Some(pointer), _) => Key::Field(pointer.clone()),
            (_, _, Some(column)) => Key::Column(column.clone()),
            (None, None, None) => Key::Random,
        };
        let named = named(&self.files);
        let format = match (self.format, key.implies(), named) {
            (Some(format), _, _) | (None, Some(format), _) => format,
            (None, None, Some(Named { format, .. })) => format,
            (None, None, None) if self.files.iter().any(|file| extension(file).is_some()) => {
                return Err(Failure::usage("the names of the files say different things: say --format"));
            }
            (None, None, None) => Format::Lines,
        };
        if !key.is_of(format) {
            let message =
                "--key-field is for --format jsonl, --key-column for --format csv, and --format tail-json has keys";
            return Err(Failure::usage(message));
        }
        for (is_said, option) in [
            (self.no_header, "--no-header"),
            (self.no_quotes, "--no-quotes"),
            (self.delimiter.is_some(), "--delimiter"),
        ] {
            if is_said && format != Format::Csv {
                return Err(Failure::usage(format!("{option} is for --format csv")));
            }
        }
        let delimiter = self.delimiter.or(named.map(|named| named.delimiter)).unwrap_or(b',');
        Ok(Rules { format, key, has_header: !self.no_header, delimiter, has_quotes: !self.no_quotes })
    }

    pub(super) fn options(&self) -> Options {
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

    pub(super) async fn open_spool(&self) -> Result<Option<Spool>, Failure> {
        let Some(folder) = &self.spool else { return Ok(None) };
        let when_full = match self.spool_when_full {
            WhenFull::Refuse => Full::Refuse,
            WhenFull::DropOldest => Full::DropOldest,
        };
        let options = shardmill_spool::Options { bytes: self.spool_size.as_u64(), when_full };
        Ok(Some(Spool::open(folder, options, shardmill_spool::Metrics::default()).await?))
    }
}

/// What the name of a file says of what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Named {
    format: Format,
    delimiter: u8,
}

/// What the names of all files say, if they say the same.
fn named(files: &[PathBuf]) -> Option<Named> {
    let (first, rest) = files.split_first()?;
    extension(first).filter(|named| rest.iter().all(|file| extension(file) == Some(*named)))
}

fn extension(file: &Path) -> Option<Named> {
    let (format, delimiter) = match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "csv" => (Format::Csv, b','),
        "tsv" => (Format::Csv, b'\t'),
        "jsonl" | "ndjson" => (Format::Jsonl, b','),
        _other => return None,
    };
    Some(Named { format, delimiter })
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn rules(arguments: &[&str]) -> Result<Rules, String> {
        let line = Line::try_parse_from([&["put", "orders"], arguments].concat()).map_err(|error| error.to_string())?;
        line.arguments.rules().map_err(|failure| failure.message())
    }

    #[test]
    fn the_names_of_files_say_how_they_are_written_where_nobody_does() {
        let found = |arguments: &[&str]| rules(arguments).map(|rules| (rules.format, rules.delimiter));
        assert_eq!(found(&["a.csv", "B.CSV", "--key", "z"]), Ok((Format::Csv, b',')));
        assert_eq!(found(&["a.tsv"]), Ok((Format::Csv, b'\t')));
        assert_eq!(found(&["a.tsv", "--delimiter", ";"]), Ok((Format::Csv, b';')));
        assert_eq!(found(&["a.jsonl", "b.ndjson"]), Ok((Format::Jsonl, b',')));
        assert_eq!(found(&["a.csv", "--format", "lines"]), Ok((Format::Lines, b',')));
        assert_eq!(found(&["a.log", "-"]), Ok((Format::Lines, b',')));
        assert_eq!(found(&["a.csv", "--key-field", "/k"]), Ok((Format::Jsonl, b',')));
        assert_eq!(found(&["a.txt", "--key-column", "k"]), Ok((Format::Csv, b',')));
        assert!(rules(&["a.csv", "a.tsv"]).unwrap_err().contains("say --format"));
        assert!(rules(&["a.csv", "-"]).unwrap_err().contains("say --format"));
        assert!(rules(&["--format", "tail-json", "--key", "k"]).unwrap_err().contains("tail-json has keys"));
        assert!(rules(&["a.log", "--no-quotes"]).unwrap_err().contains("--no-quotes is for --format csv"));
    }
}
