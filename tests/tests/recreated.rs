//! Streams that are deleted, and created again.

use std::collections::BTreeSet;
use std::time::Duration;

use shardmill_tests::{Config, Leases, Services, Tail, Worker, Writer, leases};

const FIRST: &str = "shardId-000000000000";
/// Creation times are told apart by the second in lease keys.
const NEXT_SECOND: Duration = Duration::from_millis(1_100);
const LIMIT: Duration = Duration::from_secs(60);

/// What came out since, without repeats.
async fn outputs_after(services: &Services, known: usize) -> (usize, BTreeSet<u64>) {
    let output = Tail::all(services, "output").await;
    (output.len(), output[known..].iter().map(|record| record.number).collect())
}

#[tokio::test]
async fn a_worker_that_starts_on_a_stream_that_was_created_again_starts_anew() {
    let services = Services::with_streams(3, 1).await;
    let config = Config::copy();
    Writer::new(&services, "input", 40).put(300).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records_of("input", 300).await;
    worker.stop().await;

    services.delete_stream("input").await;
    tokio::time::sleep(NEXT_SECOND).await;
    services.create_stream("input", 1).await;
    Writer::new(&services, "input", 40).put(120).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records_of("input", 120).await;
    let told = worker.logged("WARN", "created again");
    let [told] = &told[..] else { panic!("said once: {told:?}") };
    assert_eq!(told["leases"], 3, "{told}");
    assert!(told["created_at"].as_u64() < told["created_again_at"].as_u64(), "{told}");
    worker.stop().await;
    let rows = leases::rows(&services, config.lease_table()).await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), [FIRST], "the old stream's leases are gone");
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);
    assert_eq!(outputs_after(&services, 300).await, (420, (0..120).collect()));

    // And goes on where it was.
    let mut worker = Worker::start_ready(&services, &config).await;
    assert_eq!(worker.logged("WARN", "").len(), 0, "{}", worker.stderr());
    worker.stop().await;
    assert_eq!(outputs_after(&services, 300).await, (420, (0..120).collect()));
}

#[tokio::test]
async fn workers_that_run_while_their_stream_is_deleted_wait_for_it_and_start_anew() {
    let services = Services::with_streams(4, 1).await;
    let config = Config::copy().leases(Leases::Seconds(4));
    Writer::new(&services, "input", 40).put(200).await;
    let mut workers = [Worker::start_ready(&services, &config).await, Worker::start_ready(&services, &config).await];
    // The one has the leases, and the other nothing to read.
    workers[0].until_records_of("input", 200).await;
    services.delete_stream("input").await;
    for worker in &mut workers {
        let reason = worker
            .until_within(LIMIT, "the stream to be missed", async |worker| {
                let (status, text) = worker.get("/readyz").await;
                (status == 503 && text.contains("stream input: it was deleted")).then_some(text)
            })
            .await;
        assert!(reason.contains("processor copy"), "{reason}");
    }
    for worker in &mut workers {
        worker
            .until_within(LIMIT, "the end of the leases", async |worker| {
                let held = worker.metric("shardmill_shards", "").await;
                (held == 0.0 && leases::rows(&services, config.lease_table()).await.is_empty()).then_some(())
            })
            .await;
    }
    let removed: u64 = workers
        .iter()
        .flat_map(|worker| worker.logged("WARN", "its leases are removed"))
        .map(|line| line["leases"].as_u64().expect("a number"))
        .sum();
    assert_eq!(removed, 4, "each lease was removed once");

    let before = Tail::all(&services, "output").await.len();
    services.create_stream("input", 2).await;
    Writer::new(&services, "input", 40).put(150).await;
    for worker in &mut workers {
        worker
            .until_within(LIMIT, "readiness", async |worker| (worker.get("/readyz").await.0 == 200).then_some(()))
            .await;
    }
    workers[0]
        .until_within(LIMIT, "the new stream's records", async |_| {
            let (_, found) = outputs_after(&services, before).await;
            (found == (0..150).collect()).then_some(())
        })
        .await;
    for worker in &mut workers {
        assert_eq!(worker.logged("ERROR", "").len(), 0, "{}", worker.stderr());
        worker.stop().await;
    }
    let rows = leases::rows(&services, config.lease_table()).await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);
    assert_eq!(outputs_after(&services, before).await.0, before + 150, "nothing is repeated");
}

#[tokio::test]
async fn of_many_streams_the_others_go_on_when_one_is_deleted() {
    let services = Services::with_streams(2, 1).await;
    services.create_stream("returns", 1).await;
    let config = Config::copy().streams(&["input", "returns"]).leases(Leases::Seconds(4));
    let mut returns = Writer::new(&services, "returns", 40);
    Writer::new(&services, "input", 40).put(100).await;
    returns.put(100).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records_of("input", 100).await;
    worker.until_records_of("returns", 100).await;
    services.delete_stream("input").await;
    worker
        .until_within(LIMIT, "the end of the leases", async |worker| {
            let gone = worker.get("/readyz").await.1.contains("stream input: it was deleted");
            (gone && leases::rows(&services, config.lease_table()).await.len() == 1).then_some(())
        })
        .await;
    returns.put(100).await;
    worker.until_records_of("returns", 200).await;

    services.create_stream("input", 2).await;
    Writer::new(&services, "input", 40).put(80).await;
    worker.until_records_of("input", 180).await;
    worker.until_within(LIMIT, "readiness", async |worker| (worker.get("/readyz").await.0 == 200).then_some(())).await;
    assert_eq!(worker.logged("ERROR", "").len(), 0, "{}", worker.stderr());
    worker.stop().await;
    let rows = leases::rows(&services, config.lease_table()).await;
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert_eq!(Tail::all(&services, "output").await.len(), 380, "nothing is lost, and nothing repeated");
}
