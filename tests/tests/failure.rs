//! Records that cannot be processed, and guests that go wrong.

use std::time::Duration;

use shardmill_tests::{Config, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, leases};
use tokio::time::Instant;

const POISONED: &str = "shardId-000000000001";

/// The sentences of `/readyz`, once there is one.
async fn unready(worker: &mut Worker) -> Vec<String> {
    worker
        .until("a stopped shard", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            let (status, text) = worker.get("/readyz").await;
            (status == 503 && text.contains("is stopped")).then(|| text.lines().map(str::to_owned).collect())
        })
        .await
}

/// Puts records, a poison one in the middle of one shard's, and runs `config` until that shard is stopped, then `mended`
/// until everything is processed. How often the record was tried, and why it was not processed.
async fn poison_stops_one_shard(config: &Config, mended: &Config, attempts: f64, kind: &str, reason: &str) {
    let services = Services::with_streams(4, 2).await;
    let mut writer = Writer::new(&services, "input", 100);
    writer.put(1_500).await;
    writer.put_data(&writer.key_of(POISONED).await, b"poison").await;
    writer.put(1_500).await;
    let mut worker = Worker::start(&services, config);
    let sentences = unready(&mut worker).await;
    let [sentence] = &sentences[..] else { panic!("one sentence: {sentences:?}") };
    for word in ["copy", POISONED, reason] {
        assert!(sentence.contains(word), "{word:?} in {sentence:?}");
    }

    // The other shards go on, also with what comes later.
    writer.put(1_000).await;
    let mut output = Tail::new(&services, "output").await;
    let poisoned = writer.keys_of(POISONED).await;
    let others = (0..writer.count()).filter(|number| !poisoned.contains(&writer.key_of_number(*number))).count();
    worker
        .until("the other shards", async |_| {
            output.poll().await;
            let done = output.found().iter().filter(|record| !poisoned.contains(&record.key)).count();
            (done == others).then_some(())
        })
        .await;
    assert_eq!(worker.metric("shardmill_shards_stopped", r#"processor="copy""#).await, 1.0);
    assert_eq!(worker.metric("shardmill_attempts_failed_total", &format!("kind=\"{kind}\"")).await, attempts);
    let errors = worker.logged("ERROR", "");
    let [error] = &errors[..] else { panic!("one line at level ERROR: {errors:?}") };
    assert_eq!(
        (&error["processor"], &error["stream"], &error["shard"]),
        (&"copy".into(), &"input".into(), &POISONED.into())
    );
    assert!(error["reason"].as_str().is_some_and(|text| text.contains(reason)), "{error}");
    let (_, status) = worker.get("/status").await;
    assert!(status.contains("stopped"), "{status}");
    worker.stop().await;

    // What stands before the poison record is done and checkpointed, and only that.
    let rows = leases::rows(&services, config.lease_table()).await;
    let stopped_at = rows[POISONED].checkpoint.position().expect("a checkpoint before the poison record").clone();
    let done = Tail::all(&services, "output").await;
    let done_of_shard = done.iter().filter(|record| poisoned.contains(&record.key));
    let last_done = done_of_shard.map(|record| record.number).max().expect("records before the poison one");
    assert!(last_done < 1_500, "{last_done} stands behind the poison record");
    assert!(rows.values().all(|row| row.owner.is_none()), "{rows:?}");

    let mut worker = Worker::start_ready(&services, mended).await;
    worker.until("everything", async |_| (output.count().await as u64 >= writer.count()).then_some(())).await;
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..writer.count());
    assert_order_of_keys(&output);
    let rows = leases::rows(&services, config.lease_table()).await;
    assert!(*rows[POISONED].checkpoint.position().expect("a checkpoint") > stopped_at, "it went on");
}

#[tokio::test]
async fn a_record_that_fails_for_good_stops_its_shard_and_no_other() {
    let config = Config::copy();
    let mended = Config::copy().guest(r#"invalid-json = "skip""#);
    poison_stops_one_shard(&config, &mended, 1.0, "record", "invalid JSON").await;
}

#[tokio::test]
async fn a_record_that_fails_again_and_again_stops_its_shard_after_the_last_attempt() {
    // There is no such output: the host refuses what the guest returns.
    let config = Config::copy()
        .guest(r#"invalid-json = "nowhere""#)
        .processor("batch = { records = 50 }")
        .processor(r#"retry = { attempts = 3, backoff = "20ms" }"#);
    let mended = Config::copy().guest(r#"invalid-json = "skip""#);
    poison_stops_one_shard(&config, &mended, 3.0, "invalid-outcome", "nowhere").await;
}

/// What a guest does, how long one call of it may take, how the metrics call it, and what is said about it.
const MISBEHAVIOUR: [(&str, &str, &str, &str); 6] = [
    ("panic", "20s", "trap", "record 0 is not what I thought"),
    ("spin", "300ms", "timeout", "300ms"),
    ("sleep", "300ms", "timeout", "300ms"),
    ("memory", "20s", "memory", "memory"),
    ("recurse", "20s", "trap", "stack"),
    ("exit", "20s", "trap", "exit"),
];

#[tokio::test]
async fn guests_that_go_wrong_are_contained_and_other_processors_do_not_notice() {
    const RECORDS: u64 = 2_000;
    let services = Services::with_streams(1, 1).await;
    services.create_stream("asides", 1).await;
    let mut writer = Writer::new(&services, "input", 50);
    writer.put(RECORDS).await;
    let settings = |timeout: &str| {
        format!(
            "retry = {{ attempts = 2, backoff = \"10ms\" }}\nlimits = {{ batch-timeout = {timeout:?}, memory = \"32 MiB\" }}"
        )
    };
    let mut config = Config::copy();
    for (does, timeout, _, _) in MISBEHAVIOUR {
        config = config.and_guest(does, "guest_rows", &settings(timeout), &format!("do = {does:?}"));
    }
    config = config.and_guest("stop-shard", "guest_rows", &settings("20s"), r#"do = "stop-shard""#);
    config = config.and_guest("columns", "guest_columnar", &settings("20s"), r#"do = "panic""#);
    // Crashes when a batch is handed over for the first time, and rejects it the second time.
    config = config.and_guest("divide", "guest_rows", &settings("20s"), r#"do = "divide""#);
    let mut worker = Worker::start(&services, &config);
    worker
        .until("all stopped", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            (worker.metric("shardmill_shards_stopped", "").await as usize == MISBEHAVIOUR.len() + 3).then_some(())
        })
        .await;
    let (status, text) = worker.get("/readyz").await;
    assert_eq!(status, 503);
    let others = [("stop-shard", "stop-shard", "look at this"), ("columns", "trap", "columns went wrong")];
    let told = MISBEHAVIOUR.iter().map(|(processor, _, kind, reason)| (*processor, *kind, *reason));
    for (processor, kind, reason) in told.chain(others) {
        let prefix = format!("processor {processor}:");
        let sentence =
            text.lines().find(|line| line.starts_with(&prefix)).unwrap_or_else(|| panic!("{prefix} in {text}"));
        assert!(sentence.contains("shardId-000000000000") && sentence.contains(reason), "{reason:?} in {sentence:?}");
        let labels = format!("processor=\"{processor}\",kind=\"{kind}\"");
        let attempts = if processor == "stop-shard" { 1.0 } else { 2.0 };
        assert_eq!(worker.metric("shardmill_attempts_failed_total", &labels).await, attempts, "{labels}");
        let rows = leases::rows(&services, &format!("tests-{processor}")).await;
        assert!(rows.values().all(|row| row.checkpoint.is_start() && row.owner.is_some()), "{processor}: {rows:?}");
    }
    assert!(!text.contains("processor copy"), "{text}");
    for kind in ["trap", "reject"] {
        let labels = format!("processor=\"divide\",kind=\"{kind}\"");
        assert_eq!(worker.metric("shardmill_attempts_failed_total", &labels).await, 1.0, "{labels}");
    }
    writer.put(500).await;
    let mut output = Tail::new(&services, "output").await;
    worker.until("all outputs", async |_| (output.count().await as u64 >= writer.count()).then_some(())).await;
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..writer.count());
}

#[tokio::test]
async fn a_guest_that_spins_holds_up_neither_others_nor_a_stop() {
    let services = Services::with_streams(2, 1).await;
    services.create_stream("asides", 1).await;
    let mut writer = Writer::new(&services, "input", 50);
    writer.put(1_000).await;
    let config = Config::copy().top(r#"shutdown-timeout = "1s""#).and_guest(
        "spin",
        "guest_rows",
        r#"limits = { batch-timeout = "5m" }"#,
        r#"do = "spin""#,
    );
    let mut worker = Worker::start_ready(&services, &config).await;
    let mut output = Tail::new(&services, "output").await;
    worker.until("all outputs", async |_| (output.count().await >= 1_000).then_some(())).await;
    let asked = Instant::now();
    assert_eq!(worker.get("/healthz").await, (200, "ok\n".to_owned()));
    assert!(asked.elapsed() < Duration::from_secs(2), "/healthz took {:?}", asked.elapsed());
    let asked = Instant::now();
    let status = worker.terminate().await;
    assert!(asked.elapsed() < Duration::from_secs(8), "the stop took {:?}", asked.elapsed());
    assert_eq!(status.code(), Some(0));
    let rows = leases::rows(&services, "tests-spin").await;
    assert!(rows.values().all(|row| row.checkpoint.is_start()), "nothing of it was done: {rows:?}");
    assert_each_once(&Tail::all(&services, "output").await, 0..1_000);
}
