//! What becomes of records that are put one by one.

use std::collections::HashSet;
use std::time::Duration;

use prometheus_client::registry::Registry;
use shardmill_producer::{Failed, InvalidRecord, Metrics, Options, Producer, PutError, Reason, Receipt};
use shardmill_record::{OutOfRange, UserRecord};

use crate::support::{Fault, Read, STREAM, Service, by_key, client, given, metric, pairs, records};

pub(crate) const THROTTLED: &str = "ProvisionedThroughputExceededException";

/// For tests that must not take long.
pub(crate) fn options() -> Options {
    Options {
        aggregate_max_bytes: 2_000,
        buffer_time: Duration::from_millis(20),
        request_timeout: Duration::from_secs(5),
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(20),
        ..Options::default()
    }
}

pub(crate) fn start(service: &Service, options: Options) -> Producer {
    Producer::start(service.client.clone(), STREAM.to_owned(), options, Metrics::default(), 7)
}

/// What became of records that are put one after another, in their order.
pub(crate) async fn put_all(producer: &Producer, records: &[UserRecord]) -> Vec<Result<Receipt, Failed>> {
    let mut pending = Vec::new();
    for record in records {
        pending.push(producer.put_with_result(record.clone()).await.unwrap());
    }
    let mut results = Vec::new();
    for result in futures::future::join_all(pending).await {
        results.push(match result {
            Ok(acknowledged) => Ok(acknowledged.stored().unwrap()),
            Err(failed) => Err(failed),
        });
    }
    results
}

/// Each record is where its receipt says.
pub(crate) fn check_receipts(records: &[UserRecord], receipts: &[Receipt], read: &[Read]) {
    assert_eq!(records.len(), receipts.len());
    for (record, receipt) in records.iter().zip(receipts) {
        let is_it = |read: &&Read| {
            read.shard == receipt.shard
                && read.position.sequence_number == receipt.sequence_number
                && read.position.sub_sequence_number == receipt.sub_sequence_number
        };
        let found = read.iter().find(is_it).expect("something is there");
        assert_eq!((&found.key, found.data.as_slice()), (&record.partition_key, record.data.as_ref()));
    }
}

#[tokio::test]
async fn each_record_is_where_its_receipt_says_and_keys_keep_their_order() {
    let service = Service::start(4).await;
    let faults = (0..60).map(|call| match call % 3 {
        0 => Fault::Entries(vec![call % 4, (call + 2) % 4], THROTTLED),
        1 => Fault::Entries(vec![0, 1, 2, 3], "InternalFailure"),
        _ => Fault::Pass,
    });
    service.faults.set(faults);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let producer = Producer::start(service.client.clone(), STREAM.to_owned(), options(), metrics, 7);
    let records = records(0..1_000, 23, 40);
    let results = put_all(&producer, &records).await;
    let receipts: Vec<Receipt> = results.into_iter().map(Result::unwrap).collect();

    let read = service.read(OutOfRange::Drop).await;
    assert_eq!(by_key(pairs(&read)), by_key(given(&records)), "once and in order");
    check_receipts(&records, &receipts, &read);
    let ids: Vec<_> = receipts.iter().map(|receipt| receipt.message_id.get()).collect();
    assert!(ids.iter().copied().eq(0..1_000));
    assert!(receipts.iter().all(|receipt| &*receipt.stream == STREAM && !receipt.may_be_repeated));
    assert!(receipts.iter().any(|receipt| receipt.attempts > 1 && receipt.sub_sequence_number > 0));
    assert!(receipts.iter().all(|receipt| receipt.latency > Duration::ZERO));
    let bytes: usize = records.iter().map(|record| record.partition_key.len() + record.data.len()).sum();
    for (name, expected) in [
        ("records_received_total", 1_000),
        ("records_acknowledged_total", 1_000),
        ("acknowledged_bytes_total", bytes as u64),
        ("records_pending", 0),
        ("pending_bytes", 0),
        ("requests_total", service.faults.calls() as u64),
        ("retries_per_record_count", 1_000),
        ("buffering_seconds_count", 1_000),
        ("possible_repeats_total", 0),
    ] {
        assert_eq!(metric(&registry, name), expected, "{name}");
    }
    let (kinesis_records, sent) = ("kinesis_records_acknowledged_total", "kinesis_records_sent_total");
    assert!(metric(&registry, kinesis_records) < metric(&registry, sent), "some were sent again");
    let stored: HashSet<_> = read.iter().map(|read| (&read.shard, read.position.sequence_number.as_str())).collect();
    assert_eq!(metric(&registry, kinesis_records), stored.len() as u64);
    assert!(stored.len() < 100, "records went together: {}", stored.len());
}

