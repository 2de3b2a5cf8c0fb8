//! What the guide says is so.

use serde_json::{Value, json};
use shardmill_filter::{Filter, OnInvalidJson, Pattern, Verdict};

use crate::{check, decide};

const GUIDE: &str = include_str!("../../../../docs/filters.md");

/// What stands in backticks.
fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The blocks of code in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    GUIDE.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix(language)).collect()
}

/// Each row of the table of conditions, with the values that it shows.
#[test]
fn the_table_of_conditions() {
    let rows: Vec<Vec<&str>> = (GUIDE.lines())
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split(" | ").collect())
        .filter(|row: &Vec<&str>| row.len() == 4 && row[1].starts_with("`["))
        .collect();
    assert_eq!(rows.len(), 17, "rows of the table: {rows:?}");
    for row in rows {
        for pattern in code(row[1]).into_iter().filter(|code| code.starts_with('[')) {
            let pattern = format!("{{\"data\": {{\"x\": {pattern}}}}}");
            for (column, expected) in [(row[2], Verdict::Matched), (row[3], Verdict::NotMatched)] {
                let values = code(column).into_iter().filter_map(|code| serde_json::from_str::<Value>(code).ok());
                let mut bodies: Vec<Value> = values.map(|value| json!({ "x": value })).collect();
                if column.contains("no such field") {
                    bodies.push(json!({}));
                }
                assert!(!bodies.is_empty() || column.contains("any value"), "{column}");
                for body in bodies {
                    assert_eq!(decide(&pattern, body.to_string()), expected, "{pattern} and {body}");
                }
            }
        }
    }
}

#[test]
fn the_configurations() {
    let blocks = blocks("toml\n");
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let mut file: toml::Table = toml::from_str(block).expect("TOML");
        let filter = file.remove("processors").and_then(|mut one| one["billing"].as_table_mut()?.remove("filter"));
        let mut filter = filter.expect("a filter");
        let patterns: Vec<Pattern> = filter["patterns"].clone().try_into().expect("patterns");
        let on_invalid_json = filter.as_table_mut().and_then(|filter| filter.remove("on-invalid-json"));
        let on_invalid_json: Option<OnInvalidJson> = on_invalid_json.map(|word| word.try_into().expect("a word"));
        Filter::new(patterns, on_invalid_json.unwrap_or_default()).expect("a filter");
    }
}

#[test]
fn the_examples_beside_the_table() {
    let or = blocks("json\n")[0];
    check(
        or,
        &[r#"{"type": "order", "total": 1001}"#, r#"{"type": "order", "customer": {"vip": true}}"#],
        &[r#"{"type": "order", "total": 1000}"#, r#"{"type": "offer", "total": 1001}"#],
    );
    for (pattern, matched, not_matched) in [
        (
            r#"{"data": {"items": {"sku": ["a"], "count": [1]}}}"#,
            r#"{"items": [{"sku": "a", "count": 1}]}"#,
            r#"{"items": [{"sku": "a"}, {"count": 1}]}"#,
        ),
        (r#"{"data": ["ping", {"prefix": "ERROR "}]}"#, "ERROR 7", "WARNING"),
        (
            r#"{"data": {"items": {"cancelled": [{"exists": false}]}}}"#,
            r#"{"items": [{"id": 1}]}"#,
            r#"{"items": [{"id": 1}, {"cancelled": true}]}"#,
        ),
    ] {
        assert!(GUIDE.contains(pattern), "{pattern}");
        check(pattern, &[matched], &[not_matched]);
    }
}
