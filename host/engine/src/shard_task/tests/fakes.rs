//! A guest, a reader, a destination and a directory of the tests' own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use shardmill_cause::AnyCoded;
use shardmill_lease::{Fence, Lease, LeaseKey, NewLease, ShardSource, Survey};
use shardmill_plugin::{Failure, HookOutcome, Outcome, ShardContext, Timeout};
use shardmill_record::{Batch, Checkpoint, HashKeyRange, PageBuilder, ShardId, UserRecord};
use shardmill_stream::{ChildShard, Demand, ReadFrom, ReadPage, Reader};
use tokio::time::sleep;

use super::SHARD;
use crate::shard_source::Directory;
use crate::{Answer, DeadLetter, DeadLetterError, DeadLetters, Destination, Guest, Hook, SendError};

/// Of the stream of [`OneShard`].
pub(super) const STREAM_ARN: &str = "arn:aws:kinesis:eu-west-1:123456789012:stream/s";

/// As many keys records have.
pub(super) const KEYS: u64 = 600;
/// A record's key, by its number.
pub(super) fn key(number: u64) -> String {
    format!("k{:03}", number % KEYS)
}

/// From this number on payloads are not JSON.
pub(super) const GARBLED: u64 = 1_000_000;

pub(super) type Process = dyn Fn(&ShardContext, &Batch) -> Result<Outcome, Failure> + Send + Sync;

/// Calls the test's function, after a while.
pub(super) struct FakeGuest {
    pub(super) process: Box<Process>,
    pub(super) takes: Duration,
    /// By this seed, how long each call takes, up to ten times as long.
    pub(super) varies: Option<u64>,
    /// Its plugin's digest.
    pub(super) plugin: &'static str,
    /// What it was told, in order.
    pub(super) hooks: Mutex<Vec<Hook>>,
    /// What a hook does.
    pub(super) hook: Box<HookProcess>,
}

/// How long it takes, and what comes of it.
pub(super) type HookProcess = dyn Fn(&Hook) -> (Duration, Result<HookOutcome, Failure>) + Send + Sync;

impl FakeGuest {
    pub(super) fn new(
        process: impl Fn(&ShardContext, &Batch) -> Result<Outcome, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            process: Box::new(process),
            takes: Duration::from_millis(5),
            varies: None,
            plugin: "digest",
            hooks: Mutex::default(),
            hook: Box::new(|_| (Duration::ZERO, Ok(HookOutcome::default()))),
        }
    }

    /// The names of the hooks that were called, in order.
    pub(super) fn told(&self) -> Vec<&'static str> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Hook::name).collect()
    }
}

#[async_trait]
impl Guest for FakeGuest {
    async fn process(&self, shard: &ShardContext, batch: &Batch) -> Answer {
        let times = self.varies.map_or(1, |seed| {
            let first = batch.approximate_arrivals().first().copied().unwrap_or(0);
            u32::try_from(seed.wrapping_mul(first.wrapping_mul(2_654_435_761) | 1) >> 32 & 0xFF).unwrap_or(1) % 10 + 1
        });
        sleep(self.takes * times).await;
        Answer { plugin: self.plugin(), outcome: (self.process)(shard, batch) }
    }

    fn plugin(&self) -> Arc<str> {
        self.plugin.into()
    }

    fn has_hooks(&self) -> bool {
        true
    }

    async fn hook(&self, _id: u64, told: &ShardContext, hook: Hook, time: Duration) -> Result<HookOutcome, Failure> {
        assert_eq!(told.shard, shard(SHARD));
        let (takes, outcome) = (self.hook)(&hook);
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner).push(hook);
        sleep(takes.min(time)).await;
        if takes >= time { Err(Failure::Timeout(Timeout::Wall(time))) } else { outcome }
    }
}

/// Brings pages, then nothing more, or the shard's end.
pub(super) struct FakeReader {
    pub(super) pages: VecDeque<Vec<u64>>,
    pub(super) ends: bool,
}

