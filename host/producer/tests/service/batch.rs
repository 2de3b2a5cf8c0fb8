//! The sender of batches.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_kinesis::config::IdentityCache;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use shardmill_producer::{BatchOptions, BatchSender, Error, InvalidRecord, Metrics, Ordering, Permit, Sent, Stopped};
use shardmill_record::aggregate::Aggregator;
use shardmill_record::{HashKey, OutOfRange, UserRecord};
use tokio::sync::Barrier;
use tokio::time::Instant;

use crate::support::{Fault, Read, STREAM, Service, by_key, client, given, metric, pairs, records};

const THROTTLED: &str = "ProvisionedThroughputExceededException";

fn options() -> BatchOptions {
    BatchOptions {
        aggregate_max_bytes: 2_000,
        request_timeout: Duration::from_secs(5),
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(20),
        ..BatchOptions::default()
    }
}

fn producer(service: &Service, options: BatchOptions) -> BatchSender {
    BatchSender::new(service.client.clone(), STREAM.to_owned(), options, Metrics::default(), 7)
}

/// Each record is where the producer says.
fn check_sent(records: &[UserRecord], sent: &[Sent], read: &[Read]) {
    assert_eq!(records.len(), sent.len());
    for (record, sent) in records.iter().zip(sent) {
        let is_it = |read: &&Read| {
            read.shard == sent.shard
                && read.position.sequence_number == sent.sequence_number
                && read.position.sub_sequence_number == sent.sub_sequence_number
        };
        let found = read.iter().find(is_it).expect("something is there");
        assert_eq!((&found.key, found.data.as_slice()), (&record.partition_key, record.data.as_ref()));
    }
}

#[tokio::test]
async fn throttled_entries_are_sent_again_and_keys_keep_their_order() {
    let service = Service::start(4).await;
    let faults = (0..60).map(|call| match call % 3 {
        0 => Fault::Entries(vec![call % 4, (call + 2) % 4], THROTTLED),
        1 => Fault::Entries(vec![0, 1, 2, 3], "InternalFailure"),
        _ => Fault::Entries(vec![call % 2], THROTTLED),
    });
    service.faults.set(faults);
    let records = records(0..1_000, 23, 40);
    let sent = producer(&service, options()).send(records.clone(), &Permit::always()).await.unwrap();

    let read = service.read(OutOfRange::Drop).await;
    assert_eq!(by_key(pairs(&read)), by_key(given(&records)), "once and in order");
    check_sent(&records, &sent, &read);
    assert!(sent.iter().any(|sent| sent.attempts > 1) && sent.iter().any(|sent| sent.sub_sequence_number > 0));
}

#[tokio::test]
async fn without_aggregates_or_order_records_go_as_they_are() {
    let service = Service::start(3).await;
    let mut records = records(0..1_200, 50, 10);
    records[7].explicit_hash_key = Some(HashKey::MAX);
    for ordering in [Ordering::None, Ordering::Key] {
        service.faults.set([Fault::Entries((0..500).step_by(3).collect(), THROTTLED), Fault::Call(400, THROTTLED)]);
        let before = service.read(OutOfRange::Deliver).await.len();
        let calls = service.faults.calls();
        // One record at a time of each shard would take 1,200 requests.
        let count = if ordering == Ordering::None { 1_200 } else { 60 };
        let options = BatchOptions { ordering, aggregate: false, ..options() };
        let sent = producer(&service, options).send(records[..count].to_vec(), &Permit::always()).await.unwrap();
        let read = service.read(OutOfRange::Deliver).await;
        assert_eq!(read.len() - before, count);
        check_sent(&records[..count], &sent, &read);
        assert!(sent.iter().all(|sent| sent.sub_sequence_number == 0));
        assert_eq!(sent[7].shard.as_str(), "shardId-000000000002", "by its explicit hash key");
        if ordering == Ordering::None {
            assert!(service.faults.calls() - calls <= 10, "requests are full");
        }
    }
}

