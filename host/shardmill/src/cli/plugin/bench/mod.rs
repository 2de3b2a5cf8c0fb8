//! `shardmill plugin bench`: how fast a plugin is, without a stream.

mod figures;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use shardmill_cause::{Coded, code};
use shardmill_plugin::{Metrics, OutcomeLimits, Settled, ShardContext, Verdict};
use shardmill_record::{Batch, BatchBuilder};
use tokio::time::Instant;
use tracing::Level;

use self::figures::{Figures, Row, Spread, Unit, microseconds};
use super::heard::Heard;
use super::latency::Latency;
use super::records::{Given, RecordArguments};
use super::room::{Loaded, Room, RoomArguments};
use super::shown;
use crate::cli::{Failure, output, table, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill plugin bench late.wasm --records flights.jsonl --guest-config '{\"minutes\":15}'
  shardmill plugin bench -c shardmill.toml --records flights.jsonl --batch 500 --seconds 10
  shardmill plugin bench late.wasm --records flights.jsonl --json > before.json
  shardmill plugin bench late.wasm --records flights.jsonl --baseline before.json

One instance gets one call after another, each with as many records as a batch has: the records of the file, over and over. What is
measured is a call as a worker makes it, with the batch copied in and the outcome copied out and checked; not reading, and not
sending. Figures are those of this machine while nothing else runs on it.

Exit status: 0, or 1 if a call or a record failed.";

/// Records that are kept: enough to be different, and not all of a large file.
const MOST_RECORDS: usize = 200_000;
const MOST_BYTES: usize = 256 << 20;
/// Calls before the first that counts: code and memory are warm then.
const WARM_UP: Duration = Duration::from_millis(200);
const WARM_UP_CALLS: usize = 3;
const LONGEST_WARM_UP: Duration = Duration::from_secs(2);
/// Instances that are started and thrown away.
const STARTS: usize = 20;
const STARTING: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    room: RoomArguments,
    #[command(flatten)]
    records: RecordArguments,
    /// Measure for so long, 3600 at most.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// End after so many calls, if that is sooner.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    calls: Option<u64>,
    /// Compare with what --json has printed before.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Print JSON, one line.
    #[arg(long)]
    json: bool,
}

/// What was counted while it went on.
#[derive(Debug, Default)]
struct Counts {
    calls: Latency,
    records: u64,
    bytes: u64,
    outputs: u64,
    failed_calls: u64,
    failed_records: u64,
    /// What was said of the first that failed.
    first_failure: Option<String>,
    memory: usize,
    elapsed: Duration,
}

pub(super) async fn bench(arguments: &Arguments) -> Result<(), Failure> {
    // What a plugin logs is not asked for, and costs little then; errors are its last words, should it crash.
    let heard = Heard::listen(Level::ERROR)?;
    let baseline = arguments.baseline.as_ref().map(read_baseline).transpose()?;
    let room = arguments.room.open()?;
    let batch = arguments.records.batch().unwrap_or(room.processor().batch.records);
    let batches = batches(arguments, batch).await?;
    let bytes = room.read().await?;

    let started = Instant::now();
    room.module(&room.runtime(None, Metrics::default())?, bytes.clone()).await?;
    let compile = started.elapsed();
    let load = load_compiled(&room, &bytes).await?;
    let loaded = room.load(bytes).await?;
    let starts = start(&room, &loaded).await?;
    let counts = measure(arguments, &room, &loaded, &batches).await?;
    drop(heard);

    let seconds = counts.elapsed.as_secs_f64();
    let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let calls = counts.calls.count();
    let figures = Figures {
        plugin: room.file().display().to_string(),
        digest: loaded.module.digest().to_string(),
        form: loaded.module.form().to_string(),
        batch: batch as u64,
        batch_bytes: if calls > 0 { counts.bytes as f64 / calls as f64 } else { 0.0 },
        seconds,
        calls,
        records: counts.records,
        bytes: counts.bytes,
        outputs: counts.outputs,
        failed_calls: counts.failed_calls,
        failed_records: counts.failed_records,
        calls_per_second: per_second(calls),
        records_per_second: per_second(counts.records),
        megabytes_per_second: per_second(counts.bytes) / 1e6,
        call_us: Spread::of(&counts.calls),
        start_us: Spread::of(&starts),
        compile_ms: compile.as_secs_f64() * 1e3,
        load_ms: load.map(|load| load.as_secs_f64() * 1e3),
        memory_bytes: counts.memory as u64,
    };
    show(arguments, &figures, baseline.as_ref())?;
    match counts.first_failure {
        None => Ok(()),
        Some(first) => {
            let (calls, records) = (figures.failed_calls, figures.failed_records);
            let message = format!("{calls} calls and {records} records failed; the first: {first}");
            Err(Failure::running(message)
                .code(code::command::RECORDS_FAIL)
                .help("`shardmill plugin test` shows what becomes of each record"))
        }
    }
}

