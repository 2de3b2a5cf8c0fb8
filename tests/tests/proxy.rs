//! The tests' proxy does as it is told: what it says it has done is what has happened to the service and its caller.

use std::time::Duration;

use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::operation::put_records::{PutRecordsError, PutRecordsOutput};
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::PutRecordsRequestEntry;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use shardmill_tests::{Environment, Fault, Held, Link, Proxy, Rule, Service, Services, Tail, eventually};

type Put = Result<PutRecordsOutput, SdkError<PutRecordsError>>;

const ENTRIES: u64 = 6;

/// A caller that sees every answer, and waits for none of them long.
fn client(services: &Services, link: &Link) -> aws_sdk_kinesis::Client {
    let timeouts = TimeoutConfig::builder().operation_timeout(Duration::from_millis(700)).build();
    let config = services.kinesis.config().to_builder().endpoint_url(&link.environment()["AWS_ENDPOINT_URL_KINESIS"]);
    aws_sdk_kinesis::Client::from_conf(config.retry_config(RetryConfig::disabled()).timeout_config(timeouts).build())
}

async fn put(client: &aws_sdk_kinesis::Client, first: u64) -> Put {
    let entry = |number: u64| {
        let data = format!(r#"{{"n":{number},"key":"key-{number}"}}"#);
        let entry = PutRecordsRequestEntry::builder().partition_key(format!("key-{number}")).data(Blob::new(data));
        entry.build().expect("data and a key")
    };
    let entries: Vec<_> = (first..first + ENTRIES).map(entry).collect();
    client.put_records().stream_name("output").set_records(Some(entries)).send().await
}

fn stored(put: &PutRecordsOutput) -> u64 {
    put.records().iter().filter(|entry| entry.error_code().is_none()).count() as u64
}

async fn in_stream(services: &Services) -> u64 {
    Tail::all(services, "output").await.len() as u64
}

#[tokio::test]
async fn faults_do_what_they_say_and_are_counted() {
    // Whether the caller has an answer, whether its records are stored, and whether it does not know.
    let cases = [
        (Fault::Late(Duration::from_millis(100)), true, true),
        (Fault::LateAnswer(Duration::from_millis(100)), true, true),
        (Fault::Refused("KMSDisabledException"), false, false),
        (Fault::Status(503), false, false),
        (Fault::Hang, false, false),
        (Fault::Reset, false, false),
        (Fault::AnswerLost, false, true),
        (Fault::AnswerCut, false, true),
        (Fault::HalfJson, false, true),
        (Fault::LateAnswer(Duration::from_secs(2)), false, true),
    ];
    let services = Services::with_streams(1, 2).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("caller");
    let client = client(&services, &link);
    let mut expected = 0;
    let mut untold = 0;
    for (fault, answered, carried_out) in cases {
        let rule = proxy.inject(Rule::new(fault.clone()).operation("PutRecords").stream("output").times(1));
        let answer = put(&client, expected).await;
        assert_eq!((rule.count(), answer.is_ok()), (1, answered), "{fault:?}: {answer:?}");
        expected += if carried_out { ENTRIES } else { 0 };
        untold += match fault {
            Fault::AnswerLost | Fault::AnswerCut | Fault::HalfJson => ENTRIES,
            _ => 0,
        };
        assert_eq!((in_stream(&services).await, proxy.untold()), (expected, untold), "{fault:?}");
        match (&fault, &answer) {
            (Fault::Refused(code), Err(error)) => assert_eq!(error.code(), Some(*code)),
            (Fault::Status(_), Err(SdkError::ServiceError(error))) => assert_eq!(error.raw().status().as_u16(), 503),
            (Fault::HalfJson, Err(error)) => assert!(matches!(error, SdkError::ResponseError(_)), "{error:?}"),
            _ => {}
        }
        // The next call is an ordinary one.
        assert_eq!(stored(&put(&client, expected).await.expect("an answer")), ENTRIES);
        expected += ENTRIES;
    }
    // A request that comes late comes although nobody waits for it.
    proxy.inject(Rule::new(Fault::Late(Duration::from_millis(1_500))).times(1));
    assert!(put(&client, expected).await.is_err());
    assert_eq!(in_stream(&services).await, expected);
    eventually(Duration::from_secs(10), "the late request", async || {
        (in_stream(&services).await == expected + ENTRIES).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_part_of_a_request_fails_and_the_rest_keeps_its_places() {
    let services = Services::with_streams(1, 2).await;
    let proxy = Proxy::new(&services, 5);
    let link = proxy.link("caller");
    let client = client(&services, &link);
    for (chance, code) in [(0.5, "InternalFailure"), (1.0, "ProvisionedThroughputExceededException")] {
        proxy.inject(Rule::new(Fault::Partial { chance, code }).operation("PutRecords").times(1));
        let before: Vec<_> = Tail::all(&services, "output").await;
        let answer = put(&client, 1_000).await.expect("an answer");
        let failed = ENTRIES - stored(&answer);
        assert_eq!(answer.records().len() as u64, ENTRIES);
        assert_eq!(answer.failed_record_count().map(i64::from), Some(failed.cast_signed()));
        assert!(failed > 0 && (chance < 1.0) == (failed < ENTRIES), "{answer:?}");
        let after = Tail::all(&services, "output").await;
        for (number, entry) in (1_000..).zip(answer.records()) {
            let is_it = |found: &&shardmill_tests::Found| found.number == number;
            let new = after.iter().filter(is_it).count() - before.iter().filter(is_it).count();
            match entry.error_code() {
                Some(reported) => assert_eq!((reported, new), (code, 0)),
                None => assert_eq!(new, 1, "{number}"),
            }
        }
    }
}

#[tokio::test]
async fn a_cut_link_takes_everything_in_and_lets_nothing_through_while_others_are_whole() {
    let services = Services::with_streams(1, 2).await;
    let proxy = Proxy::new(&services, 1);
    proxy.keep_writes();
    let (link, other) = (proxy.link("cut"), proxy.link("whole"));
    let (client, other) = (client(&services, &link), client(&services, &other));
    let mut expected = 0;
    for held in [Held::Lost, Held::Delivered] {
        // There is a connection from before.
        put(&client, 0).await.expect("an answer");
        link.cut();
        assert!(put(&client, 0).await.is_err());
        assert!(put(&client, 0).await.is_err(), "over a new connection");
        put(&other, 0).await.expect("an answer over the other link");
        expected += 2 * ENTRIES;
        assert_eq!(in_stream(&services).await, expected);
        link.restore(held);
        expected += if held == Held::Delivered { 2 * ENTRIES } else { 0 };
        eventually(Duration::from_secs(10), "what was held", async || {
            (in_stream(&services).await == expected).then_some(())
        })
        .await;
        put(&client, 0).await.expect("an answer");
        expected += ENTRIES;
    }
    assert_eq!(link.held(), 4);
    let writes = proxy.writes();
    let by = |name: &str| writes.iter().filter(|write| write.link == name && write.status == 200).count();
    assert_eq!((by("cut"), by("whole")), (6, 2));
    assert!(writes.iter().all(|write| write.carried < write.answered && write.operation == "PutRecords"));
}

#[tokio::test]
async fn tables_are_served_too_and_reads_of_one_shard_are_told_apart() {
    let services = Services::with_streams(2, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("caller");
    let config = services.dynamodb.config().to_builder().endpoint_url(&link.environment()["AWS_ENDPOINT_URL_DYNAMODB"]);
    let dynamodb = aws_sdk_dynamodb::Client::from_conf(config.retry_config(RetryConfig::disabled()).build());
    let rule =
        proxy.inject(Rule::new(Fault::Refused("AccessDeniedException")).service(Service::DynamoDb).table("refused"));
    for (table, code) in [("refused", "AccessDeniedException"), ("others", "ResourceNotFoundException")] {
        let error = dynamodb.describe_table().table_name(table).send().await.expect_err("no table");
        assert_eq!(error.code(), Some(code), "{error:?}");
    }
    assert_eq!(rule.count(), 1);

    let client = client(&services, &link);
    let shards = services.shards("input").await;
    let refused = proxy.inject(Rule::new(Fault::Status(500)).operation("GetRecords").shard(shards[1].shard_id()));
    for (shard, reads) in shards.iter().zip([true, false]) {
        let iterator = client.get_shard_iterator().stream_name("input").shard_id(shard.shard_id());
        let iterator =
            iterator.shard_iterator_type(aws_sdk_kinesis::types::ShardIteratorType::TrimHorizon).send().await;
        let mut iterator = iterator.expect("an iterator").shard_iterator;
        // The second one is known from the first read's answer.
        for _ in 0..2 {
            let read = client.get_records().set_shard_iterator(iterator.clone()).send().await;
            assert_eq!(read.is_ok(), reads, "{read:?}");
            iterator = read.map_or(iterator, |read| read.next_shard_iterator);
        }
    }
    assert_eq!(refused.count(), 2);
}
