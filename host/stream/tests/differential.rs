//! The decoders against the SDK's own, and against each other.

#[path = "support/answers/mod.rs"]
mod answers;
#[path = "support/differential.rs"]
mod differential;

use answers::Author;
use differential::{Bench, CBOR, JSON};
use proptest::prelude::*;
use shardmill_record::SequenceNumber;
use shardmill_stream::polling::Decoder;
use shardmill_stream::{Error, ReadFrom};

thread_local! {
    static BENCH: Bench = Bench::new();
}

fn often() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases * 8, ..default }
}

proptest! {
    #![proptest_config(often())]

    #[test]
    fn json_is_read_as_the_sdk_reads_it(seed: u64, odd: bool) {
        let mut author = Author::new(seed, odd);
        let value = author.answer();
        let body = author.json(&value);
        let seen = BENCH.with(|bench| bench.check_json(&body));
        prop_assert!(odd || seen.is_ok(), "{:?} of {}", seen, String::from_utf8_lossy(&body));
    }

    #[test]
    fn damaged_json_is_refused_or_read_as_the_sdk_does(seed: u64, odd: bool) {
        let mut author = Author::new(seed, odd);
        let value = author.answer();
        let mut body = author.json(&value);
        author.damage(&mut body);
        BENCH.with(|bench| bench.check_json(&body)).ok();
    }

    #[test]
    fn any_bytes_are_refused_or_read_as_the_sdk_does(body in prop::collection::vec(any::<u8>(), 0..40)) {
        BENCH.with(|bench| {
            bench.check_json(&body).ok();
            bench.check_cbor(&body).ok();
        });
    }

    #[test]
    fn cbor_says_what_json_says(seed: u64) {
        let mut author = Author::new(seed, false);
        let value = author.answer();
        let (json, cbor) = (author.json(&value), author.cbor(&value));
        let (json, cbor) = BENCH.with(|bench| (bench.check_json(&json), bench.check_cbor(&cbor)));
        prop_assert_eq!(json.unwrap(), cbor.unwrap());
    }

    #[test]
    fn damaged_cbor_is_refused_or_read(seed: u64, odd: bool) {
        let mut author = Author::new(seed, odd);
        let value = author.answer();
        let mut body = author.cbor(&value);
        author.damage(&mut body);
        BENCH.with(|bench| bench.check_cbor(&body)).ok();
    }

    #[test]
    fn a_cut_answer_is_never_a_shorter_one(seed: u64, cut: prop::sample::Index) {
        let mut author = Author::new(seed, false);
        let value = author.answer();
        let (mut json, mut cbor) = (author.json(&value), author.cbor(&value));
        json.truncate(json.trim_ascii_end().len());
        json.truncate(cut.index(json.len()));
        cbor.truncate(cut.index(cbor.len()));
        BENCH.with(|bench| {
            prop_assert!(bench.check_json(&json).is_err(), "{}", String::from_utf8_lossy(&json));
            prop_assert!(bench.check_cbor(&cbor).is_err(), "{cbor:x?}");
            Ok(())
        })?;
    }
}

#[test]
fn odd_and_damaged_answers_are_some_of_them_right_and_some_wrong() {
    let bench = Bench::new();
    let (mut odd, mut damaged) = ([0, 0], [0, 0]);
    for seed in 0..1_000 {
        let mut author = Author::new(seed, true);
        let value = author.answer();
        odd[usize::from(bench.check_json(&author.json(&value)).is_ok())] += 1;
        let mut author = Author::new(seed, false);
        let value = author.answer();
        let mut body = author.json(&value);
        author.damage(&mut body);
        damaged[usize::from(bench.check_json(&body).is_ok())] += 1;
    }
    assert!(odd.iter().chain(&damaged).all(|count| *count > 100), "{odd:?} and {damaged:?}");
}