#[async_trait]
impl Reader for FakeReader {
    async fn ready(&mut self) -> Result<(), shardmill_stream::Error> {
        Ok(())
    }

    async fn read(&mut self, _demand: Demand) -> Result<Option<ReadPage>, shardmill_stream::Error> {
        let numbers = match self.pages.pop_front() {
            Some(numbers) => numbers,
            None if self.ends => Vec::new(),
            None => std::future::pending().await,
        };
        let mut page = PageBuilder::default();
        for number in &numbers {
            let data = if *number < GARBLED { number.to_string() } else { format!("no {number}") };
            // Each arrives a millisecond after the one before.
            page.push(&number.to_string(), &key(*number), data.as_bytes(), *number).unwrap();
        }
        let end = self.ends && self.pages.is_empty();
        let child =
            ChildShard { id: shard("shardId-000000000001"), parents: vec![shard(SHARD)], range: HashKeyRange::ALL };
        Ok(Some(ReadPage {
            page: page.build(),
            continuation: ReadFrom::TrimHorizon,
            millis_behind: Some(0),
            children: end.then(|| vec![child]),
            end,
            wait: Duration::ZERO,
        }))
    }
}

/// Keeps what it is sent; may be closed for a time, or take nothing.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) sent: Mutex<Vec<String>>,
    pub(super) closed: AtomicBool,
    pub(super) refuses: AtomicBool,
}

#[async_trait]
impl Destination for Kept {
    async fn send(&self, records: Vec<UserRecord>, fence: &Fence) -> Result<(), SendError> {
        while self.closed.load(Ordering::SeqCst) {
            fence.check().map_err(|_| SendError::Fenced)?;
            sleep(Duration::from_millis(10)).await;
        }
        if self.refuses.load(Ordering::SeqCst) {
            return Err(SendError::Refused { output: "out".into(), reason: "no such stream".into() });
        }
        let texts = records.into_iter().map(|record| String::from_utf8(record.data.to_vec()).unwrap());
        self.sent.lock().unwrap().extend(texts);
        Ok(())
    }
}

impl Kept {
    pub(super) fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }
}

/// Keeps dead letters; may refuse them, or have no room for a time.
#[derive(Default)]
pub(super) struct Letters {
    pub(super) stored: Mutex<Vec<DeadLetter>>,
    pub(super) refuses: AtomicBool,
    pub(super) is_full: AtomicBool,
}

#[async_trait]
impl DeadLetters for Letters {
    async fn store(&self, letters: Vec<DeadLetter>, fence: &Fence) -> Result<(), DeadLetterError> {
        while self.is_full.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(10)).await;
        }
        fence.check().map_err(|_| DeadLetterError::Fenced)?;
        if self.refuses.load(Ordering::SeqCst) {
            return Err(DeadLetterError::Refused { place: "a full disk".into(), reason: "make room".into() });
        }
        self.stored.lock().unwrap().extend(letters);
        Ok(())
    }
}

pub(super) struct OneShard;

#[async_trait]
impl ShardSource for OneShard {
    async fn survey(&self, leases: &[Lease]) -> Result<Survey, AnyCoded> {
        let missing = if leases.is_empty() { vec![new_lease(SHARD)] } else { Vec::new() };
        Ok(Survey { missing, listed: Vec::new() })
    }
}

#[async_trait]
impl Directory for OneShard {
    async fn children(&self, _shard: &ShardId, named: Option<&[ChildShard]>) -> Result<Vec<NewLease>, AnyCoded> {
        Ok(named.unwrap_or_default().iter().map(|child| new_lease(child.id.as_str())).collect())
    }

    fn stream_arn(&self) -> &str {
        STREAM_ARN
    }
}

pub(super) fn shard(id: &str) -> ShardId {
    ShardId::parse(id).unwrap()
}

pub(super) fn new_lease(id: &str) -> NewLease {
    NewLease {
        key: LeaseKey::of_shard(&shard(id)),
        checkpoint: Checkpoint::TrimHorizon,
        start_at: None,
        parents: Vec::new(),
        range: Some(HashKeyRange::ALL),
    }
}
