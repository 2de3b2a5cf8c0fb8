//! A row of the lease table, as DynamoDB writes items in JSON: `{"leaseKey": {"S": "shardId-000000000000"}, …}`.
//!
//! It is a lease, something else, or named with what is wrong. Every change of a lease is a write that DynamoDB takes, that the row
//! meets, and that makes of the row the lease that the change says; and after somebody else's change it is refused exactly where
//! [`holds`] says so.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;
use shardmill_lease::change::{Change, Restart, holds};
use shardmill_lease::store::dynamodb::fuzzing::{Item, create, read, write};
use shardmill_lease::{Lease, NewLease, WorkerId};
use shardmill_record::{Checkpoint, ShardId};

use super::table;

/// Where numbers of a row end.
const MAX_NUMBER: u64 = i64::MAX as u64;

thread_local! {
    static CHANGES: Vec<Change> = changes();
}

/// See the module.
pub fn run(bytes: &[u8]) {
    let Ok(Value::Object(attributes)) = serde_json::from_slice(bytes) else { return };
    let item: Item = attributes.iter().filter_map(|(name, value)| Some((name.clone(), attribute(value)?))).collect();
    match read(&item) {
        Ok(Some(lease)) => {
            is_created_again(&lease);
            CHANGES.with(|changes| is_changed(&item, &lease, changes));
        }
        Ok(None) => {}
        Err(invalid) => {
            let said = invalid.to_string();
            assert!(said.contains(invalid.attribute) && said.contains(invalid.key.as_str()), "{said}");
            assert!(!invalid.problem.is_empty() && invalid.problem.len() < 2000, "{said}");
        }
    }
}

fn attribute(value: &Value) -> Option<AttributeValue> {
    let (kind, value) = value.as_object()?.iter().next()?;
    let texts = || value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
    Some(match kind.as_str() {
        "S" => AttributeValue::S(value.as_str()?.to_owned()),
        "N" => AttributeValue::N(value.as_str()?.to_owned()),
        "SS" => AttributeValue::Ss(texts().filter(|texts| !texts.is_empty())?),
        "NS" => AttributeValue::Ns(texts()?),
        "B" => AttributeValue::B(Blob::new(value.as_str()?)),
        "BOOL" => AttributeValue::Bool(value.as_bool()?),
        "NULL" => AttributeValue::Null(true),
        "L" => AttributeValue::L(Vec::new()),
        "M" => AttributeValue::M(HashMap::new()),
        _ => return None,
    })
}

fn is_created_again(lease: &Lease) {
    let new = NewLease {
        key: lease.key.clone(),
        checkpoint: lease.checkpoint.clone(),
        start_at: lease.start_at,
        parents: lease.parents.clone(),
        range: lease.range,
    };
    let again = read(&create(&new)).expect("what was created is whole").expect("and a lease");
    let expected = Lease {
        owner: None,
        counter: 0,
        epoch: shardmill_lease::LeaseEpoch::default(),
        checkpoint_owner: None,
        owner_switches_since_checkpoint: 0,
        throughput: None,
        children: Vec::new(),
        ..lease.clone()
    };
    assert_eq!(again, expected);
}

fn is_changed(item: &Item, lease: &Lease, changes: &[Change]) {
    if [lease.counter, lease.epoch.get(), lease.owner_switches_since_checkpoint].contains(&MAX_NUMBER) {
        return;
    }
    let writes: Vec<_> = changes.iter().filter_map(|change| Some((change, write(lease, change).ok()?))).collect();
    for (change, (update, expected)) in &writes {
        table::uses_all(update);
        assert!(table::meets(item, update), "{change:?} of {lease:?} by {update:?}");
        let row = table::after(item, update);
        let after = read(&row).expect("what was written can be read").expect("and is a lease");
        assert_eq!(after, *expected, "{change:?} by {update:?}");
        for (name, value) in item {
            let is_ours = update.names.values().any(|ours| ours == name);
            assert!(is_ours || row.get(name) == Some(value), "{change:?} has written {name}");
        }
        for (late, (update, _)) in &writes {
            let is_met = table::meets(&row, update);
            assert_eq!(is_met, holds(late.guard(), lease, &after), "{late:?} after {change:?} by {update:?}");
        }
    }
}

/// All that is done to a lease.
fn changes() -> Vec<Change> {
    let worker = |id| WorkerId::parse(id).expect("a worker id");
    let shards = |ids: &[&str]| ids.iter().map(|id| ShardId::parse(id).expect("a shard id")).collect::<Vec<_>>();
    let position = |digits| Checkpoint::parse(digits, 3).expect("a position");
    vec![
        Change::Take { worker: worker("w1") },
        Change::Take { worker: worker("w2") },
        Change::Renew,
        Change::Measure { throughput: 1_234_567 },
        Change::Checkpoint { to: position("7") },
        Change::Checkpoint { to: position("49590338271490256608559692538361571095921575989136588898") },
        Change::HandOff { to: worker("w1") },
        Change::HandOff { to: worker("w2") },
        Change::Release,
        Change::Evict,
        Change::Complete { children: shards(&["shardId-000000000004", "shardId-000000000005"]) },
        Change::SetStart { at: 1_700_000_000_000 },
        Change::AddChildren { children: shards(&["shardId-000000000004"]) },
        Change::Rewind { to: Restart::TrimHorizon },
        Change::Rewind { to: Restart::At(1_700_000_000_000) },
        Change::Rewind { to: Restart::Latest(1_700_000_000_000) },
    ]
}