#[test]
fn the_answer_of_the_api_reference_is_read() {
    // The example of the API reference, its data and an exponent included.
    let body = br#"{
        "MillisBehindLatest": 2100,
        "NextShardIterator": "AAAAAAAAAAHsW8zCWf9164uy8Epue6WS3w6wmj4a4USt+CNvMd6uXQ+HL5vAJMznqqC0DLKsIjuoiTi1BpT6nW0LN2M2D56zM5H8anHm30Gbri9ua+qaGgj+3XTyvbhpERfrezgLHbPB/rIcVpykJbaSj5tmcXYRmFnqZBEyHwtZYFmh6hvWVFkIwLuMZLMrpWhG5r5hzkE=",
        "Records": [
            {
                "Data": "XzxkYXRhPl8w",
                "PartitionKey": "partitionKey",
                "ApproximateArrivalTimestamp": 1.441215410867E9,
                "SequenceNumber": "21269319989652663814458848515492872193"
            }
        ]
    }"#;
    let seen = Bench::new().check_json(body).unwrap();
    let record = ("21269319989652663814458848515492872193".into(), "partitionKey".into(), b"_<data>_0".to_vec());
    assert_eq!(seen.records.iter().map(|(a, b, c, _)| (a.clone(), b.clone(), c.clone())).collect::<Vec<_>>(), [record]);
    assert!(seen.records[0].3.abs_diff(1_441_215_410_867) <= 1, "{}", seen.records[0].3);
    assert_eq!((seen.millis_behind, seen.bytes), (Some(2_100), 12 + 9));
}

#[test]
fn the_service_s_cbor_is_read() {
    // As the Java SDK sees it: maps and lists up to a break, tag 1 and whole milliseconds.
    let mut body = b"\xbf\x67Records\x9f\xbf\x6eSequenceNumber\x62\x34\x32".to_vec();
    body.extend_from_slice(b"\x78\x1bApproximateArrivalTimestamp\xc1\x1b");
    body.extend_from_slice(&1_441_215_410_867_u64.to_be_bytes());
    body.extend_from_slice(b"\x64Data\x5f\x42he\x43llo\xff\x6cPartitionKey\x63key\x6eEncryptionType\x64NONE\xff\xff");
    body.extend_from_slice(b"\x71NextShardIterator\x64next\x72MillisBehindLatest\x00\xff");
    let seen = Bench::new().check_cbor(&body).unwrap();
    assert_eq!(seen.records, [("42".into(), "key".into(), b"hello".to_vec(), 1_441_215_410_867)]);
    assert_eq!((seen.next_iterator.as_deref(), seen.millis_behind), (Some("next"), Some(0)));
}

