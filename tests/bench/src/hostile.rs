//! What a hostile guest costs its neighbours: at a fixed load, how long a good processor's records take from their stream to
//! the one that they are sent to, alone and beside each kind of attack.

use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Services, Tail, Worker, Writer, command, paths};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say};

const SHARDS: i32 = 4;
/// Shards with a hostile guest each.
const HOSTILE_SHARDS: u32 = 8;
/// So many records are put …
const RECORDS: u64 = 100;
/// … each time that this has passed: 2,000 a second.
const EVERY: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(300);
/// From one look at what has come out to the next.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Before anything is measured.
const WARM: u64 = 2_000;
const MOST_RUNS: u32 = 3;
const MILLISECONDS: f64 = 1_000.0;

/// What goes on beside the good processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A guest that does this with each batch.
    Guest {
        does: &'static str,
    },
    /// A file that keeps the compiler busy.
    Compiler,
}

const SCENES: [(&str, Beside); 7] = [
    ("alone", Beside::Nothing),
    ("beside guests that compute without end", Beside::Guest { does: "spin" }),
    ("beside guests that take memory until it is refused", Beside::Guest { does: "memory" }),
    ("beside guests that flood the log", Beside::Guest { does: "log-flood" }),
    ("beside guests that return 8 MiB", Beside::Guest { does: "huge" }),
    ("beside guests that crash at once", Beside::Guest { does: "panic" }),
    ("beside a file that keeps the compiler busy", Beside::Compiler),
];

#[derive(Debug, Default)]
struct Figures {
    half: Sample,
    most: Sample,
}

/// A task that ends with this.
struct Busy(JoinHandle<()>);

pub(crate) async fn run(options: &Options) -> Section {
    // Some seconds of load; with `--quick` fewer.
    let rounds = (options.records() / 5_000).clamp(40, 200);
    let runs = options.runs().min(MOST_RUNS);
    let mut figures: Vec<Figures> = SCENES.iter().map(|_| Figures::default()).collect();
    for run in 1..=runs {
        for ((label, beside), figures) in SCENES.iter().zip(&mut figures) {
            say(format_args!("hostile: {label}, run {run} of {runs}"));
            let mut latencies = measure(*beside, rounds).await;
            latencies.sort_by(f64::total_cmp);
            let part = |part: usize| latencies[(latencies.len() - 1) * part / 100];
            figures.half.push(part(50));
            figures.most.push(part(99));
        }
    }
    let alone = figures[0].most.clone();
    let row = |((label, _), figures): (&(&str, Beside), Figures)| {
        let ratio = figures.most.over(&alone);
        Row { label: (*label).to_owned(), figures: vec![Some(figures.half), Some(figures.most), Some(ratio)] }
    };
    let column = |title, key, digits| Column { title, key, digits };
    Section {
        name: "hostile",
        title: "From a stream to another one, beside hostile guests".to_owned(),
        columns: vec![
            column("half of the records, ms", "latency_p50_milliseconds", 0),
            column("99 of 100, ms", "latency_p99_milliseconds", 0),
            column("of alone", "latency_p99_ratio", 2),
        ],
        rows: SCENES.iter().zip(figures).map(row).collect(),
        notes: vec![format!(
            "{RECORDS} records of 100 B are put each {} ms into a stream of {SHARDS} shards; the processor `route` copies \
             them. The time of a record is from when it is put until it is seen in the other stream, where one looks every {} ms. The \
             hostile processor has {HOSTILE_SHARDS} shards of its own, the limits' defaults, and tries again after 10 to 50 ms.",
            EVERY.as_millis(),
            LOOK_EVERY.as_millis()
        )],
    }
}

