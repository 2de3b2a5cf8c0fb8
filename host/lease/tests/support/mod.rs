//! Workers in one process, on paused time and one table in memory.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part")]

pub mod app;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use shardmill_cause::AnyCoded;
use shardmill_lease::audit::ListedShard;
use shardmill_lease::balance::{Balance, Even};
use shardmill_lease::store::memory::Memory;
use shardmill_lease::{
    Clock, Coordinator, Event, Handle, HeldLease, Lease, LeaseKey, Metrics, Moment, NewLease, Options, RunError,
    ShardSource, Survey, TokioClock, WorkerId,
};
use shardmill_record::{Checkpoint, HashKeyRange, ShardId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A stream with these leases.
#[derive(Clone)]
pub struct Shards(pub Arc<Vec<NewLease>>);

/// Tokio's clock, but a suspension can be put in.
pub struct JumpingClock {
    inner: TokioClock,
    ahead_ms: AtomicU64,
    /// How much faster than others it runs, in millionths.
    fast_ppm: i64,
}

pub struct Worker {
    pub handle: Handle,
    pub events: mpsc::Receiver<Event>,
    pub drain: CancellationToken,
    pub running: JoinHandle<Result<(), RunError>>,
    pub clock: Arc<JumpingClock>,
}

impl Shards {
    pub fn numbered(count: usize) -> Self {
        Self::new((0..count).map(|index| shard(index, &[])).collect())
    }

    pub fn new(leases: Vec<NewLease>) -> Self {
        Self(Arc::new(leases))
    }
}

#[async_trait]
impl ShardSource for Shards {
    async fn survey(&self, leases: &[Lease]) -> Result<Survey, AnyCoded> {
        let there: HashSet<&LeaseKey> = leases.iter().map(|lease| &lease.key).collect();
        // A shard that a leased one follows is history, if that one has begun.
        let has_begun = |lease: &&Lease| lease.checkpoint != Checkpoint::TrimHorizon;
        let followed: HashSet<LeaseKey> = leases.iter().filter(has_begun).flat_map(Lease::parent_keys).collect();
        let is_missing = |new: &&NewLease| !there.contains(&new.key) && !followed.contains(&new.key);
        let missing = self.0.iter().filter(is_missing).cloned().collect();
        let parents: HashSet<LeaseKey> =
            self.0.iter().flat_map(|new| new.parents.iter().map(|parent| new.key.sibling(parent))).collect();
        let is_parent = |new: &NewLease| parents.contains(&new.key);
        let listed = |new: &NewLease| ListedShard {
            key: new.key.clone(),
            is_open: !is_parent(new),
            parents: new.parents.iter().map(|parent| new.key.sibling(parent)).collect(),
            range: HashKeyRange::ALL,
        };
        Ok(Survey { missing, listed: self.0.iter().map(listed).collect() })
    }
}

impl JumpingClock {
    pub fn jump(&self, time: Duration) {
        self.ahead_ms.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Moment {
        let passed = self.inner.now().to_duration();
        let passed = passed.mul_f64(1.0 + self.fast_ppm as f64 / 1e6);
        Moment::since_origin(passed) + Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}

pub fn shard_id(index: usize) -> ShardId {
    ShardId::parse(&format!("shardId-{index:012}")).unwrap()
}

pub fn key(index: usize) -> LeaseKey {
    LeaseKey::of_shard(&shard_id(index))
}

pub fn shard(index: usize, parents: &[usize]) -> NewLease {
    NewLease {
        key: key(index),
        checkpoint: Checkpoint::TrimHorizon,
        start_at: None,
        parents: parents.iter().map(|parent| shard_id(*parent)).collect(),
        range: None,
    }
}

pub fn position(number: u64) -> Checkpoint {
    Checkpoint::parse(&number.to_string(), 0).unwrap()
}

pub fn options(id: &str) -> Options {
    Options::new("orders", WorkerId::parse(id).unwrap())
}

impl Worker {
    pub fn start(id: &str, store: &Memory, shards: &Shards, seed: u64) -> Self {
        Self::start_with(options(id), store, shards, seed)
    }

    pub fn start_with(options: Options, store: &Memory, shards: &Shards, seed: u64) -> Self {
        Self::start_skewed(options, store, shards, 0, seed)
    }

    /// `fast_ppm`: how much faster its clock runs than others, in millionths.
    pub fn start_skewed(options: Options, store: &Memory, shards: &Shards, fast_ppm: i64, seed: u64) -> Self {
        let rule = Arc::new(Even { moves: options.moves });
        Self::start_balanced(options, rule, store, shards, fast_ppm, seed)
    }

    pub fn start_balanced(
        options: Options,
        rule: Arc<dyn Balance>,
        store: &Memory,
        shards: &Shards,
        fast_ppm: i64,
        seed: u64,
    ) -> Self {
        // Workers start one after another, whatever their clocks say.
        static STARTED: AtomicU64 = AtomicU64::new(1);
        let options = Options { joined: STARTED.fetch_add(1, Ordering::SeqCst), ..options };
        let clock = Arc::new(JumpingClock { inner: TokioClock::default(), ahead_ms: AtomicU64::new(0), fast_ppm });
        let store = Arc::new(store.clone());
        let source = Arc::new(shards.clone());
        let (coordinator, handle, events) =
            Coordinator::new(options, store, clock.clone(), source, Metrics::default(), seed).unwrap();
        let drain = CancellationToken::new();
        let running = tokio::spawn(coordinator.with_balance(rule).run(drain.clone()));
        Self { handle, events, drain, running, clock }
    }

    /// The next lease.
    pub async fn held(&mut self) -> HeldLease {
        let event = tokio::time::timeout(Duration::from_secs(120), self.events.recv()).await;
        match event.expect("a lease within two minutes").expect("the coordinator runs") {
            Event::Held(held) => held,
            event => panic!("{event:?}"),
        }
    }

    pub async fn held_many(&mut self, count: usize) -> Vec<HeldLease> {
        let mut leases = Vec::new();
        while leases.len() < count {
            leases.push(self.held().await);
        }
        leases
    }

    /// The process dies: nothing is sent any more.
    pub async fn kill(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}
