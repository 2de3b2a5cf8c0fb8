//! Producers with a spool.

use std::time::Duration;

use prometheus_client::registry::Registry;
use shardmill_producer::{Acknowledged, Left, Metrics, Options, Ordering, Producer, Reason};
use shardmill_record::{OutOfRange, UserRecord};
use shardmill_spool::{Full, Spool};

use crate::put::options;
use crate::support::{Fault, STREAM, Service, by_key, client, given, metric, pairs, records};

const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(200);

/// Many calls of PutRecords that fail.
fn outage(calls: usize) -> Vec<Fault> {
    vec![Fault::Call(503, "ServiceUnavailable"); calls]
}

async fn opened(folder: &tempfile::TempDir) -> Spool {
    Spool::open(folder.path(), shardmill_spool::Options::default(), shardmill_spool::Metrics::default()).await.unwrap()
}

fn start(service: &Service, options: Options, spool: &Spool) -> Producer {
    Producer::start_with_spool(service.client.clone(), STREAM.to_owned(), options, Metrics::default(), 7, spool)
        .unwrap()
}

fn quick() -> Options {
    Options { spool_after: SOON, backoff_max: Duration::from_millis(50), buffer_time: Duration::ZERO, ..options() }
}

/// What became of records that are put one after another: how many are stored, and how many went to the spool.
async fn put_all(producer: &Producer, records: &[UserRecord]) -> (usize, usize) {
    let mut pending = Vec::new();
    for record in records {
        pending.push(producer.put_with_result(record.clone()).await.unwrap());
    }
    let results = futures::future::join_all(pending).await;
    let stored = results.iter().filter(|result| matches!(result, Ok(Acknowledged::Stored(_)))).count();
    let spooled = results.iter().filter(|result| matches!(result, Ok(Acknowledged::Spooled { .. }))).count();
    (stored, spooled)
}

/// Without copies: what comes first of each record.
fn first_of_each(read: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut seen = std::collections::HashSet::new();
    read.into_iter().filter(|record| seen.insert(record.clone())).collect()
}

#[tokio::test]
async fn an_outage_goes_by_the_disk_and_keys_keep_their_order() {
    for ordering in [Ordering::Key, Ordering::None] {
        let (service, folder) = (Service::start(3).await, tempfile::tempdir().unwrap());
        let spool = opened(&folder).await;
        let mut registry = Registry::default();
        let options = Options { ordering, ..quick() };
        let metrics = Metrics::register(&mut registry);
        let producer =
            Producer::start_with_spool(service.client.clone(), STREAM.to_owned(), options, metrics, 7, &spool).unwrap();
        let records = records(0..900, 7, 60);
        assert_eq!(put_all(&producer, &records[..300]).await, (300, 0));
        service.faults.set(outage(usize::from(u16::MAX)));
        assert_eq!(put_all(&producer, &records[300..500]).await, (0, 200), "{ordering}");
        // Once it has begun nothing waits for a failure.
        assert_eq!(put_all(&producer, &records[500..600]).await, (0, 100));
        assert!(spool.holds(STREAM) && producer.backlog().records == 0);
        service.faults.set([]);
        let (stored, spooled) = put_all(&producer, &records[600..750]).await;
        assert_eq!(stored + spooled, 150);
        producer.drained().await;
        // When nothing is left they are sent directly again.
        while put_all(&producer, &records[899..]).await.0 == 0 {
            producer.drained().await;
        }
        assert_eq!(put_all(&producer, &records[750..899]).await, (149, 0));
        assert_eq!(producer.close(LONG).await, Left::default());
        let read = first_of_each(pairs(&service.read(OutOfRange::Deliver).await));
        if ordering == Ordering::Key {
            let sent: Vec<_> =
                records[..750].iter().chain(&records[899..]).chain(&records[750..899]).cloned().collect();
            assert_eq!(by_key(read), by_key(given(&sent)));
        } else {
            assert_eq!(read.len(), 900);
        }
        assert!(metric(&registry, "records_spooled_total") >= 300);
        assert_eq!(metric(&registry, "records_failed_total"), 0);
        // Each is received once.
        let received = metric(&registry, "records_received_total");
        assert!((900..910).contains(&received), "{received}");
        assert_eq!(metric(&registry, "records_pending"), 0);
    }
}

