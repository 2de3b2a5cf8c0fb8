//! Metadata, bodies that are text, and what becomes of a body that is not JSON.

use shardmill_filter::{Action, Filter, Metadata, OnInvalidJson, Verdict};

use crate::{decide, filter, pattern};

const RECORD: Metadata<'static> = Metadata {
    partition_key: "customer-7",
    explicit_hash_key: None,
    sequence_number: "49590338271490256608559692538361571095921575989136588898",
    sub_sequence_number: 3,
    approximate_arrival: 1_545_084_650_987,
    shard_id: "shardId-000000000006",
    stream: "orders",
};

fn verdict(pattern: &str, metadata: &Metadata<'_>) -> Verdict {
    filter([pattern]).decide(metadata, b"\xFF not read")
}

#[test]
fn metadata() {
    for matched in [
        r#"{"partitionKey": ["customer-7"]}"#,
        r#"{"partitionKey": [{"prefix": "customer-"}], "stream": ["orders"]}"#,
        r#"{"explicitHashKey": [{"exists": false}]}"#,
        r#"{"sequenceNumber": ["49590338271490256608559692538361571095921575989136588898"]}"#,
        r#"{"subSequenceNumber": [{"numeric": [">", 2]}]}"#,
        r#"{"approximateArrivalTimestamp": [1545084650.987]}"#,
        r#"{"approximateArrivalTimestamp": [{"numeric": [">=", 1545084650, "<", 1545084651]}]}"#,
        r#"{"shardId": [{"suffix": "6"}]}"#,
        r#"{"$or": [{"stream": ["x"]}, {"shardId": [{"anything-but": "x"}]}]}"#,
    ] {
        assert_eq!(verdict(matched, &RECORD), Verdict::Matched, "{matched}");
    }
    for not_matched in [
        r#"{"partitionKey": ["customer-70"]}"#,
        r#"{"partitionKey": ["customer-7"], "stream": ["x"]}"#,
        r#"{"explicitHashKey": [{"exists": true}]}"#,
        r#"{"explicitHashKey": [{"anything-but": "1"}]}"#,
        r#"{"approximateArrivalTimestamp": [{"numeric": ["<", 1545084650.987]}]}"#,
    ] {
        assert_eq!(verdict(not_matched, &RECORD), Verdict::NotMatched, "{not_matched}");
    }
    let whole = Metadata { explicit_hash_key: Some("12"), approximate_arrival: 5000, ..RECORD };
    assert_eq!(verdict(r#"{"explicitHashKey": ["12"], "approximateArrivalTimestamp": [5]}"#, &whole), Verdict::Matched);
}

/// Every millisecond has the double that its decimal has in a pattern.
#[test]
fn arrival_times_are_what_their_decimals_say() {
    for millis in (1_700_000_000_000..1_700_000_002_100).chain([0, 1, 999, 4_102_444_800_001]) {
        let (seconds, rest) = (millis / 1000, millis % 1000);
        let pattern = format!("{{\"approximateArrivalTimestamp\": [{seconds}.{rest:03}]}}");
        assert_eq!(
            verdict(&pattern, &Metadata { approximate_arrival: millis, ..RECORD }),
            Verdict::Matched,
            "{pattern}"
        );
    }
}

#[test]
fn a_body_as_text() {
    let errors = r#"{"data": ["ping", {"prefix": "ERROR "}, {"suffix": "!"}]}"#;
    for body in [&b"ping"[..], b"ERROR \xFF\xFE", b"\xFF!"] {
        assert_eq!(decide(errors, body), Verdict::Matched, "{body:?}");
    }
    for body in [&b"ping "[..], b"", b"\xFF", b"\"ping\""] {
        assert_eq!(decide(errors, body), Verdict::NotMatched, "{body:?}");
    }
    assert_eq!(decide(r#"{"data": [{"anything-but": "ping"}]}"#, b"\xFF"), Verdict::Matched);
    assert_eq!(decide(r#"{"data": [{"equals-ignore-case": "PING"}]}"#, "ping"), Verdict::Matched);
    assert_eq!(decide(r#"{"data": [{"prefix": "{\"type\":\"a\""}]}"#, "{\"type\":\"a\", \"x\": 1}"), Verdict::Matched);
    assert_eq!(decide(r#"{"data": [""]}"#, ""), Verdict::Matched);
}

/// The table of the Lambda guide: a body that is not JSON is dropped where its fields are asked for, and does not
/// matter where they are not.
#[test]
fn a_body_that_is_not_json_matters_only_where_it_decides() {
    let by_both = filter([r#"{"partitionKey": ["customer-7"], "data": {"x": [1]}}"#]);
    assert_eq!(by_both.decide(&RECORD, b"text"), Verdict::InvalidJson);
    assert_eq!(by_both.decide(&Metadata { partition_key: "other", ..RECORD }, b"text"), Verdict::NotMatched);

    let either = filter([r#"{"partitionKey": ["customer-7"]}"#, r#"{"data": {"x": [1]}}"#, r#"{"data": ["text"]}"#]);
    assert_eq!(either.decide(&RECORD, b"other"), Verdict::Matched);
    let other = Metadata { partition_key: "other", ..RECORD };
    assert_eq!(either.decide(&other, b"text"), Verdict::Matched);
    assert_eq!(either.decide(&other, b"other"), Verdict::InvalidJson);
    assert_eq!(either.decide(&other, b"{}"), Verdict::NotMatched);

    let by_or = filter([r#"{"stream": ["orders"], "$or": [{"partitionKey": ["customer-7"]}, {"data": {"x": [1]}}]}"#]);
    assert_eq!(by_or.decide(&RECORD, b"text"), Verdict::Matched);
    assert_eq!(by_or.decide(&other, b"text"), Verdict::InvalidJson);
    assert_eq!(by_or.decide(&other, b"{\"x\": 1}"), Verdict::Matched);
    assert_eq!(by_or.decide(&Metadata { stream: "x", ..other }, b"text"), Verdict::NotMatched);

    let absence = filter([r#"{"data": {"x": [{"exists": false}]}}"#]);
    assert_eq!(absence.decide(&RECORD, b"text"), Verdict::InvalidJson);
}

/// What no pattern names must be JSON as well.
#[test]
fn a_body_is_json_as_a_whole_or_not_at_all() {
    let pattern = r#"{"data": {"x": [1]}}"#;
    for body in
        [&b"{\"x\": 1, \"y\": tru}"[..], b"{\"x\": 1, \"y\": \"\xFF\"}", b"{\"x\": 1}}", b"{\"x\": 1, \"y\": [1 2]}"]
    {
        assert_eq!(decide(pattern, body), Verdict::InvalidJson, "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn what_becomes_of_a_record() {
    let of = |rule| Filter::new(vec![pattern(r#"{"data": {"x": [1]}}"#)], rule).expect("a filter");
    for (rule, action, word) in [
        (OnInvalidJson::Pass, Action::Deliver, "pass"),
        (OnInvalidJson::Drop, Action::Drop, "drop"),
        (OnInvalidJson::Fail, Action::Fail, "fail"),
    ] {
        let filter = of(rule);
        assert_eq!((filter.on_invalid_json(), rule.as_str()), (rule, word));
        assert_eq!(filter.action(Verdict::Matched), Action::Deliver);
        assert_eq!(filter.action(Verdict::NotMatched), Action::Drop);
        assert_eq!(filter.action(Verdict::InvalidJson), action);
    }
}

#[test]
fn the_reason_tells_where_and_shows_nothing() {
    let by_field = filter([r#"{"data": {"x": [1]}}"#]);
    let reason = by_field.invalid_json(b"{\"secret\": \n nonsense}").expect("not JSON");
    assert_eq!(reason, "the filter asks for fields of the data, which is not JSON: expected ident at line 2 column 3");
    let reason = by_field.invalid_json(b"ab\xFF").expect("not JSON");
    assert_eq!(reason, "the filter asks for fields of the data, which is not JSON: byte 2 is not UTF-8");
    assert_eq!(by_field.invalid_json(b"{}"), None);
    assert_eq!(filter([r#"{"stream": ["x"]}"#]).invalid_json(b"\xFF{"), None);
}
