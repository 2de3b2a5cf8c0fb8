//! Patterns that are refused: each error says where and what is allowed.

use shardmill_filter::{Filter, MAX_DEPTH, MAX_PATTERNS, MAX_VALUES, OnInvalidJson, Pattern};

use crate::pattern;

/// The error about a pattern, which names this path.
fn refused(json: &str, path: &str) -> String {
    let error = Pattern::parse(json).expect_err(json);
    assert_eq!(error.path(), path, "{json}: {error}");
    let text = error.to_string();
    assert!(path.is_empty() || text.starts_with(&format!("at `{path}`: ")), "{text}");
    text
}

#[test]
fn at_the_top() {
    let text = refused(r#"{"body": {"x": [1]}}"#, "body");
    for name in ["`data`", "`partitionKey`", "`approximateArrivalTimestamp`", "`stream`", "`$or`"] {
        assert!(text.contains(name), "{text}");
    }
    assert!(refused("{", "").starts_with("the pattern is not JSON: "));
    assert!(refused("[1]", "").contains("and this is a list"));
    assert!(refused("{}", "").contains("names no field"));
    assert!(refused(r#"{"data": "x"}"#, "data").contains("and this is a text"));
    assert!(refused(r#"{"data": {}}"#, "data").contains("names no field"));
    assert!(refused(r#"{"stream": {"x": [1]}}"#, "stream").contains("a list is expected"));
    assert!(refused(r#"{"data": {"x": [1]}, "data": {"y": [1]}}"#, "").contains("\"data\" is there twice"));
    assert!(refused(r#"{"data": {"x": [1e400]}}"#, "").contains("number out of range"));
}

#[test]
fn at_a_field() {
    assert!(refused(r#"{"data": {"a": {"b": "x"}}}"#, "data.a.b").contains("a list of values and conditions"));
    assert!(refused(r#"{"data": {"x": []}}"#, "data.x").contains("the list is empty"));
    assert!(refused(r#"{"data": {"x": {}}}"#, "data.x").contains("names no field"));
    assert!(refused(r#"{"data": {"x": [1, [2]]}}"#, "data.x[1]").contains("a list in the list"));
    assert!(refused(r#"{"data": {"x": {"anything-but": ["a"]}}}"#, "data.x.anything-but").contains("stand in a list"));
    assert!(refused(r#"{"data": {"x": {"numeric": [">", 1]}}}"#, "data.x.numeric").contains("stand in a list"));
    // Fields may have such names.
    pattern(r#"{"data": {"x": {"numeric": [1], "prefix": ["a"], "exists": [true], "suffix": [1]}}}"#);
}

#[test]
fn operators() {
    let at = |condition: &str, path: &str| refused(&format!("{{\"data\": {{\"x\": [{condition}]}}}}"), path);
    for (condition, path) in [
        (r#"{"contains": "a"}"#, "data.x[0]"),
        (r#"{"wildcard": "a*"}"#, "data.x[0]"),
        (r#"{"cidr": "10.0.0.0/8"}"#, "data.x[0]"),
        (r#"{"Prefix": "a"}"#, "data.x[0]"),
        ("{}", "data.x[0]"),
    ] {
        let text =
            at(condition, &if condition == "{}" { path.to_owned() } else { format!("{path}.{}", key(condition)) });
        assert!(text.contains("allowed are `prefix`, `suffix`, `equals-ignore-case`, `numeric`, `exists`"), "{text}");
    }
    assert!(at(r#"{"prefix": "a", "suffix": "b"}"#, "data.x[0]").contains("this one has `prefix`, `suffix`"));
    assert!(at(r#"{"prefix": 1}"#, "data.x[0].prefix").contains("a text is expected, and this is a number"));
    assert!(at(r#"{"prefix": ["a"]}"#, "data.x[0].prefix").contains("and this is a list"));
    assert!(at(r#"{"suffix": {"prefix": "a"}}"#, "data.x[0].suffix").contains("`equals-ignore-case` alone"));
    at(r#"{"prefix": {"equals-ignore-case": 1}}"#, "data.x[0].prefix.equals-ignore-case");
    at(r#"{"equals-ignore-case": ["a"]}"#, "data.x[0].equals-ignore-case");
    assert!(at(r#"{"exists": "true"}"#, "data.x[0].exists").contains("takes true or false, and this is a text"));
}

fn key(condition: &str) -> &str {
    condition.split('"').nth(1).expect("a key")
}

#[test]
fn numeric() {
    let at = |list: &str, path: &str| {
        refused(&format!("{{\"data\": {{\"x\": [{{\"numeric\": {list}}}]}}}}"), &format!("data.x[0].numeric{path}"))
    };
    assert!(at("5", "").contains("and this is a number"));
    at("[]", "[0]");
    at("[5]", "[0]");
    assert!(at(r#"["!=", 5]"#, "[0]").contains("`!=` is no comparison; allowed are `=`, `<`, `<=`, `>` and `>=`"));
    assert!(at(r#"["="]"#, "").contains("a number is expected"));
    assert!(at(r#"["<", "5"]"#, "[1]").contains("takes a number, and this is a text"));
    at(r#"["<", 5, ">", 1]"#, "[2]");
    at(r#"["=", 5, "<", 9]"#, "[2]");
    at(r#"[">", 5, ">", 9]"#, "[2]");
    at(r#"[">", 5, "<"]"#, "");
    at(r#"[">", 5, "<", 9, "<"]"#, "[4]");
    assert!(at(r#"[">", 5, "<", 5]"#, "").contains("the lower end"));
    assert!(at(r#"[">=", 9007199254740993, "<=", 9007199254740992]"#, "").contains("the lower end"));
}

#[test]
fn anything_but() {
    let at = |value: &str, path: &str| {
        refused(
            &format!("{{\"data\": {{\"x\": [{{\"anything-but\": {value}}}]}}}}"),
            &format!("data.x[0].anything-but{path}"),
        )
    };
    assert!(at("null", "").contains("and this is null"));
    assert!(at("true", "").contains("and this is true or false"));
    assert!(at("[]", "").contains("is empty"));
    assert!(at(r#"["a", 1]"#, "").contains("both texts and numbers"));
    assert!(at(r#"["a", null]"#, "[1]").contains("and this is null"));
    assert!(at(r#"{"numeric": [">", 1]}"#, ".numeric").contains("`numeric` is not for `anything-but`"));
    at(r#"{"prefix": "a", "suffix": "b"}"#, "");
    assert!(at(r#"{"prefix": ""}"#, ".prefix").contains("no text would match"));
    at(r#"{"suffix": ["a", ""]}"#, ".suffix");
    at(r#"{"suffix": []}"#, ".suffix");
    at(r#"{"equals-ignore-case": ["a", 1]}"#, ".equals-ignore-case[1]");
}

#[test]
fn or() {
    assert!(refused(r#"{"$or": {"stream": ["x"]}}"#, "$or").contains("and this is an object"));
    assert!(refused(r#"{"data": {"$or": [{"x": [1]}]}}"#, "data.$or").contains("this list has 1"));
    assert!(refused(r#"{"data": {"$or": [{"x": [1]}, 2]}}"#, "data.$or[1]").contains("and this is a number"));
    assert!(refused(r#"{"data": {"$or": [{"x": [1]}, {}]}}"#, "data.$or[1]").contains("names no field"));
    for operator in ["prefix", "suffix", "numeric", "exists", "wildcard", "cidr"] {
        let json = format!(r#"{{"data": {{"x": {{"$or": [{{"{operator}": ["a"]}}, {{"y": [1]}}]}}}}}}"#);
        assert!(refused(&json, &format!("data.x.$or[0].{operator}")).contains("stand in a list"), "{json}");
    }
}

#[test]
fn values_that_a_field_of_a_record_never_has() {
    assert!(refused(r#"{"partitionKey": [1]}"#, "partitionKey[0]").contains("write it in quotes"));
    assert!(refused(r#"{"partitionKey": [null]}"#, "partitionKey[0]").contains("never null"));
    refused(r#"{"stream": [{"numeric": [">", 1]}]}"#, "stream[0].numeric[1]");
    refused(r#"{"stream": [{"anything-but": [1]}]}"#, "stream[0].anything-but[0]");
    assert!(refused(r#"{"subSequenceNumber": ["1"]}"#, "subSequenceNumber[0]").contains("without quotes"));
    refused(r#"{"approximateArrivalTimestamp": [{"prefix": "15"}]}"#, "approximateArrivalTimestamp[0].prefix");
    refused(r#"{"approximateArrivalTimestamp": [true]}"#, "approximateArrivalTimestamp[0]");
    assert!(refused(r#"{"data": ["a", 1]}"#, "data[1]").contains("write it in quotes"));
}

#[test]
fn limits() {
    let nested = |depth: usize| {
        let levels = depth - 2;
        format!("{{\"data\": {}[1]{}}}", "{\"x\": ".repeat(levels), "}".repeat(levels))
    };
    assert!(Pattern::parse(&nested(MAX_DEPTH)).is_ok());
    assert!(refused(&nested(MAX_DEPTH + 1), "").contains("more than 64 deep"));
    let long = |values: usize| format!("{{\"data\": {{\"x\": [1{}]}}}}", ", 1".repeat(values - 1));
    assert!(Pattern::parse(&long(MAX_VALUES)).is_ok());
    assert!(refused(&long(MAX_VALUES + 1), "").contains("10001 values are too many: 10000 are allowed"));

    let many = |count| Filter::new(vec![pattern(r#"{"stream": ["x"]}"#); count], OnInvalidJson::Drop);
    assert!(many(MAX_PATTERNS).is_ok());
    assert!(many(MAX_PATTERNS + 1).unwrap_err().to_string().contains("101 patterns are too many: 100 are allowed"));
    assert!(many(0).unwrap_err().to_string().contains("without patterns"));
}
