//! Several workers of one application, as operators deploy them.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_tests::{
    Config, Leases, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, assert_says, leases,
};
use tokio::time::Instant;

const SHARDS: usize = 6;
const LIMIT: Duration = Duration::from_secs(60);

async fn held(worker: &Worker) -> usize {
    worker.metric("shardmill_shards", "").await as usize
}

async fn until_held(workers: &mut [Worker], expected: &[usize]) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut counts = Vec::new();
        for worker in workers.iter() {
            counts.push(held(worker).await);
        }
        counts.sort_unstable();
        if counts == expected {
            return;
        }
        assert!(Instant::now() < deadline, "workers hold {counts:?}, not {expected:?}: {}", workers[0].stderr());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_surge_deploy_under_load_loses_nothing_repeats_nothing_and_moves_each_lease_about_once() {
    let services = Services::with_streams(i32::try_from(SHARDS).unwrap(), 2).await;
    // With leases that last a minute: nothing moves because it has expired.
    let config = Config::copy().processor("batch = { records = 20 }");
    let next = Config::copy().processor("batch = { records = 25 }");
    let mut writer = Writer::new(&services, "input", 100).with_aggregates();
    let mut old = Vec::new();
    for _ in 0..3 {
        old.push(Worker::start_ready(&services, &config).await);
    }
    until_held(&mut old, &[2, 2, 2]).await;
    let before: u64 = leases::rows(&services, config.lease_table()).await.values().map(|row| row.epoch).sum();
    let mut new = Vec::new();
    for mut leaving in old {
        new.push(Worker::start_ready(&services, &next).await);
        writer.put(300).await;
        let told = Instant::now();
        leaving.terminate().await;
        println!("a worker left within {:.1?}", told.elapsed());
        writer.put(300).await;
    }
    until_held(&mut new, &[2, 2, 2]).await;
    let all = writer.count();
    let mut output = Tail::new(&services, "output").await;
    new[0].until("all outputs", async |_| (output.count().await as u64 >= all).then_some(())).await;
    let after: u64 = leases::rows(&services, config.lease_table()).await.values().map(|row| row.epoch).sum();
    let moves = after - before;
    println!("{moves} moves of {SHARDS} leases");
    assert!(moves <= SHARDS as u64 * 2, "{moves} moves of {SHARDS} leases");
    let leads = async |worker: &Worker| worker.metric("shardmill_lease_leader", "").await as usize;
    let mut leaders = 0;
    for worker in &new {
        leaders += leads(worker).await;
    }
    assert_eq!(leaders, 1, "one leads");
    for worker in &mut new {
        worker.stop().await;
    }
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..all);
    assert_order_of_keys(&output);
    let input = Tail::all(&services, "input").await;
    leases::assert_released_at_the_end(&leases::rows(&services, config.lease_table()).await, &input);
}

#[tokio::test]
async fn a_worker_that_is_alone_stops_without_waiting_for_others() {
    let services = Services::with_streams(2, 1).await;
    let config = Config::copy().top("shutdown-timeout = \"60s\"").holding("leave = \"50s\"");
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until("leases", async |worker| (held(worker).await == 2).then_some(())).await;
    let told = Instant::now();
    worker.stop().await;
    assert!(told.elapsed() < Duration::from_secs(25), "{:?}: it waited for nobody", told.elapsed());
}

#[tokio::test]
async fn leases_get_even_among_workers_that_live_and_the_log_tells_of_each_step_once() {
    let services = Services::with_streams(i32::try_from(SHARDS).unwrap(), 2).await;
    let config = Config::copy();
    let mut writer = Writer::new(&services, "input", 100).with_aggregates();
    let mut workers = vec![Worker::start_ready(&services, &config).await];
    until_held(&mut workers, &[SHARDS]).await;
    writer.put(1_000).await;
    workers.push(Worker::start_ready(&services, &config).await);
    until_held(&mut workers, &[3, 3]).await;
    writer.put(1_000).await;
    let all = writer.count();
    let mut output = Tail::new(&services, "output").await;
    workers[0].until("all outputs", async |_| (output.count().await as u64 >= all).then_some(())).await;
    assert_eq!(workers[0].logged("INFO", "lease taken").len(), SHARDS);
    assert_eq!(workers[0].logged("INFO", "letting it go").len(), 3);
    assert_eq!(workers[0].logged("INFO", "lease released").len(), 3);
    assert_eq!(workers[0].logged("INFO", "this worker leads:").len(), 1);
    let taken = workers[1].logged("INFO", "lease taken");
    assert!(taken.len() == 3 && taken.iter().all(|line| line["why"] == "balance"), "{taken:?}");
    assert_eq!(workers[1].metric("shardmill_lease_taken_total", "reason=\"balance\"").await as usize, 3);
    for worker in &mut workers {
        assert_eq!(worker.logged("WARN", "").len() + worker.logged("ERROR", "").len(), 0, "{}", worker.stderr());
        worker.stop().await;
    }
    assert_each_once(&Tail::all(&services, "output").await, 0..all);
}