#[tokio::test]
async fn lost_answers_bring_repeats_that_are_counted_and_lose_nothing() {
    let service = Service::start(2).await;
    service.faults.set([
        Fault::Pass,
        Fault::AnswerBroken,
        Fault::Call(500, "InternalFailure"),
        Fault::AnswerLate(Duration::from_secs(30)),
        Fault::AnswerShort,
        Fault::Call(503, "ServiceUnavailable"),
        Fault::Entries(vec![0], THROTTLED),
    ]);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let options = BatchOptions { request_timeout: Duration::from_millis(400), ..options() };
    let producer = BatchSender::new(service.client.clone(), STREAM.to_owned(), options, metrics, 7);
    let records = records(0..400, 10, 40);
    let sent = producer.send(records.clone(), &Permit::always()).await.unwrap();

    let read = service.read(OutOfRange::Drop).await;
    check_sent(&records, &sent, &read);
    let repeats = read.len() - records.len();
    assert!(repeats > 0, "three answers were lost after everything was stored");
    let mut seen = HashSet::new();
    let firsts: Vec<_> = pairs(&read).into_iter().filter(|pair| seen.insert(pair.clone())).collect();
    assert_eq!(by_key(firsts), by_key(given(&records)), "first occurrences are in order");

    let number = |name| metric(&registry, name) as usize;
    assert!(number("possible_repeats_total") >= repeats);
    assert_eq!(number("records_acknowledged_total"), 400);
    assert_eq!(number("requests_total"), service.faults.calls());
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for code in ["timeout", "invalid-answer", "InternalFailure", "ServiceUnavailable", THROTTLED] {
        assert!(text.contains(&format!("code=\"{code}\"")), "{code} is not in\n{text}");
    }
}

#[tokio::test]
async fn after_a_split_every_record_is_where_its_reader_looks_for_it() {
    let service = Service::start(2).await;
    let producer = producer(&service, options());
    let records = records(0..600, 31, 40);
    let mut sent = Vec::new();
    for part in records.chunks(200) {
        sent.extend(producer.send(part.to_vec(), &Permit::always()).await.unwrap());
        // The producer's map is old now, and it may not list the shards at once.
        service.split_all().await;
    }
    // A reader that leaves out what an aggregate took along to the wrong shard.
    let read = service.read(OutOfRange::Drop).await;
    assert_eq!(by_key(pairs(&read)), by_key(given(&records)));
    check_sent(&records, &sent, &read);
    let everything = service.read(OutOfRange::Deliver).await;
    assert!(everything.len() > read.len(), "the old map has misled aggregates");
    let shards: HashSet<_> = sent.iter().map(|sent| sent.shard.clone()).collect();
    assert!(shards.len() > 4, "{shards:?}");
}

#[tokio::test]
async fn no_request_is_started_once_the_permit_is_withdrawn() {
    let service = Service::start(2).await;
    let records = records(0..400, 10, 40);
    let asked = AtomicUsize::new(0);
    // Asked once for the shard map, then twice for each request.
    let permit = Permit::new(move || if asked.fetch_add(1, SeqCst) < 7 { Ok(()) } else { Err(Stopped) });
    let error = producer(&service, options()).send(records.clone(), &permit).await.unwrap_err();
    assert_eq!(service.faults.calls(), 3);
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    let read = service.read(OutOfRange::Drop).await;
    let acknowledged = |index: &usize| error.sent()[*index].is_some();
    let (kept, sent): (Vec<_>, Vec<_>) = (0..records.len())
        .filter(acknowledged)
        .map(|index| (records[index].clone(), error.sent()[index].clone().unwrap()))
        .unzip();
    assert!(!kept.is_empty() && kept.len() < records.len());
    check_sent(&kept, &sent, &read);
    assert_eq!(by_key(pairs(&read)), by_key(given(&kept)));
}

/// Credentials that take long to come: meanwhile the process was suspended, and its permit is withdrawn.
#[derive(Debug)]
struct SlowCredentials {
    permitted: Arc<AtomicBool>,
    asked: AtomicUsize,
}

impl ProvideCredentials for SlowCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        // The first are for the listing of shards.
        if self.asked.fetch_add(1, SeqCst) > 0 {
            self.permitted.store(false, SeqCst);
        }
        future::ProvideCredentials::ready(Ok(Credentials::new("key", "secret", None, None, "test")))
    }
}

