//! What poison costs: each thousandth record crashes the guest, is found by bisection and becomes a dead letter, against
//! the same run without any.

use shardmill_tests::{Config, Services, Tail, Worker, Writer};
use tempfile::TempDir;

use crate::done::until_done;
use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say};

const SHARDS: i32 = 4;
const EVERY: u64 = 1_000;
/// Each run puts, reads and counts all of its records.
const MOST_RUNS: u32 = 3;

pub(crate) async fn run(options: &Options) -> Section {
    let records = options.records();
    let runs = options.runs().min(MOST_RUNS);
    let (mut without, mut with) = (Sample::default(), Sample::default());
    for run in 1..=runs {
        say(format_args!("poison: {records} records of 100 B without and with, run {run} of {runs}"));
        without.push(speed(records, false).await);
        with.push(speed(records, true).await);
    }
    let ratio = with.over(&without);
    let row = |label: &str, speed, ratio| Row { label: label.to_owned(), figures: vec![Some(speed), ratio] };
    Section {
        name: "poison",
        title: "Each thousandth record poison: attempts = 1, bisection, dead letters in a folder".to_owned(),
        columns: vec![
            Column { title: "records/s", key: "records_per_second", digits: 0 },
            Column { title: "of the run without", key: "speed_ratio", digits: 2 },
        ],
        rows: vec![
            row("no poison", without, None),
            row(&format!("{} of {records} records are poison", records / EVERY), with, Some(ratio)),
        ],
        notes: Vec::new(),
    }
}

/// Records a second from the first that is done to the last; that none is missing and none came twice is seen to.
async fn speed(records: u64, is_poisoned: bool) -> f64 {
    let services = Services::with_streams(SHARDS, SHARDS).await;
    // With the key and the brackets about 100 bytes.
    let mut writer = Writer::new(&services, "input", 1_000).padded(55);
    if is_poisoned {
        writer = writer.poisoned(EVERY, "trap");
    }
    writer.put(records).await;
    let poison = if is_poisoned { records / EVERY } else { 0 };
    let folder = TempDir::new().expect("a temporary folder");
    let config = Config::copy()
        .plugin("guest_poison")
        .processor(r#"failure = { bisect = true, then = "dead-letter" }"#)
        .processor("retry = { attempts = 1 }")
        .stream(r#"bytes-per-second = "1 TiB""#)
        .stream("reads-per-second = 1000")
        .others(&format!("[processors.copy.dead-letters]\nfolder = {:?}", folder.path()));
    let mut worker = Worker::start_ready(&services, &config).await;
    let first = until_done(&mut worker, 1).await;
    let last = until_done(&mut worker, records - poison).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_eq!(output.len() as u64, records - poison, "every other record once");
    assert_eq!(letters(&folder), poison, "dead letters");
    last.speed_since(first)
}

fn letters(folder: &TempDir) -> u64 {
    let mut folders = vec![folder.path().to_owned()];
    let mut lines = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                lines += std::fs::read_to_string(path).expect("letters").lines().count() as u64;
            }
        }
    }
    lines
}
