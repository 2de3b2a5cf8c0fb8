//! The lease table, read as any other program would.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use aws_sdk_kinesis::types::Shard;
use shardmill_record::{Checkpoint, Position};

use crate::{Found, Services, Worker};

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The worker that has it.
    pub owner: Option<String>,
    /// How far its shard is processed.
    pub checkpoint: Checkpoint,
    /// The fencing token; 0 in the row of a KCL.
    pub epoch: u64,
    /// What a start at the tip was turned into, in milliseconds since 1970.
    pub start_at: Option<u64>,
    /// The shards from which this one came.
    pub parents: BTreeSet<String>,
    /// The shards that came from this one.
    pub children: BTreeSet<String>,
}

/// All leases by shard, without the rows of other kinds that a KCL keeps beside them; none if there is no table yet.
pub async fn rows(services: &Services, table: &str) -> BTreeMap<String, Row> {
    let scan = services.dynamodb.scan().table_name(table).consistent_read(true).send().await;
    let scan = match scan {
        Ok(scan) => scan,
        Err(error) => {
            let error = error.into_service_error();
            assert!(error.is_resource_not_found_exception(), "{error:?}");
            return BTreeMap::new();
        }
    };
    assert!(scan.last_evaluated_key().is_none(), "a test's table is small");
    let is_lease = |item: &&HashMap<_, _>| text(item, "entityType").is_none_or(|kind| kind == "LEASE");
    scan.items().iter().filter(is_lease).map(|item| (text(item, "leaseKey").expect("a key"), row(item))).collect()
}

/// Deletes the lease of a shard, as an operator does who wants it to be read anew; what it was, if it was there.
pub async fn delete(services: &Services, table: &str, shard: &str) -> Option<Row> {
    let delete = services.dynamodb.delete_item().table_name(table).return_values(ReturnValue::AllOld);
    match delete.key("leaseKey", AttributeValue::S(shard.to_owned())).send().await {
        Ok(deleted) => deleted.attributes().map(row),
        Err(error) => {
            let error = error.into_service_error();
            assert!(error.is_resource_not_found_exception(), "{error:?}");
            None
        }
    }
}

/// Asserts that nobody holds a lease, and that each open shard is checkpointed at its last record.
pub fn assert_released_at_the_end(rows: &BTreeMap<String, Row>, input: &[Found]) {
    let mut last: BTreeMap<&str, &Position> = BTreeMap::new();
    for record in input {
        last.insert(&record.shard, &record.position);
    }
    assert!(last.keys().all(|shard| rows.contains_key(*shard)), "each shard with records has a lease: {rows:?}");
    for (shard, row) in rows {
        assert_eq!(row.owner, None, "{shard} is released");
        if let (Some(last), false) = (last.get(shard.as_str()), row.checkpoint.is_shard_end()) {
            assert_eq!(row.checkpoint.position(), Some(*last), "{shard} is checkpointed at its last record");
        }
    }
}

/// Waits until these shards are at their end in the table.
pub async fn until_ended(worker: &mut Worker, services: &Services, table: &str, closed: &[&str]) {
    worker
        .until_within(Duration::from_secs(20), "the ends of the closed shards", async |_| {
            let rows = rows(services, table).await;
            let is_done = |shard: &&str| rows.get(*shard).is_some_and(|row| row.checkpoint.is_shard_end());
            closed.iter().all(is_done).then_some(())
        })
        .await;
}

/// Asserts that there is a lease for each of these shards and no other, which names its parents and is named by them,
/// and that the closed ones, and no others, are at their end.
pub fn assert_lineage(rows: &BTreeMap<String, Row>, shards: &[Shard], closed: &[&str]) {
    assert_eq!(rows.len(), shards.len(), "a lease for each shard: {rows:?}");
    for shard in shards {
        let row = &rows[shard.shard_id()];
        let parents = shard.parent_shard_id().into_iter().chain(shard.adjacent_parent_shard_id());
        assert_eq!(row.parents, parents.map(str::to_owned).collect::<BTreeSet<_>>(), "{shard:?}");
        assert_eq!(row.checkpoint.is_shard_end(), closed.contains(&shard.shard_id()), "{shard:?}: {row:?}");
        for parent in &row.parents {
            assert!(rows[parent].children.contains(shard.shard_id()), "{parent} names its child {shard:?}");
        }
    }
}

fn row(item: &HashMap<String, AttributeValue>) -> Row {
    let number = |name: &str| item.get(name).map(|value| value.as_n().expect("a number").parse().expect("a number"));
    let set = |name: &str| -> BTreeSet<String> {
        item.get(name).map(|value| value.as_ss().expect("a set")).into_iter().flatten().cloned().collect()
    };
    let sub_sequence_number = number("checkpointSubSequenceNumber").expect("a sub-sequence number");
    Row {
        owner: text(item, "leaseOwner"),
        checkpoint: Checkpoint::parse(&text(item, "checkpoint").expect("a checkpoint"), sub_sequence_number)
            .expect("a checkpoint"),
        epoch: number("leaseEpoch").unwrap_or(0),
        start_at: number("startAt"),
        parents: set("parentShardId"),
        children: set("childShardIds"),
    }
}

fn text(item: &HashMap<String, AttributeValue>, name: &str) -> Option<String> {
    item.get(name).map(|value| value.as_s().expect("a text").clone())
}