#[tokio::test]
async fn shards_that_nobody_reads_are_named_until_there_is_a_worker_for_them() {
    let services = Services::with_streams(3, 1).await;
    let config = Config::copy().leases(Leases::Seconds(2));
    let mut small = Worker::start_ready(&services, &config.clone().holding("max-per-worker = 1")).await;
    let (status, body) = small
        .until("a leader that is not ready", async |worker| {
            let (status, body) = worker.get("/readyz").await;
            (status == 503).then_some((status, body))
        })
        .await;
    assert_says(&format!("{status}"), &body, &["processor copy", "nobody reads shard shardId-0000000000", "hash keys"]);
    let mut unattended = BTreeMap::new();
    for line in small.logged("ERROR", "nobody reads shard") {
        *unattended.entry(line["message"].to_string()).or_insert(0) += 1;
    }
    assert!(unattended.len() == 2 && unattended.values().all(|count| *count == 1), "{unattended:?}");
    assert_eq!(small.metric("shardmill_lease_unattended_shards", "").await as usize, 2);
    let mut other = Worker::start_ready(&services, &config).await;
    small.until("readiness", async |worker| (worker.get("/readyz").await.0 == 200).then_some(())).await;
    assert_eq!(small.logged("INFO", "every shard has a worker again").len(), 1);
    small.stop().await;
    other.stop().await;
}

/// The built-in Kinesis names no parents of the shards that UpdateShardCount makes, so that nothing tells their order: the
/// order is tested with splits and merges, and with an emulator that names them.
#[tokio::test]
async fn a_stream_whose_shard_count_is_changed_up_and_down_is_read_whole() {
    let services = Services::with_streams(2, 2).await;
    let config = Config::copy().processor("batch = { records = 50 }");
    let mut writer = Writer::new(&services, "input", 100).with_aggregates();
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(Worker::start_ready(&services, &config).await);
    }
    for count in [4, 2, 3] {
        writer.put(700).await;
        services.scale("input", count).await;
    }
    writer.put(700).await;
    let all = writer.count();
    let mut output = Tail::new(&services, "output").await;
    workers[0].until("all outputs", async |_| (output.count().await as u64 >= all).then_some(())).await;
    for worker in &mut workers {
        worker.stop().await;
    }
    assert_each_once(&Tail::all(&services, "output").await, 0..all);
    let shards = services.shards("input").await;
    let open = shards
        .iter()
        .filter(|shard| shard.sequence_number_range().is_some_and(|range| range.ending_sequence_number().is_none()));
    assert_eq!(open.count(), 3);
}

#[tokio::test]
async fn leases_of_shards_that_are_done_are_deleted_and_do_not_come_back() {
    let services = Services::with_streams(1, 1).await;
    let config = Config::copy().holding("keep-completed = \"1s\"");
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(200).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    services.split("input", "shardId-000000000000").await;
    writer.put(200).await;
    worker
        .until("the end of the parent's lease", async |_| {
            let rows = leases::rows(&services, config.lease_table()).await;
            (rows.len() == 2 && !rows.contains_key("shardId-000000000000")).then_some(())
        })
        .await;
    // For several syncs.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(worker.logged("INFO", "lease deleted").len(), 1);
    assert_eq!(worker.metric("shardmill_lease_cleared_total", "reason=\"complete\"").await as usize, 1);
    worker.stop().await;
    assert_eq!(leases::rows(&services, config.lease_table()).await.len(), 2);
    let mut again = Worker::start_ready(&services, &config).await;
    again.until("both leases", async |worker| (held(worker).await == 2).then_some(())).await;
    again.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..400);
}