#[tokio::test]
async fn what_is_on_its_way_is_waited_for_before_anything_goes_to_the_disk() {
    let (service, folder) = (Service::start(1).await, tempfile::tempdir().unwrap());
    let spool = opened(&folder).await;
    // The first answer comes when the others' time is over.
    service.faults.set([Fault::AnswerLate(Duration::from_millis(700))]);
    let options = Options { record_ttl: Duration::from_millis(300), spool_after: LONG, ..quick() };
    let producer = start(&service, options, &spool);
    let records = records(0..20, 2, 60);
    let first = producer.put_with_result(records[0].clone()).await.unwrap();
    while service.faults.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (stored, spooled) = put_all(&producer, &records[1..]).await;
    assert_eq!((stored, spooled), (0, 19), "their time was over");
    assert!(matches!(first.await, Ok(Acknowledged::Stored(_))));
    producer.drained().await;
    assert_eq!(pairs(&service.read(OutOfRange::Deliver).await), given(&records));
}

#[tokio::test]
async fn what_the_service_refuses_waits_for_somebody_to_mend_it() {
    let (service, folder) = (Service::start(1).await, tempfile::tempdir().unwrap());
    let spool = opened(&folder).await;
    service.faults.set(vec![Fault::Call(400, "AccessDeniedException"); 2]);
    let producer = start(&service, quick(), &spool);
    let records = records(0..50, 5, 60);
    let (stored, spooled) = put_all(&producer, &records).await;
    assert!(spooled > 0 && stored + spooled == 50, "{stored} {spooled}");
    tokio::time::timeout(LONG, producer.drained()).await.unwrap();
    assert_eq!(by_key(pairs(&service.read(OutOfRange::Deliver).await)), by_key(given(&records)));
}

#[tokio::test]
async fn what_is_left_at_the_end_is_sent_by_the_next_one_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let spool = opened(&folder).await;
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = client(format!("http://{nobody}"));
    let options = Options { spool_after: LONG, ..quick() };
    let producer =
        Producer::start_with_spool(client, STREAM.to_owned(), options, Metrics::default(), 7, &spool).unwrap();
    let records = records(0..60, 3, 60);
    for record in &records[..39] {
        producer.put(record.clone()).await.unwrap();
    }
    let pending = producer.put_with_result(records[39].clone()).await.unwrap();
    let left = producer.close(Duration::from_millis(50)).await;
    assert_eq!(left, Left { spooled: 40, ..Left::default() });
    assert!(matches!(pending.await, Ok(Acknowledged::Spooled { .. })));
    assert_eq!(producer.failures(), 0);
    drop(producer);
    spool.close().await.unwrap();

    let (service, spool) = (Service::start(2).await, opened(&folder).await);
    let producer = start(&service, quick(), &spool);
    put_all(&producer, &records[40..]).await;
    producer.drained().await;
    assert_eq!(by_key(pairs(&service.read(OutOfRange::Deliver).await)), by_key(given(&records)));
}

