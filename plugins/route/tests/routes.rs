//! Where records go.

use proptest::prelude::*;
use route::{Path, Route};
use serde_json::{Value, json};
use shardmill_guest::testing::{self, Inspected, TestRecord, Verdict, record};

fn run(config: Value, records: Vec<impl Into<TestRecord>>) -> Inspected {
    testing::run(&mut testing::configured::<Route>(config).unwrap(), records).unwrap()
}

fn by_type() -> Value {
    json!({ "field": "/type", "routes": { "click": "clicks", "7": "sevens", "true": "truths", "🦀": "crabs" } })
}

/// Each output's name and text.
fn sent(result: &Inspected) -> Vec<(&str, &str)> {
    result.all_outputs().iter().map(|output| (output.name.as_str(), output.text())).collect()
}

fn failed(reason: &str) -> Verdict {
    Verdict::Failed { reason: reason.to_owned(), retry: false }
}

fn skipped(reason: &str) -> Verdict {
    Verdict::Skipped { reason: reason.to_owned() }
}

#[test]
fn records_go_by_value_and_byte_for_byte() {
    let records = [
        "  {\"type\" : \"click\",\n \"n\": 1.10e0}\t",
        r#"{"type":7}"#,
        r#"{"type":true}"#,
        r#"{"type":"\ud83e\udd80"}"#,
        r#"{"\u0074ype":"click"}"#,
    ];
    let result = run(by_type(), records.to_vec());
    assert!(result.all_done());
    let names = ["clicks", "sevens", "truths", "crabs", "clicks"];
    assert_eq!(sent(&result), names.into_iter().zip(records).collect::<Vec<_>>());
}

