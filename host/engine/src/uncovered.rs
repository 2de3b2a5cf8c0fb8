//! What an order for all shards of a processor does not reach: shards of other workers, and those that are done.

use std::collections::{BTreeSet, HashMap};

use shardmill_cause::with_causes;
use shardmill_lease::change::Restart;
use shardmill_lease::{Lease, LeaseKey};
use shardmill_record::Checkpoint;

use crate::Status;
use crate::shard_run::Shared;

/// A shard that a rewind of all does not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncovered {
    /// Its lease's key.
    pub lease: String,
    /// Its stream.
    pub stream: String,
    /// Its id.
    pub shard: String,
    /// Whether it is closed and done: nobody can read it again.
    pub is_done: bool,
    /// Why it is not reached.
    pub why: String,
}

// === impl Status ===

impl Status {
    /// The shards of a consumer that a rewind of all those that this worker has does not reach. Asks the lease table and the
    /// streams.
    ///
    /// # Errors
    /// With a sentence, if one of them cannot be asked.
    pub async fn uncovered(&self, consumer: &str, to: Restart) -> Result<Vec<Uncovered>, String> {
        let shared = self.whole(consumer).ok_or("its streams have not been reached yet")?;
        let listing = shared.parts.store.list().await;
        let leases =
            listing.map_err(|error| format!("the lease table cannot be read: {}", with_causes(&error)))?.leases;
        let closed = shared.closed(to).await?;
        let here = self.with(|consumers| {
            consumers.get(consumer).map(|consumer| consumer.shards.keys().cloned().collect()).unwrap_or_default()
        });
        let named = |(lease, is_done, why): (LeaseKey, bool, String)| {
            let (stream, _) = shared.streams.of(&lease)?;
            let shard = lease.shard_id().ok()?.to_string();
            Some(Uncovered { lease: lease.to_string(), stream: stream.name().to_string(), shard, is_done, why })
        };
        Ok(uncovered(&leases, &closed, &here, to).into_iter().filter_map(named).collect())
    }
}

impl Status {
    /// How long the stream of a shard keeps records, in hours; `None` for a lease that is not read.
    pub fn retention_hours(&self, consumer: &str, lease_key: &str) -> Option<u32> {
        let (stream, _) = self.whole(consumer)?.streams.of(&LeaseKey::parse(lease_key).ok()?)?;
        Some(stream.retention_hours())
    }
}

// === impl Shared ===

impl Shared {
    /// The closed shards that may hold records from there on.
    async fn closed(&self, to: Restart) -> Result<Vec<LeaseKey>, String> {
        let since = match to {
            Restart::Latest(_) => return Ok(Vec::new()),
            Restart::TrimHorizon => None,
            Restart::At(at) => Some(at),
        };
        let mut closed = Vec::new();
        for stream in self.streams.0.iter() {
            let Some(incarnation) = stream.incarnation() else { continue };
            let listing = stream.input.kinesis.list_shards_since(stream.name(), since).await;
            let listing = listing.map_err(|error| format!("the shards cannot be listed: {}", with_causes(&error)))?;
            closed
                .extend(listing.iter().filter(|shard| !shard.is_open()).map(|shard| incarnation.lease_key(&shard.id)));
        }
        Ok(closed)
    }
}

/// Of each: its lease, whether it is done, and why it is not reached. `here`: the leases that are.
fn uncovered(
    leases: &[Lease],
    closed: &[LeaseKey],
    here: &BTreeSet<String>,
    to: Restart,
) -> Vec<(LeaseKey, bool, String)> {
    let by_key: HashMap<&LeaseKey, &Lease> = leases.iter().map(|lease| (&lease.key, lease)).collect();
    let mut found = Vec::new();
    for lease in leases.iter().filter(|lease| !lease.is_complete() && !here.contains(lease.key.as_str())) {
        // It begins with its first record.
        let is_unread = lease.checkpoint == Checkpoint::TrimHorizon && !matches!(to, Restart::Latest(_));
        let why = match (lease.writer(), &lease.checkpoint_owner) {
            (None, _) if is_unread => continue,
            (None, _) => "no worker has it".to_owned(),
            (Some(holder), None) => format!("the worker {holder} has it: ask that one"),
            (Some(holder), Some(_)) => format!("it is on its way from the worker {holder} to another one"),
        };
        found.push((lease.key.clone(), false, why));
    }
    for key in closed.iter().filter(|key| by_key.get(key).is_none_or(|lease| lease.is_complete())) {
        found.push((key.clone(), true, "it is closed and done, and may hold records from there on".to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watchdog::tests::{at, lease};

    #[test]
    fn a_rewind_of_all_names_the_shards_of_others_and_those_that_are_done() {
        let handed = Lease {
            checkpoint_owner: Some(shardmill_lease::WorkerId::parse("old").unwrap()),
            ..lease(3, &[], Some("new"), at(3))
        };
        let leases = [
            lease(0, &[], Some("me"), at(1)),
            lease(1, &[], Some("them"), at(1)),
            lease(2, &[], None, at(2)),
            handed,
            lease(4, &[], None, Checkpoint::ShardEnd),
            lease(5, &[1], None, Checkpoint::TrimHorizon),
            lease(6, &[], Some("me"), at(1)),
        ];
        // The lease of 7 is cleared away, and 6 is closed and not done.
        let closed = [4, 6, 7].map(|shard| lease(shard, &[], None, at(1)).key);
        let here = [&leases[0], &leases[6]].map(|lease| lease.key.to_string()).into();
        let of = |to, closed: &[LeaseKey]| {
            let found = uncovered(&leases, closed, &here, to);
            found.iter().map(|(key, is_done, _)| (key.as_str()[18..].to_owned(), *is_done)).collect::<Vec<_>>()
        };
        let named =
            |found: &[(&str, bool)]| found.iter().map(|(key, done)| ((*key).to_owned(), *done)).collect::<Vec<_>>();
        let expected = named(&[("01", false), ("02", false), ("03", false), ("04", true), ("07", true)]);
        assert_eq!(of(Restart::At(7), &closed), expected);
        // What has not begun begins before that, and would not be passed over.
        assert_eq!(of(Restart::Latest(7), &[]), named(&[("01", false), ("02", false), ("03", false), ("05", false)]));
        let why = uncovered(&leases, &closed, &here, Restart::TrimHorizon).into_iter().map(|(_, _, why)| why);
        let why = why.collect::<Vec<_>>().join("\n");
        for part in ["the worker them has it", "no worker has it", "on its way from the worker old", "closed and done"]
        {
            assert!(why.contains(part), "{part} in {why}");
        }
    }
}
