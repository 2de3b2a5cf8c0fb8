//! What guests that spin cost their neighbours: how late leases are renewed, and how fast another processor is, with and
//! without guests on every thread that never return.

use std::time::Duration;

use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Histogram, Services, Worker, Writer, paths};

use crate::done::until_done;
use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say};

const SHARDS: i32 = 4;
/// Shards with a guest that never returns, each.
const SPINNING: u32 = 32;
/// Renewals of each lease at least, one each 300 ms.
const RENEWALS: u32 = 20;
const LATE: &str = "shardmill_lease_renew_late_seconds";
const LIMIT: Duration = Duration::from_secs(600);
/// Each run puts, reads and counts all of its records.
const MOST_RUNS: u32 = 3;
const MILLISECONDS: f64 = 1_000.0;

#[derive(Debug, Default)]
struct Figures {
    speed: Sample,
    /// Half of the renewals were no later, 99 of 100, and none.
    late: [Sample; 3],
}

pub(crate) async fn run(options: &Options) -> Section {
    let records = options.records();
    let runs = options.runs().min(MOST_RUNS);
    let (mut alone, mut beside) = (Figures::default(), Figures::default());
    for run in 1..=runs {
        say(format_args!(
            "guest-threads: {records} records of 100 B alone and beside guests that spin, run {run} of {runs}"
        ));
        measure(records, false, &mut alone).await;
        measure(records, true, &mut beside).await;
    }
    let ratio = beside.speed.over(&alone.speed);
    let column = |title, key, digits| Column { title, key, digits };
    Section {
        name: "guest-threads",
        title: format!("A processor beside one whose guests spin on {SPINNING} shards"),
        columns: vec![
            column("records/s", "records_per_second", 0),
            column("of the run without", "speed_ratio", 2),
            column("renewals late, half, ms at most", "renewals_late_p50_milliseconds", 0),
            column("99 of 100", "renewals_late_p99_milliseconds", 0),
            column("all", "renewals_late_most_milliseconds", 0),
        ],
        rows: vec![alone.row("alone", None), beside.row("beside guests that spin", Some(ratio))],
        notes: vec![format!(
            "The processor guest-count reads {SHARDS} shards. Its neighbour's guests compute without end, with the \
                 default of `guest-threads`: as many as there are processors. Each lease is renewed each 300 ms, {RENEWALS} \
                 times at least after the last record, while the guests spin on. How late a renewal is, from when it was \
                 due to the answer, is told by a histogram whose bounds double, so these are upper bounds."
        )],
    }
}

async fn measure(records: u64, has_neighbour: bool, figures: &mut Figures) {
    let services = Services::with_streams(SHARDS, 1).await;
    // With the key and the brackets about 100 bytes.
    Writer::new(&services, "input", 1_000).padded(55).put(records).await;
    let mut config = Config::copy()
        .plugin("guest_count")
        .guest("byte = 97\nsilent = true")
        .stream(r#"bytes-per-second = "1 TiB""#)
        .stream("reads-per-second = 1000");
    let mut leases = f64::from(SHARDS);
    if has_neighbour {
        spinning(&services).await;
        config = config.top(r#"shutdown-timeout = "2s""#).others(&neighbour());
        leases += f64::from(SPINNING);
    }
    let mut worker = Worker::start_ready(&services, &config).await;
    let first = until_done(&mut worker, 1).await;
    let last = until_done(&mut worker, records).await;
    // Before that the local backend gives records as fast as it can, and is late itself.
    let before = worker.histogram(LATE).await;
    let wanted = leases * f64::from(RENEWALS);
    let late: Histogram = worker
        .until_within(LIMIT, "renewals", async |worker| {
            let late = worker.histogram(LATE).await.since(&before);
            (late.count() >= wanted).then_some(late)
        })
        .await;
    worker.stop().await;
    figures.speed.push(last.speed_since(first));
    for (sample, part) in figures.late.iter_mut().zip([0.5, 0.99, 1.0]) {
        sample.push(late.quantile(part) * MILLISECONDS);
    }
}

/// A stream with a record in each shard.
async fn spinning(services: &Services) {
    services.create_stream("spinning", i32::try_from(SPINNING).expect("a few")).await;
    let width = u128::MAX / u128::from(SPINNING);
    let record = |shard: u32| Raw {
        key: format!("key-{shard}"),
        hash_key: Some((u128::from(shard) * width + width / 2).to_string()),
        data: b"{}".to_vec(),
    };
    raw::put(services, "spinning", &(0..SPINNING).map(record).collect::<Vec<_>>()).await;
}

fn neighbour() -> String {
    format!(
        r#"
[processors.spins]
stream = "spinning"
plugin = {:?}
config = {{ do = "spin", hooks = "silent" }}
limits = {{ batch-timeout = "1h", instances = {SPINNING} }}
"#,
        paths::plugin("guest_rows")
    )
}

// === impl Figures ===

impl Figures {
    fn row(self, label: &str, ratio: Option<Sample>) -> Row {
        let [half, most, all] = self.late;
        Row { label: label.to_owned(), figures: vec![Some(self.speed), ratio, Some(half), Some(most), Some(all)] }
    }
}
