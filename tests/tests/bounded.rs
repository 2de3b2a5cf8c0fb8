//! Runs that end by themselves.

use std::time::Duration;

use shardmill_tests::{
    Config, Leases, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, assert_says, leases,
    numbers,
};

const END_LIMIT: Duration = Duration::from_secs(90);
const FIRST: &str = "shardId-000000000000";

async fn runs(services: &Services, config: &Config, arguments: &[&str]) -> (Option<i32>, String) {
    let mut worker = Worker::start_arguments(services, &config.text(), arguments);
    let status = worker.wait(END_LIMIT).await;
    (status.code(), worker.stderr())
}

#[tokio::test]
async fn a_run_until_idle_ends_when_everything_is_done_checkpointed_and_released() {
    let services = Services::with_streams(2, 2).await;
    let config = Config::copy();
    let mut writer = Writer::new(&services, "input", 40).with_aggregates();
    writer.put(2_000).await;
    // What follows closed shards is part of it.
    services.split("input", FIRST).await;
    writer.put(1_000).await;
    let (code, log) = runs(&services, &config, &["--until-idle", "2s"]).await;
    assert_eq!(code, Some(0), "{log}");
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..3_000);
    assert_order_of_keys(&output);
    let rows = leases::rows(&services, config.lease_table()).await;
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);
    leases::assert_lineage(&rows, &services.shards("input").await, &[FIRST]);

    // Nothing is left, and so the next one ends too; with a time of its own.
    let (code, log) = runs(&services, &config, &["--until-idle"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert_says("why it ends", &log, &["everything is done and nothing comes", "5s"]);
    assert_eq!(Tail::all(&services, "output").await.len(), 3_000);
}

#[tokio::test]
async fn a_run_until_idle_waits_for_outputs_that_are_on_their_way_and_for_what_comes_meanwhile() {
    let services = Services::with_streams(1, 1).await;
    let config = Config::copy();
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let mut worker = Worker::start_arguments(&services, &config.text(), &["--until-idle", "3s"]);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        writer.put(50).await;
    }
    assert!(worker.ended().is_none(), "records came in each of these seconds");
    assert_eq!(worker.wait(END_LIMIT).await.code(), Some(0));
    assert_each_once(&Tail::all(&services, "output").await, 0..350);
}

#[tokio::test]
async fn a_run_until_idle_does_not_wait_for_a_stopped_shard_and_fails() {
    let services = Services::with_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 40);
    writer.put(200).await;
    writer.put_data(&writer.key_of(FIRST).await, b"poison").await;
    writer.put(200).await;
    let (code, log) = runs(&services, &Config::copy(), &["--until-idle", "1s"]).await;
    assert_eq!(code, Some(70), "{log}");
    assert_says("what is stopped", &log, &[&format!("shard {FIRST} of stream input is stopped"), "invalid JSON"]);
    let stopped = writer.keys_of(FIRST).await;
    let others = (0..400).filter(|number| !stopped.contains(&writer.key_of_number(*number))).count();
    let output = Tail::all(&services, "output").await;
    assert_eq!(output.iter().filter(|found| !stopped.contains(&found.key)).count(), others);
    let rows = leases::rows(&services, Config::copy().lease_table()).await;
    assert!(rows.values().all(|row| row.owner.is_none()), "{rows:?}");
}

#[tokio::test]
async fn a_run_of_so_many_records_processes_exactly_these_also_over_shards_and_inside_aggregates() {
    let services = Services::with_streams(4, 1).await;
    let config = Config::copy();
    let mut writer = Writer::new(&services, "input", 40).with_large_aggregates();
    writer.put(1_500).await;
    let mut done = 0;
    for count in [1_usize, 333, 700] {
        let (code, log) = runs(&services, &config, &["--max-records", &count.to_string()]).await;
        assert_eq!(code, Some(0), "{log}");
        done += count;
        let output = Tail::all(&services, "output").await;
        assert_eq!(output.len(), done, "after a run of {count}");
        assert_eq!(numbers(&output).len(), done, "none twice");
        let rows = leases::rows(&services, config.lease_table()).await;
        assert!(rows.values().all(|row| row.owner.is_none()), "{rows:?}");
    }
    // Fewer than are allowed: whichever bound comes first.
    let (code, log) = runs(&services, &config, &["--max-records", "100000", "--until-idle", "1s"]).await;
    assert_eq!(code, Some(0), "{log}");
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..1_500);
    assert_order_of_keys(&output);
}

