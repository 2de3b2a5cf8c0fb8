//! The configuration: what a user writes (`file`), what it means with every default filled in (this file), what it must
//! be (`check`, `resolve`, and all processors together `pipelines`), what is odd about it (`warnings`), how mistakes are
//! shown (`load`, `report`), and how everything hangs together (`graph`).
//!
//! A setting of a named stream, processor or output takes the place of the one in `defaults`, which takes the place
//! of the built-in one.

mod batches;
mod check;
mod dead_letters;
mod diff;
mod failure;
mod file;
mod flow;
mod grants;
pub(crate) mod graph;
mod load;
mod outputs;
mod pipelines;
mod report;
mod resolve;
mod streams;
#[cfg(test)]
mod tests;
mod unshown;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use shardmill_engine::{CheckpointBy, Delivery, Prefetch, Then, Tolerance};
use shardmill_lease::store::KeyForm;
use shardmill_lease::{Takeover, WorkerId};
use shardmill_plugin::LoadLimits;
use shardmill_producer::BatchOptions;
use shardmill_record::{OutOfRange, StreamArn};
use shardmill_stream::polling::Decoder;
use shardmill_stream::retention::Reset;
use shardmill_stream::start::Start;
use shardmill_units as units;

pub(crate) use diff::{Change, diff};
pub use flow::{Batch, Batcher, Filter, Flow, Pointer};
pub use load::{Error, Source, load, load_with_source, load_without_plugins, parse};

/// No plugin's file is larger than this, whatever its processor allows.
pub(crate) const MAX_PLUGIN: u64 = 128 << 20;

/// A whole configuration, checked, with every default filled in.
#[derive(Debug, Clone)]
pub struct Config {
    /// With a processor's name, one consumer: one lease table.
    pub application: String,
    /// This process among the workers of the application.
    pub worker: WorkerId,
    /// Whether the platform promises that no two processes with this worker's id run at a time.
    pub worker_runs_once: bool,
    /// How AWS is reached.
    pub aws: Aws,
    /// The admin server.
    pub admin: Admin,
    /// The log.
    pub log: Log,
    /// When a shard is said to make no progress, and when its lag is an alarm.
    pub watchdog: shardmill_engine::watchdog::Options,
    /// Leases of every consumer.
    pub leases: Leases,
    /// What is read again while everything runs.
    pub reload: Reload,
    /// The most that records in flight may take, in bytes.
    pub memory: u64,
    /// On how many threads guests run.
    pub guest_threads: NonZeroUsize,
    /// How long a stop may take before what is in flight is given up (it will be repeated).
    pub shutdown_timeout: Duration,
    /// Where compiled plugins are kept; `None` keeps none.
    pub cache_dir: Option<PathBuf>,
    /// How many processors a record may come to by outputs of others, one after the other, 1 to 1000.
    pub max_hops: u32,
    /// The processors by name.
    pub processors: BTreeMap<String, Processor>,
    /// What may be a mistake, a sentence for each with its file, line and key.
    pub warnings: Vec<String>,
}

/// How AWS is reached. What is not set comes from the AWS SDK's own environment variables and profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aws {
    /// The region.
    pub region: Option<String>,
    /// A profile of the shared configuration files.
    pub profile: Option<String>,
    /// An endpoint in place of AWS' own for Kinesis.
    pub kinesis_endpoint: Option<String>,
    /// An endpoint in place of AWS' own for DynamoDB.
    pub dynamodb_endpoint: Option<String>,
}

/// The admin server: health and metrics, and commands for who has the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// `None` starts none.
    pub listen: Option<SocketAddr>,
    /// Where the token is; without one there are no commands.
    pub token: Option<TokenSource>,
}

/// Where the admin server's token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// In a file that holds nothing else.
    File(PathBuf),
    /// In an environment variable.
    Variable(String),
}

/// The form of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The form of its lines.
    pub format: LogFormat,
    /// A level, or directives as in `RUST_LOG`.
    pub filter: String,
}

/// Leases of every consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    /// How often a held lease is renewed.
    pub renew: Duration,
    /// How long a lease that nobody renews stays its owner's.
    pub expiry: Duration,
    /// How often the table is looked through.
    pub scan: Duration,
    /// How often the stream's shards are listed again.
    pub sync: Duration,
    /// How long a write to the lease table may take.
    pub write_timeout: Duration,
    /// The most leases that this worker takes of one consumer.
    pub max_per_worker: Option<usize>,
    /// By what leases are shared out.
    pub balance: Balance,
    /// How long workers of a deploy must have stood still before leases move to make it even.
    pub settle: Duration,
    /// The most leases that move between living workers at a time.
    pub moves: usize,
    /// How long a holder may take to let a lease go that another worker is to have.
    pub hand_off: Duration,
    /// How long a worker that stops goes on working for others to take over; within the time for a stop.
    pub leave: Duration,
    /// How long the lease of a shard that is done is kept after what follows has begun.
    pub keep_completed: Duration,
    /// How long a lease is kept whose shard the stream does not list any more.
    pub keep_garbage: Duration,
    /// What to do about a KCL worker that lives on the same table.
    pub takeover: Takeover,
}

