//! Services that refuse, fail, hang or are not what they should be.
//!
//! What passes by itself is waited out, with a line when it begins and a line when it ends. What somebody has to mend ends
//! the program or stops the shard, and says what was refused, where, and what to do. Nothing is lost either way.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use futures::stream::{self, StreamExt};
use serde_json::Value;
use shardmill_tests::{
    Config, Fault, Held, Injected, Link, Proxy, Rule, Service, Services, Tail, Worker, Writer, assert_each_once,
    assert_order_of_keys, firsts, leases, numbers,
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

/// Lines that say that something is in trouble, and those that say that it is over.
const TROUBLES: [(&str, &str); 9] = [
    ("cannot ask for the stream yet", "the stream is reached"),
    ("the lease table cannot be reached yet", "the lease table is reached"),
    ("the lease table cannot be read", "the lease table is read again"),
    ("looking for new shards failed", "shards are listed again"),
    ("leases cannot be taken", "leases can be taken again"),
    ("lease cannot be renewed", "lease is renewed again"),
    ("a checkpoint could not be written", "checkpoints are written again"),
    ("the shard cannot be read", "the shard is read again"),
    ("records cannot be stored", "records are stored again"),
];

fn refused(code: &'static str) -> Rule {
    Rule::new(Fault::Refused(code))
}

fn denied(operation: &'static str) -> Rule {
    refused("AccessDeniedException").operation(operation)
}

/// Lines are broken to fit a screen, and framed.
fn without_breaks(text: &str) -> String {
    text.chars().filter(|character| !character.is_whitespace() && !"│|├╰─▶┬╭·×".contains(*character)).collect()
}

fn assert_says(what: &str, text: &str, said: &[&str]) {
    for words in said {
        assert!(without_breaks(text).contains(&without_breaks(words)), "{what}: {words:?} is not said in\n{text}");
    }
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

// === What passes ===

enum Trouble {
    Rules(Vec<Rule>),
    /// The link is cut.
    Cut(Held),
}

struct Passing {
    name: &'static str,
    trouble: Trouble,
    /// Whether it is there from the start.
    at_start: bool,
    /// Whether it lasts until the log tells of it, or for a while where it should not; else its rules are limited.
    lasts: bool,
    /// Whether the log has to tell of it.
    is_told: bool,
}

/// How long a trouble lasts that is not to be told.
const SHORT: Duration = Duration::from_millis(2_500);
/// How long a write to the lease table may take, by default.
const LONGEST_WRITE: Duration = Duration::from_secs(2);

fn passing() -> Vec<Passing> {
    let of = |name, rules: Vec<Rule>, is_told| Passing {
        name,
        trouble: Trouble::Rules(rules),
        at_start: false,
        lasts: true,
        is_told,
    };
    let reading = |name, fault, is_told| of(name, vec![Rule::new(fault).operation("GetRecords")], is_told);
    let writing = |name, fault, is_told| of(name, vec![Rule::new(fault).operation("PutRecords")], is_told);
    let tables = |name, fault, is_told| of(name, vec![Rule::new(fault).service(Service::DynamoDb)], is_told);
    let at_start = |name, rule: Rule, times, is_told| Passing {
        at_start: true,
        lasts: false,
        ..of(name, vec![rule.times(times)], is_told)
    };
    let once = |name, operation, fault, is_told| Passing {
        lasts: false,
        ..of(name, vec![Rule::new(fault).operation(operation).times(1)], is_told)
    };
    let cut = |name, held| Passing { trouble: Trouble::Cut(held), ..of(name, Vec::new(), true) };
    vec![
        // Half a minute, so it begins first.
        once("a read hangs", "GetRecords", Fault::Hang, true),
        once("outputs hang", "PutRecords", Fault::Hang, true),
        // Throttles are nothing to tell before they last.
        reading("reads are throttled", Fault::Refused("ProvisionedThroughputExceededException"), false),
        reading("KMS throttles reads", Fault::Refused("KMSThrottlingException"), false),
        reading("reads fail", Fault::Status(500), true),
        reading("reads are cut off", Fault::Reset, true),
        reading("half of what is read comes", Fault::AnswerCut, true),
        reading("half of a page's JSON comes", Fault::HalfJson, true),
        reading("the token for reads expires", Fault::Refused("ExpiredTokenException"), true),
        writing("outputs are throttled", Fault::Refused("ProvisionedThroughputExceededException"), false),
        writing("KMS throttles outputs", Fault::Refused("KMSThrottlingException"), false),
        writing("KMS throttles each output", Fault::Partial { chance: 1.0, code: "KMSThrottlingException" }, false),
        writing("outputs fail", Fault::Status(503), true),
        writing("the token for outputs expires", Fault::Refused("ExpiredTokenException"), true),
        tables("tables are throttled", Fault::Refused("ProvisionedThroughputExceededException"), true),
        tables("table calls are throttled", Fault::Refused("ThrottlingException"), true),
        tables("table calls are limited", Fault::Refused("RequestLimitExceeded"), true),
        tables("tables fail", Fault::Status(500), true),
        tables("the token for tables expires", Fault::Refused("ExpiredTokenException"), true),
        tables("answers of tables are lost", Fault::AnswerLost, true),
        of("the token expires", vec![refused("ExpiredTokenException")], true),
        of("everything fails", vec![Rule::new(Fault::Status(500))], true),
        cut("the network is gone", Held::Lost),
        cut("the network is late", Held::Delivered),
        at_start("an expired token at the start", refused("ExpiredTokenException").service(Service::Kinesis), 1, true),
        at_start(
            "an expired token for tables at the start",
            refused("ExpiredTokenException").service(Service::DynamoDb),
            3,
            true,
        ),
        // The SDK makes three attempts for each of the two tables.
        at_start("tables throttle at the start", refused("ThrottlingException").operation("CreateTable"), 6, true),
        at_start("shards cannot be listed", denied("ListShards").stream("input").after(1), 2, true),
        at_start("leases cannot be taken", Rule::new(Fault::Status(500)).operation("UpdateItem"), 2, true),
        at_start("leases cannot be created", refused("ThrottlingException").operation("PutItem").after(1), 2, true),
    ]
}

fn happened(rules: &[Injected], link: &Link) -> bool {
    if rules.is_empty() { link.held() > 0 } else { rules.iter().all(|rule| rule.count() > 0) }
}

/// How often each trouble was told and its end, in the order of [`TROUBLES`].
fn told(worker: &Worker) -> Vec<(usize, usize)> {
    let count = |(begin, end): &(&str, &str)| (worker.logged("WARN", begin).len(), worker.logged("INFO", end).len());
    TROUBLES.iter().map(count).collect()
}

/// One line when a trouble begins, for each shard, lease and stream that has it, and one when it ends.
fn assert_quiet(name: &str, worker: &Worker, is_told: bool) {
    let told = told(worker);
    assert!(told.iter().all(|(begun, ended)| begun == ended), "{name}: {told:?} for {TROUBLES:?}");
    let begun: usize = told.iter().map(|(begun, _)| begun).sum();
    assert_eq!(begun > 0, is_told, "{name}: {told:?} for {TROUBLES:?}");
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let is_loud = |line: &&Value| line["level"] == "WARN" || line["level"] == "ERROR";
    let log = worker.log();
    for line in log.iter().filter(is_loud) {
        let about = [&line["message"], &line["shard"], &line["lease"], &line["stream"]];
        *lines.entry(format!("{about:?}")).or_default() += 1;
    }
    assert_eq!(lines.values().sum::<usize>(), begun, "{name}: other lines in {lines:?}");
    assert!(lines.values().all(|count| *count == 1), "{name}: told again and again: {lines:?}");
}

async fn passes(case: Passing) {
    let Passing { name, trouble, at_start, lasts, is_told } = case;
    let services = Services::with_streams(2, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let config = Config::copy().processor(r#"checkpoint-interval = "100ms""#);
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(200).await;
    let begin = || match &trouble {
        Trouble::Rules(rules) => rules.iter().map(|rule| proxy.inject(rule.clone())).collect(),
        Trouble::Cut(_) => {
            link.cut();
            Vec::new()
        }
    };
    let mut worker;
    let rules: Vec<Injected>;
    if at_start {
        rules = begin();
        worker = Worker::start(&link, &config);
    } else {
        worker = Worker::start_ready(&link, &config).await;
        let mut output = Tail::new(&services, "output").await;
        worker.until("outputs", async |_| (output.count().await == 200).then_some(())).await;
        rules = begin();
    }
    writer.put(200).await;
    worker.until(name, async |_| happened(&rules, &link).then_some(())).await;
    if lasts && is_told {
        let is_told = |worker: &Worker| told(worker).iter().any(|(begun, _)| *begun > 0);
        worker.until(&format!("a line about it: {name}"), async |worker| is_told(worker).then_some(())).await;
        // And then no second one.
        tokio::time::sleep(Duration::from_millis(700)).await;
    } else if lasts {
        tokio::time::sleep(SHORT).await;
    }
    match &trouble {
        Trouble::Rules(_) if lasts => proxy.calm(),
        Trouble::Rules(_) => {}
        Trouble::Cut(held) => link.restore(*held),
    }
    writer.put(100).await;
    let mut output = Tail::new(&services, "output").await;
    worker
        .until_within(Duration::from_secs(90), &format!("all outputs: {name}"), async |_| {
            output.poll().await;
            (numbers(output.found()).len() == 500).then_some(())
        })
        .await;
    // A write to the table that began in the trouble may take its whole time before it is told.
    tokio::time::sleep(LONGEST_WRITE).await;
    worker
        .until(&format!("the end of all troubles: {name}"), async |worker| {
            told(worker).iter().all(|(begun, ended)| begun == ended).then_some(())
        })
        .await;
    worker.stop().await;
    let found = Tail::all(&services, "output").await;
    // Only where the network has swallowed an answer, or brought a request late, may something be there twice.
    let found = if matches!(trouble, Trouble::Cut(_)) { firsts(&found) } else { found };
    assert_each_once(&found, 0..500);
    assert_order_of_keys(&found);
    let rows = leases::rows(&services, config.lease_table()).await;
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);
    assert_quiet(name, &worker, is_told);
}

#[tokio::test]
async fn what_passes_is_waited_out_with_one_line_when_it_begins_and_one_when_it_ends() {
    stream::iter(passing()).for_each_concurrent(AT_ONCE, passes).await;
}
