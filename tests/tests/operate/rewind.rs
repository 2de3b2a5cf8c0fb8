//! Shards that begin somewhere else.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use shardmill_tests::{
    Fault, Finished, Proxy, Rule, Services, Tail, Worker, Writer, assert_each_once, assert_says, leases, numbers,
};

use super::{FIRST, NEXT_SECOND, Operator, until_state};

/// How often each number is in the output.
fn times(output: &[shardmill_tests::Found], number: u64) -> usize {
    output.iter().filter(|found| found.number == number).count()
}

/// Milliseconds since 1970, in whole seconds as the local Kinesis keeps them.
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time after 1970");
    (since.as_millis() / 1000 * 1000).to_string()
}

#[tokio::test]
async fn a_rewind_of_one_shard_repeats_that_shard_and_a_successor_goes_on_from_there() {
    let services = Services::with_streams(2, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let mut writer = Writer::new(&services, "input", 40);
    writer.put(300).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(300).await;
    let before = leases::rows(&services, config.lease_table()).await;
    let said = operator.tells(&worker, &["rewind", "copy", "--shard", FIRST, "--to", "trim-horizon"]).await;
    assert_says("a rewind", &said, &[FIRST, "is rewound"]);
    let keys = writer.keys_of(FIRST).await;
    let again: BTreeSet<u64> = (0..300).filter(|number| keys.contains(&writer.key_of_number(*number))).collect();
    assert!(!again.is_empty() && again.len() < 300);
    worker.until_records(300 + again.len() as u64).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    for number in 0..300 {
        assert_eq!(times(&output, number), if again.contains(&number) { 2 } else { 1 }, "record {number}");
    }
    let after = leases::rows(&services, config.lease_table()).await;
    assert_eq!(after[FIRST].epoch, before[FIRST].epoch + 1, "the fencing token has grown");
    let told = worker.logged("WARN", "is rewound by an operator's order");
    assert_eq!((told.len(), told[0]["shard"].as_str()), (1, Some(FIRST)), "{told:?}");
    leases::assert_released_at_the_end(&after, &Tail::all(&services, "input").await);
    let mut worker = Worker::start_ready(&services, &config).await;
    writer.put(10).await;
    worker.until_records(10).await;
    worker.stop().await;
    assert_eq!(Tail::all(&services, "output").await.len(), 310 + again.len());
}

#[tokio::test]
async fn a_rewind_to_a_time_repeats_what_came_since_and_one_to_the_tip_passes_over_what_is_there() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    tokio::time::sleep(NEXT_SECOND).await;
    // Milliseconds are taken as well as RFC 3339.
    let since = now();
    writer.put(100).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(200).await;
    operator.tells(&worker, &["rewind", "copy", "--to", &since]).await;
    worker.until_records(300).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(worker.records_done().await, 300);
    let output = Tail::all(&services, "output").await;
    assert!((0..100).all(|number| times(&output, number) == 1) && (100..200).all(|number| times(&output, number) == 2));

    // A paused shard is rewound, and goes on there when it is resumed.
    operator.tells(&worker, &["pause", "copy"]).await;
    until_state(&mut worker, "paused", 1).await;
    writer.put(100).await;
    tokio::time::sleep(NEXT_SECOND).await;
    operator.tells(&worker, &["rewind", "copy", "--to", "latest"]).await;
    let row = leases::rows(&services, config.lease_table()).await[FIRST].clone();
    assert_eq!(row.checkpoint.to_string(), "LATEST");
    assert!(row.start_at.is_some(), "what a KCL does not read, and this project does");
    until_state(&mut worker, "paused", 1).await;
    tokio::time::sleep(NEXT_SECOND).await;
    let kept = writer.put(50).await;
    operator.tells(&worker, &["resume", "copy"]).await;
    worker.until_records(350).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_eq!(output.len(), 350, "100 records are passed over");
    assert_eq!(numbers(&output[300..]), kept.collect());
}

#[tokio::test]
async fn a_poison_record_is_passed_over_by_a_rewind_behind_it() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(50).await;
    writer.put_data("key-1", b"poison").await;
    let mut worker = Worker::start(&services, &operator.config());
    worker
        .until("a stopped shard", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            worker.get("/readyz").await.1.contains("is stopped").then_some(())
        })
        .await;
    tokio::time::sleep(NEXT_SECOND).await;
    operator.tells(&worker, &["rewind", "copy", "--to", "latest"]).await;
    until_state(&mut worker, "running", 1).await;
    tokio::time::sleep(NEXT_SECOND).await;
    writer.put(50).await;
    worker.until_records(100).await;
    assert_eq!(worker.get("/readyz").await.0, 200);
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..100);
}

