//! Rows to leases and back.

use std::str::FromStr;

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_record::{Checkpoint, HashKey, HashKeyRange, ShardId};

use super::Item;
use super::schema;
use crate::lease::sorted;
use crate::store::InvalidRow;
use crate::{Lease, LeaseEpoch, LeaseKey, NewLease, WorkerId};

/// What is wrong with which attribute.
type Problem = (&'static str, String);

/// What writes depend on being there or not, as those of the KCL do: to them NULL is something that is there. And what
/// cannot be done then.
const NEVER_NULL: [(&str, &str); 3] = [
    (schema::LEASE_OWNER, "nobody can take the lease"),
    (schema::CHECKPOINT_OWNER, "nobody can write to the lease"),
    (schema::CHILDREN, "no shard can be added to it"),
];

/// The highest number that a row may hold: what the KCL's `long` can. Counters grow by one a write from there, and the next one
/// after 2^64 - 1 would be 0: a fencing token that has been there.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// Reads a row. `None`: it is something else than a lease.
pub(super) fn read(item: &Item) -> Result<Option<Lease>, InvalidRow> {
    match text(item, schema::ENTITY_TYPE) {
        Ok(None) => {}
        Ok(Some(entity)) if entity == schema::ENTITY_TYPE_LEASE => {}
        Ok(Some(_)) | Err(_) => return Ok(None),
    }
    // The table's key is a text, so that only a row that was made up lacks it.
    let key = text(item, schema::LEASE_KEY).ok().flatten().and_then(|key| LeaseKey::parse(key).ok());
    let Some(key) = key else { return Ok(None) };
    match read_lease(item, key.clone()) {
        Ok(lease) => Ok(Some(lease)),
        Err((attribute, problem)) => Err(InvalidRow { key, attribute, problem }),
    }
}

fn read_lease(item: &Item, key: LeaseKey) -> Result<Lease, Problem> {
    for (attribute, lost) in NEVER_NULL {
        if item.get(attribute).is_some_and(AttributeValue::is_null) {
            return Err((attribute, format!("is NULL, so that {lost}: remove the attribute from the row")));
        }
    }
    Ok(Lease {
        key,
        owner: worker(item, schema::LEASE_OWNER)?,
        counter: number(item, schema::LEASE_COUNTER)?.ok_or_else(|| missing(schema::LEASE_COUNTER))?,
        epoch: LeaseEpoch(number(item, schema::LEASE_EPOCH)?.unwrap_or(0)),
        checkpoint: checkpoint(item)?,
        start_at: number(item, schema::START_AT)?,
        checkpoint_owner: worker(item, schema::CHECKPOINT_OWNER)?,
        owner_switches_since_checkpoint: number(item, schema::OWNER_SWITCHES)?.unwrap_or(0),
        throughput: throughput(item),
        parents: shards(item, schema::PARENTS)?,
        children: shards(item, schema::CHILDREN)?,
        range: range(item)?,
    })
}

/// In bytes a second, where the row has it in KB a second. What cannot be read counts as not there: nothing but balance
/// depends on it.
fn throughput(item: &Item) -> Option<u64> {
    let number = item.get(schema::THROUGHPUT)?.as_n().ok()?;
    let kilobytes: f64 = number.parse().ok()?;
    (kilobytes.is_finite() && kilobytes >= 0.0).then_some((kilobytes * 1024.0).round() as u64)
}

/// Bytes a second as the row has them.
pub(super) fn kilobytes(throughput: u64) -> AttributeValue {
    AttributeValue::N(format!("{:.6}", throughput as f64 / 1024.0))
}

/// The row of a new lease.
pub(super) fn create(lease: &NewLease) -> Item {
    let lease = lease.clone().into_lease();
    let mut item = Item::new();
    let mut put = |name: &str, value: AttributeValue| item.insert(name.to_owned(), value);
    put(schema::LEASE_KEY, AttributeValue::S(lease.key.as_str().to_owned()));
    put(schema::ENTITY_TYPE, AttributeValue::S(schema::ENTITY_TYPE_LEASE.to_owned()));
    if let (Some(stream), Ok(shard)) = (lease.key.stream(), lease.key.shard_id()) {
        put(schema::STREAM_NAME, AttributeValue::S(stream.as_str().to_owned()));
        put(schema::SHARD_ID, AttributeValue::S(shard.as_str().to_owned()));
    }
    put(schema::LEASE_COUNTER, n(lease.counter));
    put(schema::LEASE_EPOCH, n(lease.epoch.get()));
    put(schema::CHECKPOINT, AttributeValue::S(lease.checkpoint.as_str().to_owned()));
    put(schema::CHECKPOINT_SUB_SEQUENCE_NUMBER, n(lease.checkpoint.sub_sequence_number()));
    put(schema::OWNER_SWITCHES, n(lease.owner_switches_since_checkpoint));
    if let Some(at) = lease.start_at {
        put(schema::START_AT, n(at));
    }
    // A set cannot be empty.
    if !lease.parents.is_empty() {
        put(schema::PARENTS, shard_set(&lease.parents));
    }
    if let Some(range) = lease.range {
        put(schema::STARTING_HASH_KEY, AttributeValue::S(range.start.to_string()));
        put(schema::ENDING_HASH_KEY, AttributeValue::S(range.end.to_string()));
    }
    item
}

pub(super) fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(super) fn shard_set(shards: &[ShardId]) -> AttributeValue {
    AttributeValue::Ss(shards.iter().map(ShardId::to_string).collect())
}

fn checkpoint(item: &Item) -> Result<Checkpoint, Problem> {
    let checkpoint = text(item, schema::CHECKPOINT)?.ok_or_else(|| missing(schema::CHECKPOINT))?;
    let sub_sequence_number = number(item, schema::CHECKPOINT_SUB_SEQUENCE_NUMBER)?.unwrap_or(0);
    Checkpoint::parse(checkpoint, sub_sequence_number).map_err(|error| (schema::CHECKPOINT, error.to_string()))
}

fn worker(item: &Item, name: &'static str) -> Result<Option<WorkerId>, Problem> {
    let parse = |text| WorkerId::parse(text).map_err(|error| (name, error.to_string()));
    text(item, name)?.map(parse).transpose()
}

fn shards(item: &Item, name: &'static str) -> Result<Vec<ShardId>, Problem> {
    let Some(value) = present(item, name) else { return Ok(Vec::new()) };
    let Ok(texts) = value.as_ss() else { return Err((name, "is not a set of texts".to_owned())) };
    let parsed: Result<Vec<_>, _> = texts.iter().map(|text| ShardId::parse(text)).collect();
    parsed.map(sorted).map_err(|error| (name, error.to_string()))
}

fn range(item: &Item) -> Result<Option<HashKeyRange>, Problem> {
    let parse = |name| {
        let parse = |text| HashKey::from_str(text).map_err(|error| (name, error.to_string()));
        text(item, name)?.map(parse).transpose()
    };
    Ok(match (parse(schema::STARTING_HASH_KEY)?, parse(schema::ENDING_HASH_KEY)?) {
        (Some(start), Some(end)) => Some(HashKeyRange { start, end }),
        _ => None,
    })
}

fn text<'a>(item: &'a Item, name: &'static str) -> Result<Option<&'a str>, Problem> {
    let Some(value) = present(item, name) else { return Ok(None) };
    value.as_s().map(|text| Some(text.as_str())).map_err(|_| (name, "is not a text".to_owned()))
}

fn number(item: &Item, name: &'static str) -> Result<Option<u64>, Problem> {
    let Some(value) = present(item, name) else { return Ok(None) };
    let parsed = value.as_n().ok().and_then(|digits| digits.parse().ok()).filter(|number| *number <= MAX_NUMBER);
    parsed.map(Some).ok_or_else(|| (name, "is not a whole number from 0 to 2^63 - 1".to_owned()))
}

/// Some writers say NULL for what is not there, which does no harm to what is only read and set.
fn present<'a>(item: &'a Item, name: &str) -> Option<&'a AttributeValue> {
    item.get(name).filter(|value| !value.is_null())
}

