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

#[tokio::test]
async fn whoever_is_held_back_does_not_wait_for_the_buffering_time() {
    let service = Service::start(1).await;
    let waits = Options { buffer_time: Duration::from_secs(25), pending_max_records: 4, ..options() };
    let producer = start(&service, waits);
    let records = records(0..50, 3, 40);
    let all = async {
        for record in &records[..25] {
            producer.put(record.clone()).await.unwrap();
        }
        let mut sink = producer.sink().at_most(2);
        for record in &records[25..] {
            sink.feed(record.clone()).await.unwrap();
        }
        sink.close().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("nobody waits for more records");
    assert_eq!(pairs(&service.read(OutOfRange::Deliver).await), given(&records));
}

#[tokio::test]
async fn a_large_record_is_not_overtaken_for_ever() {
    let service = Service::start(1).await;
    let options = Options { pending_max_bytes: 1 << 20, buffer_time: Duration::ZERO, ..options() };
    let producer = start(&service, options);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let small = async {
        let records = records(0..1, 1, 100_000);
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            producer.put(records[0].clone()).await.unwrap();
        }
    };
    let large = async {
        for record in records(0..3, 1, 900_000) {
            producer.put(record).await.unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::time::timeout(LONG, futures::future::join(small, large)).await.unwrap();
}

#[tokio::test]
async fn a_sink_that_is_dropped_leaves_its_records_on_their_way() {
    let service = Service::start(1).await;
    let (producer, records) = full(&service).await;
    let mut sink = producer.sink();
    // There is no room for it.
    sink.feed(records[1].clone()).await.unwrap();
    assert_eq!(sink.unacknowledged(), 1);
    drop(sink);
    while service.read(OutOfRange::Deliver).await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(producer.failures(), 0);

    // Where nobody takes it any more it is counted.
    let (producer, records) = full(&service).await;
    let mut sink = producer.sink();
    sink.feed(records[1].clone()).await.unwrap();
    drop(sink);
    producer.close(LONG).await;
    while producer.failures() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(producer.failures(), 1);
}

#[tokio::test]
async fn records_of_a_sink_that_nobody_is_told_of_are_counted() {
    let service = Service::start(1).await;
    let producer = start(&service, Options { buffer_time: Duration::from_secs(20), ..options() });
    service.faults.set([Fault::Call(400, "AccessDeniedException")]);
    let records = records(0..5, 1, 40);
    let mut sink = producer.sink();
    for record in &records {
        sink.feed(record.clone()).await.unwrap();
    }
    assert!(matches!(sink.close().await, Err(SinkError::Failed(failed)) if failed.record == records[0]));
    sink.close().await.unwrap();
    assert_eq!(producer.failures(), 4);
}

#[tokio::test]
async fn records_that_a_queue_cannot_hand_over_are_counted() {
    let service = Service::start(1).await;
    let (producer, records) = full(&service).await;
    let queue = producer.queue(10, Overflow::Wait);
    for record in &records[1..6] {
        queue.offer(record.clone()).await.unwrap();
    }
    producer.close(LONG).await;
    drop(queue);
    while producer.failures() < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(producer.failures(), 5);
}

#[test]
fn who_waits_for_a_queue_is_told_when_its_runtime_has_ended() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (queue, records) = runtime.block_on(async {
        let service = Service::start(1).await;
        let (producer, records) = full(&service).await;
        let queue = producer.queue(1, Overflow::Wait);
        queue.offer(records[1].clone()).await.unwrap();
        (queue, records)
    });
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    let offered = other.block_on(async { tokio::time::timeout(LONG, queue.offer(records[2].clone())).await.unwrap() });
    assert_eq!(offered, Err(PutError::Closed(records[2].clone())));
}
