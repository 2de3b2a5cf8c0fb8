//! What every shard of this worker is doing, for health checks and people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use shardmill_lease::{LeaseKey, Options, View};
use shardmill_record::ShardId;
use tokio::time::Instant;

use crate::idle::Fleet;
use crate::live::{Live, Vitals};
use crate::shard_entry::ShardEntry;
use crate::shard_run::Shared;

/// What a shard's task is doing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ShardState {
    /// The lease is held, nothing has been read.
    Starting,
    /// Records are read and processed.
    Running,
    /// A batch failed and is tried again.
    Retrying {
        /// Why the last attempt failed.
        reason: String,
        /// How many attempts there were.
        attempts: u32,
    },
    /// The failure policy has stopped the shard; its lease is kept, nothing is lost, nothing goes on.
    Stopped {
        /// Why.
        reason: String,
    },
    /// An operator lets the shard rest; its lease is kept.
    Paused,
    /// What is in flight is brought to its end, then the lease is released.
    Draining,
}

/// One shard of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ShardStatus {
    /// The stream that it belongs to.
    pub stream: String,
    /// Its id, which shards of other streams have as well.
    pub shard: String,
    /// What its task is doing.
    #[serde(flatten)]
    pub state: ShardState,
    /// The position up to which everything is done, in `sequence/sub-sequence` form.
    pub position: Option<String>,
    /// The checkpoint in the lease table.
    pub checkpoint: Option<String>,
    /// How far the tip of the shard is ahead: what the last page said, and all the time since while reads are overdue.
    pub millis_behind_latest: Option<u64>,
    /// That lag in hundredths of the stream's retention, where both are known: at 100 records are lost.
    pub retention_used_percent: Option<u64>,
}

/// A shard with work that makes no progress.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Stalled {
    /// The stream that it belongs to.
    pub stream: String,
    /// Its id.
    pub shard: String,
    /// A word for why, as the metrics have it.
    pub reason: String,
    /// The same as a sentence, with what is known.
    pub because: String,
    /// For how long, in seconds.
    pub seconds: u64,
}

/// What is wrong with a consumer's lease table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeaseTable {
    /// A word for it.
    pub reason: &'static str,
    /// A sentence, with what the store said.
    pub because: String,
    /// For how long, in seconds.
    pub seconds: u64,
}

/// One consumer.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ConsumerStatus {
    /// Whether the stream and the lease table have been reached and looked through.
    pub started: bool,
    /// Whether this worker leads the fleet: says who should have which lease.
    pub leads: bool,
    /// Open shards of the streams that nobody reads, and why, as the worker sees it that leads; empty on the others.
    pub unattended: Vec<String>,
    /// Why the consumer has stopped, if its failure policy has stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// The streams that were read and are gone, each with what is known of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    /// Why the lease table cannot be used, if it cannot and that lasts: leases that are held run out, and none is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_table: Option<LeaseTable>,
    /// The shards whose leases this worker holds, by the leases' keys.
    pub shards: BTreeMap<String, ShardStatus>,
    /// The shards that make no progress, by the leases' keys. Where this worker leads, also those that no worker can begin
    /// because their parents make none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub stalled: BTreeMap<String, Stalled>,
    /// The shards whose lag comes near the stream's retention, by the leases' keys, a sentence for each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub alarms: BTreeMap<String, String>,
    /// What is left to do, as far as this worker sees.
    #[serde(skip)]
    pub(crate) fleet: Fleet,
}

/// By the consumer and the lease's key.
type LiveShards = BTreeMap<(String, String), Arc<Live>>;

/// The consumers of a process. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Status {
    consumers: Arc<Mutex<BTreeMap<String, ConsumerStatus>>>,
    live: Arc<Mutex<LiveShards>>,
    wholes: Arc<Mutex<BTreeMap<String, Weak<Shared>>>>,
}

/// What the watchdog finds of a consumer, by the leases' keys.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) stalled: BTreeMap<String, Stalled>,
    /// A sentence for each.
    pub(crate) alarms: BTreeMap<String, String>,
    /// How much of the retention is used up, in hundredths.
    pub(crate) used: BTreeMap<String, u64>,
    pub(crate) lease_table: Option<LeaseTable>,
}

// === impl ShardStatus ===

impl ShardStatus {
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, ShardState::Stopped { .. })
    }
}