#[tokio::test]
async fn records_that_break_a_rule_come_back() {
    let service = Service::start(1).await;
    let producer = start(&service, options());
    let mut record = records(0..1, 1, 8).remove(0);
    record.data = vec![0; 1 << 20].into();
    let error = producer.put(record.clone()).await.unwrap_err();
    let reason = InvalidRecord::TooLarge { bytes: 1_048_581, allowed: 1_048_576 };
    assert_eq!(error, PutError::Invalid { record: record.clone(), reason });
    record.partition_key.clear();
    let error = producer.try_put(record.clone()).unwrap_err();
    assert_eq!(error, PutError::Invalid { record, reason: InvalidRecord::PartitionKey(0) });
    assert_eq!((producer.backlog().records, service.faults.calls()), (0, 0));
}

#[tokio::test]
async fn a_stream_is_asked_how_large_its_records_may_be() {
    let service = Service::start(1).await;
    let producer = start(&service, Options { record_max_bytes: 10 << 20, ..options() });
    let mut large = records(0..1, 1, 8);
    large[0].data = vec![0; 3 << 20].into();
    let failed = put_all(&producer, &large).await.remove(0).unwrap_err();
    let Reason::Invalid(InvalidRecord::TooLarge { allowed, .. }) = failed.reason else { panic!("{failed}") };
    assert_eq!((allowed, &failed.record), (1 << 20, &large[0]));
    assert_eq!(service.faults.calls(), 0);
}

#[tokio::test]
async fn producers_stop_at_their_bound_and_go_on_below_nine_tenths() {
    let service = Service::start(1).await;
    service.faults.set([Fault::AnswerLate(Duration::from_millis(500))]);
    let producer = start(&service, Options { pending_max_records: 10, ..options() });
    let records = records(0..30, 1, 40);
    for record in &records[..10] {
        producer.try_put(record.clone()).unwrap();
    }
    assert_eq!(producer.backlog().records, 10);
    assert_eq!(producer.try_put(records[10].clone()).unwrap_err(), PutError::Full(records[10].clone()));
    // Whoever waits is let in when the answer has come.
    for record in &records[10..] {
        producer.put(record.clone()).await.unwrap();
        assert!(producer.backlog().records <= 10);
    }
    producer.flush().await;
    assert_eq!((producer.backlog().records, producer.backlog().bytes, producer.failures()), (0, 0, 0));
    let read = service.read(OutOfRange::Deliver).await;
    assert_eq!(pairs(&read), given(&records));

    let bytes = Options { pending_max_bytes: 1 << 20, ..options() };
    let producer = start(&service, bytes);
    service.faults.set([Fault::AnswerLate(Duration::from_millis(500))]);
    let large: Vec<_> = crate::support::records(0..2, 1, 600_000);
    producer.try_put(large[0].clone()).unwrap();
    assert!(matches!(producer.try_put(large[1].clone()), Err(PutError::Full(_))));
    producer.put(large[1].clone()).await.unwrap();
}

#[tokio::test]
async fn a_flush_waits_for_nothing_else_and_for_all_that_came_before() {
    let service = Service::start(2).await;
    let producer = start(&service, Options { buffer_time: Duration::from_secs(20), ..options() });
    let records = records(0..20, 5, 10);
    let mut pending: Vec<_> =
        records.iter().map(|record| producer.try_put_with_result(record.clone()).unwrap()).collect();
    producer.flush().await;
    for pending in &mut pending {
        assert!(futures::poll!(pending).is_ready());
    }
    producer.flush().await;

    // What comes later is not waited for.
    producer.try_put(records[0].clone()).unwrap();
    let mut flush = Box::pin(producer.flush());
    assert!(futures::poll!(&mut flush).is_pending());
    let mut later = producer.try_put_with_result(records[1].clone()).unwrap();
    tokio::time::timeout(Duration::from_secs(15), flush).await.expect("it does not wait for the buffering time");
    assert!(futures::poll!(&mut later).is_pending());
}

#[tokio::test]
async fn a_record_is_given_up_when_its_time_is_over() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let options = Options { record_ttl: Duration::from_millis(300), ..options() };
    let producer = Producer::start(client(format!("http://{closed}")), STREAM.to_owned(), options, metrics, 7);
    let records = records(0..5, 2, 10);
    producer.put(records[0].clone()).await.unwrap();
    let failed: Vec<_> = put_all(&producer, &records[1..]).await.into_iter().map(Result::unwrap_err).collect();
    for (failed, record) in failed.iter().zip(&records[1..]) {
        assert!(matches!(failed.reason, Reason::Expired { .. }), "{failed}");
        assert_eq!((&failed.record, failed.may_be_stored, failed.attempts), (record, false, 0));
    }
    assert_eq!(producer.failures(), 1, "of one nobody wanted to know");
    assert_eq!(metric(&registry, "records_failed_total"), 5);
    assert_eq!(producer.backlog().records, 0);
}

