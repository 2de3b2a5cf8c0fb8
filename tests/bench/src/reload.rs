//! What another version of a plugin costs the shards that run it: from the beginning of one batch to that of the next, with and
//! without reloads all the time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_smithy_types::date_time::{DateTime, Format};
use shardmill_tests::{Config, Services, Tail, Worker, Writer, another_build, memory, paths};
use tempfile::TempDir;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::done::until_done;
use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say};

const SHARDS: i32 = 4;
/// What the guest does for each batch, in milliseconds, and of how many records that is.
const TAKES_MS: u64 = 10;
const BATCH: u64 = 10;
/// Somewhat more than the shards process, so that no batch waits for records.
const RECORDS_PER_SECOND: u64 = 3_000;
const WRITES_PER_SECOND: u64 = 20;
/// From one reload to the next.
const RELOAD_EVERY: Duration = Duration::from_millis(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const MIB: f64 = 1_048_576.0;
/// Upper bounds of gaps, in milliseconds.
const BOUNDS: [u64; 11] = [12, 14, 16, 20, 25, 30, 40, 60, 100, 200, 500];

/// What a worker's memory is, in bytes.
struct Kept {
    resident: f64,
    /// For records that are read and not done: more of them are put than are processed.
    reserved: f64,
}

/// Beginnings of batches by shard, in nanoseconds since 1970 and in order.
type Begins = BTreeMap<String, Vec<i128>>;

pub(crate) async fn run(options: &Options) -> Vec<Section> {
    let reloads = if options.quick { 100 } else { 1_000 };
    let services = Services::with_streams(SHARDS, SHARDS).await;
    let folder = TempDir::new().expect("a temporary folder");
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).expect("a token");
    let mut worker = Worker::start_ready(&services, &config(&token)).await;
    let time = RELOAD_EVERY * reloads;
    say(format_args!(
        "reload: {RECORDS_PER_SECOND} records a second for {time:?} without and {time:?} with {reloads} reloads"
    ));
    let component = std::fs::read(paths::plugin("guest_poison")).expect("a plugin");
    let builds = [component.clone(), another_build(&component, 1)];
    let mut writer = Writer::new(&services, "input", 1_000);
    // Nothing is measured before there are more records than are processed.
    writer.put(RECORDS_PER_SECOND).await;
    until_done(&mut worker, BATCH).await;
    let start = now();
    write_for(&mut writer, time).await;
    let middle = now();
    let mut kept = vec![Kept::by(&worker).await];
    let is_over = AtomicBool::new(false);
    let reloading = async {
        let took = reload(&worker, &builds, reloads, &mut kept).await;
        is_over.store(true, Ordering::Relaxed);
        took
    };
    // To the end of a write: what is not put is not lost.
    let writing = async {
        while !is_over.load(Ordering::Relaxed) {
            write_for(&mut writer, Duration::from_millis(200)).await;
        }
    };
    let (took, ()) = tokio::join!(reloading, writing);
    let end = now();
    say(format_args!("reload: {reloads} reloads took {took:?}; what is left is processed"));
    let records = writer.count();
    until_done(&mut worker, records).await;
    sleep(Duration::from_secs(1)).await;
    let instances = worker.metric("shardmill_plugin_instances", "").await;
    worker.stop().await;
    let found = Tail::all(&services, "output").await;
    let once: std::collections::BTreeSet<u64> = found.iter().map(|record| record.number).collect();
    let (lost, repeated) = (records - once.len() as u64, found.len() as u64 - once.len() as u64);
    let begins = begins(&worker);
    let (without, with) = (gaps(&begins, start..middle), gaps(&begins, middle..end));
    let summary = summary(reloads, took, &without, &with, [lost, repeated], &kept, instances);
    vec![summary, histogram(&without, &with)]
}

// === impl Kept ===

impl Kept {
    async fn by(worker: &Worker) -> Self {
        let reserved = worker.metric("shardmill_memory_reserved_bytes", "").await;
        Self { resident: memory::resident(worker.pid()) as f64, reserved }
    }
}

