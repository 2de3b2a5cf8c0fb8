//! Shards that have work and make no progress are named, with the reason, in `/readyz`, the metrics and the log.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use shardmill_tests::{Config, Fault, Proxy, Rule, Service, Services, Worker, Writer, assert_says};

const FIRST: &str = "shardId-000000000000";
const AT_ONCE: usize = 4;

struct Case {
    name: &'static str,
    rule: Rule,
    /// Whether it is there before the shard is read for the first time.
    at_start: bool,
    label: &'static str,
    said: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let throttled = || Rule::new(Fault::Refused("ProvisionedThroughputExceededException"));
    let case = |name, rule, label, said| Case { name, rule, at_start: false, label, said };
    vec![
        case(
            "outputs are throttled",
            throttled().operation("PutRecords"),
            "outputs-pending",
            &["its outputs are not acknowledged"],
        ),
        case(
            "reads are throttled",
            throttled().operation("GetRecords"),
            "reads-throttled",
            &["reading it failed", "Rate exceeded"],
        ),
        case(
            "reads fail",
            Rule::new(Fault::Status(500)).operation("GetRecords"),
            "reads-unavailable",
            &["reading it failed", "GetRecords"],
        ),
        case(
            "reads hang",
            Rule::new(Fault::Hang).operation("GetRecords"),
            "read-unanswered",
            &["records are asked for, and there is no answer"],
        ),
        Case {
            name: "no iterator is given",
            rule: throttled().operation("GetShardIterator"),
            at_start: true,
            label: "no-iterator",
            said: &["no iterator can be taken", "Rate exceeded"],
        },
        case(
            "the lease table is throttled",
            throttled().service(Service::DynamoDb),
            "checkpoint-failing",
            &["its checkpoint cannot be written", "tests-copy"],
        ),
    ]
}

/// The line of `/readyz` about a shard that stands.
async fn until_named(name: &str, worker: &mut Worker, said: &[&str]) -> String {
    worker
        .until(name, async |worker| {
            worker.logged("INFO", "admin server").first()?;
            let (status, text) = worker.get("/readyz").await;
            let line = text.lines().find(|line| line.contains("makes no progress"))?;
            let is_meant = said.iter().all(|part| line.contains(part));
            (status == 503 && is_meant).then(|| line.to_owned())
        })
        .await
}

async fn is_named(case: Case) {
    let Case { name, rule, at_start, label, said } = case;
    let services = Services::with_streams(1, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let config = Config::copy().top("[watchdog]\nstall-after = \"2s\"").processor(r#"checkpoint-interval = "100ms""#);
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let mut worker;
    let count = if at_start { 0 } else { 100 };
    if at_start {
        proxy.inject(rule);
        worker = Worker::start(&link, &config);
    } else {
        worker = Worker::start_ready(&link, &config).await;
        worker.until("records", async |worker| (worker.records_done().await >= 100).then_some(())).await;
        proxy.inject(rule);
        writer.put(100).await;
    }
    let line = until_named(name, &mut worker, said).await;
    assert_says(name, &line, &["processor copy", &format!("shard {FIRST} of stream input"), "since 20"]);
    let labels = format!(r#"processor="copy",stream="input",shard="{FIRST}",reason="{label}""#);
    let seconds = worker.metric("shardmill_shard_stalled_seconds", &labels).await;
    assert!(seconds >= 2.0, "{name}: {seconds} s with {labels}");
    assert_eq!(worker.status().await["stalled"][FIRST]["reason"], label, "{name}");
    // Once, however long it lasts.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = worker.logged("WARN", "makes no progress");
    assert_eq!((told.len(), told[0]["shard"].as_str()), (1, Some(FIRST)), "{name}: {told:?}");
    assert_eq!(worker.logged("INFO", "does not stand still any more").len(), 0, "{name}");
    proxy.calm();
    let what = format!("the end of it: {name}");
    worker
        .until_within(Duration::from_secs(90), &what, async |worker| {
            let is_told = !worker.logged("INFO", "does not stand still any more").is_empty();
            (is_told && worker.get("/readyz").await.0 == 200).then_some(())
        })
        .await;
    worker.until("the rest", async |worker| (worker.records_done().await >= count + 100).then_some(())).await;
    assert_eq!(worker.metric("shardmill_shard_stalled_seconds", "").await, 0.0, "{name}");
    worker.stop().await;
}

#[tokio::test]
async fn whoever_makes_no_progress_is_named_with_the_reason_once_and_so_is_the_end() {
    stream::iter(cases()).for_each_concurrent(AT_ONCE, is_named).await;
}

#[tokio::test]
async fn a_guest_that_does_not_return_is_named_and_other_processors_are_not() {
    let services = Services::with_streams(1, 1).await;
    services.create_stream("asides", 1).await;
    let config = Config::copy().top("[watchdog]\nstall-after = \"1s\"").and_guest(
        "sleeper",
        "guest_rows",
        r#"limits = { batch-timeout = "5m" }"#,
        r#"do = "sleep""#,
    );
    Writer::new(&services, "input", 20).put(50).await;
    let mut worker = Worker::start(&services, &config);
    let line = until_named("a guest that sleeps", &mut worker, &["its guest is running"]).await;
    assert_says("the guest", &line, &["processor sleeper", FIRST]);
    worker
        .until("the other", async |worker| {
            (worker.metric("shardmill_records_done_total", r#"processor="copy""#).await >= 50.0).then_some(())
        })
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (_, text) = worker.get("/readyz").await;
    assert!(!text.contains("processor copy"), "{text}");
}

#[tokio::test]
async fn a_lag_grows_while_reads_fail_and_falls_when_they_succeed() {
    let services = Services::with_streams(1, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(50).await;
    let mut worker = Worker::start_ready(&link, &Config::copy()).await;
    worker.until("records", async |worker| (worker.records_done().await >= 50).then_some(())).await;
    let lag = async |worker: &Worker| worker.metric("shardmill_stream_millis_behind_latest", FIRST).await;
    worker.until("the tip", async |worker| (lag(worker).await == 0.0).then_some(())).await;
    assert!(worker.metric("shardmill_shard_retention_used_ratio", FIRST).await < 0.01);
    let rule =
        proxy.inject(Rule::new(Fault::Refused("ProvisionedThroughputExceededException")).operation("GetRecords"));
    worker.until("a lag of 8 s", async |worker| (lag(worker).await >= 8_000.0).then_some(())).await;
    assert!(worker.metric("shardmill_stream_throttles_total", "").await >= 3.0, "each throttle is seen");
    let shown = worker.status().await["shards"][FIRST]["millis_behind_latest"].as_u64().expect("a lag");
    assert!(shown >= 8_000, "{shown}");
    rule.end();
    worker.until("the tip again", async |worker| (lag(worker).await == 0.0).then_some(())).await;
    worker.stop().await;
}
