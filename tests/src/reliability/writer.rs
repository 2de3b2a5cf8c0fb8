//! Puts the integers with the library `shardmill-producer`, and waits for what became of each.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use shardmill_producer::{Acknowledged, Metrics, Options, Pending, Producer};
use tokio::sync::watch;

use super::integers::Integers;

/// How many results are waited for at most.
const UNCONFIRMED: usize = 50_000;
/// A machine that is busy is slow: what was sent is not to be sent again because of that.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const RECORD_TTL: Duration = Duration::from_secs(120);
const CLOSE_LIMIT: Duration = Duration::from_secs(30);
/// The services of a run have no limits of shards.
const NO_RATE_LIMIT: u32 = 1_000_000;

/// What the producer has said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Integers that were given to it.
    pub put: u64,
    /// Of them, those that it said are stored.
    pub confirmed: u64,
    /// Of them, those that it has not taken or has given up.
    pub failed: u64,
    /// Of those that are stored, those that may be so more than once.
    pub may_be_repeated: u64,
    /// The Kinesis records that they are stored in.
    pub kinesis_records: u64,
    /// Why the first one failed.
    pub failure: Option<String>,
}

/// Puts the integers below `count` in their order, none before the limit is above it, and ends when each has its result.
pub(super) async fn write(
    client: Client,
    stream: &'static str,
    integers: Arc<Integers>,
    count: u64,
    seed: u64,
    mut limit: watch::Receiver<u64>,
    told: watch::Sender<Told>,
) {
    let options = Options {
        rate_limit_percent: NO_RATE_LIMIT,
        request_timeout: REQUEST_TIMEOUT,
        record_ttl: RECORD_TTL,
        ..Options::default()
    };
    let producer = Producer::start(client, stream.to_owned(), options, Metrics::default(), seed);
    let mut unconfirmed: VecDeque<Pending> = VecDeque::new();
    for integer in 0..count {
        if integer >= *limit.borrow_and_update() {
            settle(&mut unconfirmed, 0, &told).await;
            if limit.wait_for(|limit| integer < *limit).await.is_err() {
                // The run is over.
                return;
            }
        }
        match producer.put_with_result(integers.record(integer)).await {
            Ok(pending) => {
                told.send_modify(|told| told.put += 1);
                unconfirmed.push_back(pending);
            }
            Err(error) => told.send_modify(|told| {
                told.put += 1;
                told.fails(&error.to_string());
            }),
        }
        settle(&mut unconfirmed, UNCONFIRMED, &told).await;
    }
    settle(&mut unconfirmed, 0, &told).await;
    producer.close(CLOSE_LIMIT).await;
}

/// Waits for results until no more than so many are open.
async fn settle(unconfirmed: &mut VecDeque<Pending>, open: usize, told: &watch::Sender<Told>) {
    while unconfirmed.len() > open {
        let Some(pending) = unconfirmed.pop_front() else { return };
        let result = pending.await;
        told.send_modify(|told| match &result {
            Ok(Acknowledged::Stored(receipt)) => {
                told.confirmed += 1;
                told.may_be_repeated += u64::from(receipt.may_be_repeated);
                told.kinesis_records += u64::from(receipt.sub_sequence_number == 0);
            }
            Ok(Acknowledged::Spooled { .. }) => unreachable!("the producer has no spool"),
            Err(failed) => told.fails(&failed.to_string()),
        });
    }
}

// === impl Told ===

impl Told {
    /// Integers of which nothing is known.
    pub fn unconfirmed(&self) -> u64 {
        self.put - self.confirmed - self.failed
    }

    fn fails(&mut self, why: &str) {
        self.failed += 1;
        self.failure.get_or_insert_with(|| why.to_owned());
    }
}
