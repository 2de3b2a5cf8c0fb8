//! Workers whose users run every lease as they should, and what was seen of all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_lease::store::memory::Memory;
use shardmill_lease::{Event, Fence, Handle, LeaseKey, Options, RunError};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{JumpingClock, Shards, Worker};

/// What was seen of the leases of all workers.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<HashMap<LeaseKey, Life>>>);

#[derive(Default)]
struct Life {
    fences: Vec<(String, Fence)>,
    let_go: Option<Instant>,
    holds: usize,
    gaps: Vec<Duration>,
}

/// A worker that runs every lease until it is lost, or to be let go: then it finishes, and lets it go.
pub struct App {
    pub id: String,
    pub drain: CancellationToken,
    pub ended: JoinHandle<Result<(), RunError>>,
    pub clock: Arc<JumpingClock>,
    pub handle: Handle,
}

impl Seen {
    fn held(&self, key: LeaseKey, worker: &str, fence: Fence) {
        let mut lives = self.0.lock().unwrap();
        let life = lives.entry(key).or_default();
        life.fences.push((worker.to_owned(), fence));
        life.holds += 1;
        if let Some(let_go) = life.let_go.take() {
            life.gaps.push(let_go.elapsed());
        }
    }

    fn let_go(&self, key: &LeaseKey) {
        self.0.lock().unwrap().entry(key.clone()).or_default().let_go = Some(Instant::now());
    }

    /// "fenced": at no moment are two holders sure of one lease.
    pub fn check_fences(&self) {
        for (key, life) in self.0.lock().unwrap().iter_mut() {
            life.fences.retain(|(_, fence)| fence.check().is_ok());
            assert!(
                life.fences.len() <= 1,
                "{key} is held by {:?}",
                life.fences.iter().map(|(id, _)| id).collect::<Vec<_>>()
            );
        }
    }

    /// Lets time go by, and watches the fences meanwhile.
    pub async fn watch(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep(Duration::from_millis(50)).await;
            self.check_fences();
        }
    }

    /// How many leases each worker holds now; who holds none is not there.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for life in self.0.lock().unwrap().values() {
            for (worker, fence) in &life.fences {
                if fence.check().is_ok() {
                    *counts.entry(worker.clone()).or_default() += 1;
                }
            }
        }
        counts
    }

    /// How many leases are held.
    pub fn held_count(&self) -> usize {
        self.counts().values().sum()
    }

    /// How often leases were taken since the last call, and the gaps between two holders of one.
    pub fn take_moves(&self) -> (usize, Vec<Duration>) {
        let mut lives = self.0.lock().unwrap();
        let moves = lives.values_mut().map(|life| std::mem::take(&mut life.holds)).sum();
        (moves, lives.values_mut().flat_map(|life| std::mem::take(&mut life.gaps)).collect())
    }
}

impl App {
    /// `finishing`: how long it takes from being told to let a lease go until it is let go.
    pub fn start(
        options: Options,
        store: &Memory,
        shards: &Shards,
        seen: &Seen,
        finishing: Duration,
        seed: u64,
    ) -> Self {
        let id = options.worker.to_string();
        let Worker { mut events, drain, running, clock, handle } = Worker::start_with(options, store, shards, seed);
        let (seen, worker) = (seen.clone(), id.clone());
        let ended = tokio::spawn(async move {
            // Aborted with this task: a process that dies takes everything with it.
            let running = AbortOnDrop(running);
            let mut leases = tokio::task::JoinSet::new();
            while let Some(Event::Held(held)) = events.recv().await {
                let key = held.lease().key.clone();
                seen.held(key.clone(), &worker, held.fence());
                let seen = seen.clone();
                leases.spawn(async move {
                    let fence = held.fence();
                    tokio::select! {
                        biased;
                        _ = fence.lost() => {}
                        () = held.draining() => sleep(finishing).await,
                    }
                    seen.let_go(&key);
                    drop(held);
                });
                while leases.try_join_next().is_some() {}
            }
            let mut running = running;
            (&mut running.0).await.unwrap()
        });
        Self { id, drain, ended, clock, handle }
    }

    pub fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }

    /// The process dies: nothing is sent any more.
    pub async fn kill(self) {
        self.ended.abort();
        let _ = self.ended.await;
    }
}

struct AbortOnDrop(JoinHandle<Result<(), RunError>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
