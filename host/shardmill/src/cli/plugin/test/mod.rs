//! `shardmill plugin test`: what a plugin makes of records, without a stream.
//!
//! [`trial`] hands them over as a worker does, [`report`] is what is known of it, [`show`] shows it, and [`expect`] compares
//! what would be sent with what should be.

mod diff;
mod expect;
mod hooks;
mod lines;
mod people;
mod report;
mod show;
mod trial;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use shardmill_cause::code;
use shardmill_plugin::GivenUpRecord;
use shardmill_record::ShardId;
use tokio::time::Instant;
use tracing::Level;

use self::expect::{Difference, Expected};
use self::hooks::{AT_END, Hook, USUAL};
use self::people::People;
use self::report::{BatchReport, HookReport, Sent, Summary};
use self::show::{Show, Start};
use self::trial::Trial;
use super::heard::Heard;
use super::records::{Batching, Fate, Handed, NoRecord, RecordArguments, Records};
use super::room::{Loaded, Room, RoomArguments};
use super::shown;
use super::watch;
use crate::cli::{Failure, output, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill plugin test late.wasm --records flights.jsonl --guest-config '{\"minutes\":15}'
  shardmill plugin test --config shardmill.toml --processor late --records flights.jsonl
  shardmill tail flights --from 1h --to now --json > flights.jsonl      records out of a stream, with all they have
  shardmill plugin test late.wasm --records flights.jsonl --expect delays.jsonl      exit status 1 if something else comes out
  shardmill plugin test late.wasm --records flights.jsonl --expect delays.jsonl --update      what comes out is right
  shardmill plugin test -c shardmill.toml --records flights.csv --key-column carrier --watch \\
      --build 'cargo build --release --target wasm32-wasip2'

The plugin runs as under a worker: within its limits and grants, with the filter and the batches of the processor, and a batch with
which a call fails is split until the record to blame stands alone. Nothing is sent. Records of one shard are in
batches of their own; shard, sequence number and arrival are those of `tail --json`, where the lines say it.

--json prints an object for each thing that happens, one a line: `start`, `no-record`, `hook`, `batch`, and `end` with `ok` and
the sums. --expect has an output on each line: {\"output\":\"late\",\"partition_key\":\"UA\",\"json\":{…}}, or with `data` or
`data_base64` for the payload; what it does not say may be anything.

Exit status: 0 all is well, 1 a record failed or is none, a call of a hook failed, or something else came out than is expected; 78 the
plugin cannot be loaded, does not start, or imports what it is not granted. --watch goes on until Ctrl-C, which is 0.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    room: RoomArguments,
    #[command(flatten)]
    records: RecordArguments,
    /// Compare the outputs with those of this file, one line of JSON for each, in their order.
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Write what comes out to that file, instead of comparing.
    #[arg(long, requires = "expect")]
    update: bool,
    /// Hand a record over so many times before it has failed. Waits between attempts are left out.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    attempts: u32,
    /// Take a batch for failed with which a call fails as a whole, instead of splitting it until the record to blame is found.
    #[arg(long)]
    no_bisect: bool,
    /// Call hooks as well: these, or all but `revoked`.
    #[arg(
        long, value_name = "HOOKS", value_enum, value_delimiter = ',', num_args = 0..=1, require_equals = true,
        default_missing_values = USUAL
    )]
    hooks: Option<Vec<Hook>>,
    /// The lease epoch that the plugin is told, its fencing token.
    #[arg(long, value_name = "N", default_value_t = 1)]
    lease_epoch: u64,
    /// Show what the plugin logs from this level on.
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    log: LogLevel,
    /// Show texts as long as they are.
    #[arg(long)]
    full: bool,
    /// Print a JSON object for each thing that happens, one a line.
    #[arg(long, conflicts_with = "full")]
    json: bool,
    /// Do it again when the plugin, the records, the configuration or what is expected changes, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// Run this command first, and when a source changes: 'cargo build --release --target wasm32-wasip2'.
    #[arg(long, value_name = "COMMAND", requires = "watch")]
    build: Option<String>,
    /// Where the sources are: files, or folders with all that is in them but `target` and what is hidden. May be given again.
    #[arg(long, value_name = "PATH", requires = "build", default_values = ["src", "Cargo.toml"])]
    sources: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// One run, from its first record to its last.
struct Run<'a> {
    arguments: &'a Arguments,
    show: Show,
    records: Records,
    trial: Trial<'a>,
    summary: Summary,
    /// All that would be sent, where that is compared.
    sent: Vec<Sent>,
}