// === impl Status ===

impl Status {
    /// Makes a consumer known before it has done anything.
    pub(crate) fn add_consumer(&self, name: &str) {
        self.with(|consumers| {
            consumers.entry(name.to_owned()).or_default();
        });
    }

    /// Says that the consumer has seen its stream and its lease table.
    pub(crate) fn set_started(&self, name: &str) {
        self.with(|consumers| consumers.entry(name.to_owned()).or_default().started = true);
    }

    /// Says that the failure policy has stopped the consumer on this worker, and why.
    pub(crate) fn set_consumer_stopped(&self, name: &str, reason: &str) {
        self.with(|consumers| {
            consumers.entry(name.to_owned()).or_default().stopped = Some(reason.to_owned());
        });
    }

    /// Says what the lease room sees: whether this worker leads, what nobody reads, and what is left to do.
    pub(crate) fn set_fleet(&self, name: &str, view: &View, options: &Options) {
        let fleet = Fleet::of(view, &options.worker, options.max_leases_per_worker);
        self.with(|consumers| {
            let consumer = consumers.entry(name.to_owned()).or_default();
            consumer.fleet = fleet;
            consumer.leads = view.leads;
            consumer.unattended = view.audit.holes.iter().map(ToString::to_string).collect();
        });
    }

    /// Says that a stream is gone, or why; with `None`, that it is there again.
    pub(crate) fn set_missing(&self, consumer: &str, stream: &str, reason: Option<String>) {
        self.with(|consumers| {
            let missing = &mut consumers.entry(consumer.to_owned()).or_default().missing;
            match reason {
                Some(reason) => missing.insert(stream.to_owned(), reason),
                None => missing.remove(stream),
            }
        });
    }

    /// Adds a shard, which is known by its lease's key: shards of different streams have the same ids.
    pub(crate) fn add_shard(&self, consumer: &str, stream: &str, shard: &ShardId, lease: &LeaseKey) -> ShardEntry {
        let initial = ShardStatus {
            stream: stream.to_owned(),
            shard: shard.to_string(),
            state: ShardState::Starting,
            position: None,
            checkpoint: None,
            millis_behind_latest: None,
            retention_used_percent: None,
        };
        let key = lease.to_string();
        let live = Arc::new(Live::default());
        self.with(|consumers| {
            consumers.entry(consumer.to_owned()).or_default().shards.insert(key.clone(), initial);
        });
        self.with_live(|all| all.insert((consumer.to_owned(), key.clone()), Arc::clone(&live)));
        ShardEntry::new(self.clone(), consumer.to_owned(), key, live)
    }

    /// Whether the consumer holds leases.
    pub(crate) fn holds_shards(&self, name: &str) -> bool {
        self.with(|consumers| consumers.get(name).is_some_and(|consumer| !consumer.shards.is_empty()))
    }

    /// Everything, as it is now.
    pub fn snapshot(&self) -> BTreeMap<String, ConsumerStatus> {
        let mut consumers = self.with(|consumers| consumers.clone());
        let now = Instant::now();
        for (name, consumer) in &mut consumers {
            for (key, shard) in &mut consumer.shards {
                let Some(Vitals { reader, checkpoint, .. }) = self.live(name, key).map(|live| live.vitals(now)) else {
                    continue;
                };
                shard.checkpoint = checkpoint;
                if let Some(reader) = reader {
                    shard.millis_behind_latest = reader.millis_behind;
                }
            }
        }
        consumers
    }

    /// Why the process is not ready, a sentence for each reason; none if it is.
    pub fn unready(&self) -> Vec<String> {
        self.with(|consumers| {
            let mut reasons = Vec::new();
            for (name, consumer) in consumers.iter() {
                if let Some(reason) = &consumer.stopped {
                    reasons.push(format!("processor {name} has stopped on this worker: {reason}"));
                } else if !consumer.started {
                    reasons.push(format!("processor {name}: its stream and lease table have not been reached yet"));
                }
                reasons.extend(consumer.lease_table.iter().map(|table| format!("processor {name}: {}", table.because)));
            }
            reasons.extend(missing(consumers));
            for (name, consumer) in consumers.iter() {
                reasons.extend(consumer.unattended.iter().map(|hole| format!("processor {name}: {hole}")));
            }
            reasons.extend(stopped(consumers));
            for (name, consumer) in consumers.iter() {
                reasons
                    .extend(consumer.stalled.values().map(|stalled| format!("processor {name}: {}", stalled.because)));
            }
            reasons
        })
    }

