//! Services that refuse, fail, hang or are not what they should be.
//!
//! What passes by itself is waited out, with a line when it begins and a line when it ends. What somebody has to mend ends
//! the program or stops the shard, and says what was refused, where, and what to do. Nothing is lost either way.

mod passing;

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use futures::stream::{self, StreamExt};
use shardmill_tests::{
    Config, Fault, Proxy, Rule, Service, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys,
    assert_says, leases, numbers,
};

/// So many at a time: each is a worker and services.
const AT_ONCE: usize = 8;
/// A service that does not answer at the start is tried for a minute.
const END_LIMIT: Duration = Duration::from_secs(150);
const ELSEWHERE: &str = "[aws]\nregion = \"eu-west-1\"";
const SECOND_SHARD: &str = "shardId-000000000001";

const NOT_PERMITTED: i32 = 77;
const UNAVAILABLE: i32 = 69;
const WRONG_CONFIGURATION: i32 = 78;

fn refused(code: &'static str) -> Rule {
    Rule::new(Fault::Refused(code))
}

fn denied(operation: &'static str) -> Rule {
    refused("AccessDeniedException").operation(operation)
}

/// Waits for all outputs, stops the worker, and asserts that everything is there once and in order.
async fn finish(what: &str, services: &Services, worker: &mut Worker, count: u64) {
    let mut output = Tail::new(services, "output").await;
    worker
        .until_within(Duration::from_secs(90), &format!("all outputs: {what}"), async |_| {
            output.poll().await;
            (numbers(output.found()).len() as u64 == count).then_some(())
        })
        .await;
    worker.stop().await;
    let output = Tail::all(services, "output").await;
    assert_each_once(&output, 0..count);
    assert_order_of_keys(&output);
    let rows = leases::rows(services, Config::copy().lease_table()).await;
    leases::assert_released_at_the_end(&rows, &Tail::all(services, "input").await);
}

// === What ends the program ===

struct Final {
    name: &'static str,
    rule: Rule,
    /// At the top of the configuration.
    top: &'static str,
    code: i32,
    said: &'static [&'static str],
}

fn finals() -> Vec<Final> {
    let of_table = |operation, table| denied(operation).table(table);
    let case = |name, rule, code, said| Final { name, rule, top: "", code, said };
    let elsewhere = |name, rule: Rule, code, said| Final {
        name,
        rule: rule.outside_region("us-east-1"),
        top: ELSEWHERE,
        code,
        said,
    };
    vec![
        // These three take a minute, so they begin first.
        case(
            "an expired token",
            refused("ExpiredTokenException"),
            NOT_PERMITTED,
            &["DescribeStreamSummary", "`input`", "token included in the request is expired", "us-east-1"],
        ),
        case(
            "a service that fails",
            Rule::new(Fault::Status(500)).operation("DescribeStreamSummary"),
            UNAVAILABLE,
            &["DescribeStreamSummary", "`input`", "HTTP status 500", "the endpoint"],
        ),
        case(
            "an endpoint that is something else",
            Rule::new(Fault::HalfJson).operation("DescribeStreamSummary"),
            UNAVAILABLE,
            &["DescribeStreamSummary", "`input`", "cannot be right", "check what answers at the endpoint"],
        ),
        case(
            "CreateTable",
            denied("CreateTable"),
            NOT_PERMITTED,
            &["dynamodb:CreateTable", "tests-copy", "create the table beforehand"],
        ),
        case("DescribeTable", denied("DescribeTable"), NOT_PERMITTED, &["dynamodb:DescribeTable", "tests-copy"]),
        case(
            "PutItem of documents",
            of_table("PutItem", "tests-copy-shardmill"),
            NOT_PERMITTED,
            &["dynamodb:PutItem", "tests-copy-shardmill"],
        ),
        case(
            "PutItem of leases",
            of_table("PutItem", "tests-copy"),
            NOT_PERMITTED,
            &["dynamodb:PutItem", "table tests-copy is not permitted"],
        ),
        case("UpdateItem", denied("UpdateItem"), NOT_PERMITTED, &["dynamodb:UpdateItem", "tests-copy"]),
        case("Scan", denied("Scan"), NOT_PERMITTED, &["dynamodb:Scan", "tests-copy"]),
        case("GetItem", denied("GetItem"), NOT_PERMITTED, &["dynamodb:GetItem", "tests-copy-shardmill"]),
        case(
            "DescribeStreamSummary",
            denied("DescribeStreamSummary"),
            NOT_PERMITTED,
            &["grant kinesis:DescribeStreamSummary", "`input`"],
        ),
        case(
            "ListShards",
            denied("ListShards").stream("input"),
            NOT_PERMITTED,
            &["grant kinesis:ListShards", "`input`"],
        ),
        case(
            "unknown credentials",
            refused("UnrecognizedClientException"),
            NOT_PERMITTED,
            &["the AWS credentials do not work in region us-east-1", "security token", "check them"],
        ),
        case(
            "unknown credentials for tables",
            refused("UnrecognizedClientException").service(Service::DynamoDb),
            NOT_PERMITTED,
            &["table tests-copy", "the AWS credentials do not work in region us-east-1", "check them"],
        ),
        elsewhere(
            "a region without the stream",
            refused("ResourceNotFoundException").service(Service::Kinesis),
            UNAVAILABLE,
            &["there is no stream `input` in region eu-west-1"],
        ),
        elsewhere(
            "an endpoint of another region",
            refused("InvalidSignatureException").service(Service::Kinesis),
            NOT_PERMITTED,
            &["in region eu-west-1", "Credential should be scoped to a valid region", "check them, the region"],
        ),
        elsewhere(
            "a table endpoint of another region",
            refused("InvalidSignatureException").service(Service::DynamoDb),
            NOT_PERMITTED,
            &["table tests-copy", "in region eu-west-1", "Credential should be scoped", "check them, the region"],
        ),
    ]
}

