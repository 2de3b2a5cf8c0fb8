//! What producing costs: records into aggregates, aggregates taken apart, and puts through the producer against plain
//! PutRecords.

mod codec;
mod instant;
mod puts;

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use shardmill_producer::{Metrics, Options as Settings, Ordering, Producer};
use shardmill_record::UserRecord;

use crate::Options;
use crate::report::Section;

/// How many partition keys there are.
const KEYS: u64 = 10_000;
/// No shard bounds what is measured: the services here have no limits.
const NO_RATE_LIMIT: u32 = 1_000_000;

pub(crate) async fn run(options: &Options) -> Vec<Section> {
    let mut sections = codec::run(options).await;
    sections.push(puts::run(options).await);
    sections
}

/// So many records with payloads of so many bytes, which are text.
fn records(count: u64, bytes: usize) -> Vec<UserRecord> {
    let text = b"the quick brown fox jumps over the lazy dog and away ";
    let record = |number: u64| {
        let data: Vec<u8> = text.iter().copied().cycle().skip(number as usize % 50).take(bytes).collect();
        // The keys come in no order.
        let key = number.wrapping_mul(2_654_435_761) % KEYS;
        UserRecord { partition_key: format!("key-{key}"), explicit_hash_key: None, data: Bytes::from(data) }
    };
    (0..count).map(record).collect()
}

fn settings(ordering: Ordering) -> Settings {
    Settings { ordering, rate_limit_percent: NO_RATE_LIMIT, ..Settings::default() }
}

fn start(client: &aws_sdk_kinesis::Client, stream: &str, settings: Settings) -> Producer {
    Producer::start(client.clone(), stream.to_owned(), settings, Metrics::default(), 7)
}

/// Seconds that a clock shows.
fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