/// What is read again while everything runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reload {
    /// Whether the files of the configuration and of the plugins are watched.
    pub watch: bool,
}

/// By what leases are shared out among workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Everybody the same number of leases.
    #[default]
    Leases,
    /// Everybody about the same bytes a second.
    Throughput,
}

/// A consumer of streams, or a stage of a pipeline, whose records are outputs of other processors; or both.
#[derive(Debug, Clone)]
pub struct Processor {
    /// Its name in the configuration.
    pub name: String,
    /// The streams that it reads. Without any, an output of another processor leads here.
    pub streams: Vec<Stream>,
    /// How the keys of its lease table are made; of no meaning without one.
    pub key_form: KeyForm,
    /// The component.
    pub plugin: PathBuf,
    /// What the guest gets as its configuration: an object.
    pub config: serde_json::Value,
    /// The lease table's name; `None` where it reads no stream.
    pub lease_table: Option<String>,
    /// What goes into a batch of records that no batcher takes.
    pub batch: Batch,
    /// How far each shard is read ahead.
    pub prefetch: Prefetch,
    /// Which records it gets, in which batches, and how many at a time.
    pub flow: Flow,
    /// What happens when a batch fails.
    pub retry: Retry,
    /// What happens when trying again does not help.
    pub failure: Failure,
    /// What the guest may use up.
    pub limits: Limits,
    /// What the guest may do.
    pub grants: Grants,
    /// A file with records that another version of the plugin has to process before it takes the place of the one that runs.
    pub trial: Option<PathBuf>,
    /// What a crash does to records of its streams that are being processed.
    pub delivery: Delivery,
    /// Who says how far the checkpoint may go.
    pub checkpoint: CheckpointBy,
    /// How often the checkpoint is written while records are being processed.
    pub checkpoint_interval: Duration,
    /// Of so many records it is written before that.
    pub checkpoint_count: Option<u64>,
    /// What becomes of user records outside their shard's range.
    pub out_of_range: OutOfRange,
    /// Where its outputs go, by the name that the guest uses.
    pub outputs: BTreeMap<String, Output>,
    /// Where records go that are given up; `None` keeps them nowhere.
    pub dead_letters: Option<DeadLetters>,
}

/// A stream that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// What calls, messages and metrics name it by: its name in Kinesis, or its ARN where the configuration has that.
    pub id: String,
    /// Where a consumer begins that has no checkpoint.
    pub start: Start,
    /// What to do where a checkpoint fell out of the stream's retention.
    pub reset: Reset,
    /// How long a reader waits before it asks again at the tip of a shard.
    pub idle: Duration,
    /// How long that wait becomes while nothing comes.
    pub idle_max: Duration,
    /// How many reads a second are made of one shard.
    pub reads_per_second: u32,
    /// How many bytes a second are read of one shard, on average.
    pub bytes_per_second: u64,
    /// What decodes the answers of its reads.
    pub decoder: Decoder,
}

/// What happens when a batch fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// How often a record is handed over before it is given up; splitting uses up none.
    pub attempts: u32,
    /// The wait before the second attempt; doubles from there.
    pub backoff: Duration,
    /// The longest wait.
    pub max_backoff: Duration,
}

/// What happens when trying again does not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Whether a batch that fails as a whole is split until the record to blame stands alone.
    pub bisect: bool,
    /// How many given-up records of a batch are passed over where `then` would stop.
    pub tolerance: Tolerance,
    /// A record that has failed and is older than this is given up at once.
    pub max_age: Option<Duration>,
    /// What happens when records are given up.
    pub then: Then,
}

/// What a guest may use up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory of one instance, all its memories together, in bytes.
    pub memory: u64,
    /// Wall-clock time of one call.
    pub batch_timeout: Duration,
    /// Wall-clock time of making an instance, `init` included.
    pub start_timeout: Duration,
    /// The size of one outcome in bytes.
    pub outcome: u64,
    /// Instances at one time.
    pub instances: usize,
    /// Lines that the guest may log in a second; what is over is dropped and counted.
    pub log_lines_per_second: u32,
    /// Time that one call may compute.
    pub cpu_time: Duration,
    /// Outputs of one outcome.
    pub outputs: usize,
    /// The size of one line of the log in bytes; what is over is cut off.
    pub log_line: u64,
    /// Time series among the metrics, a histogram counting as 16; what is over is dropped and counted.
    pub metric_series: usize,
    /// Calls of one instance until another one takes its place.
    pub instance_calls: Option<u64>,
    /// Hundredths of the memory that is left after an instance's start, until another one takes its place.
    pub retire_above: u32,
    /// How long instances are kept that nothing needs, but for one.
    pub keep_idle: Duration,
    /// What loading the plugin may take.
    pub load: LoadLimits,
}

