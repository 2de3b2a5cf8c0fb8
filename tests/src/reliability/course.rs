//! One run, from services without streams to the report.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::checker::Checker;
use super::integers::Integers;
use super::report::{Ending, Event, Memory, PitStop, Report};
use super::writer::{Told, write};
use super::{Options, Plant};
use crate::services::hash_key_range;
use crate::shard_reader::ShardReader;
use crate::{Config, Environment, Link, Proxy, Services, Worker, memory, paths};

const INPUT: &str = "input";
const OUTPUT: &str = "output";
/// The producer goes on while a pit stop waits for the output, by so many legs at most.
const LEGS_AHEAD: u64 = 2;
/// Between two looks at the tip of the output.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Everything is in the output: its producer has only to take in the last answers.
const LAST_RESULTS: Duration = Duration::from_secs(60);

/// Services whose way to the worker has a fault.
struct Planted {
    link: Link,
    _proxy: Proxy,
}

/// A run under way.
struct Course<'a> {
    options: &'a Options,
    services: &'a Services,
    integers: Arc<Integers>,
    worker: Worker,
    readers: Vec<ShardReader>,
    checker: Checker,
    /// What the producer has said.
    told: watch::Receiver<Told>,
    /// The producer puts no integer from this on.
    limit: watch::Sender<u64>,
    /// Puts, until this is dropped.
    writer: JoinSet<()>,
    began: Instant,
    /// When something new has come.
    came: Instant,
    /// The last mark whose pit stop was passed.
    passed: u64,
}