    /// What should be known and keeps nobody from being ready, a sentence for each: shards that are paused, and those whose
    /// lag comes near the retention.
    pub fn notes(&self) -> Vec<String> {
        self.with(|consumers| {
            let mut notes = Vec::new();
            for (name, consumer) in consumers.iter() {
                let paused = consumer.shards.values().filter(|shard| shard.state == ShardState::Paused);
                notes.extend(paused.map(|ShardStatus { stream, shard, .. }| {
                    format!("processor {name}: shard {shard} of stream {stream} is paused by an operator's order")
                }));
                notes.extend(consumer.alarms.values().map(|alarm| format!("processor {name}: alarm: {alarm}")));
            }
            notes
        })
    }

    /// Says what the watchdog has found.
    pub(crate) fn set_watched(&self, consumer: &str, watched: Watched) {
        let Watched { stalled, alarms, used, lease_table } = watched;
        self.with(|consumers| {
            let consumer = consumers.entry(consumer.to_owned()).or_default();
            (consumer.stalled, consumer.alarms, consumer.lease_table) = (stalled, alarms, lease_table);
            for (key, shard) in &mut consumer.shards {
                shard.retention_used_percent = used.get(key).copied();
            }
        });
    }

    pub(crate) fn live(&self, consumer: &str, lease_key: &str) -> Option<Arc<Live>> {
        self.with_live(|all| all.get(&(consumer.to_owned(), lease_key.to_owned())).cloned())
    }

    /// Does something to a shard that is stopped, and alone: a consumer that is stopped as a whole lets its shards go.
    /// Whether it is one.
    pub(crate) fn if_stopped(&self, consumer: &str, lease_key: &str, act: impl FnOnce()) -> bool {
        self.with(|consumers| {
            let consumer = consumers.get(consumer).filter(|consumer| consumer.stopped.is_none());
            let is_stopped =
                consumer.and_then(|consumer| consumer.shards.get(lease_key)).is_some_and(ShardStatus::is_stopped);
            if is_stopped {
                act();
            }
            is_stopped
        })
    }

    /// Where an order for all shards of a consumer finds what it does not reach.
    pub(crate) fn set_whole(&self, consumer: &str, shared: Weak<Shared>) {
        self.wholes.lock().unwrap_or_else(PoisonError::into_inner).insert(consumer.to_owned(), shared);
    }

    pub(crate) fn whole(&self, consumer: &str) -> Option<Arc<Shared>> {
        self.wholes.lock().unwrap_or_else(PoisonError::into_inner).get(consumer)?.upgrade()
    }

    /// Why shards are stopped, a sentence for each.
    pub fn stopped(&self) -> Vec<String> {
        self.with(|consumers| stopped(consumers))
    }

    /// What a run that ends by itself leaves undone, a sentence for each: shards that are stopped, and streams that are gone.
    pub fn left_undone(&self) -> Vec<String> {
        self.with(|consumers| stopped(consumers).into_iter().chain(missing(consumers)).collect())
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<String, ConsumerStatus>) -> T) -> T {
        // Entries are plain values: a panic elsewhere cannot leave them half-changed.
        change(&mut self.consumers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn with_live<T>(&self, change: impl FnOnce(&mut LiveShards) -> T) -> T {
        change(&mut self.live.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn missing(consumers: &BTreeMap<String, ConsumerStatus>) -> Vec<String> {
    let all = consumers.iter().flat_map(|(name, consumer)| consumer.missing.iter().map(move |missing| (name, missing)));
    all.map(|(name, (stream, reason))| format!("processor {name}: stream {stream}: {reason}")).collect()
}

fn stopped(consumers: &BTreeMap<String, ConsumerStatus>) -> Vec<String> {
    let mut reasons = Vec::new();
    for (name, consumer) in consumers {
        for status in consumer.shards.values() {
            if let ShardState::Stopped { reason } = &status.state {
                let ShardStatus { stream, shard, .. } = status;
                reasons.push(format!("processor {name}: shard {shard} of stream {stream} is stopped: {reason}"));
            }
        }
    }
    reasons
}
