//! What the command line of `shardmill put` says.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use shardmill_producer::{Options, Ordering};
use shardmill_spool::{Full, Spool};

use super::input::InputArguments;
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
pub(crate) struct Arguments {
    /// The stream, by its name or ARN.
    #[arg(value_name = "STREAM", value_parser = access::stream)]
    pub(super) stream: String,
    /// Files to read, one after another; `-` and none stand for standard input.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    #[command(flatten)]
    input: InputArguments,
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
        self.input.rules(&self.files)
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
