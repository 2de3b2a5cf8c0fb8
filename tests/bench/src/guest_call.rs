//! A guest's call against the same code called natively.
//!
//! The processor is `guest-count`, which counts a byte in every payload. Natively it is called as the kit's component
//! calls it: a view over the batch's columns, then `Processor::process`. As a guest it is called as the engine calls
//! it: an instance from the pool, the batch copied into it, the outcome read back, with all limits in force. The guest
//! in rows runs the same function on each payload.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::thread;

use guest_count::{Count, Settings, occurrences};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use shardmill_guest::{Processor, testing};
use shardmill_plugin::{Form, Grants, Limits, Outcome, Plugin, Pool, Runtime, RuntimeOptions, ShardContext};
use shardmill_record::{Batch, BatchBuilder, Record, ShardId};
use shardmill_tests::paths;

use crate::Options;
use crate::report::{Column, Row, Sample, Section};

const RECORDS: usize = 500;
const BYTE: u8 = b',';
/// A run's figure is the median of so many rounds …
const ROUNDS: usize = 150;
/// … in each of which everything is called so often, one after another.
const CALLS: usize = 4;

/// One thing that is called over and over.
struct Candidate<'a> {
    label: &'static str,
    subject: Subject<'a>,
    rounds: Vec<f64>,
    runs: Sample,
}

enum Subject<'a> {
    /// The kit's view over the columns, and the processor.
    Native(Count),
    /// The processor alone, on a view that is there.
    Processor(Count, shardmill_guest::Batch<'a>),
    Guest(Pool),
    /// To a thread of guests, and back.
    HandedOver(Pool),
}

/// Measures both forms of the contract.
pub(crate) fn run(options: &Options) -> Vec<Section> {
    let runs = options.runs();
    // On one thread, which does nothing else, and with a runtime of its own.
    let measured = thread::scope(|scope| {
        let measuring = scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a thread can have a runtime").block_on(sections(runs))
        });
        measuring.join()
    });
    measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

async fn sections(runs: u32) -> Vec<Section> {
    let runtime = |threads| {
        let options = RuntimeOptions { cache_dir: Some(paths::compiled()), max_instances: 8, threads, compiler: None };
        Runtime::new(options, shardmill_plugin::Metrics::default()).expect("guests can be run here")
    };
    let (here, elsewhere) = (runtime(None), runtime(Some(NonZeroUsize::MIN)));
    let mut sections = Vec::new();
    for (bytes, size) in [(1024, "1 KiB"), (100, "100 B")] {
        sections.push(section(&here, &elsewhere, bytes, size, runs).await);
    }
    sections
}

async fn section(here: &Runtime, elsewhere: &Runtime, bytes: usize, size: &str, runs: u32) -> Section {
    let batch = batch(bytes);
    let count = |byte| Count::new(Settings { byte, silent: false }).expect("every byte can be counted");
    let columnar = async |config| pool(here, "guest_count", Form::Columnar, config).await;
    let handed_over = pool(elsewhere, "guest_count", Form::Columnar, json!({ "byte": BYTE })).await;
    let rows = async |behaviour| pool(here, "guest_rows", Form::Rows, json!({ "do": behaviour })).await;
    let mut candidates = [
        ("native, the kit's view and the processor", Subject::Native(count(Some(BYTE)))),
        ("native, the processor alone", Subject::Processor(count(Some(BYTE)), view(&batch))),
        ("guest in columns", Subject::Guest(columnar(json!({ "byte": BYTE })).await)),
        ("guest in columns, on a thread of guests", Subject::HandedOver(handed_over)),
        ("guest in rows", Subject::Guest(rows("occurrences").await)),
        ("guest in columns that looks at no payload", Subject::Guest(columnar(json!({})).await)),
        ("guest in rows that looks at no payload", Subject::Guest(rows("nothing").await)),
    ]
    .map(|(label, subject)| Candidate { label, subject, rounds: Vec::new(), runs: Sample::default() });
    check(&mut candidates, &batch).await;
    let shard = shard();
    for _ in 0..runs {
        for _ in 0..ROUNDS {
            for candidate in &mut candidates {
                candidate.round(&shard, &batch).await;
            }
        }
        candidates.iter_mut().for_each(Candidate::end_run);
    }
    let [whole, alone, ..] = [&candidates[0].runs, &candidates[1].runs].map(Clone::clone);
    let row = |candidate: &Candidate<'_>| Row {
        label: candidate.label.to_owned(),
        figures: vec![
            Some(candidate.runs.clone()),
            Some(candidate.runs.over(&whole)),
            Some(candidate.runs.over(&alone)),
        ],
    };
    Section {
        name: "guest-call",
        title: format!("A guest's call against the same code called natively, {RECORDS} records of {size}"),
        columns: vec![
            Column { title: "ns a record", key: "nanoseconds_per_record", digits: 1 },
            Column { title: "to native", key: "to_native", digits: 2 },
            Column { title: "to the processor alone", key: "to_processor", digits: 2 },
        ],
        rows: candidates.iter().map(row).collect(),
        notes: vec![
            format!(
                "One batch of {RECORDS} records with sequence numbers of 56 digits; the processor counts a byte in \
                 each payload and emits the sum. A figure of a run is the median of {ROUNDS} rounds, in each of which \
                 everything is called {CALLS} times, in turns, on one thread. The time is that which the thread computed; \
                 of what is handed over to a thread of guests, that which the process computed, the handing over included."
            ),
            "A guest's call is all from the pool's instance to the outcome: copying the batch in, limits of time, \
             memory and size, the kit's view, the processor, reading the outcome back. Native is the same source \
             called without WebAssembly: the kit's view over the batch's columns and the processor, compiled with the \
             workspace's profile for any machine of this architecture. The guest in rows runs the same function on \
             each payload."
                .to_owned(),
        ],
    }
}

