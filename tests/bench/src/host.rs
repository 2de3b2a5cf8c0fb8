//! The whole host against a bare loop over the AWS SDK's GetRecords, on the same stream.

use std::time::Duration;

use shardmill_tests::{Services, paths};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::child::{Host, Job, Loop, Usage};
use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say, stream};

/// Payloads, and a record's weight: larger ones are fewer.
const SIZES: [(usize, &str, u64); 2] = [(100, "100 B", 1), (1024, "1 KiB", 4)];
/// Looks at the host's metrics cost the host; these are seldom enough.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Until the first record is there, whose time begins the measure of speed.
const LOOK_FOR_FIRST_EVERY: Duration = Duration::from_millis(5);

/// What one process did.
#[derive(Debug, Clone, Copy)]
struct Ran {
    usage: Usage,
    /// From the first record to the last.
    seconds: f64,
}

#[derive(Debug, Default)]
struct Figures {
    cpu: Sample,
    speed: Sample,
    memory: Sample,
}

struct Bench<'a> {
    services: &'a Services,
    cache: TempDir,
    runs: u32,
}

pub(crate) async fn run(options: &Options) -> Section {
    let services = Services::start().await;
    let bench = Bench { services: &services, cache: TempDir::new().expect("a temporary folder"), runs: 0 };
    bench.measure(options).await
}

// === impl Bench ===

impl Bench<'_> {
    async fn measure(mut self, options: &Options) -> Section {
        // One record in each shard: what a process costs that does nothing but start.
        stream::create(self.services, "few").await;
        stream::fill(self.services, "few", stream::SHARDS, 100).await;
        // Compiles the plugin, which is another measure.
        self.host("few", stream::SHARDS).await;
        let mut rows = Vec::new();
        for (bytes, name, weight) in SIZES {
            let records = options.records() / weight;
            let input = format!("input-{bytes}");
            say(format_args!("host: putting {records} records of {name}"));
            stream::create(self.services, &input).await;
            stream::fill(self.services, &input, records, bytes).await;
            let (mut bare, mut host) = (Figures::default(), Figures::default());
            for run in 1..=options.runs() {
                say(format_args!("host: {name}, run {run} of {}", options.runs()));
                let idle = self.bare("few", stream::SHARDS).await;
                bare.take(records, idle, self.bare(&input, records).await);
                let idle = self.host("few", stream::SHARDS).await;
                host.take(records, idle, self.host(&input, records).await);
            }
            let ratio = host.cpu.over(&bare.cpu);
            rows.push(bare.row(format!("{name}: bare SDK loop"), None));
            rows.push(host.row(format!("{name}: shardmill run"), Some(ratio)));
        }
        section(rows)
    }

    async fn bare(&self, stream: &str, records: u64) -> Ran {
        let mut bare = Loop::start(self.services, stream, records);
        bare.says("first").await;
        let first = Instant::now();
        bare.says("done").await;
        let ran = Ran { usage: bare.usage(), seconds: first.elapsed().as_secs_f64() };
        bare.stop().await;
        ran
    }

    async fn host(&mut self, stream: &str, records: u64) -> Ran {
        self.runs += 1;
        let job = Job {
            // A new application has no checkpoints: it reads from the oldest record on.
            application: format!("bench-{}", self.runs),
            stream: stream.to_owned(),
            cache: self.cache.path().to_owned(),
            plugin: paths::plugin("guest_count"),
        };
        let mut host = Host::start(self.services, &job);
        host.listening().await;
        host.until_done(1, LOOK_FOR_FIRST_EVERY).await;
        let first = Instant::now();
        host.until_done(records, LOOK_EVERY).await;
        let ran = Ran { usage: host.usage(), seconds: first.elapsed().as_secs_f64() };
        host.stop().await;
        ran
    }
}

// === impl Figures ===

impl Figures {
    fn take(&mut self, records: u64, idle: Ran, ran: Ran) {
        let cpu_seconds = ran.usage.cpu_seconds - idle.usage.cpu_seconds;
        self.cpu.push(cpu_seconds / records as f64 * 1e6);
        self.speed.push(records as f64 / ran.seconds);
        self.memory.push(ran.usage.peak_mib);
    }

    fn row(self, label: String, ratio: Option<Sample>) -> Row {
        Row { label, figures: vec![Some(self.cpu), ratio, Some(self.speed), Some(self.memory)] }
    }
}

fn section(rows: Vec<Row>) -> Section {
    let column = |title, key, digits| Column { title, key, digits };
    Section {
        name: "host",
        title: "Reading, a guest's call and checkpoints, against a bare GetRecords loop".to_owned(),
        columns: vec![
            column("CPU s per million records", "cpu_seconds_per_million_records", 2),
            column("of the bare loop", "cpu_ratio", 2),
            column("records/s", "records_per_second", 0),
            column("peak memory, MiB", "peak_mib", 0),
        ],
        rows,
        notes: Vec::new(),
    }
}
