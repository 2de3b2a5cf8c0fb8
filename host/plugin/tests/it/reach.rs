//! What a guest reaches beyond its own memory, and what becomes of what it is told there.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use shardmill_plugin::module::Error;
use shardmill_plugin::{
    Failure, Grants, HttpGrant, Instance, InvalidOutcome, Limits, Metrics, Need, Outcome, OutcomeLimits, Plugin,
    ProcessError, Runtime, RuntimeOptions, Secret, Settings, Timeout,
};
use shardmill_record::{Batch, BatchBuilder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Log, World, named_guest, record, shard};

const LIMIT: Duration = Duration::from_secs(30);
const SECRET: &str = "tr0ub4dor \"&3\"\nsecond line";

/// One record for each task.
fn tasks(tasks: &[Value]) -> Batch {
    let mut builder = BatchBuilder::default();
    for (place, task) in tasks.iter().enumerate() {
        let number = format!("4959033827149025660855969253836157109592157598913658{:04}", place + 1);
        builder.push(record(&number, None, task.to_string().as_bytes()));
    }
    builder.build()
}

fn everything() -> Grants {
    Grants { clocks: true, random: true, metrics: true, http: Some(HttpGrant::new(Vec::new())), ..Grants::default() }
}

fn reaching(port: u16) -> HttpGrant {
    let mut grant = HttpGrant::new(vec![format!("http://127.0.0.1:{port}").parse().unwrap()]);
    grant.allow_private = vec!["127.0.0.1/32".parse().unwrap()];
    grant.timeout = LIMIT;
    grant
}

fn on_threads(threads: usize) -> World {
    let threads = NonZeroUsize::new(threads);
    World::with(RuntimeOptions {
        cache_dir: World::cache_dir(),
        max_instances: 8,
        threads,
        ..RuntimeOptions::default()
    })
}

async fn plugin(world: &World, grants: Grants) -> Result<Plugin, Error> {
    let module = world.runtime.load("guest_reach", named_guest("guest_reach")).await.unwrap();
    let (limits, config) = (world.limits.clone(), json!({}));
    Plugin::new(&world.runtime, module, Settings { processor: "flights".into(), config, limits, grants })
}

async fn instance(world: &World, grants: Grants) -> Instance {
    plugin(world, grants).await.unwrap().instance().await.unwrap()
}

async fn outputs(instance: &mut Instance, told: &[Value]) -> Vec<Value> {
    let outcome = instance.process_batch(&shard(), &tasks(told)).await.unwrap();
    outcome.outputs.iter().map(|output| serde_json::from_slice(&output.record.data).unwrap()).collect()
}

/// Answers every request with its first line, from its second connection on if `hangs`. Returns the port, and how many
/// connections are open.
async fn server(hangs: bool) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&open);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let open = Arc::clone(&shared);
            open.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                if !hangs {
                    let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{line}", line.len());
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                while stream.read_buf(&mut head).await.is_ok_and(|bytes| bytes > 0) {}
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    (port, open)
}