fn missing(name: &'static str) -> Problem {
    (name, "is missing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(text: &str) -> AttributeValue {
        AttributeValue::S(text.to_owned())
    }

    fn item(attributes: &[(&str, AttributeValue)]) -> Item {
        attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn kcl_row() -> Vec<(&'static str, AttributeValue)> {
        vec![
            ("leaseKey", s("shardId-000000000003")),
            ("leaseOwner", s("w1")),
            ("leaseCounter", n(29)),
            ("checkpoint", s("49590338271490256608559692538361571095921575989136588898")),
            ("checkpointSubSequenceNumber", n(2)),
            ("ownerSwitchesSinceCheckpoint", n(1)),
            ("parentShardId", AttributeValue::Ss(vec!["shardId-000000000002".into(), "shardId-000000000001".into()])),
            ("startingHashKey", s("0")),
            ("endingHashKey", s("340282366920938463463374607431768211455")),
            ("throughputKBps", AttributeValue::N("2509.305094".to_owned())),
            ("pendingCheckpoint", s("4959033827149025660855969253836157109592157598913658890")),
            ("pendingCheckpointSubSequenceNumber", n(0)),
            ("pendingCheckpointState", AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new(b"state"))),
        ]
    }

    #[test]
    fn a_row_that_a_kcl_wrote_is_read_whole() {
        let lease = read(&item(&kcl_row())).unwrap().unwrap();
        assert_eq!(lease.owner.unwrap().as_str(), "w1");
        assert_eq!((lease.counter, lease.epoch, lease.owner_switches_since_checkpoint), (29, LeaseEpoch(0), 1));
        assert_eq!(lease.checkpoint.sub_sequence_number(), 2);
        assert_eq!(lease.throughput, Some(2_569_528), "KB a second in the row");
        assert_eq!(
            lease.parents.iter().map(ShardId::as_str).collect::<Vec<_>>(),
            ["shardId-000000000001", "shardId-000000000002"]
        );
        assert_eq!(lease.range, Some(HashKeyRange::ALL));
    }

    #[test]
    fn a_shard_that_a_kcl_has_finished_still_has_an_owner() {
        let mut row = item(&kcl_row());
        row.insert("checkpoint".to_owned(), s("SHARD_END"));
        row.insert("checkpointSubSequenceNumber".to_owned(), n(0));
        row.insert("childShardIds".to_owned(), AttributeValue::Ss(vec!["shardId-000000000004".into()]));
        let lease = read(&row).unwrap().unwrap();
        assert!(lease.is_complete() && lease.owner.is_some());
        assert_eq!(lease.children.len(), 1);
    }

    /// As KCL 3.5.1 has written them: it keeps them under `leaseKey` in the table of leases.
    #[test]
    fn the_leader_the_version_and_the_workers_of_a_kcl_are_no_leases() {
        let leader = [
            ("leaseKey", s("Leader")),
            ("entityType", s("LEADER")),
            ("ownerName", s("kcl-1")),
            ("leaseDuration", s("120000")),
            ("recordVersionNumber", s("9ae82e73-ea2e-462f-9ffe-52f85f054e40")),
        ];
        let version = [
            ("leaseKey", s("Migration3.0")),
            ("entityType", s("CLIENT_VERSION_MIGRATION")),
            ("cv", s("CLIENT_VERSION_3X")),
            ("mb", s("kcl-1")),
            ("mts", n(1_796_001_093_301)),
            ("h", AttributeValue::L(vec![AttributeValue::M(item(&[("cv", s("CLIENT_VERSION_INIT"))]))])),
        ];
        let worker = [
            ("leaseKey", s("kcl-1")),
            ("entityType", s("WORKER_METRIC_STATS")),
            ("lut", n(1_796_001_100)),
            ("slu", n(1_796_001_100)),
            ("sup", n(1)),
            ("sts", AttributeValue::M(item(&[]))),
            ("opr", AttributeValue::M(item(&[]))),
        ];
        for row in [&leader[..], &version, &worker] {
            assert_eq!(read(&item(row)), Ok(None), "{row:?}");
        }
    }

    #[test]
    fn a_row_says_its_stream_and_its_shard_where_the_kcl_would() {
        let new = |key: &str| NewLease {
            key: LeaseKey::parse(key).unwrap(),
            checkpoint: Checkpoint::TrimHorizon,
            start_at: None,
            parents: Vec::new(),
            range: None,
        };
        let row = create(&new("123456789012:orders:1700000000:shardId-000000000003"));
        assert_eq!(row["streamName"], s("123456789012:orders:1700000000"));
        assert_eq!(row["shardId"], s("shardId-000000000003"));
        assert_eq!(read(&row).unwrap().unwrap().key.as_str(), "123456789012:orders:1700000000:shardId-000000000003");
        let row = create(&new("shardId-000000000003"));
        assert!(!row.contains_key("streamName") && !row.contains_key("shardId"));
    }

    #[test]
    fn rows_of_other_kinds_are_no_leases() {
        for entity in ["STREAM", "LEADER", "CLIENT_VERSION_MIGRATION", "TABLE_MIGRATION", "WORKER_METRIC_STATS"] {
            let row = item(&[("leaseKey", s("x")), ("entityType", s(entity))]);
            assert_eq!(read(&row), Ok(None), "{entity}");
        }
        let mut row = item(&kcl_row());
        row.insert("entityType".to_owned(), s("LEASE"));
        assert!(read(&row).unwrap().is_some());
    }

    #[test]
    fn a_number_that_could_grow_to_0_is_refused() {
        for attribute in ["leaseCounter", "leaseEpoch", "ownerSwitchesSinceCheckpoint"] {
            for (number, is_read) in [((1 << 63) - 1, true), (1 << 63, false), (u64::MAX, false)] {
                let mut row = item(&kcl_row());
                row.insert(attribute.to_owned(), n(number));
                let read = read(&row);
                assert_eq!(read.is_ok(), is_read, "{attribute} {number}");
                assert!(is_read || read.unwrap_err().to_string().contains(attribute));
            }
        }
    }

    #[test]
    fn null_is_nothing_where_no_write_depends_on_it() {
        let mut row = item(&kcl_row());
        for attribute in ["leaseEpoch", "startAt", "parentShardId", "startingHashKey", "throughputKBps"] {
            row.insert(attribute.to_owned(), AttributeValue::Null(true));
        }
        let lease = read(&row).unwrap().unwrap();
        assert_eq!((lease.epoch, lease.start_at, lease.range, lease.throughput), (LeaseEpoch(0), None, None, None));
        assert!(lease.parents.is_empty());
    }

    #[test]
    fn a_broken_row_names_its_key_and_the_attribute() {
        for (attribute, value) in [
            ("checkpoint", s("latest")),
            ("leaseCounter", n(0)),
            ("leaseCounter", AttributeValue::N("1.5".to_owned())),
            ("parentShardId", s("shardId-000000000001")),
            ("startingHashKey", s("-1")),
            ("leaseOwner", AttributeValue::Null(true)),
            ("checkpointOwner", AttributeValue::Null(true)),
            ("childShardIds", AttributeValue::Null(true)),
        ] {
            let mut row = item(&kcl_row());
            let is_removed = value == n(0);
            row.insert(attribute.to_owned(), value);
            if is_removed {
                row.remove(attribute);
            }
            let invalid = read(&row).unwrap_err();
            assert_eq!((invalid.key.as_str(), invalid.attribute), ("shardId-000000000003", attribute));
        }
    }
}