/// What a guest may do: nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Read the wall clock and the monotonic clock, and wait.
    pub clocks: bool,
    /// Draw random numbers.
    pub random: bool,
    /// Show numbers of its own among the host's metrics.
    pub metrics: bool,
    /// What it finds in its environment.
    pub environment: BTreeMap<String, Variable>,
    /// What it finds in its environment besides, and nobody else is shown.
    pub secrets: BTreeMap<String, SecretSource>,
    /// Make requests over HTTP.
    pub http: Option<shardmill_plugin::HttpGrant>,
}

/// A variable of a guest's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// This.
    Value(String),
    /// What this variable of the host's own environment has.
    Host(String),
}

/// Where a secret is. It is read when the plugin is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In an environment variable.
    Variable(String),
    /// In a file that holds nothing else; a line's end at its end does not count.
    File(PathBuf),
}

/// Where outputs go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// To a stream.
    Stream(StreamOutput),
    /// To another processor of the configuration, in memory: its name.
    Processor(String),
}

/// How outputs go to a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOutput {
    /// The stream's name in Kinesis, or its ARN.
    pub stream: String,
    /// How records are sent to it.
    pub options: BatchOptions,
}

/// Where records go that are given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetters {
    /// Files of JSON lines.
    Folder {
        /// The folder; workers may share it.
        path: PathBuf,
        /// A file that has grown to so many bytes is followed by another one.
        file_bytes: u64,
    },
    /// A stream of its own.
    Stream {
        /// The stream's name in Kinesis, or its ARN.
        stream: String,
        /// Whether letters are put together as the KPL does.
        aggregate: bool,
    },
    /// One of the processor's outputs.
    Output {
        /// The output's name.
        output: String,
    },
}

// === impl Config ===

impl Config {
    /// All streams that are read or written, by their names or ARNs; some twice.
    pub fn stream_ids(&self) -> impl Iterator<Item = &str> {
        self.processors.values().flat_map(|processor| {
            let outputs = processor.outputs.values().filter_map(Output::stream);
            processor.stream_ids().chain(outputs).chain(processor.dead_letter_stream())
        })
    }

    /// The processors to which a processor's records come in memory, over any number of steps, itself among them.
    pub(crate) fn reached<'a>(&'a self, name: &'a str) -> BTreeSet<&'a str> {
        let (mut reached, mut next) = (BTreeSet::from([name]), vec![name]);
        while let Some(processor) = next.pop().and_then(|name| self.processors.get(name)) {
            next.extend(processor.outputs.values().filter_map(Output::processor).filter(|to| reached.insert(to)));
        }
        reached
    }
}

/// Whether two names or ARNs may mean one stream: a name says nothing of region and account.
pub(crate) fn may_be_one(left: &str, right: &str) -> bool {
    match (StreamArn::parse(left), StreamArn::parse(right)) {
        (Ok(left), Ok(right)) => left == right,
        (Ok(arn), Err(_)) => arn.name() == right,
        (Err(_), Ok(arn)) => arn.name() == left,
        (Err(_), Err(_)) => left == right,
    }
}

// === impl Output ===

impl Output {
    /// The stream that it leads to, by its name or ARN, if it is one.
    pub fn stream(&self) -> Option<&str> {
        match self {
            Self::Stream(output) => Some(&output.stream),
            Self::Processor(_) => None,
        }
    }

    /// The processor that it leads to, if it is one.
    pub fn processor(&self) -> Option<&str> {
        match self {
            Self::Stream(_) => None,
            Self::Processor(name) => Some(name),
        }
    }
}

// === impl Processor ===

impl Processor {
    /// The streams that it reads, by their names or ARNs.
    pub fn stream_ids(&self) -> impl Iterator<Item = &str> {
        self.streams.iter().map(|stream| stream.id.as_str())
    }

    /// Whether it reads no stream: all its records are outputs of other processors.
    pub fn is_stage(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether it reads this stream, by its name or ARN, as far as names tell.
    pub(crate) fn reads(&self, stream: &str) -> bool {
        self.stream_ids().any(|input| may_be_one(input, stream))
    }

    /// The stream that its dead letters go to, by its name or ARN, if they go to one.
    pub fn dead_letter_stream(&self) -> Option<&str> {
        match self.dead_letters.as_ref()? {
            DeadLetters::Folder { .. } => None,
            DeadLetters::Stream { stream, .. } => Some(stream),
            DeadLetters::Output { output } => self.outputs.get(output)?.stream(),
        }
    }
}
