//! Odd records, from the stream to the guest: every one of them comes, once, in order, and as it is.

use std::time::Duration;

use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, Aggregator};
use shardmill_record::{HashKey, UserRecord};
use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Guests, Services, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, leases};

const MIB: usize = 1 << 20;
const MAGIC: [u8; 4] = [0xF3, 0x89, 0x9A, 0xC2];
const LIMIT: Duration = Duration::from_secs(120);

/// What is put, and the user records that have to come of it.
struct Odd {
    put: Raw,
    expected: Vec<Raw>,
}

// === impl Odd ===

impl Odd {
    /// A record that comes as it is.
    fn alone(key: impl Into<String>, data: impl Into<Vec<u8>>) -> Odd {
        let put = Raw::new(key, data);
        Odd { expected: vec![put.clone()], put }
    }

    /// User records that come out of an aggregate.
    fn together(expected: Vec<Raw>) -> Odd {
        Odd { put: Raw::new(AGGREGATE_PARTITION_KEY, aggregate(&expected)), expected }
    }
}

fn aggregate(records: &[Raw]) -> Vec<u8> {
    let mut aggregator = Aggregator::default();
    for record in records {
        aggregator.push(&UserRecord {
            partition_key: record.key.clone(),
            explicit_hash_key: record.hash_key.as_deref().map(|key| key.parse().expect("a hash key")),
            data: record.data.clone().into(),
        });
    }
    aggregator.finish().expect("there are records").0.to_vec()
}

/// A message in a frame that fits it: what the aggregator writes, with another message.
fn seal(message: &[u8]) -> Vec<u8> {
    use md5::{Digest, Md5};
    [&MAGIC[..], message, &Md5::digest(message)[..]].concat()
}

/// Keys of up to 256 bytes, which is where the local Kinesis stops.
fn odd_keys() -> Vec<String> {
    let keys = [
        "😀".repeat(64),
        "\u{10FFFF}".repeat(64),
        "ש".repeat(128),
        "\u{202E}right to left\u{202C}".to_owned(),
        "\0".to_owned(),
        "\u{1}\u{1F}\u{7F}\u{80}\u{9F}".to_owned(),
        "\u{FEFF}\u{FFFD}\u{FFFF}".to_owned(),
        "e\u{301}".to_owned(),
        " ".to_owned(),
        "\"\\/\u{8}\u{C}\n\r\t</script>".to_owned(),
        "x".repeat(256),
    ];
    keys.into()
}

/// What a stream may hold and few streams do, but for what the local Kinesis does not take.
fn odd_records() -> Vec<Odd> {
    let mut odd = vec![
        Odd::alone("empty", b""),
        Odd::alone("one byte", b"\0"),
        Odd::alone("every byte", (0..=255).collect::<Vec<u8>>()),
        Odd::alone("like a frame", [&MAGIC[..], &[0; 16]].concat()),
        Odd::alone("magic", MAGIC),
    ];
    odd.extend(odd_keys().into_iter().map(|key| Odd::alone(key, b"odd key")));
    for end in [HashKey::MIN, HashKey::MAX] {
        let mut at_end = Odd::alone("at an end of the ring", end.to_string());
        at_end.put.hash_key = Some(end.to_string());
        // The service does not tell a reader the explicit hash key of a record that came alone.
        odd.push(at_end);
    }

    let with = |key: &str, hash_key: Option<HashKey>, data: &[u8]| Raw {
        hash_key: hash_key.map(|key| key.to_string()),
        ..Raw::new(key, data)
    };
    let few =
        vec![with("a", None, b"one"), with("b", Some(HashKey::MAX), b""), with("a", Some(HashKey::MIN), b"three")];
    let whole = aggregate(&few);
    odd.push(Odd::together(few));
    // 256 characters of four bytes, and none: keys that only an aggregate can have here.
    let keys = odd_keys().into_iter().chain(["😀".repeat(256), String::new(), "\0".repeat(256)]);
    odd.push(Odd::together(keys.map(|key| Raw::new(key, b"odd key")).collect()));
    let nested = aggregate(&[Raw::new("inner", b"inner")]);
    odd.push(Odd::together(vec![Raw::new("outer", nested.clone()), Raw::new("beside", b"beside")]));
    odd.push(Odd::together(vec![Raw::new("outer", aggregate(&[Raw::new("middle", nested)]))]));

    // No aggregates, though they begin like one.
    odd.extend((1..whole.len()).map(|length| Odd::alone("cut", &whole[..length])));
    for at in [4, whole.len() / 2, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        odd.push(Odd::alone("changed", changed));
    }
    let malformed: [&[u8]; 6] = [
        b"\x1A\x05\x08\x00\x1A\x01d",
        b"\x0A\x01k\x1A\x05\x08\x01\x1A\x01d",
        b"\x0A\x01k\x1A\x07\x08\x00\x10\x00\x1A\x01d",
        b"\x0A\x01k\x1A\x7F\x08\x00\x1A\x01d",
        b"\x0A\x01k\x7B",
        b"\x0A\x01\xFF\x1A\x05\x08\x00\x1A\x01d",
    ];
    odd.extend(malformed.iter().map(|message| Odd::alone("malformed", seal(message))));
    for nothing in [&b""[..], b"\x0A\x01k"] {
        odd.push(Odd { put: Raw::new("a", seal(nothing)), expected: Vec::new() });
    }

    // The largest payload that the local Kinesis takes.
    odd.push(Odd::alone("large", large(MIB, 7)));
    odd
}

