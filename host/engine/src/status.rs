//! What every shard of this worker is doing, for health checks and people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_lease::LeaseKey;
use shardmill_record::ShardId;
use tokio::sync::Notify;

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
    /// How far the tip of the shard is ahead, where the service tells.
    pub millis_behind_latest: Option<u64>,
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
    /// The shards whose leases this worker holds, by the leases' keys.
    pub shards: BTreeMap<String, ShardStatus>,
}

/// The consumers of a process. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Status {
    consumers: Arc<Mutex<BTreeMap<String, ConsumerStatus>>>,
    /// What starts stopped shards again.
    restarts: Arc<Mutex<Restarts>>,
}

/// By consumer and lease.
type Restarts = BTreeMap<(String, String), Arc<Notify>>;

/// Where one shard's task writes what it is doing; the shard's entry goes when this is dropped.
#[derive(Debug)]
pub struct ShardEntry {
    status: Status,
    consumer: String,
    key: String,
    restart: Arc<Notify>,
}

// === impl Status ===

impl Status {
    /// Makes a consumer known before it has done anything.
    pub fn add_consumer(&self, name: &str) {
        self.with(|consumers| {
            consumers.entry(name.to_owned()).or_default();
        });
    }

    /// Says that the consumer has seen its stream and its lease table.
    pub fn set_started(&self, name: &str) {
        self.with(|consumers| consumers.entry(name.to_owned()).or_default().started = true);
    }

    /// Says that the failure policy has stopped the consumer on this worker, and why.
    pub fn set_consumer_stopped(&self, name: &str, reason: &str) {
        self.with(|consumers| {
            consumers.entry(name.to_owned()).or_default().stopped = Some(reason.to_owned());
        });
    }

    /// Starts a stopped shard again, from its last checkpoint. `consumer` is the processor's name, and `lease` the key of
    /// the shard's lease, as [`snapshot`](Self::snapshot) gives both. Whether there is such a shard and it is stopped;
    /// what comes of it is in its state.
    pub fn restart(&self, consumer: &str, lease: &str) -> bool {
        self.with(|consumers| {
            let consumers = consumers.get(consumer).filter(|consumer| consumer.stopped.is_none());
            let shard = consumers.and_then(|consumer| consumer.shards.get(lease));
            let is_stopped = shard.is_some_and(|shard| matches!(shard.state, ShardState::Stopped { .. }));
            let restarts = self.restarts.lock().unwrap_or_else(PoisonError::into_inner);
            let restart = restarts.get(&(consumer.to_owned(), lease.to_owned())).filter(|_| is_stopped);
            // Kept for a task that is not waiting yet.
            restart.map(|restart| restart.notify_one()).is_some()
        })
    }

    /// Says what the lease room sees: whether this worker leads, and what nobody reads.
    pub fn set_fleet(&self, name: &str, view: &shardmill_lease::View) {
        self.with(|consumers| {
            let consumer = consumers.entry(name.to_owned()).or_default();
            consumer.leads = view.leads;
            consumer.unattended = view.audit.holes.iter().map(ToString::to_string).collect();
        });
    }

    /// Says that a stream is gone, or why; with `None`, that it is there again.
    pub fn set_missing(&self, consumer: &str, stream: &str, reason: Option<String>) {
        self.with(|consumers| {
            let missing = &mut consumers.entry(consumer.to_owned()).or_default().missing;
            match reason {
                Some(reason) => missing.insert(stream.to_owned(), reason),
                None => missing.remove(stream),
            }
        });
    }

    /// Adds a shard, which is known by its lease's key: shards of different streams have the same ids.
    pub fn add_shard(&self, consumer: &str, stream: &str, shard: &ShardId, lease: &LeaseKey) -> ShardEntry {
        let initial = ShardStatus {
            stream: stream.to_owned(),
            shard: shard.to_string(),
            state: ShardState::Starting,
            position: None,
            millis_behind_latest: None,
        };
        let key = lease.to_string();
        let restart = Arc::new(Notify::new());
        self.with(|consumers| {
            consumers.entry(consumer.to_owned()).or_default().shards.insert(key.clone(), initial);
            let mut restarts = self.restarts.lock().unwrap_or_else(PoisonError::into_inner);
            restarts.insert((consumer.to_owned(), key.clone()), Arc::clone(&restart));
        });
        ShardEntry { status: self.clone(), consumer: consumer.to_owned(), key, restart }
    }

    /// Whether the consumer holds leases.
    pub(crate) fn holds_shards(&self, name: &str) -> bool {
        self.with(|consumers| consumers.get(name).is_some_and(|consumer| !consumer.shards.is_empty()))
    }

    /// Everything, as it is now.
    pub fn snapshot(&self) -> BTreeMap<String, ConsumerStatus> {
        self.with(|consumers| consumers.clone())
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
                for (stream, reason) in &consumer.missing {
                    reasons.push(format!("processor {name}: stream {stream}: {reason}"));
                }
            }
            for (name, consumer) in consumers.iter() {
                reasons.extend(consumer.unattended.iter().map(|hole| format!("processor {name}: {hole}")));
            }
            reasons.extend(stopped(consumers));
            reasons
        })
    }

    /// Why shards are stopped, a sentence for each.
    pub fn stopped(&self) -> Vec<String> {
        self.with(|consumers| stopped(consumers))
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<String, ConsumerStatus>) -> T) -> T {
        // Entries are plain values: a panic elsewhere cannot leave them half-changed.
        change(&mut self.consumers.lock().unwrap_or_else(PoisonError::into_inner))
    }
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

// === impl ShardEntry ===

impl ShardEntry {
    /// Says what the task does now.
    pub fn set_state(&self, state: ShardState) {
        self.update(|status| status.state = state);
    }

    /// Says how far everything is done.
    pub fn set_position(&self, position: String) {
        self.update(|status| status.position = Some(position));
    }

    /// Says how far the tip is ahead.
    pub fn set_lag(&self, millis_behind_latest: Option<u64>) {
        self.update(|status| status.millis_behind_latest = millis_behind_latest);
    }

    /// Resolves when the stopped shard is to start again.
    pub(crate) async fn restarted(&self) {
        self.restart.notified().await;
    }

    fn update(&self, change: impl FnOnce(&mut ShardStatus)) {
        self.status.with(|consumers| {
            let shard = consumers.get_mut(&self.consumer).and_then(|consumer| consumer.shards.get_mut(&self.key));
            if let Some(status) = shard {
                change(status);
            }
        });
    }
}

impl Drop for ShardEntry {
    fn drop(&mut self) {
        self.status.with(|consumers| {
            if let Some(consumer) = consumers.get_mut(&self.consumer) {
                consumer.shards.remove(&self.key);
            }
            let mut restarts = self.status.restarts.lock().unwrap_or_else(PoisonError::into_inner);
            restarts.remove(&(self.consumer.clone(), self.key.clone()));
        });
    }
}
