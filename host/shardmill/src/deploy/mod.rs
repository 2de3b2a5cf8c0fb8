//! Other versions of plugins while everything runs.
//!
//! Each processor has a [`Slot`] with the version that is current (`slot`). What a version is besides its module the
//! configuration says (`setup`), and what it is granted is looked up for each anew (`grants`). A [`Deployer`] makes another
//! one beside it (`prepare`: the code compiled or taken from the cache, contract and grants checked, `init` run, `trial`
//! records processed) and only then puts it in its place; what is refused changes nothing (`refusal`). A [`Reloader`] does
//! the same with the whole configuration, and `watch` tells both of files that have changed.

mod grants;
mod metrics;
mod prepare;
mod refusal;
mod reloader;
mod setup;
mod shown;
mod slot;
mod trial;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shardmill_cause::Coded;
use shardmill_engine::Status;
use shardmill_plugin::{Digest, Runtime};
use tokio_util::sync::CancellationToken;

pub(crate) use grants::{Error as GrantError, without_values};
pub(crate) use metrics::Metrics;
use prepare::Prepared;
pub(crate) use refusal::Refusal;
pub(crate) use reloader::{Live, Reloader, Why};
pub(crate) use setup::{Setup, outcome_limits, settings};
pub(crate) use shown::Shown;
pub(crate) use slot::{Call, Slot};

/// No plugin is as large as this.
pub(crate) const MAX_PLUGIN: usize = crate::config::MAX_PLUGIN as usize;

/// How long instances may take to end that are not called any more.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// What is to be a processor's plugin.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) bytes: Vec<u8>,
    /// Where they come from, a path or a URL: for messages.
    pub(crate) from: String,
    /// What their digest must be, where somebody has said so.
    pub(crate) expect: Option<Digest>,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) digest: Digest,
    pub(crate) from: String,
    pub(crate) since: SystemTime,
}

/// What came of a deploy that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deployed {
    /// Each shard goes on with the other version from its next call on.
    Switched { from: Digest, to: Digest },
    /// It is what runs, with the same settings.
    Unchanged,
}

/// Puts other versions of plugins in the place of those that run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Deployer(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    slots: BTreeMap<String, Arc<Slot>>,
    status: Status,
    metrics: Metrics,
    /// Cancelled when the process is stopping.
    stopping: CancellationToken,
}

// === impl Deployer ===

