//! Brings the leases in line with the stream's shards: the leader's work.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use shardmill_cause::{AnyCoded, Code, Coded, code, with_causes};
use tokio::task::JoinError;
use tokio::time::Instant;

use super::Coordinator;
use crate::audit::ListedShard;
use crate::clear::{Cleared, Clearing};
use crate::store::{self, Store};
use crate::{Lease, LeaseKey, NewLease};

/// Knows the stream's shards.
#[async_trait]
pub trait ShardSource: Send + Sync + 'static {
    /// Looks at the stream, and compares it with the leases that are there. Asked at the start, now and then, and after a
    /// lease is complete.
    async fn survey(&self, leases: &[Lease]) -> Result<Survey, AnyCoded>;

    /// Whether a lease is to be run. One that is not is left alone: it belongs to a stream that this consumer does not
    /// read, or that is gone.
    fn runs(&self, _lease: &LeaseKey) -> bool {
        true
    }
}

/// What a stream looks like beside its leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// The leases that should be in the table besides those that are: one for each shard that needs one.
    pub missing: Vec<NewLease>,
    /// The shards that the stream lists. Of a stream that cannot be listed now there are none.
    pub listed: Vec<ListedShard>,
}

/// What a sync did.
#[derive(Debug)]
pub(super) struct Synced {
    created: usize,
    listed: Vec<ListedShard>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the stream's shards cannot be listed")]
    Source { code: Code, source: store::Source },
    #[error("a lease cannot be created")]
    Store(#[from] store::Error),
}

// === impl Error ===

impl From<AnyCoded> for Error {
    fn from(AnyCoded { code, source }: AnyCoded) -> Self {
        Self::Source { code, source }
    }
}

/// The state of syncs.
#[derive(Debug, Default)]
pub(super) struct State {
    /// When the next one is due; at once, if there was none.
    next: Option<Instant>,
    fails: bool,
    /// What the stream listed last, if it ever was.
    pub(super) listed: Option<Arc<[ListedShard]>>,
    pub(super) clearing: Clearing,
}

// === impl State ===

impl State {
    /// The next sync is due at once.
    pub(super) fn make_due(&mut self) {
        self.next = None;
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }
}

// === impl Coordinator ===

impl Coordinator {
    /// On the leader, looks for shards without a lease, aside, because listing shards may take long.
    pub(super) fn start_sync_if_due(&mut self) {
        let now = Instant::now();
        if !self.is_leader() || self.rounds.fails() || !self.syncs.is_empty() || !self.sync.is_due(now) {
            return;
        }
        self.sync.next = Some(now + self.options.sync_interval);
        let leases = self.view.borrow().leases.clone();
        let (store, source) = (self.surroundings.store.clone(), self.source.clone());
        let (recorder, parallelism) = (self.surroundings.recorder.clone(), self.options.parallelism);
        self.syncs.spawn(async move {
            let Survey { missing, listed } = source.survey(&leases).await?;
            let mut created = 0;
            for generation in generations(missing) {
                // At once: a new application on a stream of a thousand shards would wait for a thousand answers.
                let creates = generation.into_iter().map(async |lease| {
                    let is_new = create(&store, &lease).await?;
                    if is_new {
                        recorder.created();
                        tracing::info!(lease = %lease.key, checkpoint = %lease.checkpoint, "lease created");
                    }
                    Ok::<_, store::Error>(is_new)
                });
                let mut creates = stream::iter(creates).buffer_unordered(parallelism);
                while let Some(is_new) = creates.next().await {
                    created += usize::from(is_new?);
                }
            }
            Ok(Synced { created, listed })
        });
    }