fn large(bytes: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..bytes).map(next).collect()
}

/// The most user records that 1 MiB can hold: empty ones under one key.
fn full_of_nothing() -> Odd {
    let count = (MIB - 23) / 6;
    let mut message = b"\x0A\x01k".to_vec();
    for _ in 0..count {
        message.extend_from_slice(b"\x1A\x04\x08\x00\x1A\x00");
    }
    let put = Raw::new("a", seal(&message));
    Odd { put, expected: vec![Raw::new("k", b""); count] }
}

/// The line that the guest writes of a record.
fn line(sequence_number: &str, sub: usize, record: &Raw) -> String {
    let key = serde_json::Value::from(record.key.as_str());
    let hash_key = record.hash_key.as_deref().unwrap_or("");
    let hash = record
        .data
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{sequence_number}/{sub} {key} {hash_key:?} {} {hash:016x}\n", record.data.len())
}

/// Puts records; the lines that have to come of them.
async fn put(services: &Services, stream: &str, records: &[Odd]) -> Vec<String> {
    let raw: Vec<Raw> = records.iter().map(|odd| odd.put.clone()).collect();
    let numbers = raw::put(services, stream, &raw).await;
    let each = records
        .iter()
        .zip(&numbers)
        .flat_map(|(odd, number)| odd.expected.iter().enumerate().map(move |(sub, record)| line(number, sub, record)));
    each.collect()
}

/// Compares without printing a megabyte.
fn assert_lines(found: &[String], expected: &[String]) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    if let Some(at) = differs {
        panic!("record {at} is\n{:.400}\nand should be\n{:.400}", found[at], expected[at]);
    }
    assert_eq!(found.len(), expected.len(), "so many records");
}

#[tokio::test]
async fn every_odd_record_comes_to_the_guest_once_in_order_and_as_it_is() {
    let services = Services::with_streams(1, 1).await;
    let config =
        Guests::new().with("digest", "guest_columnar", "digest", ["input", "output"], "batch = { records = 400 }");
    let mut records = odd_records();
    records.push(full_of_nothing());
    records.extend(odd_records());
    // More than one page by count, and more than one by size.
    records.extend((0..12_000).map(|number: u32| Odd::alone(format!("key-{}", number % 50), number.to_string())));
    records.extend((0..15).map(|seed| Odd::alone("large", large(MIB - 5, seed))));
    records.push(Odd::alone("last", b"last"));
    let expected = put(&services, "input", &records).await;

    let mut worker = Worker::start_with(&services, &config.text());
    worker.ready().await;
    let all = expected.len() as u64;
    worker.until_within(LIMIT, "all records", async |worker| (worker.records_done().await >= all).then_some(())).await;
    assert_eq!(worker.records_done().await, all);
    let broken = worker.metric("shardmill_aggregates_broken_total", "").await;
    assert!(broken > 2.0 * 80.0, "{broken} payloads that begin like an aggregate");
    worker.stop().await;

    let mut found = Vec::new();
    for (key, data) in raw::user_records(&services, "output").await {
        assert_eq!(key, "digest");
        let text = String::from_utf8(data).expect("lines");
        found.extend(text.split_inclusive('\n').map(str::to_owned));
    }
    assert_lines(&found, &expected);
    let rows = leases::rows(&services, "tests-digest").await;
    let checkpoint = &rows["shardId-000000000000"].checkpoint;
    assert!(expected.last().is_some_and(|last| last.starts_with(&checkpoint.to_string())), "{checkpoint}");
}

