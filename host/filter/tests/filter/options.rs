//! Patterns in a configuration file.

use serde::Deserialize;
use serde_json::json;
use shardmill_filter::{Filter, Metadata, OnInvalidJson, Pattern, Verdict};

/// As a file may have it.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Options {
    patterns: Vec<Pattern>,
    #[serde(default)]
    on_invalid_json: OnInvalidJson,
}

fn options(toml: &str) -> Result<Options, String> {
    toml::from_str(toml).map_err(|error| error.to_string())
}

#[test]
fn json_and_tables_are_the_same() {
    let json = options(
        r#"
        patterns = [
            '{"data": {"status": ["paid", {"prefix": "part"}], "total": [{"numeric": [">", 9.5, "<=", 100]}]}}',
            '{"$or": [{"stream": ["x"]}, {"data": {"ok": [true]}}], "partitionKey": [{"anything-but": ["a", "b"]}]}',
        ]
        on-invalid-json = "fail"
        "#,
    )
    .expect("options");
    let tables = options(
        r#"
        on-invalid-json = "fail"

        [[patterns]]
        data = { status = ["paid", { prefix = "part" }], total = [{ numeric = [">", 9.5, "<=", 100] }] }

        [[patterns]]
        partitionKey = [{ anything-but = ["a", "b"] }]
        "$or" = [{ stream = ["x"] }, { data.ok = [true] }]
        "#,
    )
    .expect("options");
    assert_eq!(json, tables);
    assert_eq!(json.on_invalid_json, OnInvalidJson::Fail);

    let filter = Filter::new(tables.patterns, tables.on_invalid_json).expect("a filter");
    let decide = |body: &str| filter.decide(&Metadata { partition_key: "a", ..Metadata::default() }, body.as_bytes());
    assert_eq!(decide(r#"{"status": "partial", "total": 100}"#), Verdict::Matched);
    assert_eq!(decide(r#"{"status": "partial", "total": 9.5}"#), Verdict::NotMatched);
}

#[test]
fn a_pattern_from_json_that_is_parsed_already() {
    let json = r#"{"data": {"a": [1, -1, 0.5, null, true, "x", 18446744073709551615, 1e30]}, "shardId": ["s"]}"#;
    let value = serde_json::from_str(json).expect("JSON");
    assert_eq!(Pattern::from_value(&value), Pattern::parse(json));
    assert_eq!(Pattern::from_value(&json!({"data": {"a": "x"}})).unwrap_err().path(), "data.a");
}

#[test]
fn without_a_word_about_it_invalid_json_is_dropped() {
    let options = options(r#"patterns = ['{"data": {"x": [1]}}']"#).expect("options");
    assert_eq!(options.on_invalid_json, OnInvalidJson::Drop);
}

/// The line of the file, the place in the pattern, and what is allowed.
#[test]
fn mistakes_are_told_with_their_line() {
    let text = options("patterns = [\n  '{\"data\": {\"x\": [{\"like\": \"a\"}]}}',\n]").expect_err("an operator");
    assert!(text.contains("line 2") && text.contains("at `data.x[0].like`: `like` is no operator"), "{text}");
    let text = options("[[patterns]]\ndata = { x = 'a' }").expect_err("a field");
    assert!(text.contains("at `data.x`: a list of values"), "{text}");
    let text = options("patterns = [5]").expect_err("a number");
    assert!(text.contains("a pattern: JSON in quotes"), "{text}");
    let text = options("patterns = [{ data = { x = [2026-01-01] } }]").expect_err("a date");
    assert!(text.contains("write it as a text"), "{text}");
    let text = options("patterns = [{ data = { x = [inf] } }]").expect_err("no number");
    assert!(text.contains("no record can have it"), "{text}");
    let text = options("patterns = ['{\"stream\": [\"x\"]}']\non-invalid-json = 'skip'").expect_err("a word");
    assert!(text.contains("`pass`, `drop`, `fail`"), "{text}");
    assert!(Filter::new(Vec::new(), OnInvalidJson::Drop).is_err());
}