/// Sends so many other versions, and sees what the worker's memory is half way and at the end. How long that took.
async fn reload(worker: &Worker, builds: &[Vec<u8>; 2], reloads: u32, kept: &mut Vec<Kept>) -> Duration {
    let began = Instant::now();
    let mut ticks = interval(RELOAD_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for reload in 1..=reloads {
        ticks.tick().await;
        let build = builds[reload as usize % 2].clone();
        let (code, text) = worker.send("/v1/processors/copy/deploy", TOKEN, &[], build).await;
        assert!(code == 200 && text.contains("\"switched\":true"), "{code}: {text}");
        if reload == reloads / 2 || reload == reloads {
            kept.push(Kept::by(worker).await);
        }
    }
    began.elapsed()
}

fn config(token: &std::path::Path) -> Config {
    Config::copy()
        .plugin("guest_poison")
        .admin(&format!("token-file = {token:?}"))
        .stream(r#"bytes-per-second = "1 TiB""#)
        .stream("reads-per-second = 1000")
        .processor(&format!("batch = {{ records = {BATCH} }}\nlimits = {{ log-lines-per-second = 1000000 }}"))
        .guest(&format!("takes = {TAKES_MS}\ntells = true"))
}

/// Puts records at their rate for so long.
async fn write_for(writer: &mut Writer<'_>, time: Duration) {
    let end = Instant::now() + time;
    let mut ticks = interval(Duration::from_millis(1_000 / WRITES_PER_SECOND));
    while Instant::now() < end {
        ticks.tick().await;
        writer.put(RECORDS_PER_SECOND / WRITES_PER_SECOND).await;
    }
}

/// When batches began, as their guest has said.
fn begins(worker: &Worker) -> Begins {
    let mut begins = Begins::new();
    for line in worker.log() {
        let is_batch = line["message"].as_str().is_some_and(|message| message.starts_with("told: batch of"));
        let (Some(shard), Some(at), true) = (line["shard"].as_str(), line["timestamp"].as_str(), is_batch) else {
            continue;
        };
        let at = DateTime::from_str(at, Format::DateTime).expect("a time");
        begins.entry(shard.to_owned()).or_default().push(at.as_nanos());
    }
    begins
}

/// Milliseconds from one batch's beginning to the next one's, in this time.
fn gaps(begins: &Begins, time: std::ops::Range<i128>) -> Vec<f64> {
    let pairs = begins.values().flat_map(|begins| begins.windows(2));
    let within = pairs.filter(|pair| time.contains(&pair[0]) && time.contains(&pair[1]));
    let mut gaps: Vec<f64> = within.map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
    gaps.sort_by(f64::total_cmp);
    gaps
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let index = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

fn summary(
    reloads: u32,
    took: Duration,
    without: &[f64],
    with: &[f64],
    [lost, repeated]: [u64; 2],
    kept: &[Kept],
    instances: f64,
) -> Section {
    let one = |figure: f64| Some(Sample::from_iter([figure]));
    let usual = quantile(without, 0.99);
    let row = |label: &str, gaps: &[f64]| Row {
        label: label.to_owned(),
        figures: vec![
            one(gaps.len() as f64),
            one(quantile(gaps, 0.5)),
            one(quantile(gaps, 0.99)),
            one(quantile(gaps, 0.999)),
            one(quantile(gaps, 1.0)),
            one((quantile(gaps, 1.0) - usual).max(0.0)),
        ],
    };
    let column = |title, key, digits| Column { title, key, digits };
    let each = |bytes: fn(&Kept) -> f64| {
        let shown: Vec<_> = kept.iter().map(|kept| format!("{:.0}", bytes(kept) / MIB)).collect();
        shown.join(", ")
    };
    Section {
        name: "reload",
        title: format!("{reloads} other versions of a plugin in {:.0} s, {SHARDS} shards", took.as_secs_f64()),
        columns: vec![
            column("gaps between batches", "gaps", 0),
            column("half, ms at most", "gap_p50_milliseconds", 1),
            column("99 of 100", "gap_p99_milliseconds", 1),
            column("999 of 1,000", "gap_p999_milliseconds", 1),
            column("all", "gap_most_milliseconds", 1),
            column("longest beyond the 99 of 100 without", "pause_milliseconds", 1),
        ],
        rows: vec![row("without reloads", without), row("with reloads", with)],
        notes: vec![
            format!(
                "Two builds of the guest poison in turns, sent to the worker each {RELOAD_EVERY:?}. The guest takes \
                 {TAKES_MS} ms for each batch of {BATCH} records, and there are always more of them ({RECORDS_PER_SECOND} \
                 are put a second): a gap is a batch, its outputs, and the way to the next."
            ),
            format!(
                "Lost {lost}, repeated {repeated}. Resident before, half way and at the end: {} MiB, of which {} MiB are set aside for \
                 records that are read and not done. Instances then: {instances}.",
                each(|kept| kept.resident),
                each(|kept| kept.reserved)
            ),
        ],
    }
}

/// How many gaps there were of each length.
fn histogram(without: &[f64], with: &[f64]) -> Section {
    let mut rows = Vec::new();
    let mut least = 0.0;
    for bound in BOUNDS.map(|bound| bound as f64).into_iter().chain([f64::INFINITY]) {
        let count = |gaps: &[f64]| {
            let inside = gaps.iter().filter(|gap| least <= **gap && **gap < bound).count();
            Some(Sample::from_iter([inside as f64]))
        };
        let label = if bound.is_finite() { format!("{least} to {bound} ms") } else { format!("{least} ms and more") };
        rows.push(Row { label, figures: vec![count(without), count(with)] });
        least = bound;
    }
    Section {
        name: "reload-gaps",
        title: "Gaps between the beginnings of two batches of a shard".to_owned(),
        columns: vec![
            Column { title: "without reloads", key: "gaps_without", digits: 0 },
            Column { title: "with reloads", key: "gaps_with", digits: 0 },
        ],
        rows,
        notes: Vec::new(),
    }
}

fn now() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}