#[tokio::test]
async fn a_rewind_does_not_wait_for_outputs_that_are_not_taken() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let throttled = Rule::new(Fault::Refused("ProvisionedThroughputExceededException")).operation("PutRecords");
    let rule = proxy.inject(throttled);
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let mut worker = Worker::start_ready(&link, &config).await;
    worker.until("refused outputs", async |_| (rule.count() > 0).then_some(())).await;
    tokio::time::sleep(NEXT_SECOND).await;
    operator.tells(&worker, &["rewind", "copy", "--to", "latest"]).await;
    tokio::time::sleep(NEXT_SECOND).await;
    proxy.calm();
    let kept = writer.put(50).await;
    worker.until_records(50).await;
    worker.stop().await;
    assert_eq!(numbers(&Tail::all(&services, "output").await), kept.collect());
}

#[tokio::test]
async fn a_rewind_of_all_over_closed_shards_is_refused_until_they_are_left_out() {
    let services = Services::with_streams(1, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    let mut writer = Writer::new(&services, "input", 40);
    writer.put(100).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(100).await;
    services.split("input", FIRST).await;
    leases::until_ended(&mut worker, &services, config.lease_table(), &[FIRST]).await;
    until_state(&mut worker, "running", 2).await;
    tokio::time::sleep(NEXT_SECOND).await;
    let after_split = now();
    writer.put(100).await;
    worker.until_records(200).await;

    let refused = operator.says(&worker, &["rewind", "copy", "--to", "trim-horizon"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_says("a rewind over a split", &refused.stderr, &["closed", FIRST, "nothing was done", "--open-only"]);
    tokio::time::sleep(NEXT_SECOND).await;
    assert_eq!(worker.records_done().await, 200);

    // After the split there is nothing that they hold.
    let said = operator.tells(&worker, &["rewind", "copy", "--to", &after_split]).await;
    assert!(!said.contains(FIRST), "{said}");
    worker.until_records(300).await;
    let said = operator.tells(&worker, &["rewind", "copy", "--to", "trim-horizon", "--open-only", "--json"]).await;
    let json: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(json["shards"].as_array().map(Vec::len), Some(2), "{json}");
    worker.until_records(400).await;
    // Longer ago than the stream keeps anything.
    let said = operator.tells(&worker, &["rewind", "copy", "--to", "2020-01-01T00:00:00Z", "--open-only"]).await;
    assert_says("a time that is gone", &said, &["the oldest record that there is", "24 h"]);
    worker.until_records(500).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert!((0..100).all(|number| times(&output, number) == 1) && (100..200).all(|number| times(&output, number) == 4));
}

#[tokio::test]
async fn a_rewind_of_all_names_the_shards_of_other_workers_and_fails() {
    let services = Services::with_streams(2, 1).await;
    let operator = Operator::new();
    let config = operator.config();
    Writer::new(&services, "input", 40).put(200).await;
    let mut workers = Vec::new();
    for id in ["one", "other", "idle"] {
        let config = config.clone().top(&format!("worker-id = {id:?}"));
        workers.push(Worker::start_ready(&services, &config).await);
    }
    let [one, other, idle] = &mut workers[..] else { panic!("three workers") };
    let held = async |worker: &Worker| worker.status().await["shards"].as_object().map_or(0, serde_json::Map::len);
    one.until("a shard each", async |one| {
        let counts = [held(one).await, held(other).await, held(idle).await];
        (counts.iter().all(|count| *count < 2) && counts.iter().sum::<usize>() == 2).then_some(())
    })
    .await;
    let mut said = Vec::new();
    for worker in [&*one, &*other, &*idle] {
        let finished = operator.says(worker, &["rewind", "copy", "--to", "latest"]).await;
        assert_eq!(finished.code, Some(1), "{finished:?}");
        said.push((held(worker).await, finished));
    }
    for (held, Finished { stdout, stderr, .. }) in said {
        match held {
            0 => assert_says(
                "none",
                &(stdout + &stderr),
                &["has it: ask that one", "no shard of copy", "nothing was done"],
            ),
            _ => assert_says(
                "one of two",
                &(stdout + &stderr),
                &["is rewound", "left as it is", "has it: ask that one", "1 of 2"],
            ),
        }
    }
    for worker in &mut workers {
        worker.stop().await;
    }
}
