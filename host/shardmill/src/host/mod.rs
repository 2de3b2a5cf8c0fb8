//! The host: a configuration becomes consumers and an admin server (`builder`, from `parts`), which run to their end
//! (this file).

mod builder;
mod error;
mod parts;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use shardmill_engine::{Allowance, Consumer, Guest, Stage, Status};
use shardmill_plugin::Runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::{Server, Sources};
use crate::config::Config;
use crate::deploy::{self, CLOSE_WITHIN, Reloader};
use crate::fleet::follower::{self, Follower};

pub use builder::Builder;
pub(crate) use builder::check_module;
pub(crate) use error::Class;
pub use error::Error;
// `shardmill plugin test` and `bench` run plugins as a worker does.
pub(crate) use parts::{does_not_start, plugin, runtime};

/// How often a bounded run looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// When a run ends by itself, besides a failure. Whichever comes first; by default never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// When everything that this worker has is done up to the tips of its shards, and has been for so long; a second or
    /// more. Shards that are stopped and streams that are gone are waited for no longer, and make the run a failure.
    pub until_idle: Option<Duration>,
    /// When so many user records are processed; no more are.
    pub max_records: Option<u64>,
}

/// Everything of one process, ready to run.
pub struct Host {
    consumers: Vec<(String, Consumer)>,
    /// Processors that others lead to, with their guests, which are closed when nobody calls them any more.
    stages: Vec<(Arc<Stage>, Arc<dyn Guest>)>,
    admin: Option<Server>,
    sources: Sources,
    reloader: Reloader,
    followers: Vec<Follower>,
    progress: Progress,
    bounds: Bounds,
    allowance: Allowance,
    // The epochs that bound guests' time are ticked for as long as this lives.
    _runtime: Runtime,
}

/// What a host has done so far, for whoever runs one as a library.
#[derive(Clone)]
pub struct Progress {
    engine: shardmill_engine::Metrics,
    status: Status,
}

// === impl Host ===

impl Host {
    /// Starts to make a host of a configuration.
    pub fn builder(config: Config) -> Builder {
        Builder::new(config)
    }

    /// Where the admin server listens, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Server::address)
    }

    /// A handle to follow what the host does.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// What reads the configuration and the plugins again.
    pub(crate) fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Runs until `stop` is cancelled or a bound is reached, then finishes what is in flight, checkpoints and releases the
    /// leases; or until a consumer cannot go on, which stops the others in the same way and is returned. One that its
    /// failure policy has stopped alone (`stop-worker`) stops no other; it is returned when there is none left.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let drain = stop.child_token();
        let stop_admin = CancellationToken::new();
        let admin = self.admin.map(|server| {
            let commands = if self.sources.token.is_some() { "with the token" } else { "none, there is no token" };
            tracing::info!(address = %server.address(), commands, "admin server: /healthz, /readyz, /metrics, /status");
            tokio::spawn(server.serve(self.sources.clone(), stop_admin.clone()))
        });
        // The first batches see what the fleet wants. They end with this function too.
        let _following = follower::start(self.followers, &drain).await;
        // Ends with this function, as everything that it delivers.
        let mut watching = JoinSet::new();
        watching.spawn(deploy::watch::run(self.reloader, drain.clone()));
        let mut running = JoinSet::new();
        let mut names = BTreeMap::new();
        for (name, consumer) in self.consumers {
            let handle = running.spawn(consumer.run(drain.clone()));
            names.insert(handle.id(), name);
        }
        let mut first_error = None;
        // Of a consumer that its failure policy has stopped, while the others go on.
        let mut stopped = None;
        let status = self.progress.status;
        let mut bound = std::pin::pin!(reached(self.bounds, self.allowance, status.clone()));
        loop {
            let ended = tokio::select! {
                () = &mut bound, if !drain.is_cancelled() => {
                    // Asked now: a shard that is let go does not say any more that it was stopped.
                    let undone = status.left_undone();
                    if !undone.is_empty() {
                        first_error.get_or_insert(Error::Undone(undone));
                    }
                    drain.cancel();
                    continue;
                }
                () = drain.cancelled(), if !self.sources.stopping.is_cancelled() => {
                    self.sources.stopping.cancel();
                    continue;
                }
                ended = running.join_next_with_id() => ended,
            };
            let Some(ended) = ended else { break };
            let error = match ended {
                Ok((_id, Ok(()))) => continue,
                Ok((id, Err(source @ shardmill_engine::Error::Stopped { process: false, .. }))) => {
                    let processor = names.remove(&id).unwrap_or_default();
                    tracing::warn!(processor, "the processor has stopped on this worker and has let its leases go");
                    stopped.get_or_insert(Error::Consumer { processor, source: Box::new(source) });
                    continue;
                }
                Ok((id, Err(source))) => {
                    Error::Consumer { processor: names.remove(&id).unwrap_or_default(), source: Box::new(source) }
                }
                Err(panic) => Error::Broken {
                    processor: names.remove(&panic.id()).unwrap_or_default(),
                    reason: panic.to_string(),
                },
            };
            first_error.get_or_insert(error);
            drain.cancel();
        }
        for (_stage, guest) in &self.stages {
            // One that hangs is not waited for.
            let _closed = tokio::time::timeout(CLOSE_WITHIN, guest.close()).await;
        }
        stop_admin.cancel();
        if let Some(admin) = admin {
            // An open keep-alive connection must not hold up the end of the process.
            let _closed = tokio::time::timeout(Duration::from_millis(500), admin).await;
        }
        // Without a consumer there is nothing left to run, and nobody has asked for that.
        match first_error.or(stopped.filter(|_| !stop.is_cancelled())) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Returns when the run is to end.
async fn reached(bounds: Bounds, allowance: Allowance, status: Status) {
    let idle = async {
        let Some(grace) = bounds.until_idle else { return std::future::pending().await };
        let mut idle_since = None;
        loop {
            let now = Instant::now();
            if !status.is_idle() {
                idle_since = None;
            } else if now.saturating_duration_since(*idle_since.get_or_insert(now)) >= grace {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        () = allowance.used_up() => {
            tracing::info!(records = bounds.max_records, "so many records are processed: ending");
        }
        () = idle => {
            tracing::info!(grace = ?bounds.until_idle.unwrap_or_default(), "everything is done and nothing comes: ending");
        }
    }
}

// === impl Progress ===

impl Progress {
    /// User records of a processor that are done, skipped ones included.
    pub fn records_done(&self, processor: &str, stream: &str) -> u64 {
        self.engine.records_settled(processor, stream)
    }

    /// Why shards are stopped, a sentence for each.
    pub fn stopped_shards(&self) -> Vec<String> {
        self.status.stopped()
    }

    /// What every shard is doing.
    pub fn status(&self) -> &Status {
        &self.status
    }
}