/// Batches of so many records each, made of those of the files over and over, as they would follow each other in a shard.
async fn batches(arguments: &Arguments, batch: usize) -> Result<Vec<Batch>, Failure> {
    let mut records = arguments.records.open()?;
    let mut given: Vec<Given> = Vec::new();
    let mut bytes = 0;
    while let Some(next) = records.next().await? {
        let next = next.map_err(|bad| {
            Failure::running(text::line(&format!("{} is no record: {}", records.name(bad.place), bad.reason)))
                .code(code::input::BAD_LINES)
        })?;
        bytes += next.record.data.len();
        given.push(next);
        if given.len() == MOST_RECORDS || bytes > MOST_BYTES {
            output::say(format_args!("the first {} records are used", given.len()));
            break;
        }
    }
    if given.is_empty() {
        return Err(Failure::usage("there are no records to measure with").code(code::command::BASELINE));
    }
    let hash_keys: Vec<Option<String>> =
        given.iter().map(|given| given.record.explicit_hash_key.map(|key| key.to_string())).collect();
    let count = given.len().div_ceil(batch);
    let mut positions = 1_u64..;
    let mut over = (0..given.len()).cycle();
    let batches = (0..count).map(|_| {
        let mut builder = BatchBuilder::default();
        for (index, position) in over.by_ref().take(batch).zip(positions.by_ref()) {
            // One that comes again stands behind those before.
            let number = format!("{position:056}");
            let record = given[index].as_record(hash_keys[index].as_deref());
            builder.push(shardmill_record::Record { sequence_number: &number, ..record });
        }
        builder.build()
    });
    Ok(batches.collect())
}

/// How long it takes to load compiled code; nothing where none is kept.
async fn load_compiled(room: &Room, bytes: &[u8]) -> Result<Option<Duration>, Failure> {
    let Some(cache) = &room.config().cache_dir else { return Ok(None) };
    room.module(&room.runtime(Some(cache.clone()), Metrics::default())?, bytes.to_vec()).await?;
    let metrics = Metrics::default();
    let runtime = room.runtime(Some(cache.clone()), metrics.clone())?;
    let started = Instant::now();
    room.module(&runtime, bytes.to_vec()).await?;
    let took = started.elapsed();
    Ok((metrics.cache_hits() > 0).then_some(took))
}

/// How long it takes to start an instance, `init` included.
async fn start(room: &Room, loaded: &Loaded) -> Result<Latency, Failure> {
    // What it says of its configuration.
    drop(room.instance(loaded).await?);
    let mut latency = Latency::default();
    let begun = Instant::now();
    while latency.count() < STARTS as u64 && (latency.count() == 0 || begun.elapsed() < STARTING) {
        let started = Instant::now();
        let instance = loaded.plugin.instance().await;
        latency.add(started.elapsed());
        drop(instance.map_err(|failure| Failure::running(failure.to_string()).code(failure.code()))?);
    }
    Ok(latency)
}

async fn measure(arguments: &Arguments, room: &Room, loaded: &Loaded, batches: &[Batch]) -> Result<Counts, Failure> {
    let context = context(room);
    let mut over = batches.iter().cycle();
    let begun = Instant::now();
    let mut warm = Counts::default();
    for (calls, batch) in over.by_ref().take(batches.len().max(WARM_UP_CALLS)).enumerate() {
        let took = begun.elapsed();
        // One that spins is not to take its time three times before anything is told of it.
        if took > LONGEST_WARM_UP || (calls >= WARM_UP_CALLS && took > WARM_UP) {
            break;
        }
        call(room, loaded, &context, batch, &mut warm).await?;
    }
    let limit = Duration::from_secs_f64(arguments.seconds);
    let most = arguments.calls.unwrap_or(u64::MAX);
    let mut counts = Counts::default();
    let begun = Instant::now();
    for batch in over {
        call(room, loaded, &context, batch, &mut counts).await?;
        counts.elapsed = begun.elapsed();
        if counts.elapsed >= limit || counts.calls.count() >= most {
            break;
        }
    }
    Ok(counts)
}

async fn call(
    room: &Room,
    loaded: &Loaded,
    context: &ShardContext,
    batch: &Batch,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let limits = OutcomeLimits { bytes: room.processor().limits.outcome as usize, ..OutcomeLimits::default() };
    let mut instance = room.instance(loaded).await?;
    let started = Instant::now();
    let result = instance.process_batch(context, batch).await;
    let settled =
        result.and_then(|outcome| Ok(outcome.settle(batch.len(), &|name| room.knows_output(name), &limits)?));
    counts.calls.add(started.elapsed());
    counts.memory = counts.memory.max(instance.memory());
    counts.records += batch.len() as u64;
    counts.bytes += size(batch) as u64;
    match settled {
        Ok(settled) => counts.settle(&settled),
        Err(failure) => {
            counts.failed_calls += 1;
            counts.first_failure.get_or_insert_with(|| failure.to_string());
        }
    }
    Ok(())
}

