//! Ends of producers.

use std::time::Duration;

use shardmill_producer::{Left, Metrics, Options, Producer, PutError, Reason};
use shardmill_record::OutOfRange;

use crate::put::{options, put_all, start};
use crate::support::{Fault, STREAM, Service, client, given, pairs, records};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_close_sends_what_is_there_and_accepts_nothing_more() {
    let service = Service::start(1).await;
    let producer = start(&service, Options { buffer_time: Duration::from_secs(20), ..options() });
    let records = records(0..100, 5, 10);
    for record in &records[..99] {
        producer.put(record.clone()).await.unwrap();
    }
    let pending = producer.put_with_result(records[99].clone()).await.unwrap();
    let (first, second) = tokio::join!(producer.close(LONG), producer.close(LONG));
    assert_eq!((first, second), (Left::default(), Left::default()));
    assert!(pending.await.is_ok());
    assert_eq!(pairs(&service.read(OutOfRange::Deliver).await), given(&records));
    assert_eq!(producer.put(records[0].clone()).await, Err(PutError::Closed(records[0].clone())));
    assert_eq!(producer.try_put(records[0].clone()), Err(PutError::Closed(records[0].clone())));
    assert_eq!(producer.close(LONG).await, Left::default());
    producer.flush().await;
}

#[tokio::test]
async fn what_is_left_when_the_time_is_over_is_resolved_and_given_back() {
    let service = Service::start(1).await;
    // One request is stored and its answer does not come; the others wait for it.
    service.faults.set([Fault::AnswerLate(LONG)]);
    let options = Options { request_timeout: LONG, buffer_time: Duration::ZERO, ..options() };
    let producer = start(&service, options);
    let records = records(0..20, 3, 100);
    let mut pending = Vec::new();
    for record in &records[..5] {
        pending.push(producer.put_with_result(record.clone()).await.unwrap());
    }
    while service.faults.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for record in &records[5..] {
        producer.put(record.clone()).await.unwrap();
    }
    let left = producer.close(Duration::from_millis(50)).await;
    let failed: Vec<_> = futures::future::join_all(pending).await.into_iter().map(Result::unwrap_err).collect();
    assert!(failed.iter().all(|failed| failed.reason == Reason::Stopped && failed.may_be_stored));
    assert_eq!((left.records, left.may_be_stored), (20, 5));
    let bytes: usize = records.iter().map(|record| record.partition_key.len() + record.data.len()).sum();
    assert_eq!(left.bytes, bytes as u64);
    let unclaimed: Vec<_> = left.unclaimed.iter().map(|failed| failed.record.clone()).collect();
    assert_eq!(unclaimed, records[5..]);
    assert!(left.unclaimed.iter().all(|failed| !failed.may_be_stored && failed.attempts == 0));
    assert_eq!((producer.failures(), producer.backlog().records), (15, 0));
}

#[tokio::test]
async fn who_waits_for_room_is_told_of_the_close() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let options = Options { pending_max_records: 1, ..options() };
    let client = client(format!("http://{closed}"));
    let producer = Producer::start(client, STREAM.to_owned(), options, Metrics::default(), 7);
    let records = records(0..2, 1, 10);
    producer.put(records[0].clone()).await.unwrap();
    let waiting = tokio::spawn({
        let (producer, record) = (producer.clone(), records[1].clone());
        async move { producer.put(record).await }
    });
    tokio::task::yield_now().await;
    let left = producer.close(Duration::from_millis(50)).await;
    assert_eq!(left.unclaimed[0].record, records[0]);
    assert_eq!(waiting.await.unwrap(), Err(PutError::Closed(records[1].clone())));
}

#[tokio::test]
async fn what_was_accepted_is_sent_when_nobody_has_the_producer_any_more() {
    let service = Service::start(1).await;
    let producer = start(&service, Options { buffer_time: Duration::from_secs(20), ..options() });
    let records = records(0..10, 5, 10);
    let pending = producer.try_put_with_result(records[0].clone()).unwrap();
    records[1..].iter().for_each(|record| _ = producer.try_put(record.clone()).unwrap());
    drop(producer);
    assert!(pending.await.is_ok());
    assert_eq!(pairs(&service.read(OutOfRange::Deliver).await), given(&records));
}

#[test]
fn a_runtime_that_ends_resolves_everything() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (producer, pending) = runtime.block_on(async {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let client = client(format!("http://{closed}"));
        let producer = Producer::start(client, STREAM.to_owned(), options(), Metrics::default(), 7);
        let records = records(0..10, 1, 10);
        producer.put(records[0].clone()).await.unwrap();
        let pending = producer.put_with_result(records[1].clone()).await.unwrap();
        (producer, pending)
    });
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    let failed = other.block_on(pending).unwrap_err();
    assert_eq!(failed.reason, Reason::Stopped);
    assert_eq!(producer.failures(), 1);
    assert!(matches!(producer.try_put(failed.record), Err(PutError::Closed(_))));
    assert_eq!(other.block_on(producer.close(LONG)), Left::default());
}

#[tokio::test]
async fn many_tasks_share_a_producer_and_each_keeps_its_order() {
    let service = Service::start(4).await;
    let producer = start(&service, options());
    let all = records(0..4_000, 8, 50);
    // Each task has one key of its own.
    let tasks = (0..8).map(|task| {
        let of_task: Vec<_> = all.iter().skip(task).step_by(8).cloned().collect();
        let producer = producer.clone();
        async move { put_all(&producer, &of_task).await }
    });
    for results in futures::future::join_all(tasks).await {
        assert!(results.iter().all(Result::is_ok));
    }
    let read = pairs(&service.read(OutOfRange::Drop).await);
    assert_eq!(crate::support::by_key(read), crate::support::by_key(given(&all)));
}

#[tokio::test]
async fn what_is_left_is_told_to_the_next_one_if_the_first_has_gone() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for waits_for_the_end in [false, true] {
        let client = client(format!("http://{closed}"));
        let producer = Producer::start(client, STREAM.to_owned(), options(), Metrics::default(), 7);
        let records = records(0..3, 1, 10);
        for record in &records {
            producer.put(record.clone()).await.unwrap();
        }
        let given_up = producer.close(Duration::from_millis(100));
        assert!(tokio::time::timeout(Duration::from_millis(1), given_up).await.is_err());
        while waits_for_the_end && producer.backlog().records > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let left = producer.close(LONG).await;
        assert_eq!(left.unclaimed.iter().map(|failed| failed.record.clone()).collect::<Vec<_>>(), records);
        assert_eq!(producer.close(LONG).await, Left::default());
    }
}
