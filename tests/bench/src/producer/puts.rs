//! Puts through the producer against plain PutRecords from the bare SDK, to the built-in Kinesis in another process.

use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use futures::{StreamExt as _, stream};
use rustix::time::ClockId;
use shardmill_producer::Ordering;
use shardmill_record::UserRecord;
use shardmill_tests::Services;
use tokio::time::Instant;

use super::{records, seconds, settings, start};
use crate::report::{Column, Row, Sample, Section};
use crate::stream::create;
use crate::{Options, say};

const PAYLOAD: usize = 100;
/// The most records that PutRecords takes.
const AT_ONCE: usize = 500;
/// As many requests at once as the producer has.
const REQUESTS: usize = 24;
const LIMIT: Duration = Duration::from_secs(600);

#[derive(Default)]
struct Figures {
    per_second: Sample,
    cpu_per_million: Sample,
}

pub(super) async fn run(options: &Options) -> Section {
    let (runs, count) = (options.runs(), options.records());
    let records = records(count, PAYLOAD);
    let [mut bare, mut key, mut none] = std::array::from_fn(|_| Figures::default());
    for run in 1..=runs {
        say(format_args!("producer: {count} records of {PAYLOAD} B to the built-in Kinesis, run {run} of {runs}"));
        // Each has services of its own, which are as empty as the others'.
        for (figures, ordering) in
            [(&mut bare, None), (&mut key, Some(Ordering::Key)), (&mut none, Some(Ordering::None))]
        {
            let services = Services::start().await;
            create(&services, "puts").await;
            let given = records.clone();
            let (began, cpu) = (Instant::now(), seconds(ClockId::ProcessCPUTime));
            match ordering {
                None => put_bare(&services.kinesis, given).await,
                Some(ordering) => {
                    let producer = start(&services.kinesis, "puts", settings(ordering));
                    for record in given {
                        producer.put(record).await.expect("it is accepted");
                    }
                    let left = producer.close(LIMIT).await;
                    assert_eq!((left.records, producer.failures()), (0, 0), "everything is stored");
                }
            }
            figures.per_second.push(count as f64 / began.elapsed().as_secs_f64());
            figures.cpu_per_million.push((seconds(ClockId::ProcessCPUTime) - cpu) * 1e6 / count as f64);
        }
    }
    let ratio = |figures: &Figures| figures.per_second.over(&bare.per_second);
    let (key_ratio, none_ratio) = (ratio(&key), ratio(&none));
    let row = |label: &str, figures: Figures, ratio| Row {
        label: label.to_owned(),
        figures: vec![Some(figures.per_second), ratio, Some(figures.cpu_per_million)],
    };
    Section {
        name: "producer-puts",
        title: format!("Puts of records of {PAYLOAD} B to the built-in Kinesis, 4 shards"),
        columns: vec![
            Column { title: "records/s", key: "records_per_second", digits: 0 },
            Column { title: "to plain", key: "to_plain", digits: 1 },
            Column { title: "client CPU s a million", key: "cpu_seconds_per_million", digits: 2 },
        ],
        rows: vec![
            row("plain PutRecords, bare SDK", bare, None),
            row("producer, ordering = \"key\"", key, Some(key_ratio)),
            row("producer, ordering = \"none\"", none, Some(none_ratio)),
        ],
        notes: vec![format!(
            "The service is another process on the same machine, and most of the work is its: what a record costs it is what \
             aggregates save. Plain puts are {AT_ONCE} records a request and {REQUESTS} requests at once. The producer has \
             its defaults but for the rate limit, which the service here does not have."
        )],
    }
}

async fn put_bare(client: &Client, records: Vec<UserRecord>) {
    let mut chunks = Vec::new();
    let mut records = records.into_iter().peekable();
    while records.peek().is_some() {
        chunks.push(records.by_ref().take(AT_ONCE).collect::<Vec<_>>());
    }
    let requests = chunks.into_iter().map(|chunk| {
        let entries = chunk.into_iter().map(|record| {
            let entry = PutRecordsRequestEntry::builder().data(Blob::new(Vec::from(record.data)));
            entry.partition_key(record.partition_key).build().expect("data and a key are all that is required")
        });
        client.put_records().stream_name("puts").set_records(Some(entries.collect())).send()
    });
    let mut answers = stream::iter(requests).buffer_unordered(REQUESTS);
    while let Some(answer) = answers.next().await {
        let answer = answer.expect("records are taken");
        assert_eq!(answer.failed_record_count(), Some(0), "records are taken");
    }
}
