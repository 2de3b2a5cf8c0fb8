//! The rows of a lease table with all that is in them.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_tests::Services;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The attributes that are a holder's to write. Whatever else a row holds is somebody else's.
const HOLDERS: [&str; 13] = [
    "leaseOwner",
    "leaseCounter",
    "leaseEpoch",
    "checkpoint",
    "checkpointSubSequenceNumber",
    "checkpointOwner",
    "ownerSwitchesSinceCheckpoint",
    "childShardIds",
    "startAt",
    "throughputKBps",
    "pendingCheckpoint",
    "pendingCheckpointSubSequenceNumber",
    "pendingCheckpointState",
];

/// All rows by key.
pub(crate) async fn items(services: &Services, table: &str) -> BTreeMap<String, Item> {
    let scan = services.dynamodb.scan().table_name(table).consistent_read(true).send().await.expect("rows");
    assert!(scan.last_evaluated_key().is_none(), "a test's table is small");
    let key = |item: &Item| item["leaseKey"].as_s().expect("a key").clone();
    scan.items.unwrap_or_default().into_iter().map(|item| (key(&item), item)).collect()
}

pub(crate) fn is_lease(item: &Item) -> bool {
    item.get("entityType").is_some_and(|kind| kind.as_s().is_ok_and(|kind| kind == "LEASE"))
}

/// Writes an attribute into each lease that neither side knows.
pub(crate) async fn annotate(services: &Services, table: &str) {
    for (key, item) in items(services, table).await {
        if is_lease(&item) {
            let update = services.dynamodb.update_item().table_name(table);
            let update = update.key("leaseKey", AttributeValue::S(key)).update_expression("SET operatorsNote = :note");
            let note = AttributeValue::Ss(vec!["seen".to_owned(), "twice".to_owned()]);
            update.expression_attribute_values(":note", note).send().await.expect("a note");
        }
    }
}

/// Asserts that every row is still there, with everything in it that is not for the holder of a lease to write.
pub(crate) fn assert_kept(before: &BTreeMap<String, Item>, after: &BTreeMap<String, Item>) {
    let others = |item: &Item| -> BTreeMap<String, AttributeValue> {
        let is_others = |name: &String| !is_lease(item) || !HOLDERS.contains(&name.as_str());
        let others = item.iter().filter(|(name, _)| is_others(name));
        others.map(|(name, value)| (name.clone(), sorted(value))).collect()
    };
    for (key, item) in before {
        let now = after.get(key).unwrap_or_else(|| panic!("the row {key} is gone: {after:?}"));
        assert_eq!(others(now), others(item), "the row {key}");
    }
}

/// A set has no order.
fn sorted(value: &AttributeValue) -> AttributeValue {
    let AttributeValue::Ss(texts) = value else { return value.clone() };
    let mut texts = texts.clone();
    texts.sort_unstable();
    AttributeValue::Ss(texts)
}