impl Deployer {
    pub(crate) fn new(
        runtime: Runtime,
        slots: BTreeMap<String, Arc<Slot>>,
        status: Status,
        metrics: Metrics,
        stopping: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner { runtime, slots, status, metrics, stopping }))
    }

    /// Loads a plugin beside the one that runs, and switches when it is good: compiled code from the cache, contract and
    /// grants checked, instances started with `init`, the trial records processed if there are any. It lasts until the
    /// process ends, or the processor's file changes. Deploys of one processor come one after the other; dropped before its
    /// end, one changes nothing.
    ///
    /// # Errors
    /// Why nothing has changed. That is counted, logged once for each digest, and shown until a good one comes.
    pub(crate) async fn deploy(&self, processor: &str, candidate: Candidate) -> Result<Deployed, Refusal> {
        let Candidate { bytes, from, expect } = candidate;
        let slot = self.slot(processor)?;
        let _work = slot.work().await;
        let found = Digest::of(&bytes);
        if let Some(expected) = expect.filter(|expected| *expected != found) {
            let refusal = Refusal::Digest { expected, found };
            return Err(self.refused(slot, found, &from, refusal));
        }
        self.deploy_bytes(slot, (found, bytes), from).await
    }

    /// Deploys what is in the processor's file now, unless that is what was there before: what somebody has deployed in
    /// other ways stays until the file changes.
    pub(crate) async fn deploy_file(&self, processor: &str, bytes: Vec<u8>) -> Result<Deployed, Refusal> {
        let slot = self.slot(processor)?;
        let mut work = slot.work().await;
        let found = Digest::of(&bytes);
        slot.set_file_trouble(None);
        if work.file == found {
            return Ok(Deployed::Unchanged);
        }
        let from = slot.setup().path.display().to_string();
        let deployed = self.deploy_bytes(slot, (found, bytes), from).await;
        if deployed.is_ok() {
            slot.set_own(found);
        }
        // A machine that could not do it may be able to when it is asked again.
        if !deployed.as_ref().is_err_and(Refusal::is_passing) {
            work.file = found;
        }
        deployed
    }

    /// What runs, by processor.
    pub(crate) fn running(&self) -> BTreeMap<String, Running> {
        self.0.slots.iter().map(|(name, slot)| (name.clone(), slot.running())).collect()
    }

    /// The processor's file, as messages name it.
    pub(crate) fn file(&self, processor: &str) -> String {
        let slot = self.0.slots.get(processor);
        slot.map(|slot| slot.setup().path.display().to_string()).unwrap_or_default()
    }

    /// The processor's file, and the last version of it that was taken. `None` if there is no such processor.
    pub(crate) fn own(&self, processor: &str) -> Option<(PathBuf, Digest)> {
        self.0.slots.get(processor).map(|slot| slot.own())
    }

    /// Tells no more that this was not taken: nobody wants it any more.
    pub(crate) fn forget_refused(&self, processor: &str, digest: &Digest) {
        if let Some(slot) = self.0.slots.get(processor) {
            slot.forget_refused(digest);
        }
    }

    /// What is told of each processor's plugin.
    pub(crate) fn shown(&self) -> BTreeMap<String, Shown> {
        let slots = self.0.slots.values();
        self.running().into_iter().zip(slots).map(|((name, running), slot)| (name, slot.shown(running))).collect()
    }

    /// Shards that the failure policy has stopped, and that stay so whatever is deployed. What stops a stage stops the shard
    /// whose record it is, whoever reads that.
    pub(crate) fn stopped_shards(&self, processor: &str) -> usize {
        let consumers = self.0.status.snapshot();
        let stopped = |consumer: &shardmill_engine::ConsumerStatus| {
            let shards = consumer.shards.values();
            shards.filter(|shard| matches!(shard.state, shardmill_engine::ShardState::Stopped { .. })).count()
        };
        match consumers.get(processor) {
            Some(consumer) => stopped(consumer),
            None => consumers.values().map(stopped).sum(),
        }
    }

    fn slot(&self, processor: &str) -> Result<&Arc<Slot>, Refusal> {
        if self.0.stopping.is_cancelled() {
            return Err(Refusal::Stopping);
        }
        self.0.slots.get(processor).ok_or_else(|| Refusal::NoProcessor {
            processor: processor.to_owned(),
            known: self.0.slots.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }

    /// For who has the right to it.
    async fn deploy_bytes(
        &self,
        slot: &Arc<Slot>,
        (digest, bytes): (Digest, Vec<u8>),
        from: String,
    ) -> Result<Deployed, Refusal> {
        match self.prepare(slot, (digest, bytes), &from).await {
            Ok(Some((prepared, setup))) => {
                slot.set_setup(setup);
                Ok(self.switch(slot, prepared))
            }
            Ok(None) => {
                self.unchanged(slot);
                Ok(Deployed::Unchanged)
            }
            Err(refusal) => Err(self.refused(slot, digest, &from, refusal)),
        }
    }

    /// Another version, with what it is granted as that is now; none if that is what runs.
    async fn prepare(
        &self,
        slot: &Arc<Slot>,
        (digest, bytes): (Digest, Vec<u8>),
        from: &str,
    ) -> Result<Option<(Prepared, Setup)>, Refusal> {
        let (running, before) = (slot.running(), slot.setup());
        let setup = before.again().await?;
        let is_running = running.digest == digest;
        if is_running && setup.settings == before.settings {
            return Ok(None);
        }
        slot.until_ended().await;
        let runtime = &self.0.runtime;
        let prepared = if is_running {
            let module = slot.pool().plugin().module().clone();
            prepare::start(runtime, slot, &setup, module, running.from).await?
        } else {
            prepare::load(runtime, slot, &setup, bytes, from).await?
        };
        Ok(Some((prepared, setup)))
    }

    fn switch(&self, slot: &Arc<Slot>, prepared: Prepared) -> Deployed {
        let Prepared { plugin, warm, from } = prepared;
        let to = plugin.module().digest();
        let before = slot.switch(plugin, warm, from.clone());
        self.0.metrics.switched(slot.processor());
        let (processor, from, file) = (slot.processor(), before.digest, &from);
        let what = if from == to { "the plugin with other settings" } else { "another version of the plugin" };
        match self.stopped_shards(processor) {
            0 => tracing::info!(
                processor, %from, %to, file,
                "{what}: each shard goes on with it from its next call on"
            ),
            stopped => tracing::warn!(
                processor, %from, %to, file, stopped,
                "{what}: each shard goes on with it from its next call on; shards that are stopped stay so until \
                 `shardmill restart`"
            ),
        }
        Deployed::Switched { from: before.digest, to }
    }

    fn unchanged(&self, slot: &Slot) {
        slot.set_refused(None);
        self.0.metrics.unchanged(slot.processor());
    }

    fn refused(&self, slot: &Slot, digest: Digest, from: &str, refusal: Refusal) -> Refusal {
        self.0.metrics.refused(slot.processor());
        let reason = shardmill_cause::with_causes(&refusal);
        let running = slot.running();
        if slot.set_refused(Some((digest, from.to_owned(), reason.clone()))) {
            tracing::warn!(
                processor = slot.processor(), refused = %digest, file = from, reason, runs = %running.digest, code = %refusal.code(),
                "a version of the plugin is refused: nothing has changed"
            );
        }
        refusal
    }
}
