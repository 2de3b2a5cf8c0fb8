//! From a process' start to its first record.

use std::time::Duration;

use shardmill_tests::{Services, paths};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::child::{Host, Job};
use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say, stream};

const LOOK_EVERY: Duration = Duration::from_millis(2);
const STREAM: &str = "input";

/// What a host finds when it starts.
#[derive(Debug, Clone, Copy)]
struct Scene {
    label: &'static str,
    has_code: bool,
    has_leases: bool,
}

const SCENES: [Scene; 4] = [
    Scene { label: "compiled code cached, leases of an earlier run", has_code: true, has_leases: true },
    Scene { label: "compiled code cached, no lease table", has_code: true, has_leases: false },
    Scene { label: "plugin to be compiled, leases of an earlier run", has_code: false, has_leases: true },
    Scene { label: "plugin to be compiled, no lease table", has_code: false, has_leases: false },
];

#[derive(Debug, Default)]
struct Figures {
    listening: Sample,
    first_record: Sample,
}

pub(crate) async fn run(options: &Options) -> Section {
    let services = Services::start().await;
    stream::create(&services, STREAM).await;
    let warm = TempDir::new().expect("a temporary folder");
    let job = |application: String, cache: &TempDir| Job {
        application,
        stream: STREAM.to_owned(),
        cache: cache.path().to_owned(),
        plugin: paths::plugin("guest_count"),
    };
    // Leaves leases and compiled code behind.
    stream::fill(&services, STREAM, stream::SHARDS, 100).await;
    let earlier = job("earlier".to_owned(), &warm);
    once(&services, &earlier).await;

    let mut figures: Vec<Figures> = SCENES.iter().map(|_| Figures::default()).collect();
    for run in 1..=options.runs() {
        say(format_args!("start: run {run} of {}", options.runs()));
        for (scene, figures) in SCENES.iter().zip(&mut figures) {
            let cold = TempDir::new().expect("a temporary folder");
            let cache = if scene.has_code { &warm } else { &cold };
            // New records in every shard, for the application that has seen the old ones.
            stream::fill(&services, STREAM, stream::SHARDS, 100).await;
            let application = if scene.has_leases { "earlier".to_owned() } else { format!("{}-{run}", name(*scene)) };
            let (listening, first_record) = once(&services, &job(application, cache)).await;
            figures.listening.push(listening);
            figures.first_record.push(first_record);
        }
    }
    section(figures)
}

/// Seconds until the admin server listens and until the first record is done.
async fn once(services: &Services, job: &Job) -> (f64, f64) {
    let began = Instant::now();
    let mut host = Host::start(services, job);
    host.listening().await;
    let listening = began.elapsed().as_secs_f64();
    host.until_done(1, LOOK_EVERY).await;
    let first_record = began.elapsed().as_secs_f64();
    // All of them, so that the next run finds checkpoints behind them.
    host.until_done(stream::SHARDS, LOOK_EVERY).await;
    host.stop().await;
    (listening, first_record)
}

fn name(scene: Scene) -> &'static str {
    if scene.has_code { "cached" } else { "compiled" }
}

fn section(figures: Vec<Figures>) -> Section {
    let row = |(scene, figures): (&Scene, Figures)| Row {
        label: scene.label.to_owned(),
        figures: vec![Some(figures.listening), Some(figures.first_record)],
    };
    let column = |title, key| Column { title, key, digits: 3 };
    Section {
        name: "start",
        title: "From the start of `shardmill run` to its first record".to_owned(),
        columns: vec![
            column("plugin loaded, s", "seconds_to_listening"),
            column("first record done, s", "seconds_to_first_record"),
        ],
        rows: SCENES.iter().zip(figures).map(row).collect(),
        notes: Vec::new(),
    }
}