#[tokio::test]
async fn a_spool_that_is_full_gives_records_back_and_says_why() {
    let (service, folder) = (Service::start(1).await, tempfile::tempdir().unwrap());
    let bounds = shardmill_spool::Options { bytes: 1 << 20, when_full: Full::Refuse };
    let spool = Spool::open(folder.path(), bounds, shardmill_spool::Metrics::default()).await.unwrap();
    service.faults.set(outage(usize::from(u16::MAX)));
    let producer = start(&service, quick(), &spool);
    let records = records(0..200, 1, 10_000);
    let mut pending = Vec::new();
    for record in &records {
        pending.push(producer.put_with_result(record.clone()).await.unwrap());
    }
    let results = futures::future::join_all(pending).await;
    let kept = results.iter().take_while(|result| result.is_ok()).count();
    assert!(kept > 20, "{kept}");
    for (result, record) in results[kept..].iter().zip(&records[kept..]) {
        let failed = result.as_ref().unwrap_err();
        assert_eq!(&failed.record, record);
        assert!(matches!(&failed.reason, Reason::NotSpooled(why) if why.contains("full")), "{failed}");
    }
    service.faults.set([]);
    producer.drained().await;
    let read = first_of_each(pairs(&service.read(OutOfRange::Deliver).await));
    assert_eq!(read, given(&records[..kept]));
}

#[tokio::test]
async fn a_spool_that_is_closed_is_done_without() {
    let (service, folder) = (Service::start(1).await, tempfile::tempdir().unwrap());
    let spool = opened(&folder).await;
    let producer = start(&service, quick(), &spool);
    spool.close().await.unwrap();
    service.faults.set(outage(10));
    let records = records(0..30, 3, 60);
    assert_eq!(put_all(&producer, &records).await, (30, 0));
    assert_eq!(first_of_each(pairs(&service.read(OutOfRange::Deliver).await)), given(&records));
}

#[tokio::test]
async fn a_record_that_no_request_may_have_does_not_stand_before_others() {
    let (service, folder) = (Service::start(1).await, tempfile::tempdir().unwrap());
    let spool = opened(&folder).await;
    let records = records(0..9, 1, 60);
    spool.store(STREAM, records.clone()).await.unwrap();
    // Whichever request has the fifth record in it.
    service.faults.refuse(records[4].data.to_vec());
    let producer = start(&service, Options { aggregate: false, ..quick() }, &spool);
    tokio::time::timeout(LONG, producer.drained()).await.unwrap();
    let expected: Vec<_> = records.iter().filter(|record| **record != records[4]).cloned().collect();
    assert_eq!(first_of_each(pairs(&service.read(OutOfRange::Deliver).await)), given(&expected));
    let aside = spool.aside(0, 10).await.unwrap();
    assert_eq!(aside.len(), 1);
    assert!(aside[0].reason.contains("ValidationException"), "{}", aside[0].reason);
}

#[tokio::test]
async fn there_is_one_producer_for_a_stream_and_a_spool() {
    let (service, folder) = (Service::start(1).await, tempfile::tempdir().unwrap());
    let spool = opened(&folder).await;
    let producer = start(&service, quick(), &spool);
    let again = |stream: &str| {
        let client = service.client.clone();
        Producer::start_with_spool(client, stream.to_owned(), quick(), Metrics::default(), 7, &spool)
    };
    assert!(matches!(again(STREAM), Err(shardmill_spool::Error::Taken { .. })));
    assert!(again("another").is_ok());
    producer.close(LONG).await;
    assert!(again(STREAM).is_ok());
}

#[test]
fn a_runtime_that_ends_resolves_what_is_on_its_way_to_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pending = runtime.block_on(async {
        let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let spool = opened(&folder).await;
        let client = client(format!("http://{nobody}"));
        let producer =
            Producer::start_with_spool(client, STREAM.to_owned(), quick(), Metrics::default(), 7, &spool).unwrap();
        let mut pending = Vec::new();
        for record in records(0..500, 3, 100) {
            pending.push(producer.put_with_result(record).await.unwrap());
        }
        tokio::time::sleep(SOON).await;
        pending
    });
    drop(runtime);
    let other = tokio::runtime::Runtime::new().unwrap();
    for result in other.block_on(futures::future::join_all(pending)) {
        assert!(match result {
            Ok(acknowledged) => matches!(acknowledged, Acknowledged::Spooled { .. }),
            Err(failed) => failed.reason == Reason::Stopped,
        });
    }
}