/// Lets integers go through producer, processor and output stream, and tells of each pit stop.
pub async fn run(options: &Options, mut tell: impl FnMut(Event<'_>)) -> Report {
    let shards = i32::from(options.shards);
    let services = Services::with_streams(shards, shards).await;
    let planted = options.plant.map(|plant| Planted::new(&services, plant, options.seed));
    let mut worker = match &planted {
        Some(planted) => start(&planted.link),
        None => start(&services),
    };
    worker.ready().await;
    let mut course = Course::begin(options, &services, worker).await;
    let ending = course.go(&mut tell).await;
    course.into_report(ending).await
}

fn start(services: &impl Environment) -> Worker {
    // What bounds a run is the machine, and no limit of a shard; and what was sent is not sent again because a machine that
    // is busy is slow.
    let config = Config::copy()
        .stream(r#"bytes-per-second = "1 TiB""#)
        .stream("reads-per-second = 1000")
        .others(r#"request-timeout = "30s""#);
    Worker::start(services, &config)
}

/// Reads a page of each shard. Whether there may be more at once.
async fn read(services: &Services, readers: &mut [ShardReader], checker: &mut Checker) -> bool {
    let more = join_all(readers.iter_mut().map(|reader| reader.read(services))).await;
    for reader in readers {
        let batch = reader.batch();
        batch.iter().for_each(|record| checker.take(&reader.shard, record.partition_key, record.data));
    }
    more.contains(&true)
}

// === impl Planted ===

impl Planted {
    fn new(services: &Services, plant: Plant, seed: u64) -> Planted {
        let proxy = Proxy::new(services, seed);
        proxy.inject(plant.rule(OUTPUT));
        Planted { link: proxy.link("worker"), _proxy: proxy }
    }
}

// === impl Course ===

impl<'a> Course<'a> {
    async fn begin(options: &'a Options, services: &'a Services, worker: Worker) -> Course<'a> {
        let shards = services.shards(OUTPUT).await;
        let shards: Vec<_> = shards.iter().map(|shard| (shard.shard_id.clone(), hash_key_range(shard))).collect();
        let integers = Arc::new(Integers::new(options.seed, &shards));
        let (limit, limited) = watch::channel(options.pit_stop.saturating_mul(LEGS_AHEAD));
        let (telling, told) = watch::channel(Told::default());
        let readers = ShardReader::of_all(services, OUTPUT).await;
        let began = Instant::now();
        let mut writer = JoinSet::new();
        let client = services.kinesis.clone();
        writer.spawn(write(client, INPUT, Arc::clone(&integers), options.records, options.seed, limited, telling));
        Course {
            options,
            services,
            worker,
            readers,
            checker: Checker::new(Arc::clone(&integers), options.records),
            integers,
            told,
            limit,
            writer,
            began,
            came: began,
            passed: 0,
        }
    }

    /// Goes from pit stop to pit stop, and waits for the last results.
    async fn go(&mut self, tell: &mut impl FnMut(Event<'_>)) -> Ending {
        let Options { records, pit_stop, .. } = *self.options;
        while self.passed < records {
            let mark = self.passed.saturating_add(pit_stop).min(records);
            let began = self.began.elapsed();
            if let Some(ending) = self.leg(mark, tell).await {
                return ending;
            }
            if !self.checker.findings(mark).are_none() {
                return Ending::Broken;
            }
            let (integers, in_all) = (mark - self.passed, self.began.elapsed());
            tell(Event::PitStop(&PitStop { mark, integers, took: in_all - began, in_all }));
            self.passed = mark;
            self.limit.send_replace(mark.saturating_add(pit_stop.saturating_mul(LEGS_AHEAD)));
        }
        // What a producer has not said in time is unconfirmed in the report.
        let _ = timeout(LAST_RESULTS, self.writer.join_next()).await;
        Ending::Complete
    }

    /// Reads until every key is at the mark; why that will not be.
    async fn leg(&mut self, mark: u64, tell: &mut impl FnMut(Event<'_>)) -> Option<Ending> {
        while !self.checker.has_reached(mark) {
            let found = self.checker.found();
            let more = read(self.services, &mut self.readers, &mut self.checker).await;
            if self.checker.found() > found {
                self.came = Instant::now();
                tell(Event::Progress(self.checker.found()));
            }
            if self.told.borrow().failed > 0 {
                return Some(Ending::NotStored);
            }
            if let Some(status) = self.worker.ended() {
                return Some(Ending::WorkerEnded(status.to_string()));
            }
            if self.came.elapsed() > self.options.patience {
                return Some(Ending::Stalled(self.options.patience));
            }
            if !more {
                sleep(LOOK_EVERY).await;
            }
        }
        None
    }

    /// Stops the worker, looks whether it has sent anything up to its end that should not be there, and tells what was found.
    async fn into_report(mut self, mut ending: Ending) -> Report {
        let took = self.began.elapsed();
        // Nothing more is put.
        self.writer.shutdown().await;
        let is_alive = self.worker.ended().is_none();
        let memory = if is_alive { self.memory() } else { None };
        let announced = if is_alive { self.announced().await } else { 0 };
        if ending == Ending::Complete {
            let status = self.worker.terminate().await;
            if !status.success() {
                ending = Ending::WorkerEnded(status.to_string());
            }
        }
        // What it has sent up to its end may be too much.
        while read(self.services, &mut self.readers, &mut self.checker).await {}

        let Options { records, pit_stop, .. } = *self.options;
        let mark = self.passed.saturating_add(pit_stop).min(records);
        let findings = self.checker.findings(mark);
        if ending == Ending::Complete && !findings.are_none() {
            ending = Ending::Broken;
        }
        let in_input = if findings.missing > 0 { self.look_into_the_input(mark).await } else { 0 };
        let mut report = Report {
            options: self.options.clone(),
            ending,
            passed: self.passed,
            mark,
            took,
            found: self.checker.found(),
            told: self.told.borrow().clone(),
            findings,
            in_input,
            announced,
            output_kinesis_records: self.readers.iter().map(|reader| reader.kinesis_records).sum(),
            memory,
            log: None,
        };
        if !report.is_clean() {
            report.log = self.keep_log();
        }
        report
    }

    /// How many of the integers below the mark that are missing in the output are in the input.
    async fn look_into_the_input(&self, mark: u64) -> u64 {
        let mut input = Checker::new(Arc::clone(&self.integers), self.options.records);
        let mut readers = ShardReader::of_all(self.services, INPUT).await;
        while read(self.services, &mut readers, &mut input).await {}
        self.checker.missing(mark).filter(|integer| input.has(*integer)).count() as u64
    }

    /// How many records the processor's producer says may be in the output more than once.
    async fn announced(&self) -> u64 {
        self.worker.metric("shardmill_producer_possible_repeats_total", "").await as u64
    }

    /// `None` where the kernel does not count it in `/proc`.
    fn memory(&self) -> Option<Memory> {
        cfg!(target_os = "linux").then(|| Memory {
            worker: memory::peak(self.worker.pid()),
            services: self.services.pids().into_iter().map(memory::peak).sum(),
            program: memory::peak(std::process::id()),
        })
    }

    fn keep_log(&self) -> Option<PathBuf> {
        let folder = paths::target().join("reliability");
        let path = folder.join(format!("worker-{}.log", self.options.seed));
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, self.worker.stderr())).ok()?;
        Some(path)
    }
}