/// How long each record took, in milliseconds.
async fn measure(beside: Beside, rounds: u64) -> Vec<f64> {
    let services = Services::with_streams(SHARDS, SHARDS).await;
    let mut config = Config::copy();
    if let Beside::Guest { does } = beside {
        attacked(&services).await;
        config = config.top(r#"shutdown-timeout = "2s""#).others(&neighbour(does));
    }
    let mut worker = Worker::start_ready(&services, &config).await;
    let mut writer = Writer::new(&services, "input", 1_000).padded(55);
    writer.put(WARM).await;
    let mut output = Tail::new(&services, "output").await;
    until_found(&mut worker, &mut output, WARM).await;
    if matches!(beside, Beside::Guest { .. }) {
        worker
            .until_within(LIMIT, "hostile guests", async |worker| {
                let made = worker.metric("shardmill_plugin_instances_created_total", "processor=\"hostile\"").await;
                (made >= f64::from(HOSTILE_SHARDS)).then_some(())
            })
            .await;
    }
    let folder = TempDir::new().expect("a temporary folder");
    let _busy = (beside == Beside::Compiler).then(|| Busy(tokio::spawn(keep_compiling(bomb(folder.path())))));

    // Whoever looks at what comes out takes some of the machine, in each scene as much.
    let last = WARM + rounds * RECORDS;
    let looking = async {
        let mut seen = Vec::new();
        while output.found().len() < last as usize {
            let new = output.poll().await;
            let now = Instant::now();
            seen.extend(new.iter().map(|found| (found.number, now)));
            sleep(LOOK_EVERY).await;
        }
        seen
    };
    let putting = async {
        let mut put = Vec::new();
        let mut ticks = interval(EVERY);
        // What is late is made up for: the load stays the same.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for round in 0..rounds {
            ticks.tick().await;
            put.push(Instant::now());
            writer.put(RECORDS).await;
            if round % 4 == 0 && matches!(beside, Beside::Guest { .. }) {
                // Those that end well want more.
                feed(&services).await;
            }
        }
        put
    };
    let both = async { tokio::join!(looking, putting) };
    let (seen, put) = timeout(LIMIT, both).await.expect("all outputs");
    worker.terminate().await;
    let took = |(number, seen): (u64, Instant)| {
        seen.duration_since(put[((number - WARM) / RECORDS) as usize]).as_secs_f64() * MILLISECONDS
    };
    seen.into_iter().map(took).collect()
}

async fn until_found(worker: &mut Worker, output: &mut Tail<'_>, records: u64) {
    worker.until_within(LIMIT, "all outputs", async |_| (output.count().await as u64 >= records).then_some(())).await;
}

/// A stream for the hostile guest.
async fn attacked(services: &Services) {
    services.create_stream("hostile", i32::try_from(HOSTILE_SHARDS).expect("a few")).await;
    feed(services).await;
}

/// A record for each of its shards.
async fn feed(services: &Services) {
    let width = u128::MAX / u128::from(HOSTILE_SHARDS);
    let record = |shard: u32| Raw {
        key: format!("key-{shard}"),
        hash_key: Some((u128::from(shard) * width + width / 2).to_string()),
        data: b"{}".to_vec(),
    };
    raw::put(services, "hostile", &(0..HOSTILE_SHARDS).map(record).collect::<Vec<_>>()).await;
}

fn neighbour(does: &str) -> String {
    format!(
        r#"
[streams.hostile]
idle = "200ms"

[processors.hostile]
stream = "hostile"
plugin = {:?}
config = {{ do = {does:?}, hooks = "silent" }}
limits = {{ instances = {HOSTILE_SHARDS} }}
retry = {{ attempts = 1000000, backoff = "10ms", max-backoff = "50ms" }}
"#,
        paths::plugin("guest_rows")
    )
}

/// A configuration whose plugin has thousands of functions besides its own.
fn bomb(folder: &Path) -> PathBuf {
    let leb = |mut number: usize| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let section = |id: u8, contents: &[u8]| [&[id], leb(contents.len()).as_slice(), contents].concat();
    // x = x * x + 7, over and over.
    let step = [0x20, 0, 0x20, 0, 0x7e, 0x42, 7, 0x7c, 0x21, 0];
    let body = [&[1, 1, 0x7e][..], &step.repeat(2000), &[0x0b]].concat();
    let body = [leb(body.len()), body].concat();
    let count = leb(2000);
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, &[1, 0x60, 0, 0]),
        section(3, &[count.as_slice(), &[0].repeat(2000)].concat()),
        section(10, &[count.as_slice(), &body.repeat(2000)].concat()),
    ]
    .concat();
    let mut plugin = std::fs::read(paths::plugin("route")).expect("a plugin");
    plugin.extend(section(1, &module));
    std::fs::write(folder.join("bomb.wasm"), plugin).expect("a file");
    let config = folder.join("shardmill.toml");
    let text = "application = \"bomb\"\ncache-dir = false\n[admin]\nenabled = false\n[processors.bomb]\nstream = \"bomb\"\nplugin = \"bomb.wasm\"\n";
    std::fs::write(&config, text).expect("a file");
    config
}

/// Checks it, and begins again.
async fn keep_compiling(config: PathBuf) {
    loop {
        let mut check = command();
        check.arg("check").arg("--config").arg(&config).env("AWS_REGION", "us-east-1").kill_on_drop(true);
        let _ended = check.output().await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.abort();
    }
}
