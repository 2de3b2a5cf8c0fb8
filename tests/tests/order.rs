//! The order of keys, whatever happens to the requests that carry them.
//!
//! What is promised of one output with `ordering = "key"`: nothing is missing, and what comes first of each record of a
//! key comes in the order of the records that caused them. Where PutRecords itself says that an entry was not stored,
//! nothing is repeated. Where an answer is lost, the whole Kinesis record is put again, before anything later of its
//! shard: a reader sees it twice, one right after the other as far as that worker's shard is concerned. Only a request
//! that the service takes in after its sender has given it up is met again behind later records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use shardmill_record::{Position, SequenceNumber};
use shardmill_tests::{
    Config, Fault, Found, Injected, Proxy, Rule, Services, Tail, Worker, Writer, assert_each_once,
    assert_order_of_keys, firsts, leases, numbers, positions, seeds,
};

const KEYS: u64 = 60;
const THROTTLED: &str = "ProvisionedThroughputExceededException";

/// Faults that may befall a request with outputs, and how often they do.
const ON_PUTS: [(Fault, f64); 9] = [
    (Fault::Partial { chance: 0.5, code: THROTTLED }, 0.12),
    (Fault::Partial { chance: 0.5, code: "InternalFailure" }, 0.08),
    (Fault::Refused(THROTTLED), 0.06),
    (Fault::Status(500), 0.05),
    (Fault::Reset, 0.05),
    (Fault::Late(Duration::from_millis(60)), 0.05),
    (Fault::AnswerLost, 0.08),
    (Fault::AnswerCut, 0.06),
    (Fault::HalfJson, 0.06),
];

/// Faults of everything else.
const BESIDES: [(&str, Fault, f64); 5] = [
    ("GetRecords", Fault::Refused(THROTTLED), 0.1),
    ("GetRecords", Fault::AnswerCut, 0.1),
    ("GetRecords", Fault::HalfJson, 0.1),
    ("GetRecords", Fault::Reset, 0.1),
    ("UpdateItem", Fault::AnswerLost, 0.2),
];

fn config() -> Config {
    Config::copy().processor("batch = { records = 12 }").processor(r#"checkpoint-interval = "200ms""#)
}

/// A Kinesis record of the output.
#[derive(Debug)]
struct Block {
    shard: String,
    numbers: Vec<u64>,
}

fn blocks(output: &[Found]) -> Vec<Block> {
    let of_one = |one: &Found, next: &Found| {
        (&one.shard, &one.position.sequence_number) == (&next.shard, &next.position.sequence_number)
    };
    let block = |records: &[Found]| Block {
        shard: records[0].shard.clone(),
        numbers: records.iter().map(|record| record.number).collect(),
    };
    output.chunk_by(of_one).map(block).collect()
}

/// Asserts that what goes from one shard of the input to one of the output is there, in order, and that nothing is
/// repeated but the last Kinesis record. How many Kinesis records are repeats.
fn assert_order_of_lanes(input: &[Found], output: &[Found]) -> u64 {
    let causes = positions(input);
    let mut shard_of_key: BTreeMap<&str, &str> = BTreeMap::new();
    for record in output {
        let shard = shard_of_key.entry(&record.key).or_insert(&record.shard);
        assert_eq!(*shard, record.shard, "a key has one shard: {record:?}");
    }
    let mut expected: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for record in input {
        let shard = shard_of_key.get(record.key.as_str()).unwrap_or_else(|| panic!("nothing of {}", record.key));
        expected.entry((record.shard.as_str(), *shard)).or_default().push(record.number);
    }
    let mut repeats = 0;
    // By lane: all that came, and the last block, whose repeat would follow at once.
    let mut found: BTreeMap<(&str, &str), [Vec<u64>; 2]> = BTreeMap::new();
    for block in blocks(output) {
        let from: BTreeSet<&str> = block.numbers.iter().map(|number| causes[number].0.as_str()).collect();
        assert_eq!(from.len(), 1, "one shard's outputs in {block:?}");
        let from = from.into_iter().next().expect("a shard");
        let to = shard_of_key.values().find(|shard| **shard == block.shard).expect("a known shard");
        let [all, last] = found.entry((from, *to)).or_default();
        if block.numbers == *last {
            repeats += 1;
        } else {
            all.extend(&block.numbers);
            *last = block.numbers;
        }
    }
    let found: BTreeMap<_, _> = found.into_iter().map(|(lane, [all, _])| (lane, all)).collect();
    for (lane, expected) in &expected {
        let found = found.get(lane).map(Vec::as_slice).unwrap_or_default();
        let differs = expected.iter().zip(found).position(|(expected, found)| expected != found);
        assert!(expected == found, "{lane:?}: expected {expected:?}, found {found:?}, which differs at {differs:?}");
    }
    repeats
}

async fn keeps_its_order(seed: u64, aggregate: bool) {
    // Without aggregates a request has one record for each shard.
    let records = if aggregate { 1_800 } else { 600 };
    let services = Services::with_streams(4, 3).await;
    let proxy = Proxy::new(&services, seed);
    let link = proxy.link("worker");
    let inject = |(fault, probability): (Fault, f64)| {
        proxy.inject(Rule::new(fault).operation("PutRecords").stream("output").probability(probability))
    };
    let mut rules: Vec<Injected> = ON_PUTS.into_iter().map(inject).collect();
    for (operation, fault, probability) in BESIDES {
        rules.push(proxy.inject(Rule::new(fault).operation(operation).probability(probability)));
    }
    let mut writer = Writer::new(&services, "input", KEYS).with_aggregates();
    writer.put(records / 2).await;
    let output = format!("stream = \"output\"\naggregate = {aggregate}");
    let mut worker = Worker::start_with(&link, &config().text().replace("stream = \"output\"", &output));
    writer.put(records / 2).await;
    worker
        .until_within(Duration::from_secs(120), "all records", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            (worker.records_done().await == records).then_some(())
        })
        .await;
    proxy.calm();
    let counted = worker.metric("shardmill_producer_possible_repeats_total", "").await;
    worker.stop().await;

    let input = Tail::all(&services, "input").await;
    assert_order_of_keys(&input);
    let output = Tail::all(&services, "output").await;
    let first = firsts(&output);
    assert_each_once(&first, 0..records);
    assert_order_of_keys(&first);
    let repeats = assert_order_of_lanes(&input, &output);
    assert_eq!(repeats, proxy.untold(), "what was stored and not told is repeated, and nothing else");
    assert!(repeats > 0 && counted >= (output.len() - first.len()) as f64, "{repeats} repeats, {counted} counted");
    // There are many puts, and few reads: a page has many records.
    let (puts, besides) = rules.split_at(ON_PUTS.len());
    for rule in puts {
        assert!(rule.count() > 0, "seed {seed}: this never happened: {rule:?}");
    }
    assert!(besides.iter().any(|rule| rule.count() > 0), "seed {seed}: nothing happened beside the puts");
    let rows = leases::rows(&services, config().lease_table()).await;
    leases::assert_released_at_the_end(&rows, &input);
    println!("seed {seed}, aggregate {aggregate}: {} outputs, {repeats} Kinesis records repeated", output.len());
}