#[tokio::test]
async fn a_lost_answer_is_told_in_the_failure_and_in_the_receipt() {
    let service = Service::start(1).await;
    let options = Options {
        request_timeout: Duration::from_millis(200),
        record_ttl: Duration::from_millis(100),
        buffer_time: Duration::ZERO,
        ..options()
    };
    service.faults.set([Fault::AnswerLate(Duration::from_secs(30))]);
    let record = records(0..1, 1, 10);
    let failed = put_all(&start(&service, options.clone()), &record).await.remove(0).unwrap_err();
    let Reason::Expired { last: Some(last) } = &failed.reason else { panic!("{failed}") };
    assert_eq!((last.code.as_str(), failed.may_be_stored, failed.attempts), ("timeout", true, 1));

    service.faults.set([Fault::AnswerBroken]);
    let options = Options { record_ttl: Duration::from_secs(30), ..options };
    let receipt = put_all(&start(&service, options), &record).await.remove(0).unwrap();
    assert_eq!((receipt.attempts, receipt.may_be_repeated), (2, true));
    assert_eq!(service.read(OutOfRange::Deliver).await.len(), 3);
}

#[tokio::test]
async fn what_somebody_has_to_mend_fails_at_once_and_says_what() {
    let service = Service::start(2).await;
    let missing = Producer::start(service.client.clone(), "nowhere".to_owned(), options(), Metrics::default(), 7);
    let failed = put_all(&missing, &records(0..3, 3, 8)).await;
    for failed in failed {
        let Reason::Refused(refusal) = failed.unwrap_err().reason else { panic!("it is refused") };
        assert_eq!(refusal.code, "ResourceNotFoundException");
        assert!(refusal.advice.contains("create the stream"));
    }
    let producer = start(&service, options());
    service.faults.set([Fault::Call(400, "AccessDeniedException")]);
    let record = records(0..1, 1, 8);
    let failed = put_all(&producer, &record).await.remove(0).unwrap_err();
    assert!(failed.to_string().contains("grant kinesis:PutRecords"), "{failed}");
    // It has been mended.
    assert!(put_all(&producer, &record).await.remove(0).is_ok());
    // And a stream that is created later is found.
    service.client.create_stream().stream_name("nowhere").shard_count(1).send().await.unwrap();
    loop {
        match put_all(&missing, &record).await.remove(0) {
            Ok(_) => break,
            Err(failed) => assert_eq!(failed.reason.word(), "refused"),
        }
    }
}

#[tokio::test]
async fn throttled_records_fail_where_that_is_wanted() {
    let service = Service::start(1).await;
    let producer = start(&service, Options { fail_if_throttled: true, ..options() });
    service.faults.set([Fault::Entries(vec![0], THROTTLED)]);
    let record = records(0..1, 1, 8);
    let failed = put_all(&producer, &record).await.remove(0).unwrap_err();
    let Reason::Throttled(refusal) = &failed.reason else { panic!("{failed}") };
    assert_eq!(refusal.code, THROTTLED);
    assert!(put_all(&producer, &record).await.remove(0).is_ok());
}

#[tokio::test]
async fn a_listing_may_have_pages_and_empty_ones_among_them() {
    let service = Service::start(4).await;
    service.split_all().await;
    service.faults.page(true);
    let producer = start(&service, options());
    let records = records(0..400, 40, 30);
    let receipts: Vec<Receipt> = put_all(&producer, &records).await.into_iter().map(Result::unwrap).collect();
    let shards: HashSet<_> = receipts.iter().map(|receipt| receipt.shard.clone()).collect();
    assert_eq!(shards.len(), 8, "the parents take nothing");
    assert!(receipts.iter().all(|receipt| receipt.attempts == 1), "every shard is known");
    service.faults.page(false);
    check_receipts(&records, &receipts, &service.read(OutOfRange::Drop).await);
}

#[tokio::test]
async fn an_answer_that_has_not_all_is_no_answer() {
    let service = Service::start(2).await;
    service.faults.set([Fault::AnswerShort]);
    let producer = start(&service, options());
    let records = records(0..20, 20, 30);
    let receipts: Vec<Receipt> = put_all(&producer, &records).await.into_iter().map(Result::unwrap).collect();
    assert!(receipts.iter().all(|receipt| receipt.may_be_repeated && receipt.attempts == 2), "{receipts:?}");
    assert_eq!(service.read(OutOfRange::Drop).await.len(), 40);
}
