//! How patterns meet the shape of a body: nested fields, arrays, keys, `$or`, several patterns.

use shardmill_filter::{Metadata, Verdict};

use crate::{check, decide, filter};

#[test]
fn nested_fields() {
    check(
        r#"{"data": {"order": {"type": ["buy"], "item": {"size": [{"numeric": [">", 1]}]}}}}"#,
        &[r#"{"order": {"item": {"size": 2, "x": {}}, "type": "buy"}, "other": [1]}"#],
        &[r#"{"order": {"type": "buy"}}"#, r#"{"type": "buy", "item": {"size": 2}}"#, r#"{"order": "buy"}"#],
    );
}

#[test]
fn an_array_matches_if_an_element_does() {
    check(
        r#"{"data": {"tags": ["a"]}}"#,
        &[r#"{"tags": ["b", "a"]}"#, r#"{"tags": [["b"], [["a"]]]}"#, r#"{"tags": [1, {"x": 1}, "a", null]}"#],
        &[r#"{"tags": []}"#, r#"{"tags": ["b"]}"#, r#"{"tags": [{"tags": "a"}]}"#],
    );
    check(r#"{"data": {"tags": [null]}}"#, &[r#"{"tags": [1, null]}"#], &[r#"{"tags": []}"#]);
}

/// Fields that stand together in a pattern are sought in one element.
#[test]
fn objects_in_arrays() {
    let pattern = r#"{"data": {"people": {"first": ["Anna"], "last": ["Smith"]}}}"#;
    check(
        pattern,
        &[
            r#"{"people": [{"first": "John", "last": "Doe"}, {"first": "Anna", "last": "Smith"}]}"#,
            r#"{"people": [[{"first": "John"}], [[{"last": "Smith", "first": ["Ann", "Anna"]}]]]}"#,
            r#"[{"people": {}}, {"people": {"first": "Anna", "last": "Smith"}}]"#,
        ],
        &[
            r#"{"people": [{"first": "John", "last": "Smith"}, {"first": "Anna", "last": "Doe"}]}"#,
            r#"{"people": [{"first": "Anna"}, {"last": "Smith"}]}"#,
            r#"{"people": []}"#,
        ],
    );
    check(
        r#"{"data": {"u": {"t": {"k": ["color"], "v": ["blue"]}, "n": [1]}}}"#,
        &[r#"{"u": [{"n": 1, "t": [{"k": "size"}, {"k": "color", "v": "blue"}]}]}"#],
        &[
            r#"{"u": [{"n": 1, "t": [{"k": "color"}, {"v": "blue"}]}]}"#,
            r#"{"u": [{"n": 1}, {"t": [{"k": "color", "v": "blue"}]}]}"#,
        ],
    );
}

/// Absence picks no element: by itself it is about all of them.
#[test]
fn absence_in_arrays() {
    check(
        r#"{"data": {"items": {"cancelled": [{"exists": false}]}}}"#,
        &["{}", r#"{"items": []}"#, r#"{"items": [{"id": 1}, {"id": 2}]}"#, r#"{"items": [1, {}]}"#],
        &[r#"{"items": [{"id": 1}, {"id": 2, "cancelled": true}]}"#, r#"{"items": [[{"cancelled": null}]]}"#],
    );
    // With a field that is there, it is about the element that has it, whatever the order of names.
    for (there, absent) in [("a", "b"), ("b", "a")] {
        check(
            &format!(r#"{{"data": {{"items": {{"{there}": [1], "{absent}": [{{"exists": false}}]}}}}}}"#),
            &[&format!(r#"{{"items": [{{"{there}": 1, "{absent}": 2}}, {{"{there}": 1}}]}}"#)],
            &[&format!(r#"{{"items": [{{"{there}": 1, "{absent}": 2}}, {{"x": 1}}]}}"#), r#"{"items": []}"#, "{}"],
        );
    }
    check(
        r#"{"data": {"x": [{"exists": false}]}}"#,
        &[r#"{"x": [[], {"y": 1}]}"#],
        &[r#"{"x": [{"y": 1}, 5]}"#, r#"{"x": [5, {"y": 1}]}"#],
    );
}

#[test]
fn absence_of_what_is_nested() {
    check(
        r#"{"data": {"a": {"b": [{"exists": false}]}}}"#,
        &["{}", "[]", "null", r#""text""#, r#"{"a": 5}"#, r#"{"a": {"c": 1}}"#, r#"{"a": {"b": {"c": 1}}}"#],
        &[r#"{"a": {"b": 1}}"#, r#"{"a": {"b": [1]}}"#],
    );
}

#[test]
fn or_among_fields() {
    check(
        r#"{"data": {"source": ["s"], "$or": [
            {"metric": ["cpu", "io"]},
            {"type": ["t"], "space": ["ec2"], "$or": [{"id": [1]}, {"place": [2]}]},
            {"scope": ["all"]}
        ]}}"#,
        &[
            r#"{"source": "s", "metric": "io"}"#,
            r#"{"source": "s", "type": "t", "space": "ec2", "place": 2}"#,
            r#"{"scope": "all", "source": "s"}"#,
        ],
        &[r#"{"metric": "io"}"#, r#"{"source": "s"}"#, r#"{"source": "s", "type": "t", "space": "ec2", "place": 1}"#],
    );
    // In an array it is about one element.
    check(
        r#"{"data": {"items": {"id": [1], "$or": [{"a": [1]}, {"b": {"c": [{"exists": false}]}, "d": [1]}]}}}"#,
        &[r#"{"items": [{"a": 1}, {"id": 1, "a": 1}]}"#, r#"{"items": [{"id": 1, "d": 1}]}"#],
        &[r#"{"items": [{"a": 1}, {"id": 1}]}"#, r#"{"items": [{"id": 1, "d": 1, "b": {"c": 0}}]}"#],
    );
}

/// A field may stand beside `$or` and in it: both must hold.
#[test]
fn or_and_a_field_that_is_there_too() {
    check(
        r#"{"data": {"x": [{"anything-but": "ab"}], "$or": [{"x": [{"prefix": "a"}]}, {"x": [{"prefix": "b"}]}]}}"#,
        &[r#"{"x": "ac"}"#, r#"{"x": "b"}"#],
        &[r#"{"x": "ab"}"#, r#"{"x": "c"}"#],
    );
}

#[test]
fn keys_are_taken_as_they_are() {
    check(
        r#"{"data": {"a.b": [1], "": [2], "ключ": [3], "\u0041": [4]}}"#,
        &[r#"{"a.b": 1, "": 2, "\u043a\u043b\u044e\u0447": 3, "A": 4}"#],
        &[r#"{"a": {"b": 1}, "": 2, "ключ": 3, "A": 4}"#, r#"{"a.b": 1, "": 2, "ключ": 3, "a": 4}"#],
    );
    check(r#"{"data": {"x": ["a\"\\\n\u00e9😀"]}}"#, &["{\"x\": \"\\u0061\\\"\\\\\\n\\u00E9\\ud83d\\ude00\"}"], &[]);
}

#[test]
fn of_a_key_that_is_there_twice_the_last_one_counts() {
    check(
        r#"{"data": {"x": [1]}}"#,
        &[r#"{"x": 2, "x": 1}"#, r#"{"x": {"y": 1}, "x": [3, 1]}"#, r#"{"x": 2, "\u0078": 1}"#],
        &[r#"{"x": 1, "x": 2}"#, r#"{"x": 1, "x": {}}"#, r#"{"x": 1, "x": []}"#],
    );
    check(
        r#"{"data": {"a": {"b": [1], "c": [2]}}}"#,
        &[r#"{"a": {"b": 9}, "a": {"b": 1, "c": 2}}"#],
        &[r#"{"a": {"b": 1}, "a": {"c": 2}}"#, r#"{"a": {"b": 1, "c": 2}, "a": 5}"#],
    );
}

/// Two patterns may see one field as a value and as an object.
#[test]
fn patterns_are_alternatives() {
    let filter = filter([
        r#"{"data": {"a": ["x"], "b": [1]}}"#,
        r#"{"data": {"a": {"c": ["x"]}}}"#,
        r#"{"data": {"a": {"c": [{"exists": false}]}, "d": [1]}}"#,
    ]);
    let decide = |body: &str| filter.decide(&Metadata::default(), body.as_bytes());
    for body in [r#"{"a": "x", "b": 1}"#, r#"{"a": {"c": "x"}}"#, r#"{"a": ["y", {"c": "x"}]}"#, r#"{"d": 1}"#] {
        assert_eq!(decide(body), Verdict::Matched, "{body}");
    }
    for body in [r#"{"a": "x"}"#, r#"{"a": {"c": "y"}, "b": 1}"#, r#"{"a": {"c": "y"}, "d": 1}"#, "{}"] {
        assert_eq!(decide(body), Verdict::NotMatched, "{body}");
    }
}

#[test]
fn a_body_that_is_no_object() {
    let pattern = r#"{"data": {"x": [1]}}"#;
    check(pattern, &[r#"[{"x": 0}, {"x": 1}]"#, " \n{\"x\": 1}\t "], &["1", "null", r#""x""#, "[]", "{}", "[[1]]"]);
    for body in ["", " ", "{", "x", "{\"x\": 1} 2", "{\"x\": 1,}", "\u{feff}{\"x\": 1}", "{'x': 1}", "NaN"] {
        assert_eq!(decide(pattern, body), Verdict::InvalidJson, "{body:?}");
    }
}
