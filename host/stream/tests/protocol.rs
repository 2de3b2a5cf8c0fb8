//! Calls whose answers are taken out of the SDK's hands: what goes out, what comes back as an error, and what stays
//! the SDK's.

#[path = "support/differential.rs"]
mod differential;

use differential::{Bench, CBOR, Canned, JSON};
use shardmill_stream::polling::Decoder;
use shardmill_stream::{Error, Kind, Kinesis, ReadFrom};

const EMPTY: &[u8] = b"{\"Records\":[],\"NextShardIterator\":\"next\"}";
const EMPTY_CBOR: &[u8] = b"\xa2\x67Records\x80\x71NextShardIterator\x64next";

#[test]
fn a_request_is_signed_and_written_in_the_format_that_is_asked_for() {
    let bench = Bench::new();
    for (decoder, content_type, body) in [
        (Decoder::Json, JSON, &br#"{"ShardIterator":"iterator","Limit":10000}"#[..]),
        (Decoder::Sdk, JSON, br#"{"ShardIterator":"iterator","Limit":10000}"#),
        (Decoder::Cbor, CBOR, b"\xbf\x6dShardIterator\x68iterator\x65Limit\x19\x27\x10\xff"),
    ] {
        bench.canned.answer(200, &[("content-type", JSON)], EMPTY);
        bench.again(decoder, &ReadFrom::TrimHorizon).unwrap();
        let requests = bench.canned.requests();
        let [request] = &requests[..] else { panic!("{} requests", requests.len()) };
        let header = |name: &str| request.headers().get(name).unwrap_or_default().to_owned();
        assert_eq!(header("content-type"), content_type);
        assert_eq!(header("content-length"), body.len().to_string());
        assert_eq!(header("x-amz-target"), "Kinesis_20131202.GetRecords");
        assert!(header("authorization").starts_with("AWS4-HMAC-SHA256 "), "{}", header("authorization"));
        assert!(header("authorization").contains("content-type"), "what is asked for is part of the signature");
        assert_eq!(request.method(), "POST");
        assert_eq!(request.uri(), "https://kinesis.eu-central-1.amazonaws.com/");
        assert_eq!(request.body().bytes(), Some(body));
    }
}

#[test]
fn the_answer_s_content_type_decides_how_it_is_read() {
    let bench = Bench::new();
    for decoder in [Decoder::Json, Decoder::Cbor] {
        for (content_type, body) in [
            (JSON, EMPTY),
            ("application/json; charset=utf-8", EMPTY),
            ("", EMPTY),
            (CBOR, EMPTY_CBOR),
            ("Application/X-Amz-CBOR-1.1; v=1", EMPTY_CBOR),
        ] {
            let decoded = bench.read(decoder, content_type, body, &ReadFrom::TrimHorizon).unwrap();
            assert_eq!(decoded.next_iterator.as_deref(), Some("next"), "{decoder:?} of `{content_type}`");
        }
    }
}

#[test]
fn errors_are_the_same_in_json_and_in_cbor() {
    let bench = Bench::new();
    let cbor_text = |text: &str| [&[0x78, text.len() as u8][..], text.as_bytes()].concat();
    let ask = |status, headers: &[(&'static str, &str)], body: &[u8], decoder| {
        bench.canned.answer(status, headers, body);
        bench.again(decoder, &ReadFrom::TrimHorizon).unwrap_err()
    };
    for (code, status, kind) in [
        ("ProvisionedThroughputExceededException", 400, Kind::Throttled),
        ("ExpiredIteratorException", 400, Kind::ExpiredIterator),
        ("ResourceNotFoundException", 400, Kind::NotFound),
        ("com.amazonaws.kinesis.v20131202#ResourceNotFoundException", 400, Kind::NotFound),
        ("AccessDeniedException:http://internal.amazon.com/coral/", 400, Kind::NotPermitted),
        ("KMSThrottlingException", 400, Kind::Throttled),
        ("KMSDisabledException", 400, Kind::Kms),
        ("UnrecognizedClientException", 400, Kind::Credentials),
        ("InvalidArgumentException", 400, Kind::Rejected),
        ("NobodyKnowsThis", 400, Kind::Rejected),
        ("InternalFailure", 500, Kind::Unavailable),
    ] {
        let json = format!(r#"{{"__type":"{code}","message":"it says why"}}"#);
        let cbor =
            [&b"\xbf\x66__type"[..], &cbor_text(code), b"\x67message", &cbor_text("it says why"), b"\xff"].concat();
        let in_json = ask(status, &[("content-type", JSON)], json.as_bytes(), Decoder::Json);
        let in_cbor = ask(status, &[("content-type", CBOR)], &cbor, Decoder::Cbor);
        assert_eq!(in_json, in_cbor);
        assert_eq!(in_json, ask(status, &[("content-type", JSON)], json.as_bytes(), Decoder::Sdk));
        assert_eq!(in_json.kind(), kind, "{code}");
        assert!(in_json.to_string().contains("it says why"), "{in_json}");
    }
    for (body, content_type) in [(&br#"{"__type":"Other"}"#[..], JSON), (b"\xa1\x66__type\x65Other", CBOR), (b"", CBOR)]
    {
        let headers = [("content-type", content_type), ("x-amzn-errortype", "ExpiredIteratorException:x")];
        assert_eq!(ask(400, &headers, body, Decoder::Cbor).kind(), Kind::ExpiredIterator, "the header goes first");
    }
    // Not what it says it is: no reason to believe the rest.
    let broken = ask(503, &[("content-type", CBOR)], b"\xa1\x66__type\x65Oth", Decoder::Cbor);
    assert_eq!(broken.kind(), Kind::Unavailable);
}

#[test]
fn a_read_is_one_request_whatever_comes_of_it() {
    let bench = Bench::with_attempts(3);
    for decoder in [Decoder::Json, Decoder::Cbor] {
        for content_type in [JSON, CBOR] {
            bench.canned.answer(200, &[("content-type", content_type)], b"\xa2{");
            let error = bench.again(decoder, &ReadFrom::TrimHorizon).unwrap_err();
            assert!(matches!(error, Error::InvalidAnswer { .. }), "{error}");
            assert_eq!(bench.canned.requests().len(), 1);
        }
    }
    // Nor what failed: each request counts for the shard's limits, and is tried again by who keeps to them.
    bench.canned.answer(500, &[], b"");
    assert_eq!(bench.again(Decoder::Json, &ReadFrom::TrimHorizon).unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(bench.canned.requests().len(), 1);
}

#[tokio::test]
async fn other_calls_and_other_owners_of_the_client_are_served_by_the_sdk() {
    let canned = Canned::default();
    let client = canned.client(1);
    let kinesis = Kinesis::new(client.clone());
    let listing = br#"{"Shards":[{"ShardId":"shardId-000000000000","HashKeyRange":{"StartingHashKey":"0",
        "EndingHashKey":"9"},"SequenceNumberRange":{"StartingSequenceNumber":"1"}}]}"#;
    canned.answer(200, &[("content-type", JSON)], listing);
    assert_eq!(kinesis.list_shards("flights").await.unwrap().len(), 1);

    canned.answer(200, &[("content-type", JSON)], br#"{"Records":[{"SequenceNumber":"1","Data":"Zm9v"}]}"#);
    let answer = client.get_records().shard_iterator("iterator").send().await.unwrap();
    assert_eq!(answer.records()[0].data().as_ref(), b"foo");
}

#[test]
fn a_page_counts_the_body_that_it_keeps_and_an_empty_one_keeps_none() {
    let bench = Bench::new();
    let padding = "x".repeat(100_000);
    let body = format!(r#"{{"X":"{padding}","Records":[{{"SequenceNumber":"1","PartitionKey":"k","Data":"Zm9v"}}]}}"#);
    let page = bench.read(Decoder::Json, JSON, body.as_bytes(), &ReadFrom::TrimHorizon).unwrap().page;
    assert!(page.memory() >= body.len(), "{} of {}", page.memory(), body.len());
    let body = format!(r#"{{"X":"{padding}","Records":[]}}"#);
    let page = bench.read(Decoder::Json, JSON, body.as_bytes(), &ReadFrom::TrimHorizon).unwrap().page;
    assert_eq!(page.memory(), 0);
}
