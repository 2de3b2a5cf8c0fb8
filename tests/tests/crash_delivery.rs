//! What a crash does to the records in flight: with `at-least-once` they come again, with `at-most-once` they are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use shardmill_tests::{Config, Found, Services, Tail, Worker, Writer, leases, numbers};

const KILLS: usize = 5;
const SHARDS: i32 = 4;
const BATCH: usize = 25;

/// What came out of a stream whose workers were killed over and over.
struct Crashed {
    /// The records that were put.
    input: Vec<Found>,
    output: Vec<Found>,
}

impl Crashed {
    fn times(&self) -> BTreeMap<u64, usize> {
        let mut times = BTreeMap::new();
        for record in &self.output {
            *times.entry(record.number).or_default() += 1;
        }
        times
    }
}

/// Kills workers of a guest that takes its time for each batch, at any moment, each with more to do than it has time for;
/// then lets the last one come to the end.
async fn crash(lines: &[&str]) -> Crashed {
    let seed = std::env::var("SHARDMILL_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("SHARDMILL_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let services = Services::with_streams(SHARDS, 3).await;
    // The successor has the same name and so need not wait until leases expire.
    let mut config = Config::copy()
        .plugin("guest_poison")
        .guest("takes = 60")
        .top(r#"worker-id = "worker-0""#)
        .top("worker-runs-once = true")
        .processor(&format!("batch = {{ records = {BATCH} }}"));
    for line in lines {
        config = config.processor(line);
    }
    let mut writer = Writer::new(&services, "input", 200).with_aggregates();
    let mut output = Tail::new(&services, "output").await;
    let mut worker = Worker::start(&services, &config);
    for _ in 0..KILLS {
        let known = output.count().await;
        writer.put(600).await;
        worker.until("outputs", async |_| (output.count().await > known).then_some(())).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..500))).await;
        writer.put(600).await;
        worker.kill().await;
        worker = Worker::start(&services, &config);
    }
    // A call that was cut off may have been carried out, so ask the stream.
    let input = Tail::all(&services, "input").await;
    let mut last = BTreeMap::new();
    for record in &input {
        last.insert(record.shard.clone(), record.position.clone());
    }
    worker
        .until("the end of each shard", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            let (_, status) = worker.get("/status").await;
            let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
            let at_end = last
                .iter()
                .all(|(shard, position)| status["copy"]["shards"][shard]["position"] == position.to_string().as_str());
            at_end.then_some(())
        })
        .await;
    // What is in hand is brought to its end.
    worker.stop().await;
    leases::assert_released_at_the_end(&leases::rows(&services, config.lease_table()).await, &input);
    output.poll().await;
    Crashed { input, output: output.found().to_vec() }
}

#[tokio::test]
async fn at_least_once_a_crash_repeats_records_and_loses_none() {
    // The first batch is checkpointed, and nothing after it before the stop.
    let crashed = crash(&[r#"checkpoint-interval = "1h""#]).await;
    assert_eq!(numbers(&crashed.output), numbers(&crashed.input), "nothing is lost, and nothing comes from nowhere");
    let repeated = crashed.times().values().filter(|times| **times > 1).count();
    assert!(repeated > 0, "records were in flight");
    println!("{} records, {repeated} of them repeated", crashed.input.len());
}

#[tokio::test]
async fn at_most_once_a_crash_loses_the_records_in_flight_and_repeats_none() {
    let crashed = crash(&[r#"delivery = "at-most-once""#]).await;
    let times = crashed.times();
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    let input = numbers(&crashed.input);
    assert!(numbers(&crashed.output).is_subset(&input), "nothing comes from nowhere");
    let lost: BTreeSet<u64> = input.difference(&numbers(&crashed.output)).copied().collect();
    assert!(!lost.is_empty(), "records were in flight");
    // A batch of each shard at each kill.
    let most = KILLS * usize::try_from(SHARDS).expect("few") * BATCH;
    assert!(lost.len() <= most, "{} records are lost", lost.len());
    println!("{} records, {} of them lost", input.len(), lost.len());
}
