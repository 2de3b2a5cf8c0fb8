//! Other ways into a producer.

use std::time::Duration;

use futures::{SinkExt, StreamExt, stream};
use shardmill_producer::{Offered, Options, Overflow, PutError, Reason, SinkError};
use shardmill_record::OutOfRange;

use crate::put::{options, start};
use crate::support::{Fault, Service, by_key, given, pairs, records};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_sink_holds_its_source_back_and_ends_when_all_is_acknowledged() {
    let service = Service::start(2).await;
    let producer = start(&service, options());
    let mut sink = producer.sink().at_most(50);
    let records = records(0..500, 7, 40);
    for record in &records {
        sink.feed(record.clone()).await.unwrap();
        assert!(sink.unacknowledged() <= 50);
        assert!(producer.backlog().records <= 50);
    }
    sink.close().await.unwrap();
    assert_eq!((sink.unacknowledged(), producer.backlog().records), (0, 0));
    assert_eq!(by_key(pairs(&service.read(OutOfRange::Drop).await)), by_key(given(&records)));
    // The producer is open, and a stream may end in it.
    let more = stream::iter(records.clone()).map(Ok);
    more.forward(producer.sink()).await.unwrap();
    assert_eq!(service.read(OutOfRange::Drop).await.len(), 1_000);
}

#[tokio::test]
async fn a_sink_waits_for_room_and_not_for_the_buffering_time() {
    let service = Service::start(1).await;
    let options = Options { pending_max_records: 3, buffer_time: Duration::from_millis(200), ..options() };
    let producer = start(&service, options);
    let records = records(0..20, 1, 40);
    producer.sink().send_all(&mut stream::iter(records.clone()).map(Ok)).await.unwrap();
    assert_eq!(pairs(&service.read(OutOfRange::Drop).await), given(&records));

    let waits = Options { buffer_time: Duration::from_secs(25), ..crate::put::options() };
    let mut sink = start(&service, waits).sink();
    sink.send(records[0].clone()).await.unwrap();
    assert_eq!(sink.unacknowledged(), 0);
}

#[tokio::test]
async fn the_first_record_that_is_given_up_is_a_sinks_error() {
    let service = Service::start(1).await;
    let producer = start(&service, Options { aggregate: false, buffer_time: Duration::ZERO, ..options() });
    service.faults.set([
        Fault::Pass,
        Fault::Call(400, "AccessDeniedException"),
        Fault::Call(400, "KMSDisabledException"),
    ]);
    let records = records(0..4, 1, 40);
    let mut sink = producer.sink();
    for record in &records {
        sink.feed(record.clone()).await.unwrap();
    }
    let SinkError::Failed(failed) = sink.close().await.unwrap_err() else { panic!("a record was given up") };
    let Reason::Refused(refusal) = &failed.reason else { panic!("{failed}") };
    assert_eq!((refusal.code.as_str(), &failed.record), ("AccessDeniedException", &records[1]));
    // Told once; the others are waited for all the same.
    let again = sink.close().await;
    assert!(again.is_ok() || matches!(&again, Err(SinkError::Failed(failed)) if failed.record == records[2]));
    sink.close().await.unwrap();
    assert_eq!(service.read(OutOfRange::Deliver).await.len(), 2);
    assert_eq!(producer.failures(), 0, "the sink was told");

    let mut invalid = records[0].clone();
    invalid.partition_key.clear();
    let error = sink.feed(invalid.clone()).await.unwrap_err();
    assert!(matches!(&error, SinkError::Put(error) if error.record() == &invalid), "{error}");
    producer.close(LONG).await;
    let error = sink.feed(records[0].clone()).await.unwrap_err();
    assert!(matches!(&error, SinkError::Put(error) if matches!(**error, PutError::Closed(_))), "{error}");
}

/// A producer that is full, and is so until the answer comes.
async fn full(service: &Service) -> (shardmill_producer::Producer, Vec<shardmill_record::UserRecord>) {
    service.faults.set([Fault::AnswerLate(Duration::from_millis(400))]);
    let options = Options { pending_max_records: 1, buffer_time: Duration::ZERO, ..options() };
    let producer = start(service, options);
    let records = records(0..20, 1, 40);
    producer.put(records[0].clone()).await.unwrap();
    (producer, records)
}

#[tokio::test]
async fn a_full_queue_does_what_its_policy_says() {
    for overflow in [Overflow::Wait, Overflow::DropNewest, Overflow::DropOldest, Overflow::Fail] {
        let service = Service::start(1).await;
        let (producer, records) = full(&service).await;
        let queue = producer.queue(3, overflow);
        for record in &records[1..4] {
            assert_eq!(queue.offer(record.clone()).await, Ok(Offered::Queued));
        }
        assert_eq!(queue.len(), 3);
        let stored: Vec<_> = match (overflow, queue.offer(records[4].clone()).await) {
            (Overflow::Wait, Ok(Offered::Queued)) => records[..5].to_vec(),
            (Overflow::DropNewest, Ok(Offered::Dropped(dropped))) if dropped == records[4] => records[..4].to_vec(),
            (Overflow::DropOldest, Ok(Offered::Dropped(dropped))) if dropped == records[1] => {
                [&records[..1], &records[2..5]].concat()
            }
            (Overflow::Fail, Err(PutError::Full(back))) if back == records[4] => records[..4].to_vec(),
            (overflow, offered) => panic!("{overflow:?}: {offered:?}"),
        };
        let dropped = matches!(overflow, Overflow::DropNewest | Overflow::DropOldest);
        assert_eq!(queue.dropped(), u64::from(dropped));
        assert_eq!(queue.close(LONG).await, []);
        assert_eq!(queue.offer(records[5].clone()).await, Err(PutError::Closed(records[5].clone())));
        assert_eq!(producer.close(LONG).await.records, 0);
        assert_eq!(pairs(&service.read(OutOfRange::Deliver).await), given(&stored), "{overflow:?}: in order");
    }
}

#[tokio::test]
async fn what_a_queue_cannot_hand_over_comes_back() {
    let service = Service::start(1).await;
    let (producer, records) = full(&service).await;
    let queue = producer.queue(10, Overflow::Wait);
    for record in &records[1..6] {
        queue.offer(record.clone()).await.unwrap();
    }
    assert_eq!(queue.close(Duration::from_millis(20)).await, records[1..6]);
    assert_eq!(queue.close(LONG).await, []);

    // The producer may be closed first.
    let (producer, records) = full(&service).await;
    let queue = producer.queue(10, Overflow::Wait);
    for record in &records[1..6] {
        queue.offer(record.clone()).await.unwrap();
    }
    assert_eq!(producer.close(LONG).await.records, 0);
    assert_eq!(queue.close(LONG).await, records[1..6]);
}

#[tokio::test]
async fn a_queue_that_nobody_has_any_more_is_still_handed_over() {
    let service = Service::start(1).await;
    let (producer, records) = full(&service).await;
    let queue = producer.queue(10, Overflow::Wait);
    for record in &records[1..6] {
        queue.offer(record.clone()).await.unwrap();
    }
    drop((queue, producer));
    while service.read(OutOfRange::Deliver).await.len() < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(pairs(&service.read(OutOfRange::Deliver).await), given(&records[..6]));
}
