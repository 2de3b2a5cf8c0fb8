//! Two workers that were given one id: one of them says so and stops, and nothing is lost.

use std::time::Duration;

use shardmill_tests::{
    Config, Leases, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, assert_says, leases,
    numbers,
};

const WRONG_CONFIGURATION: Option<i32> = Some(78);
const SHARDS: usize = 4;
/// Three expiries of 4 s, and time for a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn config() -> Config {
    Config::copy().leases(Leases::Seconds(4)).top(r#"worker-id = "same""#)
}

/// Asserts that a worker has ended because of the other one, and what it told.
fn assert_told(worker: &Worker) {
    let errors = worker.logged("ERROR", "another process uses this worker's id");
    let [error] = &errors[..] else { panic!("told once: {errors:?}") };
    assert_eq!((&error["worker"], &error["application"]), (&"same".into(), &"tests-copy".into()), "{error}");
    let said =
        ["processor copy", "another process uses the worker id `same`", "give each worker a `worker-id` of its own"];
    assert_says("a twin", &worker.stderr(), &said);
}

#[tokio::test]
async fn a_second_worker_with_the_id_of_one_that_works_stops_and_the_first_goes_on() {
    let services = Services::with_streams(4, 2).await;
    let mut writer = Writer::new(&services, "input", 100).with_aggregates();
    let mut first = Worker::start_ready(&services, &config()).await;
    first
        .until("leases of all shards", async |worker| {
            (worker.metric("shardmill_shards", "").await as usize == SHARDS).then_some(())
        })
        .await;
    let before = leases::rows(&services, config().lease_table()).await;
    writer.put(1_000).await;
    let mut second = Worker::start(&services, &config());
    writer.put(1_000).await;
    let status = second.wait(LIMIT).await;
    assert_eq!(status.code(), WRONG_CONFIGURATION, "{}", second.stderr());
    assert_told(&second);

    writer.put(1_000).await;
    let mut output = Tail::new(&services, "output").await;
    let all = writer.count();
    first.until("all outputs", async |_| (output.count().await as u64 >= all).then_some(())).await;
    assert_eq!(first.get("/readyz").await.0, 200);
    let rows = leases::rows(&services, config().lease_table()).await;
    for (shard, row) in &rows {
        assert_eq!(row.epoch, before[shard].epoch, "{shard} has not changed hands");
    }
    first.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..all);
    assert_order_of_keys(&output);
    let input = Tail::all(&services, "input").await;
    leases::assert_released_at_the_end(&leases::rows(&services, config().lease_table()).await, &input);
}

#[tokio::test]
async fn of_two_that_start_together_one_goes_on_with_all_of_the_work() {
    let services = Services::with_streams(4, 2).await;
    let mut writer = Writer::new(&services, "input", 100).with_aggregates();
    let mut workers = vec![Worker::start(&services, &config()), Worker::start(&services, &config())];
    let mut gone = None;
    let deadline = tokio::time::Instant::now() + LIMIT;
    while gone.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "neither has stopped");
        writer.put(50).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        gone = workers.iter_mut().position(|worker| worker.ended().is_some());
    }
    let mut gone = workers.remove(gone.expect("one has ended"));
    assert_eq!(gone.ended().and_then(|status| status.code()), WRONG_CONFIGURATION, "{}", gone.stderr());
    assert_told(&gone);
    let mut stays = workers.remove(0);
    writer.put(500).await;
    let all = writer.count();
    let mut output = Tail::new(&services, "output").await;
    stays.until("all outputs", async |_| (output.count().await as u64 >= all).then_some(())).await;
    stays.until("readiness", async |worker| (worker.get("/readyz").await.0 == 200).then_some(())).await;
    stays.stop().await;
    // Leases went from one to the other by release: nothing is repeated.
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..all);
    assert_order_of_keys(&output);
}

#[tokio::test]
async fn a_promise_that_the_id_runs_once_when_broken_loses_nothing_and_ends_with_one_worker() {
    let services = Services::with_streams(4, 2).await;
    let config = || config().top("worker-runs-once = true");
    let mut writer = Writer::new(&services, "input", 100).with_aggregates();
    let mut first = Worker::start_ready(&services, &config()).await;
    first
        .until("leases of all shards", async |worker| {
            (worker.metric("shardmill_shards", "").await as usize == SHARDS).then_some(())
        })
        .await;
    writer.put(1_000).await;
    let mut second = Worker::start_ready(&services, &config()).await;
    writer.put(1_000).await;
    let status = first.wait(LIMIT).await;
    assert_eq!(status.code(), WRONG_CONFIGURATION, "{}", first.stderr());
    assert_told(&first);
    writer.put(1_000).await;
    let all = writer.count();
    let mut output = Tail::new(&services, "output").await;
    second
        .until("all outputs", async |_| {
            output.poll().await;
            (numbers(output.found()).len() as u64 == all).then_some(())
        })
        .await;
    // The first take, the one of the second worker, and on a busy machine one after an expiry: nothing went back and
    // forth, which would be many.
    for (shard, row) in leases::rows(&services, config().lease_table()).await {
        assert!(row.epoch <= 4 && row.owner.as_deref() == Some("same"), "{shard}: {row:?}");
    }
    second.stop().await;
    let input = Tail::all(&services, "input").await;
    leases::assert_released_at_the_end(&leases::rows(&services, config().lease_table()).await, &input);
}

#[tokio::test]
async fn workers_without_an_id_in_their_configuration_have_different_ones() {
    let services = Services::with_streams(4, 2).await;
    let config = Config::copy().leases(Leases::Seconds(4));
    let mut ids = Vec::new();
    let mut workers = Vec::new();
    for _ in 0..2 {
        let worker = Worker::start_ready(&services, &config).await;
        let loaded = worker.logged("INFO", "processor loaded");
        ids.push(loaded[0]["worker"].as_str().expect("a worker's id").to_owned());
        workers.push(worker);
    }
    assert_ne!(ids[0], ids[1]);
    // For longer than it takes to find another process with the id.
    tokio::time::sleep(Duration::from_secs(8)).await;
    for worker in &mut workers {
        assert_eq!(worker.logged("ERROR", "").len(), 0, "{}", worker.stderr());
        worker.stop().await;
    }
}
