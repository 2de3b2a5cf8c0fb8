//! Which streams a lease table is for, and the end of the leases of a stream that is gone.
//!
//! A stream that is deleted and created again has the same name, ARN and shard ids; its creation time tells that the
//! checkpoints in the table belong to a stream that is gone. Their leases are removed, and work begins anew.
//!
//! In a table of one stream the new leases have the keys of the old ones, and a new row may look like an old one. So
//! the stream's document is a lock first and says the new stream last: whoever removes leases has put its name into the
//! document, and removes none once so much time has passed that another may have taken over; and leases are created only
//! by those who have seen the document say the new stream, which is written when no old lease is left. Were the new
//! stream written first, a slow worker could remove leases of its; were the old leases removed without the lock, a slow
//! worker could do so after another had finished.

use std::time::Duration;

use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use shardmill_record::StreamArn;

use super::{Document, Error, Sidecar, Store};
use crate::{Clock, Lease, Moment, StreamKey};

/// What the keys of the documents begin with.
const PREFIX: &str = "stream/";
/// How long whoever removes leases may go on without renewing its lock.
const HOLD: Duration = Duration::from_secs(10);
/// How long a lock must stand still before another takes it: longer than [`HOLD`], by any clock.
const TAKE_OVER: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Removals at a time.
const PARALLELISM: usize = 16;

/// A stream as lease tables know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamIdentity {
    /// The stream's ARN.
    pub arn: String,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
    /// How the table's keys are made. Chosen with the first stream, never changed.
    pub key_form: KeyForm,
}

/// How lease keys are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyForm {
    /// The shard id: the table belongs to one stream.
    Shard,
    /// The KCL's multi-stream form, `account:stream:creationEpoch:shardId`.
    MultiStream,
}

/// What [`claim_stream`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamClaim {
    /// The table's leases of this stream belong to it.
    Same,
    /// The table holds leases of an earlier stream of this ARN, or they are being removed: [`retire_leases`], then claim
    /// again.
    Earlier(StreamIdentity),
    /// The table holds leases of a later stream of this ARN: what the caller knows of the stream is old.
    Later(StreamIdentity),
    /// The table belongs to one stream, and that is another.
    OtherStream(StreamIdentity),
    /// The table's keys have another form.
    OtherForm(KeyForm),
}

/// A stream's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claimed {
    #[serde(flatten)]
    identity: StreamIdentity,
    /// Who removes its leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retiring: Option<String>,
    /// Whether its leases were removed because it is gone.
    #[serde(default, skip_serializing_if = "is_false")]
    retired: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(value: &bool) -> bool {
    !value
}

// === impl StreamIdentity ===

impl StreamIdentity {
    /// The key of the stream's leases, where keys name it and the ARN is one.
    pub fn stream_key(&self) -> Option<StreamKey> {
        let arn = StreamArn::parse(&self.arn).ok().filter(|_| self.key_form == KeyForm::MultiStream)?;
        Some(StreamKey::new(&arn, self.created_at))
    }

    /// Streams of one name may be in many accounts and regions; a table of one stream has one of the name.
    fn document(&self) -> String {
        match self.key_form {
            KeyForm::Shard => {
                let name = self.arn.rsplit_once('/').map_or(self.arn.as_str(), |(_, name)| name);
                format!("{PREFIX}{name}")
            }
            KeyForm::MultiStream => format!("{PREFIX}{}", self.arn),
        }
    }

    fn owns(&self, lease: &Lease) -> bool {
        lease.key.stream() == self.stream_key()
    }
}

// === impl KeyForm ===

impl KeyForm {
    fn of(lease: &Lease) -> Self {
        if lease.key.stream().is_some() { Self::MultiStream } else { Self::Shard }
    }
}

// === impl Claimed ===

impl Claimed {
    fn new(identity: StreamIdentity) -> Self {
        Self { identity, retiring: None, retired: false }
    }

    fn read(sidecar: &dyn Sidecar, key: &str, document: Document) -> Result<Self, Error> {
        serde_json::from_value(document.body).map_err(|error| invalid(sidecar, key, &error))
    }

    async fn put(&self, sidecar: &dyn Sidecar, key: &str, version: Option<u64>) -> Result<bool, Error> {
        let body = serde_json::to_value(self).map_err(|error| invalid(sidecar, key, &error))?;
        sidecar.put_document(key, &body, version).await
    }
}

fn invalid(sidecar: &dyn Sidecar, key: &str, error: &serde_json::Error) -> Error {
    let (table, key) = (sidecar.sidecar_table().to_owned(), key.to_owned());
    Error::InvalidDocument { table, key, problem: error.to_string() }
}

/// Notes with the leases which stream they are for, the first time; afterwards, compares.
pub async fn claim_stream(store: &dyn Store, identity: &StreamIdentity) -> Result<StreamClaim, Error> {
    let key = identity.document();
    loop {
        if let Some(document) = store.document(&key).await? {
            let version = document.version;
            let stored = Claimed::read(store, &key, document)?;
            let found = compare(&stored, identity);
            // Its leases were removed because it could not be found, and it is there.
            if found == StreamClaim::Same && stored.retired {
                if Claimed::new(identity.clone()).put(store, &key, Some(version)).await? {
                    return Ok(StreamClaim::Same);
                }
                continue;
            }
            return Ok(found);
        }
        if let Some(other) = conflict(store, identity).await? {
            return Ok(other);
        }
        // If another worker is first, its document is read in the next round.
        if Claimed::new(identity.clone()).put(store, &key, None).await? {
            // Two that write at once, each for its own, both look afterwards: at least one of them sees the other.
            if let Some(other) = conflict(store, identity).await? {
                store.delete_document(&key, 1).await?;
                return Ok(other);
            }
            return Ok(StreamClaim::Same);
        }
    }
}