#[tokio::test]
async fn a_request_that_was_begun_with_a_permit_is_not_sent_without_it() {
    let service = Service::start(2).await;
    let permitted = Arc::new(AtomicBool::new(true));
    let slow = SlowCredentials { permitted: Arc::clone(&permitted), asked: AtomicUsize::new(0) };
    let config = service.client.config().to_builder().credentials_provider(slow);
    let client = aws_sdk_kinesis::Client::from_conf(config.identity_cache(IdentityCache::no_cache()).build());
    let producer = BatchSender::new(client, STREAM.to_owned(), options(), Metrics::default(), 7);
    let permit = Permit::new(move || if permitted.load(SeqCst) { Ok(()) } else { Err(Stopped) });
    let error = producer.send(records(0..40, 10, 40), &permit).await.unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert!(error.sent().iter().all(Option::is_none));
    assert_eq!(service.faults.calls(), 0);
    assert!(service.read(OutOfRange::Deliver).await.is_empty());
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_tried_until_the_permit_is_withdrawn() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = client(format!("http://{closed}"));
    let producer = BatchSender::new(client, STREAM.to_owned(), options(), Metrics::default(), 7);
    let asked = AtomicUsize::new(0);
    let permit = Permit::new(move || if asked.fetch_add(1, SeqCst) < 5 { Ok(()) } else { Err(Stopped) });
    let error = producer.send(records(0..3, 1, 8), &permit).await.unwrap_err();
    assert!(matches!(&error, Error::Stopped { .. }), "{error}");
    assert_eq!(error.sent(), [None, None, None]);
}

#[tokio::test]
async fn what_an_operator_has_to_mend_is_said_at_once() {
    let service = Service::start(2).await;
    let missing = BatchSender::new(service.client.clone(), "nowhere".to_owned(), options(), Metrics::default(), 7);
    let error = missing.send(records(0..3, 1, 8), &Permit::always()).await.unwrap_err();
    let text = error.to_string();
    for words in ["`nowhere` in region us-east-1", "ResourceNotFoundException", "create"] {
        assert!(text.contains(words), "{words:?} in {text}");
    }

    let cases = [
        (Fault::Call(400, "AccessDeniedException"), "grant kinesis:PutRecords"),
        (Fault::Call(400, "KMSDisabledException"), "kms:GenerateDataKey"),
        (Fault::Call(400, "UnrecognizedClientException"), "credentials"),
        (Fault::Entries(vec![0], "KMSAccessDeniedException"), "kms:GenerateDataKey"),
    ];
    let producer = producer(&service, options());
    for (fault, advice) in cases {
        let entries = matches!(fault, Fault::Entries(..));
        service.faults.set([fault]);
        let started = Instant::now();
        let error = producer.send(records(0..40, 20, 8), &Permit::always()).await.unwrap_err();
        assert!(error.to_string().contains(advice), "{error}");
        assert!(started.elapsed() < Duration::from_secs(2));
        // The other entry of the request was stored, and is told.
        assert_eq!(error.sent().iter().any(Option::is_some), entries);
        assert!(error.sent().iter().any(Option::is_none));
    }
}

#[tokio::test]
async fn records_that_break_a_rule_are_refused_before_anything_is_sent() {
    let service = Service::start(1).await;
    let producer = producer(&service, options());
    let mut records = records(0..3, 1, 8);
    records[2].data = vec![0; 1 << 20].into();
    let error = producer.send(records.clone(), &Permit::always()).await.unwrap_err();
    assert!(
        matches!(error, Error::Refused { index: 2, reason: InvalidRecord::TooLarge { bytes: 1_048_581, .. } }),
        "{error}"
    );
    records[1].partition_key.clear();
    let error = producer.send(records, &Permit::always()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { index: 1, reason: InvalidRecord::PartitionKey(0) }), "{error}");
    assert_eq!(service.faults.calls(), 0);
    assert_eq!(producer.send(Vec::new(), &Permit::new(|| Err(Stopped))).await.unwrap(), []);
}

