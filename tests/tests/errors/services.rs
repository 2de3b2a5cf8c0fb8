//! Services that refuse, fail or answer nonsense: through a proxy, which asks the service itself nothing then.

use shardmill_cause::code::{Code, engine, lease, producer, stream};
use shardmill_tests::{Config, Fault, Link, Proxy, Rule, Service, Services, Tail, Worker, Writer, leases};

use crate::row::{Expected, Folder, Row, finish, payloads};

const RECORDS: u64 = 20;

fn refused(code: &'static str) -> Rule {
    Rule::new(Fault::Refused(code))
}

fn denied(operation: &'static str) -> Rule {
    refused("AccessDeniedException").operation(operation)
}

pub(crate) async fn rows() -> Vec<Row> {
    let services = Services::with_streams(1, 1).await;
    let proxy = Proxy::new(&services, 1);
    Writer::new(&services, "input", 5).put(RECORDS).await;
    let mut rows = of_starts(&services, &proxy).await;
    rows.extend(of_commands(&services, &proxy).await);
    rows.push(of_outputs(&services, &proxy).await);
    rows
}

/// A worker that ends because of what it is answered at its start. No lease of its has a checkpoint then, and nothing is in
/// the output.
async fn of_starts(services: &Services, proxy: &Proxy) -> Vec<Row> {
    let of_kinesis = |code| refused(code).service(Service::Kinesis);
    let of_tables = |code| refused(code).service(Service::DynamoDb);
    let cases: [(&str, Rule, i32, Code); 8] = [
        ("the role may not describe the stream", denied("DescribeStreamSummary"), 77, stream::NOT_PERMITTED),
        ("the role may not list shards", denied("ListShards").stream("input"), 77, stream::NOT_PERMITTED),
        ("the role may not create the table", denied("CreateTable"), 77, lease::TABLE_NOT_PERMITTED),
        ("the role may not scan the table", denied("Scan"), 77, lease::TABLE_NOT_PERMITTED),
        ("credentials that Kinesis does not know", of_kinesis("UnrecognizedClientException"), 77, stream::CREDENTIALS),
        (
            "credentials that DynamoDB does not know",
            of_tables("UnrecognizedClientException"),
            77,
            lease::TABLE_CREDENTIALS,
        ),
        ("a signature for another region", of_kinesis("InvalidSignatureException"), 77, stream::CREDENTIALS),
        ("a stream that is not there", of_kinesis("ResourceNotFoundException"), 69, stream::NOT_FOUND),
    ];
    let mut rows = Vec::new();
    for (number, (given, rule, exit, code)) in cases.into_iter().enumerate() {
        let link = proxy.link("worker");
        let rule = proxy.inject(rule);
        let application = format!("tests{number}");
        let text = Config::copy().text().replace("application = \"tests\"", &format!("application = {application:?}"));
        let mut worker = Worker::start_with(&link, &text);
        let status = worker.wait(std::time::Duration::from_secs(60)).await;
        rule.end();
        let leases = leases::rows(services, &format!("{application}-copy")).await;
        assert!(leases.values().all(|lease| lease.checkpoint.position().is_none()), "{given}: {leases:?}");
        assert!(Tail::all(services, "output").await.is_empty(), "{given}");
        let finished =
            shardmill_tests::Finished { code: status.code(), stdout: String::new(), stderr: worker.stderr() };
        let kept = "no lease has a checkpoint, nothing is in the output; a start when it is mended begins at `start`";
        rows.push(Row::of(given, &finished, Expected { exit, code }, kept));
    }
    rows
}

/// Commands about streams. Nothing of them is carried out.
async fn of_commands(services: &Services, proxy: &Proxy) -> Vec<Row> {
    let folder = Folder::new();
    let file = folder.write("a.txt", "one\ntwo\n");
    let describe = vec!["stream", "describe", "input"];
    let summary = "DescribeStreamSummary";
    let put = vec!["put", "input", file.as_str()];
    let cases: [(&str, Vec<&str>, Rule, i32, Code); 8] = [
        (
            "an expired token",
            describe.clone(),
            refused("ExpiredTokenException").operation(summary),
            77,
            stream::CREDENTIALS,
        ),
        (
            "a service that fails",
            describe.clone(),
            Rule::new(Fault::Status(500)).operation(summary),
            69,
            stream::UNAVAILABLE,
        ),
        (
            "a connection that is reset each time",
            describe.clone(),
            Rule::new(Fault::Reset).operation(summary),
            69,
            stream::UNAVAILABLE,
        ),
        ("half an answer", describe.clone(), Rule::new(Fault::HalfJson).operation(summary), 69, stream::INVALID_ANSWER),
        (
            "a throttle that lasts",
            describe.clone(),
            refused("ThrottlingException").operation(summary),
            69,
            stream::THROTTLED,
        ),
        ("the role may not list streams", vec!["stream", "list"], denied("ListStreams"), 77, stream::NOT_PERMITTED),
        ("the role may not put records", put.clone(), denied("PutRecords"), 77, producer::DENIED),
        (
            "a stream that takes no records",
            put,
            refused("ResourceNotFoundException").operation("PutRecords"),
            69,
            producer::REFUSED,
        ),
    ];
    let mut rows = Vec::new();
    for (given, arguments, rule, exit, code) in cases {
        let link: Link = proxy.link("command");
        let before = payloads(services, "input").await;
        let rule = proxy.inject(rule);
        let finished = finish(&link, &arguments).await;
        rule.end();
        assert_eq!(payloads(services, "input").await, before, "{given}");
        rows.push(Row::of(given, &finished, Expected { exit, code }, "the stream has the records it had"));
    }
    rows
}

/// A worker whose output is refused: its shard stands before the records that have caused it.
async fn of_outputs(services: &Services, proxy: &Proxy) -> Row {
    let given = "the role may not put records into an output";
    let link = proxy.link("worker");
    let rule = proxy.inject(denied("PutRecords").stream("output"));
    let mut worker = Worker::start(&link, &Config::copy());
    let line = worker.until(given, async |worker| worker.logged("ERROR", "the shard is stopped").pop()).await;
    let leases = leases::rows(services, "tests-copy").await;
    assert!(leases.values().all(|lease| lease.owner.is_some() && lease.checkpoint.position().is_none()), "{leases:?}");
    let reason = line["reason"].as_str().expect("a reason");
    assert!(reason.ends_with(&format!("({})", engine::OUTPUT_REFUSED)), "{reason}");
    rule.end();
    // Mended and started again, everything is there once.
    worker.stop().await;
    let mut worker = Worker::start(&link, &Config::copy());
    let mut output = Tail::new(services, "output").await;
    worker.until("all outputs", async |_| (output.count().await as u64 >= RECORDS).then_some(())).await;
    worker.stop().await;
    assert_eq!(Tail::all(services, "output").await.len() as u64, RECORDS);
    let kept = "its lease is held and has no checkpoint; a start when it is mended sends every output once";
    Row { code: engine::OUTPUT_REFUSED, ..Row::of_log(given, &line, engine::SHARD_STOPPED, kept) }
}
