//! Without a network: records into aggregates and out of them again, on one thread.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use rustix::time::ClockId;
use shardmill_producer::{Ordering, Producer};
use shardmill_record::UserRecord;
use shardmill_record::aggregate::{Aggregator, decode};

use super::{instant, records, seconds, settings, start};
use crate::report::{Column, Row, Sample, Section};
use crate::{Options, say};

const SHARDS: usize = 4;
const AGGREGATE_BYTES: usize = 51_200;
const PAYLOAD: usize = 100;
/// How often aggregates are hashed and taken apart in a run.
const ROUNDS: usize = 9;
const LIMIT: Duration = Duration::from_secs(600);

pub(super) async fn run(options: &Options) -> Vec<Section> {
    let (runs, count) = (options.runs(), options.records());
    // On one thread, which does nothing else, and with a runtime of its own.
    let measured = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a thread can have a runtime").block_on(sections(runs, count))
    });
    tokio::task::spawn_blocking(move || measured.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .await
        .expect("a thread can be waited for")
}

async fn sections(runs: u32, count: u64) -> Vec<Section> {
    let records = records(count, PAYLOAD);
    let aggregates = aggregated(&records);
    let [mut hashed, mut aggregated_only, mut fire, mut results, mut md5, mut decoded] =
        std::array::from_fn(|_| Sample::default());
    for run in 1..=runs {
        say(format_args!("producer: {count} records of {PAYLOAD} B in memory, run {run} of {runs}"));
        hashed.push(per_second(count, || records.iter().for_each(|record| _ = black_box(record.hash_key()))));
        aggregated_only.push(per_second(count, || _ = black_box(aggregated(&records))));
        for (sample, with_results) in [(&mut fire, false), (&mut results, true)] {
            let client = instant::client(SHARDS);
            let producer = start(&client, "instant", settings(Ordering::Key));
            let given = records.clone();
            let began = seconds(ClockId::ThreadCPUTime);
            put(&producer, given, with_results).await;
            sample.push(count as f64 / (seconds(ClockId::ThreadCPUTime) - began));
        }
        let (hashing, decoding) = decode_in_turns(&aggregates);
        md5.push(hashing);
        decoded.push(decoding);
    }
    let row = |label: &str, sample: Sample| Row { label: label.to_owned(), figures: vec![Some(sample)] };
    let to_md5 = decoded.over(&md5);
    let decoding = |label: &str, sample, ratio| Row { label: label.to_owned(), figures: vec![Some(sample), ratio] };
    vec![
        Section {
            name: "producer",
            title: format!("Records of {PAYLOAD} B into aggregates, on one core"),
            columns: vec![Column { title: "records/s of one core", key: "records_per_second", digits: 0 }],
            rows: vec![
                row("hash keys alone", hashed),
                row("hash keys, shards, aggregates", aggregated_only),
                row("the whole producer, with a service that answers at once", fire),
                row("the same, with a result for each record", results),
            ],
            notes: vec![format!(
                "Aggregates of {AGGREGATE_BYTES} B for {SHARDS} shards, checksums included. The whole producer is all \
                 from `put` to the acknowledged record: inbox, plan, aggregates, the SDK's JSON, base64 and signature, \
                 and a service inside the process that answers without a network; all on one thread, in the time that \
                 it computed."
            )],
        },
        Section {
            name: "producer-decoding",
            title: format!("Taking aggregates of records of {PAYLOAD} B apart"),
            columns: vec![
                Column { title: "MB/s", key: "megabytes_per_second", digits: 0 },
                Column { title: "of MD5's speed", key: "to_md5", digits: 2 },
            ],
            rows: vec![
                decoding("MD5 of the payloads", md5, None),
                decoding("checked, decoded, every record looked at", decoded, Some(to_md5)),
            ],
            notes: vec![format!(
                "An aggregate has a checksum over all of it, so MD5 is what no reader can be faster than. A figure of a \
                 run is the median of {ROUNDS} rounds, one after the other."
            )],
        },
    ]
}

/// How many MB a second are hashed, and taken apart: medians of rounds, in each of which one follows the other.
fn decode_in_turns(aggregates: &[Bytes]) -> (f64, f64) {
    let bytes: usize = aggregates.iter().map(Bytes::len).sum();
    let (mut hashing, mut decoding) = (Sample::default(), Sample::default());
    for _ in 0..ROUNDS {
        let speed = |work: fn(&Bytes)| per_second(bytes as u64, || aggregates.iter().for_each(work)) / 1e6;
        hashing.push(speed(|payload| _ = black_box(md5_of(payload))));
        decoding.push(speed(|payload| take_apart(payload)));
    }
    (hashing.median(), decoding.median())
}

/// How many of something a second of this thread's time.
fn per_second(count: u64, work: impl FnOnce()) -> f64 {
    let began = seconds(ClockId::ThreadCPUTime);
    work();
    count as f64 / (seconds(ClockId::ThreadCPUTime) - began)
}

fn aggregated(records: &[UserRecord]) -> Vec<Bytes> {
    let mut open: Vec<Aggregator> = (0..SHARDS).map(|_| Aggregator::default()).collect();
    let mut done = Vec::new();
    for record in records {
        let aggregator = &mut open[(record.hash_key().get() >> 126) as usize];
        if !aggregator.push_within(record, AGGREGATE_BYTES) {
            done.extend(std::mem::take(aggregator).finish());
            assert!(aggregator.push_within(record, AGGREGATE_BYTES), "an empty one has room");
        }
    }
    done.extend(open.into_iter().filter_map(Aggregator::finish));
    done.into_iter().map(|(payload, _)| payload).collect()
}

async fn put(producer: &Producer, records: Vec<UserRecord>, with_results: bool) {
    let mut pending = Vec::new();
    for record in records {
        if with_results {
            pending.push(producer.put_with_result(record).await.expect("it is accepted"));
        } else {
            producer.put(record).await.expect("it is accepted");
        }
    }
    producer.flush().await;
    for pending in pending {
        pending.await.expect("it is stored");
    }
    let left = producer.close(LIMIT).await;
    assert_eq!((left.records, producer.failures()), (0, 0), "everything is stored");
}

fn md5_of(payload: &[u8]) -> [u8; 16] {
    Md5::digest(&payload[4..payload.len() - 16]).into()
}

fn take_apart(payload: &[u8]) {
    let aggregate = decode(payload).expect("it is an aggregate");
    let mut bytes = 0;
    for record in aggregate.records(payload) {
        bytes += record.data.len() + record.partition_key.len();
    }
    black_box(bytes);
}