#[tokio::test]
async fn many_senders_share_a_producer() {
    let service = Service::start(4).await;
    let producer = producer(&service, BatchOptions { aggregate_max_bytes: 51_200, ..options() });
    let all = records(0..8_000, 8, 500);
    // Each sender has one key of its own.
    let of_sender = |sender: usize| all.iter().skip(sender).step_by(8).cloned().collect::<Vec<_>>();
    let permit = Permit::always();
    let sends = (0..8).map(|sender| producer.send(of_sender(sender), &permit));
    for (sender, sent) in futures::future::join_all(sends).await.into_iter().enumerate() {
        assert_eq!(sent.unwrap().len(), of_sender(sender).len());
    }
    assert_eq!(by_key(pairs(&service.read(OutOfRange::Drop).await)), by_key(given(&all)));
}

#[tokio::test]
async fn all_who_send_share_one_listing_of_the_shards() {
    let service = Service::start(4).await;
    let producer = producer(&service, options());
    // The first ones find none, and wait for the same one to be tried again.
    service.faults.fail_listings(2);
    let before = service.faults.listings();
    let permit = Permit::always();
    let sends = (0..8).map(|sender| producer.send(records(sender * 10..sender * 10 + 10, 3, 8), &permit));
    for sent in futures::future::join_all(sends).await {
        assert_eq!(sent.unwrap().len(), 10);
    }
    assert_eq!(service.faults.listings() - before, 3);
    producer.send(records(80..90, 3, 8), &permit).await.unwrap();
    assert_eq!(service.faults.listings() - before, 3, "the map is kept");
}

#[tokio::test]
async fn requests_that_are_on_their_way_when_the_permit_is_withdrawn_are_waited_for() {
    let service = Service::start(2).await;
    let options = BatchOptions { ordering: Ordering::None, aggregate: false, max_requests: 3, ..options() };
    let producer = producer(&service, options);
    // Three requests are there before one of them is answered.
    let together = Arc::new(Barrier::new(3));
    service.faults.set((0..3).map(|_| Fault::Together(Arc::clone(&together))));
    let asked = AtomicUsize::new(0);
    let permit = Permit::new(move || if asked.fetch_add(1, SeqCst) < 7 { Ok(()) } else { Err(Stopped) });
    let records = records(0..2_000, 50, 10);
    let error = producer.send(records.clone(), &permit).await.unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert_eq!(service.faults.calls(), 3);
    let read = service.read(OutOfRange::Drop).await;
    assert_eq!(read.len(), 1_500);
    let sent: Vec<_> = error.sent().iter().flatten().cloned().collect();
    let told: Vec<_> = (0..2_000).filter(|index| error.sent()[*index].is_some()).collect();
    let told: Vec<_> = told.into_iter().map(|index| records[index].clone()).collect();
    assert_eq!(told.len(), 1_500, "all that is stored is told");
    check_sent(&told, &sent, &read);
}

#[tokio::test]
async fn a_payload_that_is_an_aggregate_arrives_as_it_was_given() {
    let service = Service::start(2).await;
    let mut aggregator = Aggregator::default();
    records(0..3, 3, 8).iter().for_each(|record| aggregator.push(record));
    let (data, _) = aggregator.finish().unwrap();
    let mut given = records(0..40, 20, 8);
    // Among others, too large to go with others, and alone.
    let mut large = data.to_vec();
    large.resize(5_000, 7);
    given[7].data = data.clone();
    given[8].data = large.into();
    let producer = producer(&service, options());
    let mut sent = producer.send(given.clone(), &Permit::always()).await.unwrap();
    let alone = UserRecord { partition_key: "alone".to_owned(), explicit_hash_key: Some(HashKey::MAX), data };
    given.push(alone.clone());
    sent.extend(producer.send(vec![alone], &Permit::always()).await.unwrap());
    let read = service.read(OutOfRange::Drop).await;
    assert_eq!(read.len(), given.len());
    check_sent(&given, &sent, &read);
}

#[tokio::test]
async fn options_out_of_their_bounds_count_as_the_nearest_ones() {
    let service = Service::start(1).await;
    let wild = BatchOptions { aggregate_max_bytes: usize::MAX, max_requests: 0, request_max_records: 0, ..options() };
    assert!(wild.check().is_err());
    let records = records(0..1_200, 50, 1_000);
    let sent = producer(&service, wild).send(records.clone(), &Permit::always()).await.unwrap();
    let read = service.read(OutOfRange::Drop).await;
    check_sent(&records, &sent, &read);
    assert_eq!(service.faults.calls(), 2, "as much as a record may hold in each");
}
