//! Where leases come from: the shards of the consumer's streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use shardmill_cause::AnyCoded;
use shardmill_lease::audit::ListedShard;
use shardmill_lease::{Lease, LeaseKey, NewLease, ShardSource, Survey};
use shardmill_record::{Checkpoint, ShardId};
use shardmill_stream::lineage::{LeaseState, MissingLease, children_of, missing_leases};
use shardmill_stream::{ChildShard, Kind};

use crate::input::{Incarnation, Input, Stream};
use crate::wall_clock::now_ms;

/// Names the shards that take over when one ends.
#[async_trait]
pub(crate) trait Directory: Send + Sync {
    /// The leases of the children. `named` are those that the service gave with the shard's last page; without, the
    /// stream's shards are listed.
    async fn children(&self, shard: &ShardId, named: Option<&[ChildShard]>) -> Result<Vec<NewLease>, AnyCoded>;

    /// The ARN of the stream whose shards these are.
    fn stream_arn(&self) -> &str;
}

/// The streams of one consumer, asked of Kinesis.
#[derive(Debug, Clone)]
pub(crate) struct Streams(pub(crate) Arc<[Arc<Stream>]>);

/// The shards of a stream as it was when one of them was leased.
#[derive(Debug)]
pub(crate) struct Siblings {
    pub(crate) stream: Arc<Stream>,
    pub(crate) incarnation: Arc<Incarnation>,
}

#[derive(Debug, thiserror::Error)]
#[error("stream `{0}` is not there, or another one took its place")]
pub(crate) struct Changed(Arc<str>);

// === impl Streams ===

impl Streams {
    /// The stream of a lease, and what of it is read now; `None` if the lease is not to be run.
    pub(crate) fn of(&self, lease: &LeaseKey) -> Option<(Arc<Stream>, Arc<Incarnation>)> {
        self.0.iter().find_map(|stream| {
            let incarnation = stream.incarnation().filter(|incarnation| incarnation.owns(lease))?;
            Some((Arc::clone(stream), incarnation))
        })
    }
}

#[async_trait]
impl ShardSource for Streams {
    /// A stream that cannot be listed does not keep the others' shards from being found.
    async fn survey(&self, leases: &[Lease]) -> Result<Survey, AnyCoded> {
        let found = futures::future::join_all(self.0.iter().map(|stream| stream.survey(leases))).await;
        let mut survey = Survey::default();
        let mut failed = None;
        for found in found {
            match found {
                Ok(Survey { missing, listed }) => {
                    survey.missing.extend(missing);
                    survey.listed.extend(listed);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if survey.listed.is_empty() => Err(error),
            _ => Ok(survey),
        }
    }

    fn runs(&self, lease: &LeaseKey) -> bool {
        self.of(lease).is_some()
    }
}

impl Stream {
    async fn survey(&self, leases: &[Lease]) -> Result<Survey, AnyCoded> {
        let Some(incarnation) = self.incarnation() else { return Ok(Survey::default()) };
        let Input { options, kinesis, .. } = &self.input;
        let listing = match kinesis.list_shards(&options.stream).await {
            Ok(listing) => listing,
            Err(error) => {
                if error.kind() == Kind::NotFound {
                    self.raise_alarm();
                }
                return Err(error.into());
            }
        };
        // Asked after the listing: if the stream is the same now, the listing was of it. Leases of another one are not to
        // be created among those of this one. What cannot be asked is not known, and the listing is most likely right.
        if let Ok(info) = kinesis.describe(&options.stream).await
            && !incarnation.is_same(&info)
        {
            self.raise_alarm();
            return Err(Changed(Arc::clone(&options.stream)).into());
        }
        let mut states = BTreeMap::new();
        for lease in leases.iter().filter(|lease| incarnation.owns(&lease.key)) {
            states.insert(lease.key.shard_id()?, LeaseState::of(&lease.checkpoint, lease.start_at));
        }
        let missing = missing_leases(&listing, &states, options.start.position, now_ms());
        let to_lease = |missing: MissingLease| NewLease {
            key: incarnation.lease_key(&missing.shard),
            checkpoint: missing.checkpoint,
            start_at: missing.start_at,
            parents: missing.parents,
            range: Some(missing.range),
        };
        let listed = |shard: &shardmill_stream::Shard| ListedShard {
            key: incarnation.lease_key(&shard.id),
            is_open: shard.is_open(),
            parents: shard.parents.iter().map(|parent| incarnation.lease_key(parent)).collect(),
            range: shard.range,
        };
        let listed = listing.iter().map(listed).collect();
        Ok(Survey { missing: missing.into_iter().map(to_lease).collect(), listed })
    }
}

#[async_trait]
impl Directory for Siblings {
    async fn children(&self, shard: &ShardId, named: Option<&[ChildShard]>) -> Result<Vec<NewLease>, AnyCoded> {
        let stream = self.stream.name();
        let children = match named {
            Some(named) => named.to_vec(),
            None => {
                let listing = self.stream.input.kinesis.list_shards(stream).await?;
                if self.stream.incarnation().as_ref() != Some(&self.incarnation) {
                    return Err(Changed(Arc::clone(stream)).into());
                }
                children_of(shard, &listing).into_iter().map(shardmill_stream::Shard::as_child).collect()
            }
        };
        Ok(children.into_iter().map(|child| self.lease_of(child)).collect())
    }

    fn stream_arn(&self) -> &str {
        &self.incarnation.info.arn
    }
}

impl Siblings {
    /// A child is read from its beginning, so that nothing between it and its parents is skipped.
    fn lease_of(&self, child: ChildShard) -> NewLease {
        NewLease {
            key: self.incarnation.lease_key(&child.id),
            checkpoint: Checkpoint::TrimHorizon,
            start_at: None,
            parents: child.parents,
            range: Some(child.range),
        }
    }
}
