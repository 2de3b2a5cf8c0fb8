//! Shards that have work and make no progress are named, with the reason, in `/readyz`, the metrics and the log.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use shardmill_tests::{Config, Fault, Leases, Proxy, Rule, Service, Services, Worker, Writer, assert_says};

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
        worker.until_records(100).await;
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
    worker.until_records(count + 100).await;
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
    worker.until_records(50).await;
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

#[tokio::test]
async fn a_lease_table_that_cannot_be_used_is_named_before_the_leases_run_out_and_after() {
    let services = Services::with_streams(1, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    // In the proportions of the defaults: a stall is one after six times the expiry.
    let config = Config::copy().leases(Leases::Seconds(8)).holding("write-timeout = \"1s\"");
    let mut writer = Writer::new(&services, "input", 20);
    writer.put(100).await;
    let mut worker = Worker::start_ready(&link, &config).await;
    worker.until_records(100).await;
    let throttled = Rule::new(Fault::Refused("ProvisionedThroughputExceededException")).service(Service::DynamoDb);
    proxy.inject(throttled);
    writer.put(100).await;
    let named = async |worker: &Worker| {
        let (code, text) = worker.get("/readyz").await;
        (code == 503 && text.contains("the lease table tests-copy cannot be used")).then_some(text)
    };
    let text = worker.until("the lease table's trouble", async |worker| named(worker).await).await;
    assert_says("the table", &text, &["processor copy", "shards are let go when their leases run out", "since 20"]);
    worker
        .until("the end of the lease", async |worker| {
            worker.status().await["shards"].as_object().is_some_and(serde_json::Map::is_empty).then_some(())
        })
        .await;
    assert!(named(&worker).await.is_some(), "nothing is read, and that is told");
    assert!(worker.metric("shardmill_lease_table_failing_seconds", r#"processor="copy""#).await >= 4.0);
    assert_eq!(worker.status().await["lease_table"]["reason"], "store-failing");
    proxy.calm();
    worker.until("readiness", async |worker| (worker.get("/readyz").await.0 == 200).then_some(())).await;
    worker.until_records(200).await;
    assert_eq!(worker.metric("shardmill_lease_table_failing_seconds", "").await, 0.0);
    worker.stop().await;
}

#[tokio::test]
async fn children_of_a_shard_that_stands_are_named_with_it() {
    let services = Services::with_streams(1, 1).await;
    let writer = Writer::new(&services, "input", 40);
    writer.put_data(&writer.key_of(FIRST).await, b"poison").await;
    services.split("input", FIRST).await;
    let config = Config::copy().top("[watchdog]\nstall-after = \"1s\"");
    let mut worker = Worker::start(&services, &config);
    let line = until_named("a child", &mut worker, &["its parent", FIRST]).await;
    assert_says("the child", &line, &["processor copy", "shardId-00000000000", "held by", "is not done"]);
    let children = async |worker: &Worker| {
        let stalled = worker.status().await["stalled"].take();
        stalled.as_object().into_iter().flatten().filter(|(_, stall)| stall["reason"] == "parent-pending").count()
    };
    worker.until("both", async |worker| (children(worker).await == 2).then_some(())).await;
    let labels = r#"reason="parent-pending""#;
    assert!(worker.metric("shardmill_shard_stalled_seconds", labels).await >= 2.0);
    assert_eq!(worker.logged("WARN", "its parent").len(), 2);
}

#[tokio::test]
async fn what_was_shown_of_a_processor_goes_when_it_is_stopped_and_others_go_on() {
    let services = Services::with_streams(2, 1).await;
    services.create_stream("asides", 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let throttled = Rule::new(Fault::Refused("ProvisionedThroughputExceededException")).operation("GetRecords");
    proxy.inject(throttled.shard("shardId-000000000001"));
    let writer = Writer::new(&services, "input", 40);
    let config = Config::copy()
        .top("[watchdog]\nstall-after = \"1s\"")
        .others("[processors.copy.failure]\nthen = \"stop-worker\"")
        .and_guest("echo", "guest_rows", "", "do = \"echo\"\nhooks = \"silent\"");
    let mut worker = Worker::start(&link, &config);
    let shown = async |worker: &Worker, processor: &str| {
        let (_, text) = worker.get("/metrics").await;
        let of = format!("processor=\"{processor}\"");
        ["shardmill_shard_retention_used_ratio{", "shardmill_shard_stalled_seconds{"]
            .map(|name| text.lines().filter(|line| line.starts_with(name) && line.contains(&of)).count())
    };
    until_named("reads that fail", &mut worker, &["reading it failed", "processor copy"]).await;
    worker.until("the other shard", async |worker| (shown(worker, "copy").await[0] == 2).then_some(())).await;
    let [used, stalled] = shown(&worker, "copy").await;
    assert!(used >= 1 && stalled >= 1, "{used}, {stalled}");
    writer.put_data(&writer.key_of(FIRST).await, b"poison").await;
    worker
        .until("the end of the processor", async |worker| {
            worker.logged("WARN", "the processor has stopped on this worker").first().map(|_| ())
        })
        .await;
    worker
        .until("the end of what was shown", async |worker| (shown(worker, "copy").await == [0, 0]).then_some(()))
        .await;
    assert_eq!(shown(&worker, "echo").await, [2, 1], "the other goes on");
    assert_eq!(worker.status().await["stalled"], serde_json::Value::Null);
}

#[tokio::test]
async fn a_lag_that_comes_near_the_retention_is_an_alarm_and_the_worker_stays_ready() {
    let services = Services::with_streams(1, 1).await;
    let proxy = Proxy::new(&services, 1);
    let link = proxy.link("worker");
    let mut worker = Worker::start_ready(&link, &Config::copy()).await;
    // 20 hours of the 24 for which a new stream keeps records.
    let late = Fault::Says("\"MillisBehindLatest\":0", "\"MillisBehindLatest\":72000000");
    proxy.inject(Rule::new(late).operation("GetRecords"));
    let alarms = async |worker: &Worker| worker.metric("shardmill_shard_lag_alarm", FIRST).await;
    worker.until("an alarm", async |worker| (alarms(worker).await == 1.0).then_some(())).await;
    let (code, text) = worker.get("/readyz").await;
    assert_eq!(code, 200, "{text}");
    let said = [FIRST, "20 h 0 min behind", "keeps records for 24 h", "lost in 4 h 0 min"];
    assert_says("/readyz", &text, &[&["ready", "processor copy: alarm"], &said[..]].concat());
    let status = worker.status().await;
    assert_says("/status", status["alarms"][FIRST].as_str().unwrap_or_default(), &said);
    assert_eq!(status["shards"][FIRST]["retention_used_percent"], 83, "{status}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let told = worker.logged("WARN", "behind, and its stream keeps records");
    assert_eq!((told.len(), told[0]["retention_hours"].as_u64()), (1, Some(24)), "{told:?}");
    proxy.calm();
    worker.until("its end", async |worker| (alarms(worker).await == 0.0).then_some(())).await;
    assert_eq!(worker.logged("INFO", "well within its stream's retention again").len(), 1);
    worker.until("readiness", async |worker| (worker.get("/readyz").await.1 == "ready\n").then_some(())).await;
    worker.stop().await;
}