#[test]
fn odd_but_right_answers_are_read_and_wrong_ones_are_not() {
    let bench = Bench::new();
    for right in [
        r#"{"Records":[],"NextShardIterator":null,"ChildShards":null}"#,
        r#"{"Rec\u006frds":[{"Sequence\u004eumber":"7","PartitionKey":"\ud83d\ude00","Data":"Zm9v\/w=="}]}"#,
        r#"{"Records":[{"SequenceNumber":"x","PartitionKey":"k"}],"Records":[{"SequenceNumber":"1","SequenceNumber":"2","PartitionKey":"k"}]}"#,
        r#"{"Records":[{"SequenceNumber":"1","PartitionKey":"k","ApproximateArrivalTimestamp":"2026-07-01T00:00:00Z"}]}"#,
        r#"{"Records":[{"SequenceNumber":"1","PartitionKey":"k","ApproximateArrivalTimestamp":1e999}]}"#,
        r#"{"ChildShards":[{}],"ChildShards":[],"Records":[]}"#,
        r#"{"Records":[],"X":[{"a":["\ud800",-0.0e+7,{}]}]}"#,
    ] {
        bench.check_json(right.as_bytes()).unwrap_or_else(|reason| panic!("{reason} of {right}"));
    }
    for (wrong, said) in [
        (r#"{"Records":[{"SequenceNumber":"1"}]}"#, "record 1 has no partition key"),
        (r#"{"Records":[{"PartitionKey":"k"}]}"#, "`` is not a sequence number"),
        (r#"{"Records":[{"SequenceNumber":"1","PartitionKey":"\udc00"}]}"#, "surrogate"),
        (r#"{"Records":[{"SequenceNumber":"1","PartitionKey":"\ud800\n"}]}"#, "surrogate"),
        (r#"{"Records":[{"SequenceNumber":"1","PartitionKey":"k","Data":"Zm9"}]}"#, "base64"),
        (r#"{"Records":[]}x"#, "the answer's end"),
        (r#"{"Records":[],}"#, "behind the comma"),
        (r#"{"Records":{}}"#, "a list is expected"),
        (r#"{"Records":[null]}"#, "an object is expected"),
        (r#"{"Records":[],"MillisBehindLatest":1.5}"#, "a whole number is expected"),
        (r#"{"Records":[],"X\q":1}"#, "escape"),
        (r#"{"Records":[],"X":"\u00g0"}"#, "escape"),
        (r#"{"Records":[],"X":01}"#, "comma"),
        (r#"{"Records":[],"ChildShards":[{"ShardId":"shardId-000000000001"}]}"#, "has no HashKeyRange"),
        (r#"{"NextShardIterator":"next"}"#, "there are no `Records`"),
    ] {
        let reason = bench.check_json(wrong.as_bytes()).unwrap_err();
        assert!(reason.contains(said), "{reason} of {wrong}");
    }
    let not_utf8 = b"{\"Records\":[{\"SequenceNumber\":\"1\",\"PartitionKey\":\"k\xff\"}]}";
    assert!(bench.check_json(not_utf8).unwrap_err().contains("byte 50 of its 56 bytes of JSON: a text in UTF-8"));
}

#[test]
fn containers_may_lie_as_deep_in_each_other_as_the_sdk_lets_them() {
    let bench = Bench::new();
    let nested = |depth: usize| {
        let lists = ["[".repeat(depth), "]".repeat(depth)].concat();
        [
            format!(r#"{{"Records":[],"X":{lists}}}"#),
            format!(
                r#"{{"Records":[{{"SequenceNumber":"1","PartitionKey":"k","X":{}}}]}}"#,
                &lists[2..lists.len() - 2]
            ),
        ]
    };
    for body in nested(127) {
        bench.check_json(body.as_bytes()).unwrap();
    }
    for body in nested(128).into_iter().chain(nested(1_000_000)) {
        assert!(bench.check_json(body.as_bytes()).unwrap_err().contains("too deep"));
    }
    let nested = |depth: usize| [b"\xa2\x67Records\x80\x61X".to_vec(), vec![0x81; depth], vec![0x80]].concat();
    bench.check_cbor(&nested(126)).unwrap();
    assert!(bench.check_cbor(&nested(127)).unwrap_err().contains("too deep"));
    assert!(bench.check_cbor(&nested(1_000_000)).unwrap_err().contains("too deep"));
}

#[test]
fn lengths_that_are_lies_take_no_memory() {
    let bench = Bench::new();
    for body in [
        &b"\xa1\x67Records\x9b\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff\x67Records\x80",
        b"\xa1\x67Records\x81\xa1\x64Data\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xa1\x61X\x7b\x7f\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert!(bench.check_cbor(body).unwrap_err().contains("the answer ends"));
    }
}

#[test]
fn records_have_to_be_the_next_ones_with_every_decoder() {
    let bench = Bench::new();
    let json = |numbers: [&str; 2]| {
        let record = |number| format!(r#"{{"SequenceNumber":"{number}","PartitionKey":"k","Data":""}}"#);
        format!(r#"{{"Records":[{}],"NextShardIterator":"next"}}"#, numbers.map(record).join(",")).into_bytes()
    };
    let cbor = |numbers: [&str; 2]| {
        let record = |number: &str| {
            let mut record = b"\xa3\x6eSequenceNumber".to_vec();
            record.push(0x60 + number.len() as u8);
            record.extend_from_slice(number.as_bytes());
            record.extend_from_slice(b"\x6cPartitionKey\x61k\x64Data\x40");
            record
        };
        [b"\xa1\x67Records\x82".to_vec(), numbers.map(record).concat()].concat()
    };
    let number = |digits| SequenceNumber::parse(digits).unwrap();
    for decoder in [Decoder::Json, Decoder::Cbor, Decoder::Sdk] {
        let read = |numbers, from: &ReadFrom| {
            let (content_type, body) =
                if decoder == Decoder::Cbor { (CBOR, cbor(numbers)) } else { (JSON, json(numbers)) };
            let read = bench.read(decoder, content_type, &body, from);
            read.map(|decoded| decoded.page.len()).map_err(|error| match error {
                Error::InvalidAnswer { reason, .. } => reason,
                other => panic!("{other}"),
            })
        };
        assert_eq!(read(["99", "100"], &ReadFrom::At(number("99"))), Ok(2));
        assert_eq!(read(["0099", "100"], &ReadFrom::After(number("98"))), Ok(2));
        let refused = |numbers, from, said: &str| {
            let reason = read(numbers, &from).unwrap_err();
            assert!(reason.contains(said), "{decoder:?}: {reason}");
        };
        refused(["99", "100"], ReadFrom::After(number("99")), "after record 99");
        refused(["99", "100"], ReadFrom::At(number("100")), "begins with record 100");
        refused(["100", "99"], ReadFrom::TrimHorizon, "out of order");
        refused(["100", "100"], ReadFrom::AtTimestamp(5), "out of order");
        refused(["1", "-2"], ReadFrom::TrimHorizon, "not a sequence number");
    }
}
