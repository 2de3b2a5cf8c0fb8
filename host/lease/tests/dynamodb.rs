//! The DynamoDB store against an embedded DynamoDB, over HTTP and the AWS SDK.

use std::collections::HashMap;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ProjectionType, ScalarAttributeType,
};
use dynoxide::Database;
use shardmill_lease::change::Change;
use shardmill_lease::store::dynamodb::{DynamoDb, Timeouts};
use shardmill_lease::store::memory::Memory;
use shardmill_lease::store::{Ensured, Error, Store, conformance};
use shardmill_lease::{LeaseKey, WorkerId};
use shardmill_record::Checkpoint;

fn client(address: std::net::SocketAddr) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
        .endpoint_url(format!("http://{address}"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    Client::from_conf(config)
}

/// A database that lives as long as the test's runtime.
async fn database() -> Client {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(listener.local_addr().unwrap());
    let database = Database::memory().unwrap();
    tokio::spawn(dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()));
    client
}

fn store(client: &Client) -> DynamoDb {
    DynamoDb::new(client.clone(), "orders", Timeouts::default())
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

async fn put(client: &Client, attributes: &[(&str, AttributeValue)]) {
    let item: HashMap<String, AttributeValue> =
        attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    client.put_item().table_name("orders").set_item(Some(item)).send().await.unwrap();
}

async fn item(client: &Client, key: &str) -> HashMap<String, AttributeValue> {
    let answer = client.get_item().table_name("orders").key("leaseKey", s(key)).send().await.unwrap();
    answer.item.unwrap()
}

fn worker(id: &str) -> WorkerId {
    WorkerId::parse(id).unwrap()
}

fn key(id: &str) -> LeaseKey {
    LeaseKey::parse(id).unwrap()
}

#[tokio::test]
async fn memory_conforms() {
    conformance::check_all(&Memory::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_conforms() {
    conformance::check_all(&store(&database().await)).await;
}

#[tokio::test]
async fn creates_the_tables_that_a_kcl_expects() {
    let client = database().await;
    let [one, other] = [store(&client), store(&client)];
    let ensured = futures::future::try_join(one.ensure(), other.ensure()).await.unwrap();
    assert!(ensured.0 == Ensured::Created || ensured.1 == Ensured::Created);
    assert_eq!(store(&client).ensure().await.unwrap(), Ensured::Existing);
    let table = client.describe_table().table_name("orders").send().await.unwrap().table.unwrap();
    assert_eq!(table.billing_mode_summary().unwrap().billing_mode(), Some(&BillingMode::PayPerRequest));
    let [index] = table.global_secondary_indexes() else { panic!("{table:?}") };
    assert_eq!(index.index_name(), Some("LeaseOwnerToLeaseKeyIndex"));
    let keys: Vec<_> = index.key_schema().iter().map(|key| (key.attribute_name(), key.key_type().clone())).collect();
    assert_eq!(keys, [("leaseOwner", KeyType::Hash), ("leaseKey", KeyType::Range)]);
    assert_eq!(index.projection().unwrap().projection_type(), Some(&ProjectionType::KeysOnly));
    client.describe_table().table_name("orders-shardmill").send().await.unwrap();
}

#[tokio::test]
async fn a_table_that_is_something_else_is_refused_by_what_was_found() {
    let client = database().await;
    let definition =
        |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap();
    let element = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    client
        .create_table()
        .table_name("orders")
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(definition("customer", ScalarAttributeType::S))
        .attribute_definitions(definition("time", ScalarAttributeType::N))
        .key_schema(element("customer", KeyType::Hash))
        .key_schema(element("time", KeyType::Range))
        .send()
        .await
        .unwrap();
    let error = store(&client).ensure().await.unwrap_err();
    let tables = client.list_tables().send().await.unwrap();
    assert_eq!(tables.table_names(), ["orders"], "nothing is created beside it");
    assert!(matches!(error, Error::WrongTable { .. }));
    let text = error.to_string();
    assert!(text.contains("orders") && text.contains("HASH `customer` (S), RANGE `time` (N)"), "{text}");
}

#[tokio::test]
async fn what_others_wrote_survives_every_write() {
    let client = database().await;
    let store = store(&client);
    store.ensure().await.unwrap();
    let kept = [
        ("throughputKBps", AttributeValue::N("2509.305094".to_owned())),
        ("futureAttribute", AttributeValue::Ss(vec!["x".to_owned()])),
    ];
    let mut row = vec![
        ("leaseKey", s("shardId-000000000000")),
        ("leaseOwner", s("kcl")),
        ("leaseCounter", n(29)),
        ("checkpoint", s("100")),
        ("checkpointSubSequenceNumber", n(3)),
        ("ownerSwitchesSinceCheckpoint", n(0)),
        ("startingHashKey", s("0")),
        ("endingHashKey", s("85070591730234615865843651857942052863")),
    ];
    row.extend(kept.clone());
    put(&client, &row).await;
    let mut lease = store.get(&key("shardId-000000000000")).await.unwrap().unwrap();
    let to = Checkpoint::parse("101", 0).unwrap();
    let changes = [Change::Take { worker: worker("us") }, Change::Renew, Change::Checkpoint { to }, Change::Release];
    for change in changes {
        lease = store.write(&lease, &change).await.unwrap();
    }
    let row = item(&client, "shardId-000000000000").await;
    for (name, value) in kept {
        assert_eq!(row.get(name), Some(&value), "{name}");
    }
    assert_eq!((row.get("leaseCounter"), row.get("leaseEpoch")), (Some(&n(33)), Some(&n(1))));
    assert_eq!((row.get("checkpoint"), row.get("checkpointSubSequenceNumber")), (Some(&s("101")), Some(&n(0))));
    assert_eq!(row.get("leaseOwner"), None);
    assert!(!row.contains_key("startAt"));
}

#[tokio::test]
async fn a_pending_checkpoint_stays_until_the_next_checkpoint() {
    let client = database().await;
    let store = store(&client);
    store.ensure().await.unwrap();
    let pending = [
        ("pendingCheckpoint", s("101")),
        ("pendingCheckpointSubSequenceNumber", n(2)),
        ("pendingCheckpointState", AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new(b"state"))),
    ];
    let mut row = vec![
        ("leaseKey", s("shardId-000000000000")),
        ("leaseCounter", n(29)),
        ("checkpoint", s("100")),
        ("checkpointSubSequenceNumber", n(3)),
    ];
    row.extend(pending.clone());
    put(&client, &row).await;
    let mut lease = store.get(&key("shardId-000000000000")).await.unwrap().unwrap();
    for change in [Change::Take { worker: worker("us") }, Change::Renew] {
        lease = store.write(&lease, &change).await.unwrap();
    }
    let row = item(&client, "shardId-000000000000").await;
    for (name, value) in &pending {
        assert_eq!(row.get(*name), Some(value), "{name}: a worker that does nothing changes nothing");
    }
    let to = Checkpoint::parse("102", 0).unwrap();
    store.write(&lease, &Change::Checkpoint { to }).await.unwrap();
    let row = item(&client, "shardId-000000000000").await;
    for (name, _) in &pending {
        assert_eq!(row.get(*name), None, "{name} was passed");
    }
}

#[tokio::test]
async fn a_scan_goes_over_pages_skips_rows_of_other_kinds_and_reports_broken_ones() {
    let client = database().await;
    let store = store(&client);
    store.ensure().await.unwrap();
    // Two items of 350 kB and more do not fit a page of 1 MB with a third.
    for index in 0..6 {
        put(
            &client,
            &[
                ("leaseKey", s(&format!("shardId-{index:012}"))),
                ("leaseCounter", n(1)),
                ("checkpoint", s("TRIM_HORIZON")),
                ("filler", s(&"x".repeat(350_000))),
            ],
        )
        .await;
    }
    put(&client, &[("leaseKey", s("Leader")), ("entityType", s("LEADER"))]).await;
    put(&client, &[("leaseKey", s("shardId-broken")), ("leaseCounter", n(1)), ("checkpoint", s("soon"))]).await;
    let listing = store.list().await.unwrap();
    assert_eq!(listing.leases.len(), 6);
    let [broken] = listing.invalid.as_slice() else { panic!("{:?}", listing.invalid) };
    assert_eq!((broken.key.as_str(), broken.attribute), ("shardId-broken", "checkpoint"));
    assert!(matches!(store.get(&broken.key).await, Err(Error::Invalid { .. })));
}

/// DynamoDB takes NULL for something that is there: no condition of ours, nor of a KCL, would ever be met.
#[tokio::test]
async fn a_row_that_says_null_where_writes_need_nothing_is_named_with_the_attribute() {
    let client = database().await;
    let store = store(&client);
    store.ensure().await.unwrap();
    for attribute in ["checkpointOwner", "childShardIds"] {
        let row = [
            ("leaseKey", s(attribute)),
            ("leaseCounter", n(1)),
            ("checkpoint", s("LATEST")),
            (attribute, AttributeValue::Null(true)),
        ];
        put(&client, &row).await;
        let update = client.update_item().table_name("orders").key("leaseKey", s(attribute));
        let update = update.expression_attribute_names("#attribute", attribute);
        let taken = match attribute {
            "childShardIds" => update
                .update_expression("ADD #attribute :shards")
                .expression_attribute_values(":shards", AttributeValue::Ss(vec!["shard".to_owned()])),
            _ => update
                .update_expression("SET leaseOwner = :owner")
                .condition_expression("attribute_not_exists(#attribute)")
                .expression_attribute_values(":owner", s("us")),
        };
        taken.send().await.unwrap_err();
    }
    let mut named: Vec<_> = store.list().await.unwrap().invalid;
    named.sort_by_key(|invalid| invalid.attribute);
    let attributes: Vec<_> = named.iter().map(|invalid| (invalid.key.as_str(), invalid.attribute)).collect();
    assert_eq!(attributes, [("checkpointOwner", "checkpointOwner"), ("childShardIds", "childShardIds")]);
    assert!(named.iter().all(|invalid| invalid.problem.contains("remove the attribute")), "{named:?}");
}

#[tokio::test]
async fn a_hand_off_that_a_kcl_leader_began_is_seen_and_ends_with_the_release() {
    let client = database().await;
    let store = store(&client);
    store.ensure().await.unwrap();
    let row = [("leaseKey", s("shard")), ("leaseCounter", n(4)), ("checkpoint", s("LATEST"))];
    put(&client, &row).await;
    let lease = store.get(&key("shard")).await.unwrap().unwrap();
    let held = store.write(&lease, &Change::Take { worker: worker("us") }).await.unwrap();
    client
        .update_item()
        .table_name("orders")
        .key("leaseKey", s("shard"))
        .update_expression("SET leaseOwner = :new, checkpointOwner = :old")
        .condition_expression("leaseOwner = :old AND attribute_not_exists(checkpointOwner)")
        .expression_attribute_values(":new", s("kcl"))
        .expression_attribute_values(":old", s("us"))
        .send()
        .await
        .unwrap();
    assert!(matches!(store.write(&held, &Change::Release).await, Err(Error::Conflict { .. })));
    let renewed = store.write(&held, &Change::Renew).await.unwrap();
    assert_eq!((renewed.writer(), renewed.owner.as_ref()), (Some(&worker("us")), Some(&worker("kcl"))));
    let released = store.write(&renewed, &Change::Release).await.unwrap();
    assert_eq!((released.owner, released.checkpoint_owner), (Some(worker("kcl")), None));
}

#[tokio::test]
async fn a_write_whose_answer_does_not_come_is_sent_once_and_unknown() {
    // Takes connections and requests, and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(listener.local_addr().unwrap());
    let (seen, mut requests) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                while let Ok(read) = tokio::io::AsyncReadExt::read(&mut connection, &mut buffer).await {
                    if read == 0 {
                        break;
                    }
                    if String::from_utf8_lossy(&buffer[..read]).contains("DynamoDB_20120810.") {
                        let _ = seen.send(());
                    }
                }
            });
        }
    });
    let timeouts = Timeouts { attempt: Duration::from_millis(200), ..Timeouts::default() };
    let silent = DynamoDb::new(client, "orders", timeouts);
    let memory = Memory::new();
    let new = shardmill_lease::NewLease {
        key: key("shard"),
        checkpoint: Checkpoint::TrimHorizon,
        start_at: None,
        parents: Vec::new(),
        range: None,
    };
    memory.create(&new).await.unwrap();
    let lease = memory.row(&new.key).unwrap();
    let error = silent.write(&lease, &Change::Take { worker: worker("us") }).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(requests.recv().await, Some(()));
    assert!(requests.try_recv().is_err(), "the SDK sent the write again");
    let error = silent.get(&new.key).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_table_that_is_missing_is_named() {
    let store = store(&database().await);
    for error in [store.list().await.unwrap_err(), store.get(&key("shard")).await.unwrap_err()] {
        assert!(matches!(&error, Error::NoTable { table } if table == "orders"), "{error:?}");
    }
}

