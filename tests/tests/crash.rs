//! A worker that is killed loses nothing, and repeats only what came after the last checkpoint.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use shardmill_tests::leases::{self, Row};
use shardmill_tests::{Config, Services, Tail, TakenUp, Worker, Writer, assert_taken_up, numbers, positions};

const KILLS: usize = 6;

/// What the world looked like when a worker was dead.
struct Kill {
    rows: BTreeMap<String, Row>,
    /// How many outputs there were.
    outputs: usize,
}

#[tokio::test]
async fn a_worker_that_is_killed_loses_nothing_and_repeats_only_what_came_after_its_checkpoints() {
    let seed = std::env::var("SHARDMILL_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("SHARDMILL_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let services = Services::with_streams(4, 3).await;
    // The successor has the same name and so need not wait until leases expire: more kills in less time.
    let config = Config::copy()
        .top(r#"worker-id = "worker-0""#)
        .top("worker-runs-once = true")
        .processor("batch = { records = 25 }")
        .processor(r#"checkpoint-interval = "400ms""#);
    let mut writer = Writer::new(&services, "input", 200).with_aggregates();
    let mut output = Tail::new(&services, "output").await;

    let mut kills: Vec<Kill> = Vec::new();
    let mut worker = Worker::start(&services, &config);
    while kills.len() < KILLS {
        let known = output.count().await;
        writer.put(150).await;
        worker
            .until("outputs", async |_| {
                writer.put(150).await;
                (output.count().await > known).then_some(())
            })
            .await;
        let moment = Duration::from_millis(random.random_range(0..900));
        let writing = async {
            loop {
                writer.put(150).await;
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        };
        let _elapsed = tokio::time::timeout(moment, writing).await;
        // More than it has time for.
        writer.put(600).await;
        worker.kill().await;
        kills.push(Kill { rows: leases::rows(&services, config.lease_table()).await, outputs: output.count().await });
        worker = Worker::start(&services, &config);
    }
    // A call that was cut off may have been carried out: its numbers are never given again, so ask the stream.
    let input = Tail::all(&services, "input").await;
    let expected = numbers(&input);
    worker
        .until("all outputs", async |_| {
            output.poll().await;
            numbers(output.found()).is_superset(&expected).then_some(())
        })
        .await;
    worker.stop().await;
    output.poll().await;
    let found = output.found();
    assert_eq!(numbers(found), expected, "nothing is lost, and nothing comes from nowhere");
    leases::assert_released_at_the_end(&leases::rows(&services, config.lease_table()).await, &input);

    let positions = positions(&input);
    let mut taken_up = TakenUp { left: 0, repeated: 0 };
    let ends = kills.iter().skip(1).map(|kill| kill.outputs).chain([found.len()]);
    for (kill, end) in kills.iter().zip(ends) {
        let (before, after) = found[..end].split_at(kill.outputs);
        let seen = assert_taken_up(&kill.rows, &positions, before, after);
        taken_up.left += seen.left;
        taken_up.repeated += seen.repeated;
    }
    assert!(taken_up.left > 0, "kills came before everything was done");
    println!("{} records, {} outputs after {KILLS} kills: {taken_up:?}", expected.len(), found.len());
}
