//! Everything at once: throttles, failures, lost answers, a split and a merge, while records are put.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use prometheus_client::registry::Registry;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shardmill_producer::{Metrics, Options, Ordering, Producer, Receipt};
use shardmill_record::OutOfRange;

use crate::put::{THROTTLED, check_receipts, options};
use crate::support::{Fault, STREAM, Service, by_key, given, metric, pairs, records};

/// Of Kinesis records 30 % are throttled, of calls 5 % fail, and the answers of 1 % are lost.
fn faults(seed: u64) -> impl Iterator<Item = Fault> {
    let mut random = SmallRng::seed_from_u64(seed);
    (0..10_000).map(move |_| match random.random_range(0..100) {
        0 => Fault::AnswerBroken,
        1..=5 => Fault::Call(500, "InternalFailure"),
        _ => Fault::Entries((0..50).filter(|_| random.random_bool(0.3)).collect(), THROTTLED),
    })
}

async fn run(ordering: Ordering, seed: u64) {
    const RECORDS: usize = 12_000;
    let service = Service::start(4).await;
    // A loss at the beginning, so that each run has one.
    service.faults.set([Fault::Pass, Fault::AnswerBroken].into_iter().chain(faults(seed)));
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let options = Options { ordering, record_ttl: Duration::from_secs(600), ..options() };
    let producer = Producer::start(service.client.clone(), STREAM.to_owned(), options, metrics, seed);
    let records = records(0..RECORDS, 97, 60);
    let mut pending = Vec::new();
    for (number, record) in records.iter().enumerate() {
        match number {
            4_000 => service.split_all().await,
            8_000 => service.merge_first().await,
            _ => {}
        }
        if number % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        pending.push(producer.put_with_result(record.clone()).await.unwrap());
    }
    let receipts = futures::future::join_all(pending).await;
    let receipts: Vec<Receipt> = receipts.into_iter().map(|result| result.unwrap().stored().unwrap()).collect();
    assert_eq!(producer.close(Duration::from_secs(60)).await, shardmill_producer::Left::default());

    let everything = service.read(OutOfRange::Deliver).await;
    check_receipts(&records, &receipts, &everything);
    let read = service.read(OutOfRange::Drop).await;
    let mut seen = HashSet::new();
    let firsts: Vec<_> = pairs(&read).into_iter().filter(|pair| seen.insert(pair.clone())).collect();
    assert_eq!(firsts.len(), RECORDS, "seed {seed}: every record is where its reader looks for it");
    if ordering == Ordering::Key {
        assert_eq!(by_key(firsts), by_key(given(&records)), "seed {seed}: keys keep their order");
    }
    // Repeats, and what explains them.
    let mut copies: HashMap<_, usize> = HashMap::new();
    for pair in pairs(&everything) {
        *copies.entry(pair).or_default() += 1;
    }
    let further = everything.len() - RECORDS;
    let misplaced = metric(&registry, "misplaced_records_total") as usize;
    let possible = metric(&registry, "possible_repeats_total") as usize;
    assert!(
        further <= misplaced + possible,
        "seed {seed}: {further} repeats, {misplaced} misplaced, {possible} possible"
    );
    assert!(further > 0 && possible > 0, "seed {seed}: an answer was lost");
    for (record, receipt) in records.iter().zip(&receipts) {
        let copies = copies[&(record.partition_key.clone(), record.data.to_vec())];
        assert!(copies == 1 || receipt.may_be_repeated, "seed {seed}: {copies} copies of {receipt:?}");
    }
    assert_eq!(metric(&registry, "records_acknowledged_total"), RECORDS as u64);
    println!("{ordering}, seed {seed}: {} calls, {further} repeats, {misplaced} misplaced", service.faults.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_is_lost_or_out_of_order_whatever_the_service_does() {
    run(Ordering::Key, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_is_lost_without_order_either() {
    run(Ordering::None, 11).await;
}
