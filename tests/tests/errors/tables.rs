//! Lease tables that are something else, have rows that are none, or belong to somebody else.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use shardmill_cause::code::{Code, engine, lease};
use shardmill_tests::{Config, Finished, Leases, Services, Tail, Worker, Writer, leases};

use crate::row::{Expected, Row};

const LIMIT: Duration = Duration::from_secs(60);
const FIRST: &str = "shardId-000000000000";

type Items = BTreeMap<String, HashMap<String, AttributeValue>>;

pub(crate) async fn rows() -> Vec<Row> {
    let services = Services::with_streams(2, 1).await;
    Writer::new(&services, "input", 20).put(100).await;
    let mut rows = vec![of_another_kind(&services).await, a_kcl_that_lives(&services).await];
    rows.push(a_broken_row(&services).await);
    rows.extend(of_another_consumer(&services).await);
    rows.push(a_twin(&services).await);
    rows
}

async fn create_table(services: &Services, name: &str, key: &str) {
    let definition = AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S);
    let schema = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash);
    let create = services.dynamodb.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(definition.build().expect("a definition"));
    create.key_schema(schema.build().expect("a key")).send().await.expect("a table");
}

async fn put(services: &Services, table: &str, item: &[(&str, AttributeValue)]) {
    let item = item.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    services.dynamodb.put_item().table_name(table).set_item(Some(item)).send().await.expect("a row");
}

/// Every row as it stands, by this key.
async fn items(services: &Services, table: &str, key: &str) -> Items {
    let scan = services.dynamodb.scan().table_name(table).consistent_read(true).send().await.expect("a scan");
    let name = |item: &HashMap<String, AttributeValue>| item[key].as_s().expect("a text").clone();
    scan.items().iter().map(|item| (name(item), item.clone())).collect()
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn named(config: &Config, application: &str) -> String {
    config.text().replace("application = \"tests\"", &format!("application = {application:?}"))
}

/// A worker ends so.
async fn ends(given: &str, services: &Services, text: &str, code: Code, kept: &'static str) -> Row {
    let mut worker = Worker::start_with(services, text);
    let status = worker.wait(LIMIT).await;
    let finished = Finished { code: status.code(), stdout: String::new(), stderr: worker.stderr() };
    Row::of(given, &finished, Expected { exit: 78, code }, kept)
}

async fn of_another_kind(services: &Services) -> Row {
    create_table(services, "orders-copy", "customer").await;
    put(services, "orders-copy", &[("customer", s("7")), ("name", s("somebody"))]).await;
    let before = items(services, "orders-copy", "customer").await;
    let given = "a table of the name with another key";
    let kept = "the table is as it was";
    let row = ends(given, services, &named(&Config::copy(), "orders"), lease::WRONG_TABLE, kept).await;
    assert_eq!(items(services, "orders-copy", "customer").await, before);
    row
}

/// A lease as a KCL writes it.
fn kcl(owner: &str, shard: &str, counter: u64) -> Vec<(&'static str, AttributeValue)> {
    vec![
        ("leaseKey", s(shard)),
        ("leaseOwner", s(owner)),
        ("leaseCounter", n(counter)),
        ("checkpoint", s("TRIM_HORIZON")),
        ("checkpointSubSequenceNumber", n(0)),
        ("ownerSwitchesSinceCheckpoint", n(0)),
    ]
}

async fn a_kcl_that_lives(services: &Services) -> Row {
    create_table(services, "kcl-copy", "leaseKey").await;
    put(services, "kcl-copy", &kcl("kcl-7", FIRST, 1)).await;
    let client = services.dynamodb.clone();
    // It renews its lease for as long as this goes on.
    let renewing = tokio::spawn(async move {
        for counter in 2.. {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let update = client.update_item().table_name("kcl-copy").key("leaseKey", s(FIRST));
            let update = update.update_expression("SET leaseCounter = :counter");
            update.expression_attribute_values(":counter", n(counter)).send().await.expect("a renewal");
        }
    });
    let given = "a KCL that renews its leases";
    let kept = "the KCL's lease is its own, and no row was written beside it";
    let config = Config::copy().leases(Leases::Brief);
    let row = ends(given, services, &named(&config, "kcl"), lease::FOREIGN, kept).await;
    renewing.abort();
    let found = items(services, "kcl-copy", "leaseKey").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[FIRST]["leaseOwner"], s("kcl-7"));
    assert!(!found[FIRST].contains_key("leaseEpoch"), "{found:?}");
    row
}