#[tokio::test]
async fn an_odd_record_is_sent_on_as_it_is_by_guests_of_both_forms() {
    let services = Services::with_streams(1, 1).await;
    services.create_stream("rows", 1).await;
    services.create_stream("columns", 1).await;
    let config = Guests::new()
        .with("rows", "guest_rows", "echo", ["input", "rows"], "")
        .with("columns", "guest_columnar", "", ["input", "columns"], "")
        .top("[defaults.output]\naggregate = false\n");
    let mut records: Vec<Odd> = odd_records();
    // Those whose key no stream takes are in a test of their own, and what takes all of a record leaves none for its key.
    let is_sendable =
        |record: &Raw| (1..=256).contains(&record.key.len()) && record.data.len() + record.key.len() <= MIB;
    records.retain(|odd| odd.expected.iter().all(is_sendable));
    records.push(Odd::alone("large", large(MIB - 5, 3)));
    put(&services, "input", &records).await;
    let expected: Vec<_> =
        records.iter().flat_map(|odd| &odd.expected).map(|record| (record.key.clone(), record.data.clone())).collect();

    let mut worker = Worker::start_with(&services, &config.text());
    worker.ready().await;
    let all = 2 * expected.len() as u64;
    worker.until_within(LIMIT, "all records", async |worker| (worker.records_done().await >= all).then_some(())).await;
    worker.stop().await;
    for stream in ["rows", "columns"] {
        let mut found = raw::kinesis_records(&services, stream).await;
        // What the guest in rows sends when it is told of events.
        found.retain(|(key, _)| key != "hook");
        let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(differs, None, "{stream}: {:.400?}", differs.map(|at| (&found[at].0, &expected[at].0)));
        assert_eq!(found.len(), expected.len(), "{stream}");
    }
}

const POISONED: &str = "shardId-000000000001";

#[tokio::test]
async fn an_output_that_no_stream_takes_stops_its_shard_alone_and_is_named() {
    for (poison, said) in [
        ("too large", "has 1048583 bytes of partition key and data, and 1048576 are allowed"),
        ("long key", "has a partition key of 257 characters, and 1 to 256 are allowed"),
        ("empty key", "has a partition key of 0 characters, and 1 to 256 are allowed"),
    ] {
        let services = Services::with_streams(2, 1).await;
        let lines = "batch = { records = 20 }\nretry = { attempts = 2, backoff = \"10ms\" }";
        let config = Guests::new().with("copy", "guest_columnar", "outgrow", ["input", "output"], lines);
        let mut writer = Writer::new(&services, "input", 1_000);
        writer.put(500).await;
        // A key of seven bytes.
        let key = writer.keys_of(POISONED).await.into_iter().find(|key| key.len() == 7).expect("a key of seven bytes");
        let number = raw::put(&services, "input", &[Raw::new(key, poison)]).await.remove(0);
        writer.put(500).await;
        let mut worker = Worker::start_with(&services, &config.text());
        let poisoned = writer.keys_of(POISONED).await;
        let others = (0..writer.count()).filter(|number| !poisoned.contains(&writer.key_of_number(*number))).count();
        let mut output = Tail::new(&services, "output").await;
        worker
            .until("a stopped shard, and the other one done", async |worker| {
                worker.logged("ERROR", "the shard is stopped").first()?;
                output.poll().await;
                let done = output.found().iter().filter(|record| !poisoned.contains(&record.key)).count();
                (done == others).then_some(())
            })
            .await;
        let (status, text) = worker.get("/readyz").await;
        let lines: Vec<&str> = text.lines().collect();
        let [sentence] = lines[..] else { panic!("one sentence: {text}") };
        let at = format!("caused by the record at {number}/0");
        for words in ["processor copy", POISONED, "for `out`", said, at.as_str()] {
            assert!(sentence.contains(words), "{words:?} in {sentence}");
        }
        assert_eq!(status, 503);
        worker.stop().await;

        let mended = Config::copy().guest(r#"invalid-json = "skip""#);
        let mut worker = Worker::start_ready(&services, &mended).await;
        worker.until("everything", async |_| (output.count().await as u64 >= writer.count()).then_some(())).await;
        worker.stop().await;
        let output = Tail::all(&services, "output").await;
        assert_each_once(&output, 0..writer.count());
        assert_order_of_keys(&output);
    }
}