async fn until(what: &str, open: &AtomicUsize, expected: usize) {
    let reached = async {
        while open.load(Ordering::Relaxed) != expected {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LIMIT, reached).await.unwrap_or_else(|_| panic!("{what}: {open:?} are open"));
}

// === what is granted ===

#[tokio::test]
async fn a_guest_that_imports_what_it_is_not_granted_is_refused_with_the_lines_to_add() {
    let world = World::new();
    let module = world.runtime.load("guest_reach", named_guest("guest_reach")).await.unwrap();
    assert_eq!(module.needs(), Need::ALL.into());
    let error = plugin(&world, Grants::default()).await.unwrap_err().to_string();
    for need in Need::ALL {
        assert!(
            error.contains(&format!("(add `{}` to [processors.flights.grants])", need.line())),
            "{need:?}: {error}"
        );
        let mut grants = everything();
        match need {
            Need::Clocks => grants.clocks = false,
            Need::Random => grants.random = false,
            Need::Metrics => grants.metrics = false,
            Need::Http => grants.http = None,
        }
        let error = plugin(&world, grants).await.unwrap_err();
        let Error::NotGranted { imports, .. } = &error else { panic!("{error}") };
        assert!(imports.0.iter().all(|import| import.contains(need.line())), "{error}");
    }
    plugin(&world, everything()).await.unwrap();
}

#[tokio::test]
async fn the_environment_is_what_is_granted_and_nothing_of_the_hosts() {
    let world = World::new();
    let mut bare = instance(&world, everything()).await;
    let told = outputs(&mut bare, &[json!({ "do": "environment" })]).await;
    assert_eq!(told, [json!({ "environment": {}, "arguments": 0 })]);
    let grants = Grants {
        environment: BTreeMap::from([("REGION".to_owned(), "north é".to_owned())]),
        secrets: BTreeMap::from([("TOKEN".to_owned(), Secret::new(SECRET))]),
        ..everything()
    };
    let mut granted = instance(&world, grants).await;
    let told = outputs(&mut granted, &[json!({ "do": "environment" }), json!({ "do": "random" })]).await;
    assert_eq!(told[0]["environment"], json!({ "REGION": "north é", "TOKEN": SECRET }));
    assert!(told[1]["random"].is_u64(), "{told:?}");
}

// === what waits ===

#[tokio::test]
async fn timers_and_sockets_work_on_the_threads_of_guests_and_where_there_are_none() {
    let (port, open) = server(false).await;
    for world in [on_threads(2), World::new()] {
        let grants = Grants { http: Some(reaching(port)), ..everything() };
        let mut instance = instance(&world, grants).await;
        let url = format!("http://127.0.0.1:{port}/a?b");
        let fetch = json!({ "do": "fetch", "url": url, "times": 8, "authorization": "Bearer x" });
        let told = outputs(&mut instance, &[json!({ "do": "sleep", "ms": 20 }), fetch.clone(), fetch]).await;
        assert_eq!(told[0], json!({ "slept": 20 }));
        let answer = json!({ "status": 200, "location": null, "bytes": "GET /a?b HTTP/1.1".len() });
        for told in &told[1..] {
            assert_eq!(told["answers"], Value::from(vec![answer.clone(); 8]));
        }
        assert_eq!(world.metrics.http_requests("flights", "answered"), 16);
        until("after all answers", &open, 0).await;
    }
}

#[tokio::test]
async fn a_call_that_waits_for_an_answer_is_ended_with_its_requests() {
    let (port, open) = server(true).await;
    for mut world in [on_threads(2), World::new()] {
        world.limits.batch_timeout = Duration::from_millis(300);
        let grants = Grants { http: Some(reaching(port)), ..everything() };
        let fetch = [json!({ "do": "fetch", "url": format!("http://127.0.0.1:{port}/"), "times": 3 })];
        let mut late = instance(&world, grants.clone()).await;
        let failure = late.process_batch(&shard(), &tasks(&fetch)).await.unwrap_err();
        assert_eq!(failure, Failure::Timeout(Timeout::Wall(Duration::from_millis(300))));
        assert!(!late.is_usable());
        until("after a timeout", &open, 0).await;
        world.limits.batch_timeout = LIMIT;
        let mut dropped = instance(&world, grants).await;
        let (context, batch) = (shard(), tasks(&fetch));
        let call = dropped.process_batch(&context, &batch);
        tokio::select! {
            result = call => panic!("{result:?}"),
            () = until("in a call", &open, 3) => {}
        }
        assert!(!dropped.is_usable());
        until("after a call that was dropped", &open, 0).await;
        let counted = async {
            while world.metrics.http_requests("flights", "dropped") < 6 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(LIMIT, counted).await.expect("each is counted");
    }
}

#[tokio::test]
async fn instances_of_a_processor_take_turns_together() {
    let (port, open) = server(true).await;
    let world = on_threads(2);
    let http = HttpGrant { concurrency: 1, ..reaching(port) };
    let plugin = plugin(&world, Grants { http: Some(http), ..everything() }).await.unwrap();
    let (mut first, mut second) = (plugin.instance().await.unwrap(), plugin.instance().await.unwrap());
    let fetch = tasks(&[json!({ "do": "fetch", "url": format!("http://127.0.0.1:{port}/") })]);
    let context = shard();
    let others = async {
        until("the first one's request", &open, 1).await;
        let waits = second.process_batch(&context, &fetch);
        assert!(tokio::time::timeout(Duration::from_millis(200), waits).await.is_err());
        assert_eq!(open.load(Ordering::Relaxed), 1);
    };
    tokio::select! {
        ended = first.process_batch(&context, &fetch) => panic!("{ended:?}"),
        () = others => {}
    }
    until("after both calls", &open, 0).await;
}

#[tokio::test]
async fn a_refused_request_is_told_to_the_guest_and_once_to_the_operator() {
    let (log, _guard) = Log::capture();
    let (port, open) = server(false).await;
    let world = World::new();
    let secrets = BTreeMap::from([("TOKEN".to_owned(), Secret::new("tr0ub4dor"))]);
    let grants = Grants { http: Some(reaching(port)), secrets, ..everything() };
    let mut instance = instance(&world, grants).await;
    let fetch = |url: &str| json!({ "do": "fetch", "url": url, "times": 3 });
    let told = outputs(
        &mut instance,
        &[
            fetch("https://api.example.com/v1"),
            fetch("http://127.0.0.1:1/"),
            fetch("https://$TOKEN.example.com/"),
            json!({ "do": "fetch", "url": format!("http://127.0.0.1:{port}/"), "method": "CONNECT" }),
        ],
    )
    .await;
    for answers in &told {
        for answer in answers["answers"].as_array().unwrap() {
            assert_eq!(answer["error"], "ErrorCode::HttpRequestDenied", "{told:?}");
        }
    }
    let lines = log.all_lines();
    let refusals: Vec<&String> = lines.iter().filter(|line| line.contains("HTTP request is refused")).collect();
    assert_eq!(refusals.len(), 4, "{lines:?}");
    for (refusal, said) in refusals.iter().zip([
        r#"add "api.example.com" to `http.hosts` in [processors.flights.grants]"#,
        r#"add "http://127.0.0.1:1" to `http.hosts`"#,
        r#"add "***.example.com" to `http.hosts`"#,
        "tunnels",
    ]) {
        assert!(refusal.contains(said) && refusal.contains(r#"processor="flights""#), "{refusal}");
    }
    assert_eq!((world.metrics.http_requests("flights", "refused"), open.load(Ordering::Relaxed)), (10, 0));
}

#[tokio::test]
async fn a_text_that_the_host_would_keep_is_refused_if_it_is_long() {
    // A guest does not say what nobody would read.
    let (_log, _guard) = Log::capture();
    let (port, _open) = server(false).await;
    let world = World::new();
    let grants = Grants { http: Some(reaching(port)), ..everything() };
    let mut instance = instance(&world, grants).await;
    let here = format!("http://127.0.0.1:{port}");
    let x = |count: usize| "x".repeat(count);
    // Each as long as it may be, and by a byte longer.
    let texts = [64, 65].map(|most| json!({ "do": "fetch", "url": here, "method": x(most) }));
    let texts = texts.into_iter().chain([300, 301].map(|most| {
        let authority = format!("{}:{port}", x(most - 1 - port.to_string().len()));
        json!({ "do": "fetch", "url": format!("http://{authority}/") })
    }));
    let texts =
        texts.chain([16_384, 16_385].map(|most| json!({ "do": "fetch", "url": format!("{here}/{}", x(most - 1)) })));
    let texts: Vec<Value> = texts.collect();
    let told = outputs(&mut instance, &texts).await;
    for pair in told.chunks(2) {
        let said: Vec<&Value> = pair.iter().map(|told| &told["answers"][0]["error"]).collect();
        assert_ne!(said[0], "the request is malformed", "{said:?}");
        assert_eq!(said[1], "the request is malformed", "{said:?}");
    }
}

// === secrets ===

/// No line of a secret, in whatever form, is in a text.
fn assert_hidden(what: &str, text: &str) {
    assert!(!text.contains("tr0ub4dor") && !text.contains("second line"), "{what}: {text}");
    assert!(text.contains("***"), "{what}: {text}");
}

fn with_secret() -> Grants {
    let secrets = BTreeMap::from([("TOKEN".to_owned(), Secret::new(SECRET))]);
    Grants { secrets, ..everything() }
}

#[tokio::test]
async fn a_secret_that_a_guest_says_is_not_in_the_log() {
    let (log, _guard) = Log::capture();
    let mut world = World::new();
    world.limits.log_line_bytes = 100;
    let mut instance = instance(&world, with_secret()).await;
    let say = |text: &str| json!({ "do": "say", "text": text });
    // The others end within the secret, where a line is cut.
    let told =
        [say("it is $TOKEN!"), say(&format!("{}$TOKEN", "x".repeat(80))), say(&format!("{}$TOKEN", "é".repeat(46)))];
    outputs(&mut instance, &told).await;
    let lines = log.lines();
    assert!(lines.len() >= 8, "{lines:?}");
    assert_hidden("the log", &lines.concat());
    assert!(!lines.concat().contains("tr0"), "{lines:?}");
    for said in ["said: it is ***!", "printed: it is ***", "warned: it is ***"] {
        assert!(lines.iter().any(|line| line.contains(said)), "{said} is not in {lines:?}");
    }
    assert!(!format!("{:?}", with_secret()).contains("tr0ub4dor"));
}

#[tokio::test]
async fn a_secret_is_in_no_failure_and_no_reason() {
    // A guest does not say what nobody would read.
    let (_log, _guard) = Log::capture();
    let world = World::new();
    let said = |what: &str| json!({ "do": what, "text": "it was $TOKEN" });
    let mut instance = instance(&world, with_secret()).await;
    let outcome = instance.process_batch(&shard(), &tasks(&[said("fail"), said("skip")])).await.unwrap();
    assert_hidden("failed", &outcome.failed[0].reason);
    assert_hidden("skipped", &outcome.skipped[0].reason);
    let failure = instance.process_batch(&shard(), &tasks(&[said("reject")])).await.unwrap_err();
    assert!(matches!(failure, Failure::Guest(ProcessError::Reject { .. })), "{failure:?}");
    assert_hidden("rejected", &failure.to_string());
    // It stands where a reason is cut.
    let cut = |what: &str| json!({ "do": what, "text": format!("{}$TOKEN", "-".repeat(1990)) });
    let outcome = instance.process_batch(&shard(), &tasks(&[cut("fail"), cut("skip")])).await.unwrap();
    for reason in [&outcome.failed[0].reason, &outcome.skipped[0].reason] {
        assert!(reason.ends_with("***"), "{reason}");
    }
    let failure = instance.process_batch(&shard(), &tasks(&[cut("reject")])).await.unwrap_err().to_string();
    assert!(failure.ends_with("-***"), "{failure}");
    let emit = [json!({ "do": "emit", "output": "to-$TOKEN" })];
    let outcome: Outcome = instance.process_batch(&shard(), &tasks(&emit)).await.unwrap();
    // What is carried out is as the guest wrote it.
    assert_eq!(&*outcome.outputs[0].name, format!("to-{SECRET}"));
    let invalid = outcome.settle(1, &|name| name == "out", &OutcomeLimits::default()).unwrap_err();
    assert!(matches!(invalid, InvalidOutcome::UnknownOutput { .. }));
    assert_hidden("an output's name", &invalid.to_string());
    let Failure::Trap(trap) = instance.process_batch(&shard(), &tasks(&[said("panic")])).await.unwrap_err() else {
        panic!("no trap")
    };
    assert_hidden("a crash", &trap.to_string());
    let module = world.runtime.load("guest_reach", named_guest("guest_reach")).await.unwrap();
    for words in ["not with $TOKEN".to_owned(), format!("{}$TOKEN", "-".repeat(1990))] {
        let settings = Settings {
            processor: "flights".into(),
            config: json!({ "refuses": words }),
            limits: Limits::default(),
            grants: with_secret(),
        };
        let plugin = Plugin::new(&world.runtime, module.clone(), settings).unwrap();
        let refused = plugin.instance().await.err().unwrap().to_string();
        assert_hidden("init", &refused);
        assert!(!refused.contains("tr0"), "{refused}");
    }
}

#[tokio::test]
async fn a_secret_is_no_label() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let options = RuntimeOptions { cache_dir: World::cache_dir(), max_instances: 2, ..RuntimeOptions::default() };
    let world = World { runtime: Runtime::new(options, metrics.clone()).unwrap(), metrics, ..World::new() };
    let mut instance = instance(&world, with_secret()).await;
    outputs(&mut instance, &[json!({ "do": "measure", "label": "of $TOKEN" })]).await;
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.contains(r#"shardmill_guest_told_total{processor="flights",label="of ***"} 1"#), "{text}");
    assert_hidden("the metrics", &text);
}

#[tokio::test]
async fn a_metric_whose_name_holds_a_secret_is_dropped_and_told_of_once() {
    let (log, _guard) = Log::capture();
    let world = World::new();
    // As in the name of the metric, which is no secret to anybody.
    let secrets = BTreeMap::from([("TOKEN".to_owned(), Secret::new("told"))]);
    let grants = Grants { secrets, ..everything() };
    let plugin = plugin(&world, grants).await.unwrap();
    let measure = json!({ "do": "measure", "label": "x" });
    for _ in 0..2 {
        let mut instance = plugin.instance().await.unwrap();
        outputs(&mut instance, &[measure.clone(), measure.clone()]).await;
    }
    let lines = log.all_lines();
    let told: Vec<&String> = lines.iter().filter(|line| line.contains("metric of the guest is dropped")).collect();
    assert_eq!(told.len(), 1, "{lines:?}");
    assert!(told[0].contains(r#"processor="flights""#), "{told:?}");
}
