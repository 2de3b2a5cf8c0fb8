//! An answer of Kinesis to anything but GetRecords: a line with the operation and the status of HTTP, such as
//! `ListShards 200`, and the body behind it.
//!
//! The stream's and the producer's room take from it what makes sense, or say in which way it failed. What says no status of
//! success brings nothing.

use std::collections::HashSet;

use aws_sdk_kinesis::Client;
use shardmill_producer::fuzzing::{Failed, max_record_bytes, put, shards};
use shardmill_record::HashKey;
use shardmill_stream::{Error, Kind, Kinesis};
use tokio::runtime::{Builder, Runtime};

use crate::differential::{Canned, JSON};

const STREAM: &str = "orders";
/// Records of a request whose answer is read.
const RECORDS: usize = 3;
/// The smallest that any stream takes.
const RECORD_BYTES: usize = 1 << 20;

struct Bench {
    canned: Canned,
    client: Client,
    kinesis: Kinesis,
    runtime: Runtime,
}

thread_local! {
    static BENCH: Bench = Bench::new();
}

/// See the module.
pub fn run(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let Ok(line) = str::from_utf8(line) else { return };
    let Some((operation, status)) = line.split_once(' ') else { return };
    let Ok(status @ 200..=599) = status.parse::<u16>() else { return };
    BENCH.with(|bench| bench.run(operation, status, body));
}

// === impl Bench ===

impl Bench {
    fn new() -> Self {
        let canned = Canned::default();
        let client = canned.client(1);
        // Where a wait is asked for it is over at once.
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        Self { kinesis: Kinesis::new(client.clone()), client, canned, runtime }
    }

    fn run(&self, operation: &str, status: u16, body: &[u8]) {
        self.canned.answer(status, &[("content-type", JSON)], body);
        let is_success = (200..300).contains(&status);
        self.runtime.block_on(async {
            match operation {
                "ListShards" => {
                    self.stream_lists(is_success).await;
                    self.producer_lists(is_success).await;
                }
                "DescribeStreamSummary" => self.describes(is_success).await,
                "PutRecords" => self.puts(is_success).await,
                _ => {}
            }
        });
        self.canned.requests();
    }

    async fn stream_lists(&self, is_success: bool) {
        match self.kinesis.list_shards(STREAM).await {
            Ok(shards) => {
                let ids: HashSet<_> = shards.iter().map(|shard| &shard.id).collect();
                assert!(is_success && !shards.is_empty() && ids.len() == shards.len(), "{shards:?}");
            }
            Err(error) => is_sorted(&error, is_success),
        }
    }

    async fn producer_lists(&self, is_success: bool) {
        let keys = [0, 1, u128::MAX / 2, u128::MAX].map(HashKey::new);
        match shards(&self.client, STREAM, &keys).await {
            Ok((open, places)) => {
                assert!(is_success && open > 0 && places.len() == keys.len());
                for (key, place) in keys.iter().zip(places) {
                    assert!(place.is_none_or(|(_, range)| range.contains(*key)), "{key}");
                }
            }
            Err(failed) => is_said(&failed),
        }
    }

    async fn describes(&self, is_success: bool) {
        match self.kinesis.describe(STREAM).await {
            Ok(_) => assert!(is_success),
            Err(error) => is_sorted(&error, is_success),
        }
        match max_record_bytes(&self.client, STREAM).await {
            Ok(most) => assert!(is_success && most.is_none_or(|most| most >= RECORD_BYTES), "{most:?}"),
            Err(failed) => is_said(&failed),
        }
    }

    async fn puts(&self, is_success: bool) {
        let results = put(&self.client, STREAM, RECORDS).await;
        assert_eq!(results.len(), RECORDS, "each record has its result");
        for failed in results.into_iter().filter_map(|result| {
            assert!(is_success || result.is_err());
            result.err()
        }) {
            is_said(&failed);
        }
    }
}

fn is_sorted(error: &Error, is_success: bool) {
    assert!(!error.to_string().is_empty());
    assert!(!is_success || error.kind() == Kind::InvalidAnswer, "{error:?} of an answer with a status of success");
    // What passes by itself is asked again, and what is asked again has to be able to pass.
    assert!(!error.is_transient() || error.kind() != Kind::InvalidAnswer, "{error:?}");
}

fn is_said(failed: &Failed) {
    assert!(!failed.code.is_empty() && failed.advice.is_none_or(|advice| !advice.is_empty()), "{failed:?}");
    assert!(!failed.is_unknown || failed.advice.is_none(), "{failed:?}");
}