fn compare(stored: &Claimed, identity: &StreamIdentity) -> StreamClaim {
    let found = stored.identity.clone();
    if found.key_form != identity.key_form {
        StreamClaim::OtherForm(found.key_form)
    } else if found.arn != identity.arn {
        StreamClaim::OtherStream(found)
    } else if found.created_at > identity.created_at {
        StreamClaim::Later(found)
    } else if found.created_at < identity.created_at || stored.retiring.is_some() {
        StreamClaim::Earlier(found)
    } else {
        StreamClaim::Same
    }
}

/// What the table is for besides, if the two do not go together.
async fn conflict(store: &dyn Store, identity: &StreamIdentity) -> Result<Option<StreamClaim>, Error> {
    let own = identity.document();
    let documents = store.documents(PREFIX).await?;
    let mut others = 0;
    for (key, document) in documents.into_iter().filter(|(key, _)| *key != own) {
        others += 1;
        let other = Claimed::read(store, &key, document)?.identity;
        if other.key_form != identity.key_form {
            return Ok(Some(StreamClaim::OtherForm(other.key_form)));
        }
        if identity.key_form == KeyForm::Shard {
            return Ok(Some(StreamClaim::OtherStream(other)));
        }
    }
    if others > 0 {
        return Ok(None);
    }
    // A KCL's table says it by its rows alone.
    let listing = store.list().await?;
    let form = listing.leases.iter().map(KeyForm::of).find(|form| *form != identity.key_form);
    Ok(form.map(StreamClaim::OtherForm))
}

/// Removes the leases of a stream that is gone. `next` is the one that took its place: the table belongs to it
/// afterwards. `me` tells this process from all others. `None` if another worker has done it; else how many were removed.
///
/// Whoever still holds one of the leases loses it with its next write.
pub async fn retire_leases(
    store: &dyn Store,
    clock: &dyn Clock,
    me: &str,
    gone: &StreamIdentity,
    next: Option<&StreamIdentity>,
) -> Result<Option<usize>, Error> {
    let key = gone.document();
    let mut still = None;
    let mut removed = 0;
    loop {
        let Some(document) = store.document(&key).await? else { return Ok(None) };
        let version = document.version;
        let stored = Claimed::read(store, &key, document)?;
        if stored.identity != *gone || (stored.retired && next.is_none()) {
            return Ok(None);
        }
        let is_anothers = stored.retiring.as_ref().is_some_and(|other| other != me);
        if is_anothers && !has_stood_still(&mut still, version, clock.now()) {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        let deadline = clock.now() + HOLD;
        let locked = Claimed { retiring: Some(me.to_owned()), ..stored };
        if !locked.put(store, &key, Some(version)).await? {
            continue;
        }
        if !remove(store, clock, deadline, gone, &mut removed).await? {
            // Too slow: whoever else waits for the lock goes first.
            tokio::time::sleep(TAKE_OVER + LOOK_EVERY).await;
            continue;
        }
        let after = match next {
            Some(next) => Claimed::new(next.clone()),
            None => Claimed { retired: true, ..Claimed::new(gone.clone()) },
        };
        if after.put(store, &key, Some(version + 1)).await? {
            return Ok(Some(removed));
        }
    }
}

fn has_stood_still(seen: &mut Option<(u64, Moment)>, version: u64, now: Moment) -> bool {
    match seen {
        Some((seen, since)) if *seen == version => now.saturating_since(*since) >= TAKE_OVER,
        _ => {
            *seen = Some((version, now));
            false
        }
    }
}

/// Removes until none is left. `false` if the time was over first.
async fn remove(
    store: &dyn Store,
    clock: &dyn Clock,
    deadline: Moment,
    gone: &StreamIdentity,
    removed: &mut usize,
) -> Result<bool, Error> {
    loop {
        let leases = store.list().await?.leases;
        let old: Vec<Lease> = leases.into_iter().filter(|lease| gone.owns(lease)).collect();
        if old.is_empty() {
            return Ok(true);
        }
        let removals: Vec<_> = old.iter().map(|lease| remove_one(store, clock, deadline, lease)).collect();
        let mut removals = stream::iter(removals).buffer_unordered(PARALLELISM);
        while let Some(result) = removals.next().await {
            match result? {
                Some(count) => *removed += count,
                None => return Ok(false),
            }
        }
    }
}

/// How many are removed: 0 where it has changed, `None` where the time was over.
async fn remove_one(
    store: &dyn Store,
    clock: &dyn Clock,
    deadline: Moment,
    lease: &Lease,
) -> Result<Option<usize>, Error> {
    if clock.now() >= deadline {
        return Ok(None);
    }
    match store.delete(lease).await {
        Ok(()) => Ok(Some(1)),
        // Whoever holds it has renewed it: the next listing shows it as it is.
        Err(Error::Conflict { .. }) => Ok(Some(0)),
        Err(error) => Err(error),
    }
}