    /// Whether leases were created, so that a scan is worth it.
    pub(super) fn note_sync(&mut self, synced: Result<Result<Synced, Error>, JoinError>) -> Result<bool, store::Error> {
        let application = &self.options.application;
        let (error, code) = match synced {
            Ok(Ok(synced)) => {
                if std::mem::take(&mut self.sync.fails) {
                    tracing::info!(application, "shards are listed again");
                }
                // A lease may have waited for it.
                let is_first = self.sync.listed.replace(synced.listed.into()).is_none();
                return Ok(is_first || synced.created > 0);
            }
            Ok(Err(Error::Store(error))) if !self.has_held && error.is_final() => return Err(error),
            Ok(Err(error)) => {
                let code = match &error {
                    Error::Source { code, .. } => *code,
                    Error::Store(error) => error.code(),
                };
                (with_causes(&error), code)
            }
            Err(error) if error.is_cancelled() => return Ok(false),
            Err(error) => (error.to_string(), code::engine::BROKEN),
        };
        self.surroundings.recorder.sync_failed();
        if !std::mem::replace(&mut self.sync.fails, true) {
            tracing::warn!(application, error, %code, "looking for new shards failed; trying again");
        }
        self.sync.next = Some(Instant::now() + self.options.scan_interval.min(self.options.sync_interval));
        // Some leases may have been created before the failure.
        Ok(true)
    }

    /// On the leader, deletes what has served its time: as a rule nothing.
    pub(super) async fn clear(&mut self, leases: &[Lease]) -> Result<(), store::Error> {
        let now = self.surroundings.clock.now();
        let due =
            self.sync.clearing.due(now, self.options.clearing, leases, self.sync.listed.as_deref().unwrap_or_default());
        for (key, why) in due {
            let Some(lease) = leases.iter().find(|lease| lease.key == key) else { continue };
            let deleted = tokio::time::timeout(self.surroundings.write_timeout, self.surroundings.store.delete(lease));
            match deleted.await {
                Ok(Ok(())) => {
                    self.surroundings.recorder.cleared(why.name());
                    tell(lease, why);
                }
                // It has moved meanwhile, or the next round tries again.
                Ok(Err(store::Error::Conflict { .. } | store::Error::Unknown { .. })) | Err(_) => {}
                Ok(Err(error)) => return Err(error),
            }
        }
        Ok(())
    }
}

fn tell(lease: &Lease, why: Cleared) {
    if lease.is_complete() {
        tracing::info!(lease = %lease.key, why = why.name(), "lease deleted: its shard is done");
    } else {
        tracing::warn!(
            lease = %lease.key, checkpoint = %lease.checkpoint,
            "lease deleted: the stream has not listed its shard for long, and it was not done: what was not read of it is gone with its retention"
        );
    }
}

async fn create(store: &Arc<dyn Store>, lease: &NewLease) -> Result<bool, store::Error> {
    match store.create(lease).await {
        // One that is there is there, whoever created it.
        Err(store::Error::Unknown { .. }) if store.get(&lease.key).await?.is_some() => Ok(true),
        result => result,
    }
}

/// Divides leases so that each comes in a later generation than its parents: a lease whose parent has no row counts as
/// ready.
fn generations(leases: Vec<NewLease>) -> Vec<Vec<NewLease>> {
    let mut waiting = leases;
    let mut generations = Vec::new();
    while !waiting.is_empty() {
        let keys: HashSet<LeaseKey> = waiting.iter().map(|lease| lease.key.clone()).collect();
        let has_parent_waiting =
            |lease: &NewLease| lease.parents.iter().any(|parent| keys.contains(&lease.key.sibling(parent)));
        let (later, now): (Vec<_>, Vec<_>) = waiting.into_iter().partition(has_parent_waiting);
        if now.is_empty() {
            // A circle, which no stream has: any order is as good.
            generations.push(later);
            break;
        }
        generations.push(now);
        waiting = later;
    }
    generations
}

#[cfg(test)]
mod tests {
    use shardmill_record::{Checkpoint, ShardId};

    use super::*;

    #[test]
    fn parents_come_before_children_whatever_the_listing_said() {
        let new = |id: &str, parents: &[&str]| NewLease {
            key: LeaseKey::parse(id).unwrap(),
            checkpoint: Checkpoint::TrimHorizon,
            start_at: None,
            parents: parents.iter().map(|parent| ShardId::parse(parent).unwrap()).collect(),
            range: None,
        };
        let listed =
            vec![new("d", &["b", "c"]), new("b", &["a"]), new("c", &["a", "gone"]), new("a", &[]), new("s", &["s"])];
        let generations = generations(listed);
        let names: Vec<Vec<&str>> =
            generations.iter().map(|leases| leases.iter().map(|lease| lease.key.as_str()).collect()).collect();
        assert_eq!(names, [vec!["a"], vec!["b", "c"], vec!["d"], vec!["s"]], "a circle is not left out");
    }
}