#[test]
fn what_has_no_route_goes_to_the_default_or_is_skipped() {
    let records = vec![r#"{"type":"other"}"#, "{}", r#"{"type":null}"#, r#"{"type":["click"]}"#, r#""click""#];
    let result = run(by_type(), records.clone());
    assert!(result.all_outputs().is_empty());
    assert_eq!(result.verdicts()[0], skipped("no route for \"other\""));
    assert!(result.verdicts()[1..].iter().all(|verdict| *verdict == skipped("no value at \"/type\"")));

    let mut config = by_type();
    config["default"] = json!("rest");
    let result = run(config, records.clone());
    assert!(result.all_done());
    assert_eq!(sent(&result), records.into_iter().map(|text| ("rest", text)).collect::<Vec<_>>());
}

#[test]
fn the_key_is_the_records_with_its_explicit_hash_key() {
    let result = run(by_type(), vec![record(r#"{"type":"click"}"#).partition_key("k").explicit_hash_key(5)]);
    let output = &result.all_outputs()[0];
    assert_eq!((output.partition_key.as_str(), output.explicit_hash_key.as_deref()), ("k", Some("5")));
}

#[test]
fn another_key_leaves_the_explicit_hash_key_behind() {
    let mut config = by_type();
    config["partition-key"] = json!("user.id");
    let event = |id: &str| record(format!(r#"{{"type":"click","user":{{"id":{id}}}}}"#)).partition_key("k");
    let records = vec![
        event("\"k\"").explicit_hash_key(5),
        event("\"ü\"").explicit_hash_key(5),
        event("12"),
        event("null"),
        event("\"\""),
    ];
    let result = run(config, records);
    let keys: Vec<_> = result
        .all_outputs()
        .iter()
        .map(|output| (output.partition_key.as_str(), output.explicit_hash_key.as_deref()))
        .collect();
    assert_eq!(keys, [("k", Some("5")), ("ü", None), ("12", None)]);
    assert_eq!(result.verdicts()[3], failed("no value at \"user.id\" to be the partition key"));
    assert_eq!(
        result.verdicts()[4],
        failed("output \"clicks\": a partition key has 1 to 256 characters, this one has 0")
    );
}

#[test]
fn invalid_json_fails_is_skipped_or_is_sent_on() {
    // The value is there before the text turns out to be broken.
    let broken = vec![r#"{"type":"click""#, r#"{"type":"click"} x"#, "", "\u{feff}{}"];
    let with = |setting: Option<&str>| {
        let mut config = by_type();
        if let Some(setting) = setting {
            config["invalid-json"] = json!(setting);
        }
        run(config, broken.clone())
    };
    for result in [with(None), with(Some("fail"))] {
        assert!(result.all_outputs().is_empty());
        assert_eq!(result.verdicts()[0], failed("invalid JSON: EOF while parsing an object at line 1 column 15"));
        assert!(result.verdicts().iter().all(|verdict| matches!(verdict, Verdict::Failed { retry: false, .. })));
    }
    let skip = with(Some("skip"));
    assert!(skip.all_outputs().is_empty());
    assert!(skip.verdicts().iter().all(|verdict| matches!(verdict, Verdict::Skipped { .. })));
    let bin = with(Some("bin"));
    assert!(bin.all_done());
    assert_eq!(sent(&bin), broken.iter().map(|text| ("bin", *text)).collect::<Vec<_>>());
}

#[test]
fn deep_nesting_beside_the_path_is_no_fault_and_within_it_no_crash() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let result = run(by_type(), vec![format!(r#"{{"a":{deep},"type":"click"}}"#)]);
    assert!(result.all_done());
    let result = run(json!({ "field": "", "default": "rest" }), vec![deep]);
    assert!(result.all_done());
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused() {
    let refused = |config: Value| testing::configured::<Route>(config).map(|_| ()).unwrap_err();
    assert!(refused(json!({ "field": "/a" })).contains("neither `routes` nor `default`"));
    assert!(refused(json!({ "routes": { "a": "b" } })).contains("missing field `field`"));
    assert!(refused(json!({ "field": "a..b", "default": "x" })).contains("empty name"));
    assert!(refused(json!({ "field": "a", "default": "" })).contains("empty text"));
    assert!(refused(json!({ "field": "a", "defualt": "x" })).contains("unknown field `defualt`"));
}

#[test]
fn dots_and_pointers_reach_the_same_places() {
    let data = json!({ "a": { "b": [10, { "c": "found" }] }, "x.y": 1, "x/y": 2, "x~y": 3, "": 4, "01": [5] });
    let data = data.to_string();
    let find = |path: &str| Path::try_from(path.to_owned()).unwrap().find(data.as_bytes()).unwrap();
    for path in ["a.b.1.c", "/a/b/1/c"] {
        assert_eq!(find(path).as_deref(), Some("found"), "{path}");
    }
    for (path, value) in [("/x.y", "1"), ("/x~1y", "2"), ("/x~0y", "3"), ("/", "4"), ("01.0", "5"), ("a.b.0", "10")] {
        assert_eq!(find(path).as_deref(), Some(value), "{path}");
    }
    for path in ["a.b.2", "a.b.01", "a.b.-", "a.b.x", "a", "", "a.b.0.c", "nowhere"] {
        assert_eq!(find(path), None, "{path}");
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab/~]{0,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// The shortcut finds what reading the whole text into memory finds.
    #[test]
    fn find_agrees_with_a_json_pointer_into_the_whole_value(
        value in json_value(),
        names in prop::collection::vec("[ab/~]{0,2}|[0-3]", 0..4),
    ) {
        let pointer: String =
            names.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect();
        let text = value.to_string();
        // Read back, because reading may change the last digit of a long fraction.
        let value: Value = serde_json::from_str(&text).unwrap();
        let found = Path::try_from(pointer.clone()).unwrap().find(text.as_bytes()).unwrap();
        let expected = match value.pointer(&pointer) {
            None | Some(Value::Null | Value::Object(_) | Value::Array(_)) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        };
        prop_assert_eq!(found.map(|found| found.into_owned()), expected);
    }
}