#[tokio::test]
async fn keys_keep_their_order_under_failures_throttles_and_lost_answers() {
    let seeds = seeds(&[1, 2]);
    // A few at a time: each is a worker and services.
    for seeds in seeds.chunks(2) {
        join_all(seeds.iter().flat_map(|seed| [true, false].map(|aggregate| keeps_its_order(*seed, aggregate)))).await;
    }
}

#[tokio::test]
async fn what_the_service_takes_in_late_is_a_repeat_and_moves_nothing_out_of_order() {
    let services = Services::with_streams(2, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    // The sender waits for 6 s.
    let late = Rule::new(Fault::Late(Duration::from_secs(8))).operation("PutRecords").after(6).times(2);
    let late = proxy.inject(late);
    let mut writer = Writer::new(&services, "input", KEYS);
    writer.put(600).await;
    let mut worker = Worker::start_ready(&link, &config()).await;
    let mut output = Tail::new(&services, "output").await;
    worker
        .until("all outputs, and the late ones", async |_| {
            output.poll().await;
            let all = numbers(output.found()).len() as u64 == writer.count();
            (all && output.found().len() as u64 > writer.count()).then_some(())
        })
        .await;
    assert_eq!(late.count(), 2);
    worker.stop().await;
    let found = Tail::all(&services, "output").await;
    let first = firsts(&found);
    assert_each_once(&first, 0..writer.count());
    assert_order_of_keys(&first);
}

// === The check itself ===

/// Records of one shard and one key, by the numbers of their Kinesis records.
fn stream(blocks: &[&[u64]]) -> Vec<Found> {
    let record = |nth: u64, sub: usize, number: u64| Found {
        number,
        key: "key".to_owned(),
        shard: "shardId-000000000000".to_owned(),
        position: Position::new(SequenceNumber::parse(&nth.to_string()).expect("digits"), sub as u64),
        arrival: 0,
    };
    let block = |(nth, numbers): (u64, &&[u64])| -> Vec<Found> {
        numbers.iter().enumerate().map(|(sub, number)| record(nth, sub, *number)).collect()
    };
    (1..).zip(blocks).flat_map(block).collect()
}

#[test]
fn the_check_sees_what_is_missing_out_of_order_or_repeated_too_late() {
    let input = stream(&[&[1], &[2], &[3], &[4]]);
    let repeats = |blocks: &[&[u64]]| {
        let output = stream(blocks);
        std::panic::catch_unwind(|| assert_order_of_lanes(&input, &output)).ok()
    };
    assert_eq!(repeats(&[&[1, 2], &[3], &[4]]), Some(0));
    assert_eq!(repeats(&[&[1, 2], &[1, 2], &[1, 2], &[3], &[4], &[4]]), Some(3));
    let wrongs: [&[&[u64]]; 5] = [
        &[&[1, 2], &[3]],
        &[&[1], &[3], &[2], &[4]],
        &[&[1], &[2], &[3], &[2], &[4]],
        &[&[1, 2], &[2], &[3], &[4]],
        &[&[1, 2], &[3], &[4], &[1, 2]],
    ];
    for wrong in wrongs {
        assert_eq!(repeats(wrong), None, "{wrong:?}");
    }
}
