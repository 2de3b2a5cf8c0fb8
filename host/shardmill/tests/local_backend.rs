//! The local backend, seen through the AWS SDK as the host sees it: each test is something that AWS does.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::types::{AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType};
use aws_sdk_kinesis::config::{BehaviorVersion, Credentials, Region, retry::RetryConfig};
use aws_sdk_kinesis::error::ProvideErrorMetadata;
use aws_sdk_kinesis::operation::get_records::GetRecordsOutput;
use aws_sdk_kinesis::primitives::{Blob, DateTime};
use aws_sdk_kinesis::types::{
    ConsumerStatus, PutRecordsRequestEntry, ShardFilter, ShardFilterType, ShardIteratorType, StartingPosition,
    SubscribeToShardEventStream,
};
use aws_smithy_http_client::tls;
use ciborium::Value as Cbor;
use shardmill::local::{Error, Local, Options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

const STREAM: &str = "flights";
const FIRST_SHARD: &str = "shardId-000000000000";
const HALF_OF_THE_KEYS: &str = "170141183460469231731687303715884105728";

// --- set-up ---------------------------------------------------------------------------------------------------------

struct Backend {
    local: Local,
    kinesis: aws_sdk_kinesis::Client,
}

impl Backend {
    async fn start(options: Options) -> Backend {
        let local = Local::start(options).await.unwrap();
        let config = aws_sdk_kinesis::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(&local.endpoints().kinesis)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "test"))
            .retry_config(RetryConfig::disabled())
            .http_client(http_client())
            .build();
        Backend { local, kinesis: aws_sdk_kinesis::Client::from_conf(config) }
    }

    /// A backend with one stream.
    async fn with_stream(shards: i32) -> Backend {
        let backend = Backend::start(Options::default()).await;
        backend.create_stream(shards).await;
        backend
    }

    async fn create_stream(&self, shards: i32) {
        self.kinesis.create_stream().stream_name(STREAM).shard_count(shards).send().await.unwrap();
        self.until_active().await;
    }

    async fn until_active(&self) {
        for _ in 0..1_500 {
            let summary = self.kinesis.describe_stream_summary().stream_name(STREAM).send().await.unwrap();
            if summary.stream_description_summary().unwrap().stream_status().as_str() == "ACTIVE" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the stream did not become active");
    }

    async fn arn(&self) -> String {
        let summary = self.kinesis.describe_stream_summary().stream_name(STREAM).send().await.unwrap();
        summary.stream_description_summary().unwrap().stream_arn().to_string()
    }

    async fn until_consumer_active(&self, arn: &str) {
        for _ in 0..1_500 {
            let described = self.kinesis.describe_stream_consumer().consumer_arn(arn).send().await.unwrap();
            if *described.consumer_description().unwrap().consumer_status() == ConsumerStatus::Active {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the consumer did not become active");
    }

    async fn put(&self, data: &[Vec<u8>]) {
        let entries = data.iter().map(|data| entry(data.clone()));
        let put = self.kinesis.put_records().stream_name(STREAM).set_records(Some(entries.collect()));
        assert_eq!(put.send().await.unwrap().failed_record_count(), Some(0));
    }

    async fn split(&self, shard: &str, at: &str) {
        let split = self.kinesis.split_shard().stream_name(STREAM).shard_to_split(shard).new_starting_hash_key(at);
        split.send().await.unwrap();
        self.until_active().await;
    }

    async fn iterator(&self, shard: &str, kind: ShardIteratorType) -> String {
        let get = self.kinesis.get_shard_iterator().stream_name(STREAM).shard_id(shard).shard_iterator_type(kind);
        get.send().await.unwrap().shard_iterator.unwrap()
    }

    async fn read(&self, iterator: &str) -> GetRecordsOutput {
        let read = self.kinesis.get_records().shard_iterator(iterator).send();
        tokio::time::timeout(Duration::from_secs(30), read).await.expect("an answer").unwrap()
    }

    /// A page as the AWS SDK for Java asks for it.
    async fn read_in_cbor(&self, iterator: &str) -> BTreeMap<String, Cbor> {
        let mut body = Vec::new();
        let member = (Cbor::from("ShardIterator"), Cbor::from(iterator));
        ciborium::into_writer(&Cbor::Map(vec![member]), &mut body).unwrap();
        let address = self.local.endpoints().kinesis.strip_prefix("http://").unwrap().to_owned();
        let head = format!(
            "POST / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: application/x-amz-cbor-1.1\r\nx-amz-target: Kinesis_20131202.GetRecords\r\n\r\n",
            body.len()
        );
        let mut connection = tokio::net::TcpStream::connect(&address).await.unwrap();
        connection.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        assert!(
            head.starts_with("http/1.1 200") && head.contains("content-type: application/x-amz-cbor-1.1"),
            "{head}"
        );
        ciborium::from_reader(&answer[end + 4..]).unwrap()
    }

    /// Everything up to the shard's end, and the last answer.
    async fn read_to_end(&self, shard: &str) -> (Vec<String>, GetRecordsOutput) {
        let mut iterator = self.iterator(shard, ShardIteratorType::TrimHorizon).await;
        let mut found = Vec::new();
        loop {
            let page = self.read(&iterator).await;
            found.extend(texts(page.records()));
            match page.next_shard_iterator() {
                Some(next) => iterator = next.to_string(),
                None => return (found, page),
            }
        }
    }

    async fn shard_ids(&self, filter: Option<ShardFilter>) -> Vec<String> {
        let list = self.kinesis.list_shards().stream_name(STREAM).set_shard_filter(filter).send().await.unwrap();
        list.shards().iter().map(|shard| shard.shard_id().to_string()).collect()
    }
}

fn http_client() -> aws_sdk_kinesis::config::SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https()
}

fn entry(data: Vec<u8>) -> PutRecordsRequestEntry {
    PutRecordsRequestEntry::builder().data(Blob::new(data)).partition_key("key").build().unwrap()
}

fn numbered(range: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    range.map(|number| number.to_string().into_bytes()).collect()
}

fn texts(records: &[aws_sdk_kinesis::types::Record]) -> Vec<String> {
    records.iter().map(|record| String::from_utf8(record.data().as_ref().to_vec()).unwrap()).collect()
}

// --- reading --------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_split_shard_ends_with_its_records_read_and_its_children_named() {
    let backend = Backend::with_stream(1).await;
    backend.put(&numbered(0..300)).await;
    backend.split(FIRST_SHARD, HALF_OF_THE_KEYS).await;

    let (found, last) = backend.read_to_end(FIRST_SHARD).await;
    assert_eq!(found, (0..300).map(|number| number.to_string()).collect::<Vec<_>>());
    let children = last.child_shards();
    assert_eq!(children.len(), 2);
    assert_eq!(children[0].parent_shards(), [FIRST_SHARD]);
    assert_eq!(children[1].hash_key_range().unwrap().starting_hash_key(), HALF_OF_THE_KEYS);
}

