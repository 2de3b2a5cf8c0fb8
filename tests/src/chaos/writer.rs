//! Puts numbered records into the input all the time, and knows which of them are there. Some are poison.
//!
//! Each key has numbers of its own: 0, 1, 2, … Of a key one entry is on its way at a time, and what was not stored is
//! sent again before anything later of its key: so the numbers of a key are in the stream in their order, whatever the
//! stream refuses. Where it is not known whether a request was carried out, it is sent again, and its numbers are kept as
//! [unclear](Written::unclear).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use aws_smithy_types::retry::RetryConfig;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use shardmill_record::UserRecord;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, Aggregator};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::fate::payload;
use crate::Services;

/// How many keys there are.
pub const KEYS: u64 = 100;
/// What their names begin with.
const NAME: &str = "key-";
/// Records a second.
const RATE: f64 = 300.0;
/// Between two requests, if there is nothing to be sent again.
const TICK: Duration = Duration::from_millis(50);
/// Of so many entries one is an aggregate.
const AGGREGATES: u32 = 4;
/// The most records of an aggregate.
const LARGEST: u64 = 6;
/// The path to the input has no faults: it does not fail for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// How many records of each key were acknowledged: their numbers are 0, 1, 2, …
    pub acknowledged: BTreeMap<String, u64>,
    /// Records that were sent again although they may have been stored: their keys and numbers.
    pub unclear: BTreeSet<(String, u64)>,
}

/// Consecutive records of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    key: u64,
    first: u64,
    count: u64,
}

/// What was sent and what has to be.
#[derive(Debug)]
struct Book {
    dice: StdRng,
    acknowledged: Vec<u64>,
    /// The keys that have not had their turn in this round.
    turns: Vec<u64>,
    pending: Vec<Entry>,
    unclear: BTreeSet<(String, u64)>,
}

/// The record's number in the whole stream, which [`Found`](crate::Found) has.
fn number_in_stream(key: u64, nth: u64) -> u64 {
    nth * KEYS + key
}

/// A record's number among those of its key, by its number in the whole stream.
pub(super) fn nth_of_key(number: u64) -> u64 {
    number / KEYS
}

fn name(key: u64) -> String {
    format!("{NAME}{key}")
}

/// A record's number in the whole stream; `None` if the key is none of the writer's.
pub(super) fn number_of(key: &str, nth: u64) -> Option<u64> {
    Some(number_in_stream(key.strip_prefix(NAME)?.parse().ok()?, nth))
}

/// Writes until it is told to stop, and until everything is acknowledged.
pub(super) async fn write(services: &Services, stream: &str, seed: u64, stopped: watch::Receiver<bool>) -> Written {
    // What it does when an answer is lost has to be known.
    let config = services.kinesis.config().to_builder().retry_config(RetryConfig::disabled()).build();
    let client = aws_sdk_kinesis::Client::from_conf(config);
    let mut book = Book::new(seed);
    let began = Instant::now();
    let mut planned = 0;
    let mut succeeded = Instant::now();
    loop {
        let stops = *stopped.borrow();
        if !stops {
            let due = (began.elapsed().as_secs_f64() * RATE) as u64;
            planned += book.plan(due.saturating_sub(planned));
        }
        if book.pending.is_empty() {
            if stops {
                return book.into_written();
            }
            sleep(TICK).await;
            continue;
        }
        let entries = book.pending.iter().map(Entry::request_entry).collect();
        let failure = match client.put_records().stream_name(stream).set_records(Some(entries)).send().await {
            Ok(answer) => {
                let failed: Vec<bool> = answer.records().iter().map(|entry| entry.error_code().is_some()).collect();
                book.settle(&failed);
                answer.records().iter().find_map(|entry| entry.error_message().map(str::to_owned))
            }
            Err(error) => {
                let is_refused =
                    matches!(&error, SdkError::ServiceError(refused) if refused.raw().status().as_u16() < 500);
                if !is_refused {
                    book.doubt();
                }
                Some(format!("{error:?}"))
            }
        };
        match failure {
            None => succeeded = Instant::now(),
            Some(failure) => assert!(succeeded.elapsed() < PATIENCE, "the writer cannot write to {stream}: {failure}"),
        }
        sleep(TICK).await;
    }
}

// === impl Written ===

impl Written {
    /// How many records were acknowledged.
    pub fn count(&self) -> u64 {
        self.acknowledged.values().sum()
    }
}

// === impl Entry ===