/// A service with no table, which may not be created.
async fn refuse(listener: tokio::net::TcpListener) {
    while let Ok((mut connection, _)) = listener.accept().await {
        let mut request = Vec::new();
        let answer = loop {
            if tokio::io::AsyncReadExt::read_buf(&mut connection, &mut request).await.unwrap_or(0) == 0 {
                break None;
            }
            // Only the target matters, which stands among the headers; the body may follow.
            let text = String::from_utf8_lossy(&request);
            if text.contains("DynamoDB_20120810.DescribeTable") && text.ends_with('}') {
                break Some(r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}"#);
            }
            if text.contains("DynamoDB_20120810.CreateTable") && text.ends_with('}') {
                break Some(r#"{"__type":"com.amazon.coral.service#AccessDeniedException","message":"not for you"}"#);
            }
        };
        let Some(body) = answer else { continue };
        let length = body.len();
        let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/x-amz-json-1.0\r\nconnection: close";
        let answer = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        tokio::io::AsyncWriteExt::write_all(&mut connection, answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn a_table_that_may_not_be_created_is_named_with_the_permission_that_is_missing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = store(&client(listener.local_addr().unwrap()));
    tokio::spawn(refuse(listener));
    let error = store.ensure().await.unwrap_err();
    assert!(matches!(error, Error::NotPermitted { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("dynamodb:CreateTable") && text.contains("orders"), "{text}");
}
