//! Streams full of records.

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use futures::{StreamExt as _, stream};
use shardmill_tests::Services;

/// The shards of every stream.
pub(crate) const SHARDS: u64 = 4;
/// The most records that PutRecords takes.
const AT_ONCE: u64 = 500;
const REQUESTS: usize = 4;

/// Creates a stream.
pub(crate) async fn create(services: &Services, name: &str) {
    services.create_stream(name, i32::try_from(SHARDS).expect("a few")).await;
}

/// Puts so many records with payloads of so many bytes, each with a key of its own, evenly over the shards.
pub(crate) async fn fill(services: &Services, name: &str, records: u64, bytes: usize) {
    let payload = payload(bytes);
    let requests = (0..records).step_by(AT_ONCE as usize).map(|first| {
        let entries = (first..records.min(first + AT_ONCE)).map(|number| entry(number, &payload));
        services.kinesis.put_records().stream_name(name).set_records(Some(entries.collect()))
    });
    let mut answers = stream::iter(requests).map(|request| request.send()).buffer_unordered(REQUESTS);
    while let Some(answer) = answers.next().await {
        let answer = answer.expect("records are taken");
        assert_eq!(answer.failed_record_count(), Some(0), "records are taken");
    }
}

fn entry(number: u64, payload: &Blob) -> PutRecordsRequestEntry {
    // The hash key's two highest bits are the shard.
    let hash_key = u128::from(number % SHARDS) << 126;
    let entry = PutRecordsRequestEntry::builder().data(payload.clone()).partition_key(format!("key-{number}"));
    entry.explicit_hash_key(hash_key.to_string()).build().expect("data and a key are all that is required")
}

/// Text with a few of the bytes that are looked for.
fn payload(bytes: usize) -> Blob {
    let text = b"the quick brown fox jumps over the lazy dog and away ";
    Blob::new(text.iter().copied().cycle().take(bytes).collect::<Vec<u8>>())
}
