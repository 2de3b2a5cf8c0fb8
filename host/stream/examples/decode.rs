//! What decoding costs in CPU time: answers of 10,000 records of 100 bytes and of 1 KiB, read through the SDK's client
//! with each decoder, without a network. The client's own work for a call is part of it, some nanoseconds a record.
//!
//! ```sh
//! cargo run --release --locked --workspace --example decode
//! ```

#[path = "../tests/support/differential.rs"]
mod differential;

use std::fmt::Write;

use differential::{Bench, CBOR, JSON};
use rustix::time::{ClockId, clock_gettime};
use shardmill_stream::ReadFrom;
use shardmill_stream::polling::Decoder;

const RECORDS: usize = 10_000;
const ROUNDS: usize = 31;
const FIRST_NUMBER: u128 = 338_271_490_256_608_559_692_538_361_571_095_921;

fn main() {
    let bench = Bench::new();
    for size in [100, 1024] {
        let data: Vec<u8> = (0..size).map(|byte| (byte * 7 % 251) as u8).collect();
        let (json, cbor) = (json(&data), cbor(&data));
        for (decoder, content_type, body) in
            [(Decoder::Sdk, JSON, &json), (Decoder::Json, JSON, &json), (Decoder::Cbor, CBOR, &cbor)]
        {
            let mut rounds: Vec<u64> = (0..ROUNDS).map(|_| round(&bench, decoder, content_type, body)).collect();
            rounds.sort_unstable();
            let nanoseconds = |round: u64| round / RECORDS as u64;
            println!(
                "{size:>5} B {:<4} {:>6} ns per record (median; {} the fastest), {} B on the wire",
                format!("{decoder:?}").to_lowercase(),
                nanoseconds(rounds[ROUNDS / 2]),
                nanoseconds(rounds[0]),
                body.len() / RECORDS,
            );
        }
    }
}

fn round(bench: &Bench, decoder: Decoder, content_type: &str, body: &[u8]) -> u64 {
    bench.canned.answer(200, &[("content-type", content_type)], body);
    bench.canned.hand_over();
    let start = cpu_time();
    let decoded = bench.again(decoder, &ReadFrom::TrimHorizon).unwrap();
    let took = cpu_time() - start;
    assert_eq!(decoded.page.len(), RECORDS);
    bench.canned.requests();
    took
}

/// Of this thread, in nanoseconds: what else the machine does counts as little as can be.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn number(index: usize) -> String {
    format!("49590{:036}000000000000000", FIRST_NUMBER + index as u128)
}

/// As the service writes it.
fn json(data: &[u8]) -> Vec<u8> {
    let data = base64_simd::STANDARD.encode_to_string(data);
    let mut text =
        r#"{"MillisBehindLatest":0,"NextShardIterator":"AAAAAAAAAAHsW8zCWf9164uy8Epue6WS3w","Records":["#.to_owned();
    for index in 0..RECORDS {
        let comma = if index == 0 { "" } else { "," };
        let millis = index % 1_000;
        write!(
            text,
            r#"{comma}{{"ApproximateArrivalTimestamp":1.782864000{millis:03}E9,"Data":"{data}","PartitionKey":"key-{index}","SequenceNumber":"{}"}}"#,
            number(index)
        )
        .unwrap();
    }
    text.push_str("]}");
    text.into_bytes()
}

fn cbor(data: &[u8]) -> Vec<u8> {
    let head = |major: u8, length: usize| {
        let [high, low] = (length as u16).to_be_bytes();
        vec![major << 5 | 25, high, low]
    };
    let mut bytes = b"\xbf\x72MillisBehindLatest\x00\x71NextShardIterator\x64next\x67Records\x9f".to_vec();
    for index in 0..RECORDS {
        bytes.extend_from_slice(b"\xbf\x78\x1bApproximateArrivalTimestamp\xc1\x1b");
        bytes.extend((1_782_864_000_000 + index as u64).to_be_bytes());
        for (name, major, value) in [
            (&b"\x64Data"[..], 2, data.to_vec()),
            (b"\x6cPartitionKey", 3, format!("key-{index}").into_bytes()),
            (b"\x6eSequenceNumber", 3, number(index).into_bytes()),
        ] {
            bytes.extend_from_slice(name);
            bytes.extend(head(major, value.len()));
            bytes.extend(value);
        }
        bytes.push(0xff);
    }
    bytes.extend([0xff, 0xff]);
    bytes
}