impl Entry {
    fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        self.first..self.first + self.count
    }

    fn records(&self) -> impl Iterator<Item = UserRecord> {
        let partition_key = name(self.key);
        self.numbers().map(move |nth| {
            let number = number_in_stream(self.key, nth);
            let data = payload(number, &partition_key).into();
            UserRecord { partition_key: partition_key.clone(), explicit_hash_key: None, data }
        })
    }

    fn request_entry(&self) -> PutRecordsRequestEntry {
        let entry = PutRecordsRequestEntry::builder();
        let entry = if self.count == 1 {
            let record = self.records().next().expect("an entry has records");
            entry.partition_key(record.partition_key).data(Blob::new(record.data))
        } else {
            // Of one key alone, so that a reshard takes none of them to a shard that is not theirs.
            let mut aggregator = Aggregator::default();
            self.records().for_each(|record| aggregator.push(&record));
            let (payload, hash_key) = aggregator.finish().expect("an entry has records");
            let entry = entry.partition_key(AGGREGATE_PARTITION_KEY).explicit_hash_key(hash_key.to_string());
            entry.data(Blob::new(payload))
        };
        entry.build().expect("data and a key are all that is required")
    }
}

// === impl Book ===

impl Book {
    fn new(seed: u64) -> Book {
        Book {
            dice: StdRng::seed_from_u64(seed),
            acknowledged: vec![0; KEYS as usize],
            turns: Vec::new(),
            pending: Vec::new(),
            unclear: BTreeSet::new(),
        }
    }

    /// Takes about so many more records in, of keys of which none is on its way; how many there are.
    fn plan(&mut self, due: u64) -> u64 {
        let mut planned = 0;
        while planned < due && (self.pending.len() as u64) < KEYS {
            if self.turns.is_empty() {
                self.turns.extend(0..KEYS);
                self.turns.shuffle(&mut self.dice);
            }
            let Some(key) = self.turns.pop() else { break };
            if self.pending.iter().any(|entry| entry.key == key) {
                continue;
            }
            let is_aggregate = self.dice.random_ratio(1, AGGREGATES);
            let count = if is_aggregate { self.dice.random_range(2..=LARGEST) } else { 1 };
            self.pending.push(Entry { key, first: self.acknowledged[key as usize], count });
            planned += count;
        }
        planned
    }

    /// Takes in which of the entries on their way have failed.
    fn settle(&mut self, failed: &[bool]) {
        assert_eq!(failed.len(), self.pending.len(), "PutRecords answers each entry");
        let mut failed = failed.iter();
        self.pending.retain(|entry| {
            let fails = *failed.next().expect("one for each entry");
            if !fails {
                self.acknowledged[entry.key as usize] = entry.first + entry.count;
            }
            fails
        });
    }

    /// Takes in that it is not known what has become of the entries on their way.
    fn doubt(&mut self) {
        let numbers = |entry: &Entry| {
            let key = name(entry.key);
            entry.numbers().map(move |nth| (key.clone(), nth))
        };
        self.unclear.extend(self.pending.iter().flat_map(numbers));
    }

    fn into_written(self) -> Written {
        let acknowledged = (0..KEYS).map(name).zip(self.acknowledged).collect();
        Written { acknowledged, unclear: self.unclear }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_on_where_it_was_acknowledged_whatever_is_refused() {
        let mut book = Book::new(7);
        let mut dice = StdRng::seed_from_u64(7);
        let mut stored: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut planned = 0;
        for _ in 0..500 {
            planned += book.plan(20);
            let failed: Vec<bool> = book.pending.iter().map(|_| dice.random_bool(0.4)).collect();
            for (entry, _) in book.pending.iter().zip(&failed).filter(|(_, fails)| !**fails) {
                stored.entry(entry.key).or_default().extend(entry.numbers());
            }
            book.settle(&failed);
        }
        book.settle(&vec![true; book.pending.len()]);
        let left: u64 = book.pending.iter().map(|entry| entry.count).sum();
        let written = book.into_written();
        assert_eq!(written.count() + left, planned);
        assert!(written.unclear.is_empty());
        for (key, numbers) in &stored {
            let count = written.acknowledged[&name(*key)];
            assert!(numbers.iter().copied().eq(0..count), "{key}: {count} acknowledged, stored {numbers:?}");
        }
        assert_eq!(stored.len() as u64, KEYS);
    }

    #[test]
    fn what_may_have_been_stored_is_unclear_and_sent_again() {
        let mut book = Book::new(7);
        let planned = book.plan(10);
        let before = book.pending.clone();
        book.doubt();
        assert_eq!((&book.pending, book.unclear.len() as u64), (&before, planned));
        assert!(book.plan(KEYS * LARGEST) > 0, "other keys go on");
        assert!(book.pending.starts_with(&before));
        let keys: BTreeSet<u64> = book.pending.iter().map(|entry| entry.key).collect();
        assert_eq!(keys.len(), book.pending.len(), "of each key one entry");
    }

    #[test]
    fn a_record_says_what_it_is() {
        let entry = Entry { key: 7, first: 41, count: 3 };
        let numbers: Vec<u64> = entry
            .records()
            .map(|record| {
                assert_eq!(record.partition_key, "key-7");
                let payload: serde_json::Value = serde_json::from_slice(&record.data).unwrap();
                assert_eq!(payload["key"], "key-7");
                assert_eq!(payload["n"].as_u64(), number_of("key-7", nth_of_key(payload["n"].as_u64().unwrap())));
                nth_of_key(payload["n"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(numbers, [41, 42, 43]);
    }
}