async fn ends(case: Final) {
    let Final { name, rule, top, code, said } = case;
    let services = Services::with_streams(2, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let rule = proxy.inject(rule);
    let mut worker = Worker::start(&link, &Config::copy().top(top));
    let status = worker.wait(END_LIMIT).await;
    assert_eq!(status.code(), Some(code), "{name}: {}", worker.stderr());
    assert!(rule.count() > 0, "{name} happened");
    assert_says(name, &worker.stderr(), &["processor copy"]);
    assert_says(name, &worker.stderr(), said);

    // Mended, everything is there.
    proxy.calm();
    finish(name, &services, &mut Worker::start(&link, &Config::copy()), 100).await;
}

#[tokio::test]
async fn what_somebody_has_to_mend_before_the_start_ends_the_program_and_says_what() {
    let cases = finals();
    // Those that take a minute do not keep the others waiting.
    stream::iter(cases).for_each_concurrent(AT_ONCE + 3, ends).await;
}

#[tokio::test]
async fn a_table_that_is_no_lease_table_is_left_alone() {
    let services = Services::with_streams(1, 1).await;
    let definition = AttributeDefinition::builder().attribute_name("customer").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("customer").key_type(KeyType::Hash);
    let create = services.dynamodb.create_table().table_name("tests-copy").billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(definition.build().expect("a definition"));
    create.key_schema(key.build().expect("a key")).send().await.expect("a table");
    let mut worker = Worker::start(&services, &Config::copy());
    let status = worker.wait(END_LIMIT).await;
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{}", worker.stderr());
    let said =
        ["processor copy", "tests-copy is not a lease table", "`leaseKey`", "HASH `customer` (S)", "`lease-table`"];
    assert_says("a table of customers", &worker.stderr(), &said);
    let tables = services.dynamodb.list_tables().send().await.expect("tables");
    assert_eq!(tables.table_names(), ["tests-copy"], "nothing is created beside it");
}

// === What stops a shard ===

struct Stop {
    name: &'static str,
    rule: Rule,
    /// Whether the other shard is stopped as well.
    stops_all: bool,
    said: &'static [&'static str],
}

