//! What becomes of answers of the service, for the fuzz targets and for nobody else.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use bytes::Bytes;
use shardmill_record::{HashKey, HashKeyRange, SequenceNumber, ShardId};

use crate::answer::Failure;
use crate::call::{self, Caller};
use crate::{Metrics, Permit, listing};

/// Why a call, or one entry of it, did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The service's code, or what is in its place.
    pub code: String,
    /// What the service said, or what happened.
    pub reason: String,
    /// What somebody has to do before it can succeed.
    pub advice: Option<&'static str>,
    /// Whether nobody knows whether it was done.
    pub is_unknown: bool,
}

/// Where a hash key goes: the shard and its range.
pub type Place = Option<(ShardId, HashKeyRange)>;

/// Puts so many records in one request: for each where it was stored, or why it was not.
pub async fn put(client: &Client, stream: &str, records: usize) -> Vec<Result<(ShardId, SequenceNumber), Failed>> {
    let metrics = Arc::new(Metrics::default().of_stream(stream));
    let caller = Caller::new(client, stream.into(), Duration::from_secs(60), metrics);
    let entry = |number: usize| call::entry(number.to_string(), None, Bytes::from_static(b"data"));
    let outcomes = caller.put((0..records).map(entry).collect(), &Permit::always()).await;
    let outcomes = outcomes.expect("the permit is not withdrawn").into_iter();
    outcomes
        .map(|outcome| outcome.map(|stored| (stored.shard, stored.sequence_number)).map_err(|failure| failed(&failure)))
        .collect()
}

/// Lists a stream's shards: how many are open, and where each of these hash keys goes.
///
/// # Errors
/// They cannot be listed.
pub async fn shards(client: &Client, stream: &str, keys: &[HashKey]) -> Result<(usize, Vec<Place>), Failed> {
    let map = listing::list_shards(client, stream).await.map_err(|failure| failed(&failure))?;
    let place = |key: &HashKey| {
        let shard = map.shard(map.predict(*key)?);
        Some((shard.id.clone(), shard.range))
    };
    Ok((map.len(), keys.iter().map(place).collect()))
}

/// How large a Kinesis record of the stream may be, if the service says.
///
/// # Errors
/// The service does not answer as it should.
pub async fn max_record_bytes(client: &Client, stream: &str) -> Result<Option<usize>, Failed> {
    listing::max_record_bytes(client, stream).await.map_err(|failure| failed(&failure))
}

fn failed(failure: &Failure) -> Failed {
    Failed {
        code: failure.code.clone(),
        reason: failure.reason.clone(),
        advice: failure.advice(),
        is_unknown: failure.is_unknown(),
    }
}
