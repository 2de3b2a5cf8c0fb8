//! Bodies that someone has made to do harm, and bodies that are broken.

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;
use shardmill_filter::{Filter, Metadata, Verdict};

use crate::agree::written;
use crate::{decide, filter};

/// Looks at most of what bodies of these tests hold.
fn curious() -> Filter {
    filter([
        r#"{"data": {"a": [{"exists": false}], "b": {"a": [1], "c": {"a": ["x"]}}}}"#,
        r#"{"data": {"$or": [{"a": {"a": [1]}}, {"c": ["x", {"numeric": [">", 1]}]}], "ключ": [{"prefix": "x"}]}}"#,
    ])
}

fn judge(body: &[u8]) -> Verdict {
    curious().decide(&Metadata::default(), body)
}

/// Whether it is JSON by its grammar.
fn is_json(body: &[u8]) -> bool {
    str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// What is not JSON is told so; and what can be read as a whole is not.
fn check(body: &[u8]) {
    let verdict = judge(body);
    if !is_json(body) {
        assert_eq!(verdict, Verdict::InvalidJson, "{:?}", String::from_utf8_lossy(body));
        assert!(curious().invalid_json(body).is_some());
    } else if serde_json::from_slice::<Value>(body).is_ok() {
        assert_ne!(verdict, Verdict::InvalidJson, "{:?}", String::from_utf8_lossy(body));
        assert_eq!(curious().invalid_json(body), None);
    }
}

proptest! {
    #[test]
    fn any_bytes(body in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&body);
    }

    #[test]
    fn letters_of_json(body in r#"[\[\]{}:,"\\u0-9eE.+\-abctrufalsn ]{0,60}"#) {
        check(body.as_bytes());
    }

    #[test]
    fn json_that_was_damaged(body in written(), at in any::<prop::sample::Index>(), byte in any::<u8>(), how in 0..4) {
        let mut body = body.into_bytes();
        let at = at.index(body.len());
        match how {
            0 => body.truncate(at),
            1 => drop(body.remove(at)),
            2 => body.insert(at, byte),
            _ => body[at] = byte,
        }
        check(&body);
    }

    #[test]
    fn any_text_as_a_pattern(text in "\\PC{0,60}", json in written()) {
        let _ = shardmill_filter::Pattern::parse(&text);
        let _ = shardmill_filter::Pattern::parse(&json);
        let _ = shardmill_filter::Pattern::parse(&format!("{{\"data\": {json}}}"));
    }
}

/// Where a pattern looks, 127 levels are read; elsewhere it does not matter.
#[test]
fn nesting() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let pattern = r#"{"data": {"x": [1]}}"#;
    assert_eq!(decide(pattern, format!("{{\"x\": {}}}", deep(126))), Verdict::Matched);
    assert_eq!(decide(pattern, format!("{{\"x\": {}}}", deep(127))), Verdict::InvalidJson);
    assert_eq!(decide(pattern, format!("{{\"y\": {}, \"x\": 1}}", deep(300_000))), Verdict::Matched);
    assert_eq!(decide(pattern, deep(300_000)), Verdict::InvalidJson);
    assert_eq!(decide(pattern, "[".repeat(1 << 20)), Verdict::InvalidJson);
    assert_eq!(decide(pattern, "{\"x\":".repeat(1 << 18)), Verdict::InvalidJson);
    let objects = format!("{}1{}", "{\"x\":".repeat(100_000), "}".repeat(100_000));
    assert_eq!(
        decide(pattern, objects),
        Verdict::NotMatched,
        "the first field is no value, and what is in it is not read"
    );
}

#[test]
fn size() {
    let pattern = r#"{"data": {"x": {"y": ["a"], "z": [{"exists": false}]}}}"#;
    let many = |last: &str| format!("{{\"x\": [{}{last}]}}", "{\"y\": \"b\"}, ".repeat(100_000));
    assert_eq!(decide(pattern, many("{\"y\": \"a\"}")), Verdict::Matched);
    assert_eq!(decide(pattern, many("{\"y\": \"a\", \"z\": 1}")), Verdict::NotMatched);
    let same = format!("{{{}\"x\": {{\"y\": \"a\"}}}}", "\"x\": 1, ".repeat(100_000));
    assert_eq!(decide(pattern, same), Verdict::Matched);
    let long = "é".repeat(1 << 20);
    assert_eq!(
        decide(pattern, format!("{{\"{long}\": \"{long}\", \"x\": {{\"y\": \"{long}\"}}}}")),
        Verdict::NotMatched
    );
}

/// Numbers beyond a double, where the pattern looks.
#[test]
fn numbers() {
    let pattern = r#"{"data": {"x": [{"numeric": [">", 0]}]}}"#;
    assert_eq!(decide(pattern, r#"{"x": 1e308}"#), Verdict::Matched);
    assert_eq!(decide(pattern, r#"{"x": 1e-400}"#), Verdict::NotMatched);
    assert_eq!(decide(pattern, r#"{"x": 1e400}"#), Verdict::InvalidJson);
    assert_eq!(decide(pattern, r#"{"x": 1, "y": 1e400}"#), Verdict::Matched);
    let digits = "9".repeat(300);
    assert_eq!(decide(pattern, format!("{{\"x\": {digits}}}")), Verdict::Matched);
    assert_eq!(decide(pattern, format!("{{\"x\": 1, \"y\": {}}}", "9".repeat(1 << 20))), Verdict::Matched);
    assert_eq!(decide(pattern, format!("{{\"x\": {}}}", "9".repeat(1 << 20))), Verdict::InvalidJson);
    assert_eq!(decide(pattern, format!("{{\"x\": 0.{}1}}", "0".repeat(1 << 20))), Verdict::NotMatched);
}

/// Half a surrogate pair is no letter.
#[test]
fn surrogates() {
    let pattern = r#"{"data": {"x": ["a"]}}"#;
    assert_eq!(decide(pattern, r#"{"x": "\ud83d"}"#), Verdict::InvalidJson);
    assert_eq!(decide(pattern, r#"{"\ud83d": 1, "x": "a"}"#), Verdict::InvalidJson);
    assert_eq!(decide(pattern, r#"{"y": "\ud83d", "x": "a"}"#), Verdict::Matched);
    assert_eq!(decide(pattern, r#"{"x": "\u0000"}"#), Verdict::NotMatched);
}
