//! What the failure policy makes of records that cannot be processed, with the real binary: steps, ends, and what is said.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use shardmill_tests::{
    Config, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, assert_says, leases, numbers,
};

const POISONED: &str = "shardId-000000000001";
const STOPPED_BY_POLICY: Option<i32> = Some(70);
/// More than a writer's numbers.
const FIRST_POISON: u64 = 1_000_000;

fn poison(kind: &str, number: u64, key: &str) -> Vec<u8> {
    format!(r#"{{"poison":"{kind}","n":{number},"key":"{key}"}}"#).into_bytes()
}

/// Everything that the guest `poison` has logged, in order.
fn told(worker: &Worker) -> Vec<String> {
    let lines = worker.logged("INFO", "told: ").into_iter();
    lines.filter_map(|line| line["message"].as_str()?.strip_prefix("told: ").map(str::to_owned)).collect()
}

fn poisonous(failure: &str) -> Config {
    Config::copy().plugin("guest_poison").processor(&format!("failure = {{ {failure} }}"))
}

// === bisection and skips ===

#[tokio::test]
async fn a_record_that_spoils_its_batch_is_found_and_skipped_whatever_it_does() {
    // What a guest does with it, how the metrics call that, and why there is no further attempt.
    const KINDS: [(&str, &str, &str); 7] = [
        ("trap", "trap", "attempts"),
        ("hang", "timeout", "attempts"),
        ("retry", "retry", "attempts"),
        ("nowhere", "invalid-outcome", "attempts"),
        ("reject", "reject", "final"),
        ("fail", "record", "attempts"),
        ("final", "record", "final"),
    ];
    let services = Services::with_streams(2, 1).await;
    let mut writer = Writer::new(&services, "input", 100);
    let key = writer.key_of(POISONED).await;
    for (number, (kind, _, _)) in (FIRST_POISON..).zip(KINDS) {
        writer.put(300).await;
        writer.put_data(&key, &poison(kind, number, &key)).await;
    }
    writer.put(300).await;
    let config = poisonous(r#"then = "skip""#)
        .processor(r#"retry = { attempts = 2, backoff = "10ms" }"#)
        .processor(r#"limits = { batch-timeout = "400ms" }"#);
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(writer.count()).await;
    assert_eq!(worker.get("/readyz").await.0, 200, "nothing is stopped");
    for (kind, counted, why) in KINDS {
        assert!(worker.metric("shardmill_attempts_failed_total", &format!("kind=\"{counted}\"")).await > 0.0, "{kind}");
        let labels = format!("why=\"{why}\",then=\"skip\"");
        let expected = KINDS.iter().filter(|(_, _, other)| *other == why).count();
        assert_eq!(worker.metric("shardmill_records_given_up_total", &labels).await as usize, expected, "{kind}");
    }
    assert!(worker.metric("shardmill_batches_split_total", "").await > 0.0);
    let lines = worker.logged("WARN", "records are given up");
    let given_up: u64 = lines.iter().map(|line| line["records"].as_u64().expect("a number")).sum();
    assert_eq!(given_up, 7, "each is told once: {lines:?}");
    assert!(lines.iter().all(|line| line["shard"] == POISONED && line["then"] == "skip"), "{lines:?}");
    worker.stop().await;
    let output = Tail::all(&services, "output").await;
    assert_each_once(&output, 0..writer.count());
    assert_order_of_keys(&output);
    let rows = leases::rows(&services, config.lease_table()).await;
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);
}

#[tokio::test]
async fn a_poison_record_gets_its_attempts_alone_and_the_guest_is_told_once() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(37).await;
    writer.put_data("key-0", &poison("trap", FIRST_POISON, "key-0")).await;
    writer.put(62).await;
    let config = poisonous(r#"bisect = true, then = "stop-shard""#)
        .processor(r#"retry = { attempts = 3, backoff = "10ms" }"#)
        .guest("tells = true");
    let mut worker = Worker::start(&services, &config);
    let sentence = worker
        .until("a stopped shard", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            worker.get("/readyz").await.1.lines().find(|line| line.contains("is stopped")).map(str::to_owned)
        })
        .await;
    assert!(sentence.contains("the record at") && sentence.contains("3 attempts"), "{sentence}");
    assert!(sentence.contains("this record is poison"), "{sentence}");
    let told = told(&worker);
    let input = Tail::all(&services, "input").await;
    let poison = input.iter().find(|record| record.number >= FIRST_POISON).expect("it is there").position.to_string();
    let alone: Vec<_> =
        told.iter().filter(|text| text.starts_with("batch of 1 at") && text.ends_with(&poison)).collect();
    assert_eq!(alone.len(), 3, "three attempts and not one more: {told:?}");
    for (message, lines) in [
        ("a batch failed as a whole, and is split", 1),
        ("a batch failed and will be tried again", 1),
        ("records are given up", 0),
    ] {
        assert_eq!(worker.logged("WARN", message).len(), lines, "{message}");
    }
    let given_up: Vec<_> = told.iter().filter(|text| text.starts_with("given up after 3 attempts")).collect();
    assert_eq!(given_up.len(), 1, "{told:?}");
    let error = worker.logged("ERROR", "the shard is stopped");
    assert_eq!(error.len(), 1, "{error:?}");
    worker.stop().await;
    let before: Vec<_> = input.iter().take_while(|record| record.number < FIRST_POISON).collect();
    assert_eq!(numbers(&Tail::all(&services, "output").await), before.iter().map(|record| record.number).collect());
    let rows = leases::rows(&services, config.lease_table()).await;
    let stopped_at = rows.values().next().and_then(|row| row.checkpoint.position()).expect("a checkpoint");
    assert_eq!(Some(stopped_at), before.last().map(|record| &record.position), "right before the poison record");
}

#[tokio::test]
async fn few_records_of_a_batch_are_tolerated_and_those_of_one_batch_too_many_are_not() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(150).await;
    writer.put_data("key-0", &poison("final", FIRST_POISON, "key-0")).await;
    writer.put(49).await;
    let config = poisonous(r#"tolerance = "1%""#).processor(r#"batch = { records = 100, wait = "1s" }"#);
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(writer.count()).await;
    assert_eq!(worker.get("/readyz").await.0, 200);
    let labels = r#"why="final",then="tolerated""#;
    assert_eq!(worker.metric("shardmill_records_given_up_total", labels).await, 1.0);
    worker.stop().await;
    // In one batch, whoever reads them when.
    for number in [1, 2] {
        writer.put_data("key-0", &poison("final", FIRST_POISON + number, "key-0")).await;
    }
    writer.put(98).await;
    let mut worker = Worker::start(&services, &config);
    let sentence = worker
        .until("a stopped shard", async |worker| {
            worker.logged("INFO", "admin server").first()?;
            worker.get("/readyz").await.1.lines().find(|line| line.contains("is stopped")).map(str::to_owned)
        })
        .await;
    assert!(sentence.contains("and 1 more of its batch"), "{sentence}");
    worker.stop().await;
    let mut mended = Worker::start_ready(&services, &config.clone().guest("mended = true")).await;
    mended.until_records(100).await;
    mended.stop().await;
    let mut output = Tail::all(&services, "output").await;
    output.retain(|record| record.number < FIRST_POISON);
    assert_each_once(&output, 0..writer.count());
}

#[tokio::test]
async fn a_record_that_fails_is_given_up_when_it_is_too_old() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(50).await;
    writer.put_data("key-0", &poison("fail", FIRST_POISON, "key-0")).await;
    writer.put(50).await;
    let config = poisonous(r#"then = "skip", max-age = "3s""#)
        .processor(r#"retry = { attempts = 1000000, backoff = "50ms", max-backoff = "100ms" }"#);
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(writer.count()).await;
    assert_eq!(worker.metric("shardmill_records_given_up_total", r#"why="age",then="skip""#).await, 1.0);
    let lines = worker.logged("WARN", "records are given up");
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert!(line["reason"].as_str().is_some_and(|reason| reason.contains("max-age")), "{line}");
    worker.stop().await;
    assert_each_once(&Tail::all(&services, "output").await, 0..writer.count());
}

// === dead letters ===

/// The lines of all files below a folder.
fn lines_below(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("a file").path());
    let lines = entries.flat_map(|path| {
        if path.is_dir() {
            return lines_below(&path);
        }
        let text = std::fs::read_to_string(&path).expect("a text file");
        text.lines().map(str::to_owned).collect()
    });
    lines.collect()
}

/// Records of 100 bytes over four shards, every thousandth poison, one attempt: all others once, and each poison one a
/// dead letter. The benchmark `poison` does it with a million, and measures it.
#[tokio::test]
async fn every_thousandth_record_becomes_a_dead_letter_and_all_others_are_processed_once() {
    let records = 20_000;
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let place = format!("[processors.copy.dead-letters]\nfolder = {:?}", folder.path());
    for poisoned in [false, true] {
        let services = Services::with_streams(4, 4).await;
        // With the key and the brackets about 100 bytes.
        let mut writer = Writer::new(&services, "input", 1_000).padded(55);
        if poisoned {
            writer = writer.poisoned(1_000, "trap");
        }
        writer.put(records).await;
        let config = poisonous(r#"bisect = true, then = "dead-letter""#)
            .processor("retry = { attempts = 1 }")
            .stream(r#"bytes-per-second = "64 MiB""#)
            .stream("reads-per-second = 100")
            .others(&place);
        let mut worker = Worker::start_ready(&services, &config).await;
        let letters = if poisoned { records / 1_000 } else { 0 };
        let expected = records - letters;
        worker
            .until_within(Duration::from_secs(600), "everything", async |worker| {
                (worker.records_done().await >= expected).then_some(())
            })
            .await;
        worker.stop().await;
        let output = Tail::all(&services, "output").await;
        let others: BTreeSet<u64> = (0..records).filter(|number| !writer.is_poison(*number)).collect();
        assert_eq!(output.len(), others.len(), "each once");
        assert_eq!(numbers(&output), others);
        assert_order_of_keys(&output);
        let lines = lines_below(folder.path());
        assert!(lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "each line is JSON");
        assert_eq!(lines.len() as u64, letters);
    }
}

// === what stops more than the shard ===

/// The processor `copy` beside another that is good.
fn beside_another(then: &str) -> Config {
    poisonous(&format!("then = {then:?}")).and_guest("good", "guest_rows", "", "do = \"echo\"\nhooks = \"silent\"")
}

#[tokio::test]
async fn a_policy_that_stops_the_worker_lets_its_leases_go_and_leaves_other_processors_alone() {
    let services = Services::with_streams(2, 1).await;
    services.create_stream("asides", 1).await;
    let mut writer = Writer::new(&services, "input", 100);
    writer.put(500).await;
    let key = writer.key_of(POISONED).await;
    writer.put_data(&key, &poison("final", FIRST_POISON, &key)).await;
    let config = beside_another("stop-worker");
    let mut worker = Worker::start(&services, &config);
    worker
        .until("the end of the processor", async |worker| {
            worker.logged("WARN", "the processor has stopped on this worker").first().map(|_| ())
        })
        .await;
    let rows = leases::rows(&services, config.lease_table()).await;
    assert!(rows.values().all(|row| row.owner.is_none()), "{rows:?}");
    let (status, text) = worker.get("/readyz").await;
    assert_eq!(status, 503);
    let sentence = text.lines().find(|line| line.contains("processor copy has stopped on this worker"));
    assert!(sentence.is_some_and(|sentence| sentence.contains("this record is poison")), "{text}");
    assert_eq!(worker.logged("ERROR", "").len(), 1, "{:?}", worker.logged("ERROR", ""));
    // The other one goes on.
    writer.put(500).await;
    let mut asides = Tail::new(&services, "asides").await;
    worker.until("the other processor", async |_| (asides.count().await as u64 > writer.count()).then_some(())).await;
    worker.stop().await;
    let input = Tail::all(&services, "input").await;
    leases::assert_released_at_the_end(&leases::rows(&services, "tests-good").await, &input);

    // Nothing of it is lost.
    let mended = poisonous(r#"then = "stop-worker""#).guest("mended = true");
    let mut worker = Worker::start_ready(&services, &mended).await;
    let mut output = Tail::new(&services, "output").await;
    worker.until("everything", async |_| (output.count().await >= input.len()).then_some(())).await;
    worker.stop().await;
    assert_eq!(numbers(&Tail::all(&services, "output").await), numbers(&input));
}

#[tokio::test]
async fn a_worker_without_any_processor_left_ends() {
    let services = Services::with_streams(1, 1).await;
    let writer = Writer::new(&services, "input", 10);
    writer.put_data("key-0", &poison("trap", FIRST_POISON, "key-0")).await;
    let config = poisonous(r#"then = "stop-worker""#).processor("retry = { attempts = 1 }");
    let mut worker = Worker::start(&services, &config);
    let status = worker.wait(Duration::from_secs(60)).await;
    assert_eq!(status.code(), STOPPED_BY_POLICY, "{}", worker.stderr());
    assert_says(
        "the end",
        &worker.stderr(),
        &["the failure policy has stopped the processor", "this record is poison"],
    );
    let rows = leases::rows(&services, config.lease_table()).await;
    assert!(rows.values().all(|row| row.owner.is_none()), "{rows:?}");
}

#[tokio::test]
async fn a_policy_that_stops_the_process_ends_it_in_order_and_with_its_reason() {
    let services = Services::with_streams(2, 1).await;
    services.create_stream("asides", 1).await;
    let mut writer = Writer::new(&services, "input", 100);
    writer.put(500).await;
    let key = writer.key_of(POISONED).await;
    writer.put_data(&key, &poison("final", FIRST_POISON, &key)).await;
    let config = beside_another("stop-process");
    let mut worker = Worker::start(&services, &config);
    let status = worker.wait(Duration::from_secs(60)).await;
    assert_eq!(status.code(), STOPPED_BY_POLICY, "{}", worker.stderr());
    let said = ["processor copy", "the failure policy has stopped the process", POISONED, "this record is poison"];
    assert_says("the end", &worker.stderr(), &said);
    for table in [config.lease_table(), "tests-good"] {
        let rows = leases::rows(&services, table).await;
        assert!(!rows.is_empty() && rows.values().all(|row| row.owner.is_none()), "{table}: {rows:?}");
    }
    // What the other processor has sent, its checkpoints have passed.
    let asides = Tail::all(&services, "asides").await;
    let rows = leases::rows(&services, "tests-good").await;
    let input = Tail::all(&services, "input").await;
    let passed = input.iter().filter(|record| {
        rows[&record.shard].checkpoint.position().is_some_and(|checkpoint| record.position <= *checkpoint)
    });
    let passed: BTreeSet<u64> = passed.map(|record| record.number).collect();
    assert_eq!(numbers(&asides), passed);
}

// === the guest's own checkpoint, and hooks ===

#[tokio::test]
async fn a_guest_says_how_far_the_checkpoint_goes_and_a_successor_goes_on_from_there() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(100).await;
    let mark = format!(r#"{{"mark":true,"n":{FIRST_POISON},"key":"key-0"}}"#);
    writer.put_data("key-0", mark.as_bytes()).await;
    writer.put(100).await;
    let config = Config::copy()
        .plugin("guest_poison")
        .processor(r#"checkpoint = "guest""#)
        .processor(r#"checkpoint-interval = "100ms""#)
        .processor("batch = { records = 30 }");
    let mut worker = Worker::start_ready(&services, &config).await;
    let mut output = Tail::new(&services, "output").await;
    worker.until("everything", async |_| (output.count().await == 201).then_some(())).await;
    worker.stop().await;
    let input = Tail::all(&services, "input").await;
    let mark = input.iter().find(|record| record.number == FIRST_POISON).expect("the mark");
    let rows = leases::rows(&services, config.lease_table()).await;
    assert_eq!(rows.values().next().and_then(|row| row.checkpoint.position()), Some(&mark.position));

    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until("what comes after the mark", async |_| (output.count().await == 301).then_some(())).await;
    worker.stop().await;
    output.poll().await;
    let again = &output.found()[201..];
    assert_each_once(again, 100..200);
}

#[tokio::test]
async fn hooks_come_in_order_and_those_that_hang_hold_nobody_up() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(10).await;
    let config = Config::copy()
        .plugin("guest_poison")
        .top(r#"shutdown-timeout = "4s""#)
        .guest("tells = true")
        .guest(r#"hangs = ["assigned", "revoked"]"#)
        .processor("limits = { instances = 1 }");
    let mut worker = Worker::start_ready(&services, &config).await;
    let mut output = Tail::new(&services, "output").await;
    worker.until("everything", async |_| (output.count().await == 10).then_some(())).await;
    worker.stop().await;
    let told = told(&worker);
    let begins = |with: &'static str| move |text: &&String| text.starts_with(with);
    let place = |with: &'static str| {
        told.iter().position(|text| begins(with)(&text)).unwrap_or_else(|| panic!("{with}: {told:?}"))
    };
    let order = ["init", "assigned", "batch of", "revoked"].map(place);
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
    let left = told.iter().find_map(|text| text.strip_suffix(" ms are left")).expect("the time that is left");
    assert!((1..=2_000).contains(&left.parse::<u64>().expect("a number")), "{told:?}");
    let failed: Vec<_> = worker.logged("WARN", "a hook failed").iter().map(|line| line["hook"].clone()).collect();
    assert_eq!(failed, ["assigned", "revoked"]);
    let rows = leases::rows(&services, config.lease_table()).await;
    leases::assert_released_at_the_end(&rows, &Tail::all(&services, "input").await);

    // And without hanging, to the very end.
    let mut worker = Worker::start_ready(&services, &Config::copy().plugin("guest_poison").guest("tells = true")).await;
    writer.put(10).await;
    worker.until("everything", async |_| (output.count().await == 20).then_some(())).await;
    worker.stop().await;
    let told = self::told(&worker);
    assert_eq!(told.last().map(String::as_str), Some("shutdown"), "{told:?}");
    let hooks: Vec<_> =
        told.iter().filter(|text| ["assigned", "revoked", "shutdown"].contains(&text.as_str())).collect();
    assert_eq!(hooks[..2], ["assigned", "revoked"], "{told:?}");
}

#[tokio::test]
async fn hooks_that_hang_at_a_shard_s_end_or_the_guest_s_hold_nobody_up() {
    let services = Services::with_streams(1, 1).await;
    let mut writer = Writer::new(&services, "input", 10);
    writer.put(10).await;
    let key = writer.key_of("shardId-000000000000").await;
    writer.put_data(&key, &poison("final", FIRST_POISON, &key)).await;
    services.split("input", "shardId-000000000000").await;
    writer.put(10).await;
    let config = poisonous(r#"then = "skip""#)
        .guest("tells = true")
        .guest(r#"hangs = ["given-up", "shard-ended", "shutdown"]"#)
        .processor("limits = { batch-timeout = \"2s\" }");
    let mut worker = Worker::start_ready(&services, &config).await;
    worker.until_records(20).await;
    leases::until_ended(&mut worker, &services, config.lease_table(), &["shardId-000000000000"]).await;
    // It ends within its time, with 0.
    worker.stop().await;
    let told = told(&worker);
    let told_of = |hook: &str| told.iter().filter(|text| *text == hook).count();
    assert_eq!(["given-up", "shard-ended"].map(told_of), [1, 1], "{told:?}");
    // Two instances were ended with their hooks; those that are left are all told.
    let instances = told_of("init") - 2;
    assert!(instances >= 1 && told_of("shutdown") == instances, "{told:?}");
    let failed: Vec<_> = worker.logged("WARN", "a hook failed").iter().map(|line| line["hook"].clone()).collect();
    assert_eq!(failed, ["given-up", "shard-ended"]);
    assert_each_once(&Tail::all(&services, "output").await, 0..writer.count());
}