pub(super) async fn test(arguments: &Arguments) -> Result<(), Failure> {
    let heard = Heard::listen(arguments.log.level())?;
    if !arguments.watch {
        return run(arguments, &heard, None).await;
    }
    if arguments.records.reads_standard_input() {
        return Err(Failure::usage("standard input can be read once, and --watch reads the records again and again")
            .help("name a file for --records"));
    }
    let options = watch::Options {
        build: arguments.build.as_deref(),
        sources: if arguments.build.is_some() { &arguments.sources } else { &[] },
        clears: !arguments.json,
    };
    watch::watch(&options, || arguments.watched(), async |number| run(arguments, &heard, Some(number)).await).await
}

// === impl Arguments ===

impl Arguments {
    /// The files that a run depends on.
    fn watched(&self) -> Vec<PathBuf> {
        // Where the configuration makes no sense, nobody knows the plugin: it has to change first.
        let plugin = self.room.open().ok().map(|room| room.file().to_owned());
        let expected = self.expect.as_ref().filter(|_| !self.update);
        let files = self.room.config().into_iter().chain(self.records.files()).map(ToOwned::to_owned);
        files.chain(plugin).chain(expected.cloned()).collect()
    }

    fn wants(&self, hook: Hook) -> bool {
        self.hooks.as_ref().is_some_and(|hooks| hooks.contains(&hook))
    }
}

// === impl LogLevel ===

impl LogLevel {
    fn level(self) -> Level {
        match self {
            Self::Error => Level::ERROR,
            Self::Warn => Level::WARN,
            Self::Info => Level::INFO,
            Self::Debug => Level::DEBUG,
            Self::Trace => Level::TRACE,
        }
    }
}

async fn run(arguments: &Arguments, heard: &Heard, number: Option<u64>) -> Result<(), Failure> {
    // Of a run that was broken off.
    heard.take();
    let room = arguments.room.open()?;
    let expected = match &arguments.expect {
        Some(path) if !arguments.update => Some(Expected::read(path)?),
        _nothing => None,
    };
    let records = arguments.records.open()?;
    let bytes = room.read().await?;
    let started = Instant::now();
    let loaded = room.load(bytes).await?;
    let load = started.elapsed();
    if arguments.hooks.is_some() && !loaded.module.hooks() {
        return Err(Failure::usage(format!("{} has no hooks, and --hooks calls them", room.file().display()))
            .help("in Rust, shardmill_guest::processor!(TYPE, hooks) exports them"));
    }
    let started = Instant::now();
    drop(room.instance(&loaded).await?);
    let start = started.elapsed();
    let show = if arguments.json { Show::Programs } else { Show::People(People { full: arguments.full }) };
    show.start(&Start { file: room.file(), module: &loaded.module, load, start, logs: heard.take(), run: number });
    let Arguments { attempts, lease_epoch, .. } = *arguments;
    let trial =
        Trial::new(&room, &loaded, heard, trial::Options { attempts, bisect: !arguments.no_bisect, lease_epoch });
    let mut run = Run { arguments, show, records, trial, summary: Summary::default(), sent: Vec::new() };
    let batching = Batching::new(room.processor(), room.stream(), arguments.records.batch());
    run.hand_all(batching).await?;
    run.call_last_hooks().await?;
    run.conclude(&room, &loaded, expected.as_deref())
}

// === impl Run ===