/// Bytes of keys and payloads: numbers stand before them in the arena.
fn size(batch: &Batch) -> usize {
    let numbers: usize = batch.iter().map(|record| record.sequence_number.len()).sum();
    batch.arena().len() - numbers
}

fn context(room: &Room) -> ShardContext {
    ShardContext {
        application: room.config().application.as_str().into(),
        processor: room.processor().name.as_str().into(),
        stream: room.stream().into(),
        shard: shardmill_record::ShardId::parse("shardId-000000000000").expect("it is one"),
        worker: "shardmill-plugin-bench".into(),
        lease_epoch: 1,
        attempt: 1,
        millis_behind_latest: Some(0),
        last_batch: false,
    }
}

// === impl Counts ===

impl Counts {
    fn settle(&mut self, settled: &Settled) {
        self.outputs += settled.outputs.len() as u64;
        for verdict in &settled.verdicts {
            let reason = match verdict {
                Verdict::Done | Verdict::Skipped { .. } => continue,
                Verdict::Failed { reason, .. } => reason.as_str(),
                Verdict::Unacknowledged => "the guest did not acknowledge the record",
            };
            self.failed_records += 1;
            self.first_failure.get_or_insert_with(|| reason.to_owned());
        }
    }
}

// === impl Spread ===

impl Spread {
    fn of(latency: &Latency) -> Self {
        Self {
            p50: microseconds(latency.quantile(0.5)),
            p99: microseconds(latency.quantile(0.99)),
            max: microseconds(latency.max()),
        }
    }
}

fn read_baseline(path: &PathBuf) -> Result<Figures, Failure> {
    let shown = path.display();
    let written = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the baseline {shown} cannot be read: {error}")).code(code::command::BASELINE)
    })?;
    serde_json::from_str(&written).map_err(|error| {
        Failure::usage(format!("the baseline {shown} makes no sense: {error}"))
            .code(code::command::BASELINE)
            .help("it is what `shardmill plugin bench --json` has printed, one line")
    })
}

fn show(arguments: &Arguments, figures: &Figures, baseline: Option<&Figures>) -> Result<(), Failure> {
    if let Some(why) = baseline.and_then(|baseline| figures.differs_from(baseline)) {
        output::say(format_args!("the baseline says little of this run: {why}"));
    }
    if arguments.json {
        let mut value = serde_json::to_value(figures).map_err(|error| Failure::running(error.to_string()))?;
        if let Some(baseline) = baseline {
            value["baseline"] = json!(baseline);
            value["changes"] = changes(figures, baseline);
        }
        output::line(text::json(&value));
        return Ok(());
    }
    output::line(text::line(&format!(
        "{}, {}: {} of {} in {}",
        figures.plugin,
        figures.form,
        text::counted(figures.calls, "call"),
        text::counted(figures.batch, "record"),
        shown::time(Duration::from_secs_f64(figures.seconds))
    )));
    let before = baseline.map(Figures::rows).unwrap_or_default();
    if baseline.is_none() {
        let mut table = table::fitted(["", "Measured"], &[1]);
        for row in figures.rows() {
            table.add_row([row.name.to_owned(), shown_row(&row)]);
        }
        output::line(table);
        return Ok(());
    }
    let mut table = table::fitted(["", "Measured", "Baseline", "Change"], &[1, 2, 3]);
    for row in figures.rows() {
        let found = before.iter().find(|before| before.name == row.name);
        let change = found.and_then(|before| row.change(before.value)).unwrap_or_default();
        table.add_row([row.name.to_owned(), shown_row(&row), found.map(shown_row).unwrap_or_default(), change]);
    }
    output::line(table);
    Ok(())
}

/// Of each figure what it has become of 1.
fn changes(figures: &Figures, baseline: &Figures) -> Value {
    let before = baseline.rows();
    let changes = figures.rows().into_iter().filter_map(|row| {
        let found = before.iter().find(|before| before.name == row.name && before.value != 0.0)?;
        Some((row.name.replace(' ', "_"), (row.value / found.value).into()))
    });
    Value::Object(changes.collect())
}

fn shown_row(row: &Row) -> String {
    match row.unit {
        Unit::PerSecond => format!("{:.0}", row.value),
        Unit::Megabytes => format!("{:.1}", row.value),
        Unit::Time => shown::time(Duration::from_secs_f64(row.value)),
        Unit::Bytes => shown::bytes(row.value as usize),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _other => Err("a number of seconds is expected, more than 0 and at most 3600".to_owned()),
    }
}
