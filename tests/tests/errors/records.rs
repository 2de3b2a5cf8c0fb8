//! Records that only look like aggregates: they go to the plugin as they are.

use md5::{Digest as _, Md5};
use shardmill_cause::Coded as _;
use shardmill_record::aggregate::decode;
use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Services, Worker};

use crate::row::{Row, payloads};

const MAGIC: &[u8] = &[0xf3, 0x89, 0x9a, 0xc2];

fn framed(message: &[u8], checksum: &[u8]) -> Vec<u8> {
    [MAGIC, message, checksum].concat()
}

pub(crate) async fn rows() -> Vec<Row> {
    let right = |message: &[u8]| framed(message, &Md5::digest(message));
    let cases = [
        ("an aggregate whose checksum does not fit", framed(b"some message", &[7; 16])),
        ("an aggregate that was cut short", right(b"\x0a\x01a\x1a\x04\x08\x00\x1a\x00")[..20].to_vec()),
        ("an aggregate of something else than the KPL's message", right(b"{\"n\":1}")),
        (
            "an aggregate whose record names a key that is not in its table",
            right(b"\x0a\x01a\x1a\x05\x08\x09\x1a\x01x"),
        ),
    ];
    let services = Services::with_streams(1, 1).await;
    // One that is fine stands at the end.
    let mut put: Vec<Raw> = cases.iter().map(|(_, payload)| Raw::new("key", payload.clone())).collect();
    put.push(Raw::new("key", b"{\"n\":1}".to_vec()));
    raw::put(&services, "input", &put).await;
    let config = Config::copy().guest("invalid-json = \"copies\"");
    let mut worker = Worker::start(&services, &config);
    let all = async |_: &mut Worker| {
        let found = payloads(&services, "output").await;
        (found.len() == put.len()).then_some(found)
    };
    let found = worker.until("every record in the output", all).await;
    worker.stop().await;
    let mut rows = Vec::new();
    for (given, payload) in cases {
        let error = decode(&payload).expect_err(given);
        assert!(found.contains(&payload), "{given}: it is not in the output as it was");
        let kept = "it goes to the plugin byte for byte as one record, and those around it as ever";
        rows.push(Row {
            given: given.to_owned(),
            says: error.to_string(),
            code: error.code(),
            exit: None,
            kept,
            wrong: None,
        });
    }
    rows
}