fn stops() -> Vec<Stop> {
    let reading = |name, code, said| {
        let rule = refused(code).operation("GetRecords").shard(SECOND_SHARD);
        Stop { name, rule, stops_all: false, said }
    };
    let writing = |name, rule: Rule, said| {
        let rule = rule.operation("PutRecords").stream("output");
        Stop { name, rule, stops_all: true, said }
    };
    let each_entry = Rule::new(Fault::Partial { chance: 1.0, code: "KMSDisabledException" });
    vec![
        reading(
            "KMS denies reading",
            "KMSAccessDeniedException",
            &["GetRecords of shardId-000000000001 of stream `input`", "not authorized to decrypt", "kms:Decrypt"],
        ),
        reading(
            "the key is disabled",
            "KMSDisabledException",
            &["GetRecords", "`input`", "is disabled", "kms:Decrypt"],
        ),
        reading("reading is not permitted", "AccessDeniedException", &["grant kinesis:GetRecords", "`input`"]),
        reading(
            "credentials are revoked",
            "UnrecognizedClientException",
            &["GetRecords", "the AWS credentials do not work in region us-east-1"],
        ),
        writing(
            "KMS denies writing",
            refused("KMSAccessDeniedException"),
            &["PutRecords of stream `output` in region us-east-1", "KMSAccessDeniedException", "kms:GenerateDataKey"],
        ),
        writing("KMS denies each entry", each_entry, &["PutRecords", "`output`", "is disabled", "kms:GenerateDataKey"]),
        writing(
            "writing is not permitted",
            refused("AccessDeniedException"),
            &["PutRecords of stream `output` in region us-east-1", "grant kinesis:PutRecords"],
        ),
        writing(
            "the output is gone",
            refused("ResourceNotFoundException"),
            &["PutRecords of stream `output` in region us-east-1", "create the stream"],
        ),
    ]
}

async fn stops_shard(case: Stop) {
    let Stop { name, rule, stops_all, said } = case;
    let services = Services::with_streams(2, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(200).await;
    let mut worker = Worker::start_ready(&link, &Config::copy()).await;
    let mut output = Tail::new(&services, "output").await;
    worker.until("outputs", async |_| (output.count().await == 200).then_some(())).await;
    let rule = proxy.inject(rule);
    writer.put(200).await;
    let expected = if stops_all { 2 } else { 1 };
    let sentences = worker
        .until(name, async |worker| {
            let (status, text) = worker.get("/readyz").await;
            let stopped: Vec<String> =
                text.lines().filter(|line| line.contains("is stopped")).map(str::to_owned).collect();
            (status == 503 && stopped.len() == expected).then_some(stopped)
        })
        .await;
    assert!(rule.count() > 0, "{name} happened");
    for sentence in &sentences {
        assert_says(name, sentence, &["processor copy", "shardId-"]);
        assert_says(name, sentence, said);
    }
    let stopped = writer.keys_of(SECOND_SHARD).await;
    let others = (0..400).filter(|number| !stopped.contains(&writer.key_of_number(*number))).count();
    if !stops_all {
        worker
            .until("the other shard", async |_| {
                output.poll().await;
                (output.found().iter().filter(|record| !stopped.contains(&record.key)).count() == others).then_some(())
            })
            .await;
    }
    let errors = worker.logged("ERROR", "the shard is stopped");
    assert_eq!((errors.len(), worker.logged("ERROR", "").len()), (expected, expected), "{name}: a line for each shard");
    assert_eq!(worker.logged("WARN", "").len(), 0, "{name}: nothing more");
    // It stands until somebody has mended it, and ends well.
    worker.stop().await;
    proxy.calm();
    finish(name, &services, &mut Worker::start(&link, &Config::copy()), 400).await;
}

#[tokio::test]
async fn what_somebody_has_to_mend_while_it_runs_stops_the_shard_and_says_what() {
    stream::iter(stops()).for_each_concurrent(AT_ONCE, stops_shard).await;
}

#[tokio::test]
async fn an_output_that_is_not_there_is_named_with_its_region() {
    let services = Services::start().await;
    services.create_stream("input", 1).await;
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let mut worker = Worker::start(&services, &Config::copy());
    let sentence = worker
        .until("a stopped shard", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            let (_, text) = worker.get("/readyz").await;
            text.lines().find(|line| line.contains("is stopped")).map(str::to_owned)
        })
        .await;
    let said =
        ["shardId-000000000000", "output `copies`", "ListShards of stream `output` in region us-east-1", "create"];
    assert_says("a missing output", &sentence, &said);
    worker.stop().await;
    services.create_stream("output", 1).await;
    finish("a missing output", &services, &mut Worker::start(&services, &Config::copy()), 100).await;
}