// === impl Candidate ===

impl Candidate<'_> {
    async fn round(&mut self, shard: &ShardContext, batch: &Batch) {
        // Once for the caches: what was called before has left its own data there.
        self.subject.call(shard, batch).await;
        let clock = self.subject.clock();
        let started = computed(clock);
        for _ in 0..CALLS {
            self.subject.call(shard, batch).await;
        }
        self.rounds.push((computed(clock) - started) / (CALLS * RECORDS) as f64);
    }

    fn end_run(&mut self) {
        let mut rounds = std::mem::take(&mut self.rounds);
        rounds.sort_by(f64::total_cmp);
        self.runs.push(rounds[rounds.len() / 2]);
    }
}

// === impl Subject ===

impl Subject<'_> {
    /// What of the process has computed: this thread, or whatever a call has to do with.
    fn clock(&self) -> ClockId {
        match self {
            Self::HandedOver(_) => ClockId::ProcessCPUTime,
            _ => ClockId::ThreadCPUTime,
        }
    }

    async fn call(&mut self, shard: &ShardContext, batch: &Batch) {
        match self {
            Self::Native(count) => {
                let batch = view(black_box(batch));
                black_box(count.process(&testing::shard(), &batch).expect("it cannot fail"));
            }
            Self::Processor(count, batch) => {
                black_box(count.process(&testing::shard(), black_box(batch)).expect("it cannot fail"));
            }
            Self::Guest(pool) | Self::HandedOver(pool) => {
                black_box(guest(pool, shard, batch).await);
            }
        }
    }
}

/// For how many nanoseconds this thread or this process has computed: what else the machine does takes time from it and
/// not of it.
fn computed(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// As the engine calls a guest.
async fn guest(pool: &Pool, shard: &ShardContext, batch: &Batch) -> Outcome {
    let mut instance = pool.get().await.expect("an instance");
    instance.process_batch(shard, batch).await.expect("an outcome")
}

/// As the kit's component makes it of what the host hands over.
fn view(batch: &Batch) -> shardmill_guest::Batch<'_> {
    let (lengths, arrivals) = (batch.lengths(), batch.approximate_arrivals());
    shardmill_guest::Batch::try_new(batch.arena(), lengths, batch.sub_sequence_numbers(), arrivals)
        .expect("the host's columns agree with each other")
}

/// Asserts that all that count come to the same.
async fn check(candidates: &mut [Candidate<'_>], batch: &Batch) {
    let expected: u64 = batch.iter().map(|record| occurrences(record.data, BYTE)).sum();
    assert!(expected > 0, "there is something to count");
    for Candidate { label, subject, .. } in candidates {
        let found = match subject {
            Subject::Native(count) | Subject::Processor(count, _) => {
                let records: Vec<&[u8]> = batch.iter().map(|record| record.data).collect();
                let inspected = testing::run(count, records).expect("it cannot fail");
                inspected.outputs("out")[0].data.clone()
            }
            Subject::Guest(pool) | Subject::HandedOver(pool) => {
                let outputs = guest(pool, &shard(), batch).await.outputs;
                outputs.first().map(|output| output.record.data.to_vec()).unwrap_or_default()
            }
        };
        let found = String::from_utf8(found).expect("a number");
        assert!(label.contains("no payload") || found == expected.to_string(), "{label}: {found:?}, not {expected}");
    }
}

async fn pool(runtime: &Runtime, name: &str, form: Form, config: Value) -> Pool {
    let bytes = std::fs::read(paths::plugin(name)).expect("a plugin");
    let module = runtime.load(name, bytes).await.expect("a plugin of this host's contract");
    assert_eq!(module.form(), form, "{name}");
    // What the guest in rows wants.
    let (limits, grants) = (Limits::default(), Grants { clocks: true, metrics: true, ..Grants::default() });
    let settings = shardmill_plugin::Settings { processor: "count".to_owned(), config, limits, grants };
    Plugin::new(runtime, module, settings).expect("a plugin that imports what is granted").pool(1)
}

fn batch(bytes: usize) -> Batch {
    let mut builder = BatchBuilder::default();
    for number in 0..RECORDS {
        let sequence_number = format!("4959033827149025660855969253836157109592157598913658{number:04}");
        let partition_key = format!("key-{number}");
        let flight = format!(r#"{{"carrier":"UA","flight":{number},"origin":"EWR","dest":"IAH","dep_delay":2}}"#);
        let data: Vec<u8> = flight.bytes().cycle().take(bytes).collect();
        builder.push(Record {
            sequence_number: &sequence_number,
            sub_sequence_number: 0,
            partition_key: &partition_key,
            explicit_hash_key: None,
            approximate_arrival: 1_700_000_000_000 + number as u64,
            data: &data,
        });
    }
    builder.build()
}

fn shard() -> ShardContext {
    ShardContext {
        application: "bench".into(),
        processor: "count".into(),
        stream: "input".into(),
        shard: ShardId::parse("shardId-000000000000").expect("an id"),
        worker: "worker-1".into(),
        lease_epoch: 1,
        attempt: 1,
        millis_behind_latest: Some(0),
        last_batch: false,
    }
}
