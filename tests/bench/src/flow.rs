//! Lanes against none with a guest that waits, and three processors one behind another against one that does the work of all
//! three.

use shardmill_tests::{Config, Services, Tail, Worker, Writer, paths};
use tokio::time::Instant;

use crate::child::Usage;
use crate::done::until_done;
use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say};

const SHARDS: i32 = 2;
/// Each run puts, reads and counts all of its records.
const MOST_RUNS: u32 = 3;
/// A guest that waits takes this for each batch of so many records.
const WAITS_MS: u64 = 20;
const BATCH: u64 = 50;
const LANES: u32 = 4;

pub(crate) async fn run(options: &Options) -> Vec<Section> {
    let runs = options.runs().min(MOST_RUNS);
    vec![lanes(options, runs).await, pipeline(options, runs).await]
}

async fn lanes(options: &Options, runs: u32) -> Section {
    let records = options.records() / 50;
    let (mut without, mut with) = (Sample::default(), Sample::default());
    for run in 1..=runs {
        say(format_args!("flow: {records} records through a guest that waits, run {run} of {runs}"));
        without.push(waiting(records, 1).await);
        with.push(waiting(records, LANES).await);
    }
    let ratio = with.over(&without);
    let row = |label: String, speed, ratio| Row { label, figures: vec![Some(speed), ratio] };
    Section {
        name: "lanes",
        title: format!("A guest that waits {WAITS_MS} ms for each batch of {BATCH} records, {SHARDS} shards"),
        columns: vec![
            Column { title: "records/s", key: "records_per_second", digits: 0 },
            Column { title: "to one lane", key: "speed_ratio", digits: 2 },
        ],
        rows: vec![
            row("parallelism = 1".to_owned(), without, None),
            row(format!("parallelism = {LANES}"), with, Some(ratio)),
        ],
        notes: vec!["A thousand partition keys; keys keep their order in both.".to_owned()],
    }
}

async fn waiting(records: u64, lanes: u32) -> f64 {
    let services = Services::with_streams(SHARDS, SHARDS).await;
    let mut writer = Writer::new(&services, "input", 1_000).with_aggregates();
    writer.put(records).await;
    let config = unlimited(Config::copy())
        .plugin("guest_poison")
        .guest(&format!("takes = {WAITS_MS}"))
        .processor(&format!("parallelism = {lanes}\nbatch = {{ records = {BATCH} }}"));
    let mut worker = Worker::start_ready(&services, &config).await;
    let began = Instant::now();
    until_done(&mut worker, records).await;
    let speed = records as f64 / began.elapsed().as_secs_f64();
    worker.stop().await;
    assert_eq!(Tail::all(&services, "output").await.len() as u64, records, "every record once");
    speed
}

async fn pipeline(options: &Options, runs: u32) -> Section {
    let records = options.records() / 2;
    let (mut one, mut three) = (Sample::default(), Sample::default());
    for run in 1..=runs {
        say(format_args!("flow: {records} records through three functions, run {run} of {runs}"));
        one.push(cpu(records, false).await);
        three.push(cpu(records, true).await);
    }
    let ratio = three.over(&one);
    let row = |label: &str, cpu, ratio| Row { label: label.to_owned(), figures: vec![Some(cpu), ratio] };
    Section {
        name: "pipeline",
        title: "Three functions that each take a record of about 200 B of JSON apart and write it again".to_owned(),
        columns: vec![
            Column { title: "CPU s a million records", key: "cpu_seconds_per_million_records", digits: 2 },
            Column { title: "to one guest", key: "cpu_ratio", digits: 2 },
        ],
        rows: vec![row("all in one guest", one, None), row("three processors, one behind another", three, Some(ratio))],
        notes: vec!["All of the worker's CPU: reading, guests, producing.".to_owned()],
    }
}

/// Of the whole worker, for a million records.
async fn cpu(records: u64, is_spread: bool) -> f64 {
    let services = Services::with_streams(SHARDS, SHARDS).await;
    let mut writer = Writer::new(&services, "input", 1_000).padded(150);
    writer.put(records).await;
    let config = if is_spread {
        let sections = [
            "[processors.copy.outputs.on]\nto = \"processor:second\"\n".to_owned(),
            step("second", "to = \"processor:third\""),
            step("third", "stream = \"output\""),
        ];
        unlimited(Config::copy()).plugin("guest_steps").guest("steps = 1").others(&sections.concat())
    } else {
        unlimited(Config::copy())
            .plugin("guest_steps")
            .guest("steps = 3")
            .others("[processors.copy.outputs.on]\nstream = \"output\"\n")
    };
    let mut worker = Worker::start_ready(&services, &config).await;
    until_done(&mut worker, records).await;
    let used = Usage::of(worker.pid()).cpu_seconds;
    worker.stop().await;
    assert_eq!(Tail::all(&services, "output").await.len() as u64, records, "every record once");
    used / records as f64 * 1e6
}

fn step(name: &str, leads_to: &str) -> String {
    let plugin = paths::plugin("guest_steps");
    format!(
        "[processors.{name}]\nplugin = {plugin:?}\n[processors.{name}.config]\nsteps = 1\n[processors.{name}.outputs.on]\n{leads_to}\n"
    )
}

/// What is measured is not what AWS lets be read.
fn unlimited(config: Config) -> Config {
    config.stream(r#"bytes-per-second = "1 TiB""#).stream("reads-per-second = 1000")
}