#[tokio::test]
async fn several_processors_share_the_number_of_records() {
    let services = Services::with_streams(1, 1).await;
    services.create_stream("asides", 1).await;
    Writer::new(&services, "input", 20).put(400).await;
    let config = Config::copy().and_guest("echo", "guest_rows", "", "do = \"echo\"\nhooks = \"silent\"");
    let (code, log) = runs(&services, &config, &["--max-records", "250"]).await;
    assert_eq!(code, Some(0), "{log}");
    let together = Tail::all(&services, "output").await.len() + Tail::all(&services, "asides").await.len();
    assert_eq!(together, 250);
}

#[tokio::test]
async fn a_run_until_idle_takes_over_what_a_killed_run_has_left() {
    let services = Services::with_streams(2, 1).await;
    let config = Config::copy().leases(Leases::Seconds(8));
    let mut writer = Writer::new(&services, "input", 40);
    writer.put(200).await;
    let mut killed = Worker::start_ready(&services, &config).await;
    killed.until("some records", async |worker| (worker.records_done().await > 0).then_some(())).await;
    killed.kill().await;
    writer.put(200).await;
    // Its leases run out long after the time for which nothing is to come.
    let (code, log) = runs(&services, &config, &["--until-idle", "1s"]).await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(numbers(&Tail::all(&services, "output").await), (0..400).collect());
    let rows = leases::rows(&services, config.lease_table()).await;
    assert!(rows.values().all(|row| row.owner.is_none()), "{rows:?}");
}

#[tokio::test]
async fn a_run_until_idle_beside_a_worker_that_lives_leaves_it_its_shards() {
    let services = Services::with_streams(3, 1).await;
    let config = Config::copy();
    let mut writer = Writer::new(&services, "input", 40);
    writer.put(300).await;
    let mut living = Worker::start_ready(&services, &config).await;
    let (code, log) = runs(&services, &config, &["--until-idle", "1s"]).await;
    assert_eq!(code, Some(0), "{log}");
    writer.put(300).await;
    let mut output = Tail::new(&services, "output").await;
    living.until("everything", async |_| (output.count().await >= 600).then_some(())).await;
    living.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..600);
}

#[tokio::test]
async fn a_run_until_idle_does_not_wait_for_what_follows_a_stopped_shard() {
    let services = Services::with_streams(1, 1).await;
    let writer = Writer::new(&services, "input", 40);
    writer.put_data(&writer.key_of(FIRST).await, b"poison").await;
    services.split("input", FIRST).await;
    let (code, log) = runs(&services, &Config::copy(), &["--until-idle", "1s"]).await;
    assert_eq!(code, Some(70), "{log}");
    let rows = leases::rows(&services, Config::copy().lease_table()).await;
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows.values().all(|row| row.owner.is_none()), "{rows:?}");
}

#[tokio::test]
async fn a_run_until_idle_ends_when_its_stream_is_gone_and_fails() {
    let services = Services::with_streams(1, 1).await;
    Writer::new(&services, "input", 40).put(100).await;
    let mut worker = Worker::start_arguments(&services, &Config::copy().text(), &["--until-idle", "8s"]);
    worker.until_records_of("input", 100).await;
    services.delete_stream("input").await;
    let status = worker.wait(END_LIMIT).await;
    assert_eq!(status.code(), Some(70), "{}", worker.stderr());
    assert_says("why", &worker.stderr(), &["stream input", "was deleted"]);
}

#[tokio::test]
async fn a_time_that_is_too_short_to_mean_anything_is_refused() {
    let services = Services::with_streams(1, 1).await;
    let (code, log) = runs(&services, &Config::copy(), &["--until-idle", "0s"]).await;
    assert_eq!(code, Some(2), "{log}");
    assert_says("why", &log, &["--until-idle", "1s is the shortest"]);
}
