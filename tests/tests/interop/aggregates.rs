//! The KPL's aggregates as others write and read them: the packages `aws-kinesis-agg` of PyPI and of npm.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use shardmill_record::aggregate::{Aggregator, decode};
use shardmill_record::{HashKey, UserRecord};
use shardmill_tests::{Codec, Services, command, raw, run, seeds};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal")).collect()
}

/// From 2 to 300 records. Hash keys are above 2^32: npm's package confuses lower ones, which JavaScript sorts.
fn records(random: &mut SmallRng) -> Vec<UserRecord> {
    let keys = random.random_range(1..200);
    let count = random.random_range(2..300);
    let record = |random: &mut SmallRng| {
        let key = random.random_range(0..keys);
        let length =
            if random.random_bool(0.02) { random.random_range(0..20_000) } else { random.random_range(0..200) };
        let data: Vec<u8> = (0..length).map(|_| random.random()).collect();
        let hash_key =
            random.random_bool(0.2).then(|| HashKey::new(random.random_range(1 << 40..u128::MAX) >> (key % 80)));
        UserRecord {
            partition_key: if key % 9 == 0 { format!("Schlüssel {key} 鍵") } else { format!("key-{key}") },
            explicit_hash_key: hash_key.filter(|key| key.get() > 1 << 32),
            data: data.into(),
        }
    };
    (0..count).map(|_| record(random)).collect()
}

fn ours(records: &[UserRecord]) -> Vec<u8> {
    let mut aggregator = Aggregator::default();
    records.iter().for_each(|record| aggregator.push(record));
    let (payload, _) = aggregator.finish().expect("it holds something");
    payload.to_vec()
}

fn asked(records: &[UserRecord]) -> Value {
    let record = |record: &UserRecord| {
        json!([record.partition_key, record.explicit_hash_key.map(|key| key.to_string()), hex(&record.data)])
    };
    json!({ "write": records.iter().map(record).collect::<Vec<_>>() })
}

#[tokio::test]
async fn aggregates_of_others_are_ours_byte_for_byte_and_ours_are_read_by_them() {
    for mut codec in [Codec::python().await, Codec::node().await] {
        for seed in seeds(&[1, 2, 3, 4, 5, 6, 7, 8]) {
            let what = format!("{}, seed {seed}", codec.name);
            let records = records(&mut SmallRng::seed_from_u64(seed));
            let ours = ours(&records);
            let theirs = unhex(codec.ask(&asked(&records)).await.as_str().expect("an aggregate"));
            assert!(theirs == ours, "{what}: the bytes are the same");
            let aggregate = decode(&theirs).expect("it is an aggregate");
            let read = aggregate.records(&theirs).map(|sub| UserRecord {
                partition_key: sub.partition_key.to_owned(),
                explicit_hash_key: sub.explicit_hash_key,
                data: sub.data.to_vec().into(),
            });
            assert!(read.eq(records.iter().cloned()), "{what}: theirs are read");
            // Both report an explicit hash key for records that have none, so of those nothing is asked.
            let read = codec.ask(&json!({ "read": hex(&ours) })).await;
            let expected: Vec<_> =
                records.iter().map(|record| json!([record.partition_key, hex(&record.data)])).collect();
            assert!(read == Value::from(expected), "{what}: ours are read by them");
        }
    }
}

#[tokio::test]
async fn what_is_put_is_read_by_others() {
    let services = Services::start().await;
    services.create_stream("orders", 2).await;
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().join("orders.jsonl");
    let line = |number: usize| format!("{{\"n\":{number},\"key\":\"Schlüssel {}\"}}", number % 40);
    let lines: Vec<String> = (0..3_000).map(line).collect();
    std::fs::write(&path, lines.join("\n")).expect("a file");
    let mut put = command();
    put.args(["put", "orders", "--key-field", "/key"]).arg(&path).envs(services.environment());
    let finished = run(put).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let kinesis_records = raw::kinesis_records(&services, "orders").await;
    assert!(kinesis_records.len() < 300, "they go in aggregates");
    for mut codec in [Codec::python().await, Codec::node().await] {
        let mut read = Vec::new();
        for (_, data) in &kinesis_records {
            let records = codec.ask(&json!({ "read": hex(data) })).await;
            for record in records.as_array().expect("records") {
                read.push(String::from_utf8(unhex(record[1].as_str().expect("hexadecimal"))).expect("UTF-8"));
            }
        }
        let mut expected = lines.clone();
        read.sort_unstable();
        expected.sort_unstable();
        assert!(read == expected, "{}: every line once", codec.name);
    }
}