impl Run<'_> {
    async fn hand_all(&mut self, mut batching: Batching) -> Result<(), Failure> {
        while let Some(next) = self.records.next().await? {
            let given = match next {
                Ok(given) => given,
                Err(bad) => {
                    self.summary.bad += 1;
                    self.show.no_record(&bad, &self.records);
                    continue;
                }
            };
            self.summary.records += 1;
            let (fate, full) = batching.push(&given);
            match fate {
                Fate::InBatch => {}
                Fate::FilteredOut => self.summary.filtered_out += 1,
                Fate::Failed(reason) => {
                    self.summary.failed += 1;
                    let reason = format!("the filter cannot read it as JSON: {reason}");
                    self.show.no_record(&NoRecord { place: given.place, reason }, &self.records);
                }
            }
            if let Some(handed) = full {
                self.hand(&handed).await?;
            }
        }
        for handed in batching.finish() {
            self.hand(&handed).await?;
        }
        Ok(())
    }

    async fn hand(&mut self, handed: &Handed) -> Result<(), Failure> {
        if self.trial.is_stopped(&handed.shard) {
            self.summary.left += handed.batch.len() as u64;
            return Ok(());
        }
        if self.trial.is_new(&handed.shard) && self.arguments.wants(Hook::Assigned) {
            self.hook(Hook::Assigned, &handed.shard, &[]).await?;
        }
        let report = self.trial.process(handed, self.arguments.wants(Hook::ShardEnded)).await?;
        self.summary.add_batch(&report);
        self.show.batch(&report, &self.records);
        if !report.failed.is_empty() && self.arguments.wants(Hook::GivenUp) {
            self.hook(Hook::GivenUp, &handed.shard, &given_up(&report)).await?;
        }
        self.keep(report.outputs);
        Ok(())
    }

    async fn call_last_hooks(&mut self) -> Result<(), Failure> {
        let shards = self.trial.shards();
        for shard in shards.iter().filter(|shard| !self.trial.is_stopped(shard)).cloned().collect::<Vec<_>>() {
            for hook in AT_END {
                if self.arguments.wants(hook) {
                    self.hook(hook, &shard, &[]).await?;
                }
            }
        }
        match shards.first() {
            Some(shard) if self.arguments.wants(Hook::Shutdown) => self.hook(Hook::Shutdown, shard, &[]).await,
            _none => Ok(()),
        }
    }

    async fn hook(&mut self, hook: Hook, shard: &ShardId, given_up: &[GivenUpRecord]) -> Result<(), Failure> {
        let report: HookReport = self.trial.hook(hook, shard, given_up).await?;
        self.summary.add_hook(&report);
        self.show.hook(&report, &self.records);
        self.keep(report.outputs);
        Ok(())
    }

    fn keep(&mut self, outputs: Vec<Sent>) {
        if self.arguments.expect.is_some() {
            self.sent.extend(outputs);
        }
    }

    fn conclude(self, room: &Room, loaded: &Loaded, expected: Option<&[Expected]>) -> Result<(), Failure> {
        let difference = expected.map(|expected| expect::compare(expected, &self.sent));
        let wrong = wrong(&self.summary, difference.as_ref().and_then(Option::as_ref));
        let limit = loaded.plugin.limits().memory_bytes;
        let metrics = shown::guest_metrics(&loaded.registry, &room.processor().name);
        let path = self.arguments.expect.as_deref();
        let compared = path.zip(difference.as_ref().map(Option::as_ref));
        self.show.end(&self.summary, limit, &metrics, compared, &wrong);
        let dropped = loaded.metrics.log_lines_dropped(&room.processor().name);
        if dropped > 0 {
            output::say(format_args!(
                "{} of the plugin's log were over its limit (limits.log-lines-per-second) and are not shown",
                text::counted(dropped, "line")
            ));
        }
        if self.summary.records + self.summary.bad == 0 {
            output::say("there was no record, so that nothing was tried");
        } else if self.summary.filtered_out == self.summary.records && self.summary.bad == 0 {
            output::say("the processor's filter keeps all records out, so that nothing was tried");
        }
        if let Some(path) = path.filter(|_| self.arguments.update) {
            expect::write(path, &self.sent)?;
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(Failure::running(wrong.join("; ")).code(code::command::RECORDS_FAIL))
        }
    }
}

/// What is not as it should be, a sentence for each.
fn wrong(summary: &Summary, difference: Option<&Difference>) -> Vec<String> {
    let mut wrong = Vec::new();
    if summary.bad > 0 {
        wrong.push(format!("{} of the input cannot be read as records", text::counted(summary.bad, "line")));
    }
    if summary.failed > 0 {
        wrong.push(format!("{} of {} failed", summary.failed, text::counted(summary.records, "record")));
    }
    if summary.left > 0 {
        wrong.push(format!(
            "the plugin stopped a shard, and {} behind it were not handed over",
            text::counted(summary.left, "record")
        ));
    }
    if summary.failed_hooks > 0 {
        wrong.push(format!("{} failed", text::counted(summary.failed_hooks, "hook")));
    }
    if let Some(difference) = difference {
        let Difference { missing, unexpected, .. } = difference;
        wrong.push(format!("the outputs differ: {missing} missing, {unexpected} not expected"));
    }
    wrong
}

fn given_up(report: &BatchReport) -> Vec<GivenUpRecord> {
    let record = |failed: &report::Unwell| GivenUpRecord {
        position: failed.position.clone(),
        reason: failed.reason.clone(),
        attempts: failed.attempts.unwrap_or(1),
    };
    report.failed.iter().map(record).collect()
}