/// The KCL does not believe an end without children, and reads on for ever.
#[tokio::test]
async fn a_page_in_cbor_has_what_a_page_in_json_has() {
    let backend = Backend::with_stream(1).await;
    backend.put(&numbered(7..8)).await;
    let oldest = backend.iterator(FIRST_SHARD, ShardIteratorType::TrimHorizon).await;
    backend.split(FIRST_SHARD, HALF_OF_THE_KEYS).await;
    let arrival =
        backend.read(&oldest).await.records()[0].approximate_arrival_timestamp().unwrap().to_millis().unwrap();

    let mut page = backend.read_in_cbor(&oldest).await;
    let record: BTreeMap<String, Cbor> = page["Records"].as_array().unwrap()[0].deserialized().unwrap();
    assert_eq!(record["Data"], Cbor::Bytes(b"7".to_vec()));
    assert_eq!(record["ApproximateArrivalTimestamp"], Cbor::Tag(1, Box::new(Cbor::from(arrival))));
    while let Some(next) = page.get("NextShardIterator").map(|next| next.as_text().unwrap().to_owned()) {
        page = backend.read_in_cbor(&next).await;
    }
    assert_eq!(page["ChildShards"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn both_parents_of_a_merge_name_the_one_child() {
    let backend = Backend::with_stream(2).await;
    let second = "shardId-000000000001";
    let merge = backend.kinesis.merge_shards().stream_name(STREAM);
    merge.shard_to_merge(FIRST_SHARD).adjacent_shard_to_merge(second).send().await.unwrap();
    backend.until_active().await;

    for parent in [FIRST_SHARD, second] {
        let (found, last) = backend.read_to_end(parent).await;
        assert!(found.is_empty());
        assert_eq!(last.child_shards().len(), 1);
        assert_eq!(last.child_shards()[0].shard_id(), "shardId-000000000002");
        assert_eq!(last.child_shards()[0].parent_shards(), [FIRST_SHARD, second]);
    }
}

#[tokio::test]
async fn a_page_holds_ten_mebibytes_and_says_that_more_follows() {
    let backend = Backend::with_stream(1).await;
    for _ in 0..3 {
        backend.put(&vec![vec![7; 1_000_000]; 5]).await;
    }
    let first = backend.read(&backend.iterator(FIRST_SHARD, ShardIteratorType::TrimHorizon).await).await;
    assert_eq!(first.records().len(), 10, "10 records of 1,000,000 B fit into 10 MiB, 11 do not");
    assert!(first.millis_behind_latest().unwrap() > 0);
    let second = backend.read(first.next_shard_iterator().unwrap()).await;
    assert_eq!((second.records().len(), second.millis_behind_latest()), (5, Some(0)));
}

#[tokio::test]
async fn a_reader_that_stops_short_of_the_tip_is_behind_by_the_age_of_its_last_record() {
    let backend = Backend::with_stream(1).await;
    let put = Instant::now();
    backend.put(&numbered(0..10)).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let iterator = backend.iterator(FIRST_SHARD, ShardIteratorType::TrimHorizon).await;
    let page = backend.kinesis.get_records().shard_iterator(&iterator).limit(9).send().await.unwrap();
    let behind = page.millis_behind_latest().unwrap();
    // Arrival times are whole seconds.
    let most = put.elapsed().as_millis() as i64 + 1_000;
    assert!((1_200..=most).contains(&behind), "{behind} ms of {most}");
    let rest = backend.read(page.next_shard_iterator().unwrap()).await;
    assert_eq!((texts(rest.records()), rest.millis_behind_latest()), (vec!["9".to_string()], Some(0)));
}

#[tokio::test]
async fn a_position_in_time_after_the_last_record_returns_only_what_comes_then() {
    let backend = Backend::with_stream(1).await;
    backend.put(&numbered(0..5)).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let get = backend.kinesis.get_shard_iterator().stream_name(STREAM).shard_id(FIRST_SHARD);
    let get = get.shard_iterator_type(ShardIteratorType::AtTimestamp).timestamp(DateTime::from(SystemTime::now()));
    let iterator = get.send().await.unwrap().shard_iterator.unwrap();
    let nothing = backend.read(&iterator).await;
    assert!(nothing.records().is_empty());

    backend.put(&numbered(5..8)).await;
    for iterator in [iterator.as_str(), nothing.next_shard_iterator().unwrap()] {
        assert_eq!(texts(backend.read(iterator).await.records()), ["5", "6", "7"]);
    }
}

#[tokio::test]
async fn the_tip_misses_nothing_that_is_written_after_it_was_asked_for() {
    let backend = Backend::with_stream(1).await;
    backend.put(&numbered(0..5)).await;
    let iterator = backend.iterator(FIRST_SHARD, ShardIteratorType::Latest).await;
    backend.put(&numbered(5..8)).await;
    assert_eq!(texts(backend.read(&iterator).await.records()), ["5", "6", "7"]);
}

#[tokio::test]
async fn no_record_of_concurrent_writers_is_passed_over() {
    const WRITERS: usize = 6;
    const PUTS: usize = 25;
    const RECORDS: usize = 100;
    let backend = Backend::with_stream(1).await;
    let writers = (0..WRITERS).map(|writer| {
        let kinesis = backend.kinesis.clone();
        tokio::spawn(async move {
            for put in 0..PUTS {
                let first = (writer * PUTS + put) * RECORDS;
                let entries = numbered(first..first + RECORDS).into_iter().map(entry).collect();
                kinesis.put_records().stream_name(STREAM).set_records(Some(entries)).send().await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut iterator = backend.iterator(FIRST_SHARD, ShardIteratorType::TrimHorizon).await;
    let mut found = Vec::new();
    loop {
        let finished = writers.iter().all(|writer| writer.is_finished());
        let page = backend.read(&iterator).await;
        if finished && page.records().is_empty() {
            break;
        }
        found.extend(texts(page.records()));
        iterator = page.next_shard_iterator().unwrap().to_string();
    }
    let distinct: HashSet<&String> = found.iter().collect();
    assert_eq!((found.len(), distinct.len()), (WRITERS * PUTS * RECORDS, WRITERS * PUTS * RECORDS));
}

#[tokio::test]
async fn a_subscription_delivers_everything_and_says_where_the_shard_ends() {
    let backend = Backend::with_stream(1).await;
    let register = backend.kinesis.register_stream_consumer().stream_arn(backend.arn().await).consumer_name("app");
    let consumer = register.send().await.unwrap().consumer.unwrap().consumer_arn;
    backend.until_consumer_active(&consumer).await;
    let position = StartingPosition::builder().r#type(ShardIteratorType::Latest).build().unwrap();
    let subscribe = backend.kinesis.subscribe_to_shard().consumer_arn(&consumer).shard_id(FIRST_SHARD);
    let mut events = subscribe.starting_position(position).send().await.unwrap().event_stream;

    backend.put(&numbered(0..50)).await;
    let (mut found, mut split, mut last) = (Vec::new(), false, None);
    while let Some(event) = tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap().unwrap() {
        let SubscribeToShardEventStream::SubscribeToShardEvent(event) = event else { continue };
        assert!(last.is_none(), "an event after the end");
        found.extend(texts(event.records()));
        if found.len() == 50 && !split {
            backend.put(&numbered(50..60)).await;
            backend.split(FIRST_SHARD, HALF_OF_THE_KEYS).await;
            split = true;
        }
        match event.continuation_sequence_number() {
            "" => last = Some(event),
            _ => assert!(event.child_shards().is_empty()),
        }
    }
    assert_eq!(found, (0..60).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(last.unwrap().child_shards().len(), 2);
}

#[tokio::test]
async fn reads_are_throttled_when_limits_are_enforced() {
    let backend = Backend::start(Options { enforce_limits: true, ..Options::default() }).await;
    backend.create_stream(1).await;
    let iterator = backend.iterator(FIRST_SHARD, ShardIteratorType::TrimHorizon).await;
    let mut refused = 0;
    for _ in 0..8 {
        if let Err(error) = backend.kinesis.get_records().shard_iterator(&iterator).send().await {
            assert_eq!(error.code(), Some("ProvisionedThroughputExceededException"));
            assert!(error.into_service_error().is_provisioned_throughput_exceeded_exception());
            refused += 1;
        }
    }
    assert!(refused > 0, "8 calls at once are more than 5 a second");
}

#[tokio::test]
async fn errors_are_the_emulators_own() {
    let backend = Backend::with_stream(1).await;
    let error = backend.kinesis.get_records().shard_iterator("nonsense").send().await.unwrap_err();
    assert!(error.into_service_error().is_invalid_argument_exception());
    let error = backend.kinesis.list_shards().stream_name("unknown").send().await.unwrap_err();
    assert!(error.into_service_error().is_resource_not_found_exception());
}

// --- shards ---------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn shards_are_listed_page_by_page_and_by_arn() {
    let backend = Backend::with_stream(7).await;
    let all = backend.shard_ids(None).await;
    assert_eq!(all.len(), 7);

    let by_arn = backend.kinesis.list_shards().stream_arn(backend.arn().await).max_results(3);
    let mut page = by_arn.send().await.unwrap();
    let mut found = Vec::new();
    loop {
        found.extend(page.shards().iter().map(|shard| shard.shard_id().to_string()));
        assert!(page.shards().len() <= 3);
        let Some(token) = page.next_token() else { break };
        page = backend.kinesis.list_shards().next_token(token).max_results(3).send().await.unwrap();
    }
    assert_eq!(found, all);
}

#[tokio::test]
async fn a_filter_tells_open_shards_from_the_first_ones() {
    let backend = Backend::with_stream(1).await;
    backend.split(FIRST_SHARD, HALF_OF_THE_KEYS).await;
    let filter = |kind| Some(ShardFilter::builder().r#type(kind).build().unwrap());
    assert_eq!(backend.shard_ids(filter(ShardFilterType::AtTrimHorizon)).await, [FIRST_SHARD]);
    assert_eq!(
        backend.shard_ids(filter(ShardFilterType::AtLatest)).await,
        ["shardId-000000000001", "shardId-000000000002"]
    );
    assert_eq!(backend.shard_ids(filter(ShardFilterType::FromTrimHorizon)).await.len(), 3);
}

#[tokio::test]
async fn calls_take_the_streams_arn() {
    let backend = Backend::with_stream(1).await;
    let arn = backend.arn().await;
    let kinesis = &backend.kinesis;
    let put = kinesis.put_record().stream_arn(&arn).partition_key("key").data(Blob::new("0"));
    put.send().await.unwrap();
    let iterator = kinesis.get_shard_iterator().stream_arn(&arn).shard_id(FIRST_SHARD);
    let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await.unwrap();
    let read = kinesis.get_records().stream_arn(&arn).set_shard_iterator(iterator.shard_iterator).send().await.unwrap();
    assert_eq!(texts(read.records()), ["0"]);
    kinesis.describe_stream_summary().stream_arn(&arn).send().await.unwrap();
    kinesis.delete_stream().stream_arn(&arn).send().await.unwrap();
}

// --- the backend itself ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_port_in_use_is_named() {
    let running = Local::start(Options::default()).await.unwrap();
    let port: u16 = running.endpoints().dynamodb.rsplit(':').next().unwrap().parse().unwrap();
    let error = Local::start(Options { dynamodb_port: port, ..Options::default() }).await.unwrap_err();
    assert!(matches!(error, Error::PortInUse { service: "DynamoDB", port: taken } if taken == port), "{error}");
}

#[tokio::test]
async fn stopping_frees_the_ports_although_a_connection_is_open() {
    let backend = Backend::with_stream(1).await;
    let port: u16 = backend.local.endpoints().kinesis.rsplit(':').next().unwrap().parse().unwrap();
    tokio::time::timeout(Duration::from_secs(5), backend.local.stop()).await.unwrap();
    let again = Local::start(Options { kinesis_port: port, ..Options::default() }).await.unwrap();
    assert_eq!(again.endpoints().kinesis, format!("http://127.0.0.1:{port}"));
}

#[tokio::test]
async fn the_environment_points_an_sdk_at_the_backend() {
    let local = Local::start(Options::default()).await.unwrap();
    let environment = local.endpoints().environment();
    let value = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    assert_eq!(value("AWS_ENDPOINT_URL_KINESIS").as_ref(), Some(&local.endpoints().kinesis));
    assert_eq!(value("AWS_ENDPOINT_URL_DYNAMODB").as_ref(), Some(&local.endpoints().dynamodb));
    assert_eq!(value("AWS_REGION").as_deref(), Some("us-east-1"));
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"] {
        assert!(value(name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn of_two_conditional_writes_one_wins() {
    let local = Local::start(Options::default()).await.unwrap();
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
        .endpoint_url(&local.endpoints().dynamodb)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .retry_config(RetryConfig::disabled())
        .http_client(http_client())
        .build();
    let dynamodb = aws_sdk_dynamodb::Client::from_conf(config);
    let key = KeySchemaElement::builder().attribute_name("leaseKey").key_type(KeyType::Hash).build().unwrap();
    let attribute = AttributeDefinition::builder()
        .attribute_name("leaseKey")
        .attribute_type(aws_sdk_dynamodb::types::ScalarAttributeType::S)
        .build()
        .unwrap();
    let create = dynamodb.create_table().table_name("leases").key_schema(key).attribute_definitions(attribute);
    create.billing_mode(BillingMode::PayPerRequest).send().await.unwrap();

    let put = |owner: &str| {
        dynamodb
            .put_item()
            .table_name("leases")
            .item("leaseKey", AttributeValue::S("shard".into()))
            .item("leaseOwner", AttributeValue::S(owner.into()))
            .condition_expression("attribute_not_exists(leaseKey)")
            .send()
    };
    let outcomes =
        futures::future::join_all((0..8).map(|worker| put(&format!("worker-{worker}"))).collect::<Vec<_>>()).await;
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 7));
    for outcome in lost {
        assert!(outcome.unwrap_err().into_service_error().is_conditional_check_failed_exception());
    }
}