async fn a_broken_row(services: &Services) -> Row {
    let given = "a lease whose checkpoint is none";
    create_table(services, "broken-copy", "leaseKey").await;
    let mut broken = kcl("nobody", FIRST, 1);
    broken[3] = ("checkpoint", s("yesterday"));
    // Nobody has it.
    broken.remove(1);
    put(services, "broken-copy", &broken).await;
    let before = items(services, "broken-copy", "leaseKey").await;
    let input = Tail::all(services, "input").await;
    let others = input.iter().filter(|record| record.shard != FIRST).count();
    let mut worker = Worker::start_with(services, &named(&Config::copy(), "broken"));
    let line = worker.until(given, async |worker| worker.logged("ERROR", "a broken lease").pop()).await;
    let mut output = Tail::new(services, "output").await;
    worker.until("the other shard's records", async |_| (output.count().await >= others).then_some(())).await;
    worker.stop().await;
    assert_eq!(items(services, "broken-copy", "leaseKey").await[FIRST], before[FIRST]);
    assert_eq!(Tail::all(services, "output").await.len(), others, "nothing of the broken lease's shard");
    let kept = "the row is as it was, and its shard is not read; the other shard is processed";
    Row::of_log(given, &line, lease::BROKEN_LEASE, kept)
}

/// A table whose checkpoints are another stream's, or have keys of another form.
async fn of_another_consumer(services: &Services) -> Vec<Row> {
    let of = |config: Config| named(&config, "first");
    let first = of(Config::copy());
    let mut worker = Worker::start_with(services, &first);
    worker.until_records_of("input", 100).await;
    worker.stop().await;
    let before = leases::rows(services, "first-copy").await;
    services.create_stream("other", 1).await;
    let kept = "the table's leases and checkpoints are as they were";
    let rows = vec![
        ends(
            "a table with the checkpoints of another stream",
            services,
            &of(Config::copy().reads("other")),
            engine::OTHER_STREAM,
            kept,
        )
        .await,
        ends(
            "a table with keys of the other form",
            services,
            &of(Config::copy().streams(&["input"])),
            engine::OTHER_FORM,
            kept,
        )
        .await,
    ];
    assert_eq!(leases::rows(services, "first-copy").await, before);
    rows
}

/// Two processes with one id: one of them says so and ends, and the other one goes on.
async fn a_twin(services: &Services) -> Row {
    let given = "a `worker-id` that another process uses";
    let config = Config::copy().leases(Leases::Brief).top("worker-id = \"one\"");
    let text = named(&config, "twins");
    let mut workers = [Worker::start_with(services, &text), Worker::start_with(services, &text)];
    let mut ended = None;
    shardmill_tests::eventually(LIMIT, "the end of one of two", async || {
        for (index, worker) in workers.iter_mut().enumerate() {
            if let Some(status) = worker.ended() {
                ended = Some((index, status));
            }
        }
        ended.map(|_| ())
    })
    .await;
    let (index, status) = ended.expect("one has ended");
    let finished = Finished { code: status.code(), stdout: String::new(), stderr: workers[index].stderr() };
    let row = Row::of(
        given,
        &finished,
        Expected { exit: 78, code: lease::TWIN },
        "the other process goes on and processes every record",
    );
    let other = &mut workers[1 - index];
    let input = Tail::all(services, "input").await;
    let is_done = async |_: &mut Worker| {
        let rows = leases::rows(services, "twins-copy").await;
        let at_last = |(shard, row): (&String, &leases::Row)| {
            let last = input.iter().rfind(|record| record.shard == *shard).map(|record| &record.position);
            row.checkpoint.position() == last
        };
        (rows.len() == 2 && rows.iter().all(at_last)).then_some(())
    };
    other.until("every record by the other process", is_done).await;
    other.stop().await;
    Row { says: row.says.split(" (it started").next().unwrap_or_default().to_owned() + " …", ..row }
}
