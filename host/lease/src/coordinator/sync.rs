use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use shardmill_cause::with_causes;
use tokio::task::JoinError;

use super::Coordinator;
use crate::store::{self, Store};
use crate::{Lease, LeaseKey, NewLease};

/// Knows the stream's shards.
#[async_trait]
pub trait ShardSource: Send + Sync + 'static {
    /// The leases that should be in the table besides these: one for each shard that has none. Asked at the start,
    /// now and then, and after a lease is complete. Parents are created before their children.
    async fn missing(&self, leases: &[Lease]) -> Result<Vec<NewLease>, store::Source>;
}

/// What a sync did.
#[derive(Debug)]
pub(super) struct Synced {
    created: usize,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the stream's shards cannot be listed")]
    Source(#[source] store::Source),
    #[error("a lease cannot be created")]
    Store(#[from] store::Error),
}

// === impl Coordinator ===

impl Coordinator {
    /// Looks for shards without a lease, aside, because listing shards may take long.
    pub(super) fn start_sync(&mut self) {
        let leases = self.table.borrow().clone();
        let (store, source) = (self.surroundings.store.clone(), self.source.clone());
        let recorder = self.surroundings.recorder.clone();
        self.syncs.spawn(async move {
            let mut created = 0;
            for lease in parents_first(source.missing(&leases).await.map_err(Error::Source)?) {
                if create(&store, &lease).await? {
                    created += 1;
                    recorder.created();
                    tracing::info!(lease = %lease.key, checkpoint = %lease.checkpoint, "lease created");
                }
            }
            Ok(Synced { created })
        });
    }

    /// Whether leases were created, so that a scan is worth it.
    pub(super) fn note_sync(&mut self, synced: Result<Result<Synced, Error>, JoinError>) -> bool {
        let application = &self.options.application;
        let error = match synced {
            Ok(Ok(synced)) => {
                if self.sync_fails {
                    tracing::info!(application, "shards are listed again");
                }
                self.sync_fails = false;
                return synced.created > 0;
            }
            Ok(Err(error)) => with_causes(&error),
            Err(error) if error.is_cancelled() => return false,
            Err(error) => error.to_string(),
        };
        self.surroundings.recorder.sync_failed();
        if !self.sync_fails {
            tracing::warn!(application, error, "looking for new shards failed; trying again");
        }
        self.sync_fails = true;
        // Some leases may have been created before the failure.
        true
    }
}

async fn create(store: &Arc<dyn Store>, lease: &NewLease) -> Result<bool, store::Error> {
    match store.create(lease).await {
        // One that is there is there, whoever created it.
        Err(store::Error::Unknown { .. }) if store.get(&lease.key).await?.is_some() => Ok(true),
        result => result,
    }
}

/// Orders leases so that each comes after its parents: a lease whose parent has no row counts as ready.
fn parents_first(leases: Vec<NewLease>) -> Vec<NewLease> {
    let mut waiting = leases;
    let mut ordered = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let keys: HashSet<LeaseKey> = waiting.iter().map(|lease| lease.key.clone()).collect();
        let has_parent_waiting =
            |lease: &NewLease| lease.parents.iter().any(|parent| keys.contains(&lease.key.sibling(parent)));
        let (later, now): (Vec<_>, Vec<_>) = waiting.into_iter().partition(has_parent_waiting);
        if now.is_empty() {
            // A circle, which no stream has: any order is as good.
            ordered.extend(later);
            break;
        }
        ordered.extend(now);
        waiting = later;
    }
    ordered
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
        let ordered = parents_first(listed);
        let at = |id: &str| ordered.iter().position(|lease| lease.key.as_str() == id).unwrap();
        assert!(at("a") < at("b") && at("a") < at("c") && at("b") < at("d") && at("c") < at("d"));
        assert_eq!(ordered.len(), 5, "a circle is not left out");
    }
}
