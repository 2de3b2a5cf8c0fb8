//! The matcher that is slow and obvious says the same.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use shardmill_filter::{Metadata, Verdict};

use crate::filter;
use crate::slow::{Record, matches_record};

/// A body before it is written, with keys that may be there twice.
#[derive(Debug, Clone)]
enum Body {
    Plain(&'static str),
    Text(&'static str),
    List(Vec<Body>),
    Fields(Vec<(&'static str, Body)>),
}

impl Body {
    /// As JSON: with as much space as said, and with letters escaped or not.
    fn write(&self, space: &str, escape: bool, into: &mut String) {
        let text = |text: &str, into: &mut String| {
            into.push('"');
            for letter in text.chars() {
                let mut units = [0; 2];
                match escape {
                    true => letter.encode_utf16(&mut units).iter().for_each(|unit| *into += &format!("\\u{unit:04X}")),
                    false => into.push(letter),
                }
            }
            into.push('"');
        };
        into.push_str(space);
        match self {
            Self::Plain(value) => into.push_str(value),
            Self::Text(value) => text(value, into),
            Self::List(values) => {
                into.push('[');
                for (index, value) in values.iter().enumerate() {
                    into.push_str(if index > 0 { "," } else { space });
                    value.write(space, escape, into);
                }
                into.push(']');
            }
            Self::Fields(fields) => {
                into.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    into.push_str(if index > 0 { "," } else { space });
                    text(name, into);
                    into.push_str(space);
                    into.push(':');
                    value.write(space, escape, into);
                }
                into.push('}');
            }
        }
        into.push_str(space);
    }
}

const NAMES: [&str; 3] = ["a", "b", "ключ"];
const TEXTS: [&str; 8] = ["", "x", "X", "xy", "yx", "é", "ÉX", "1"];
const WHOLES: [i64; 6] = [0, 1, -1, 2, 9_007_199_254_740_992, 9_007_199_254_740_993];

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn bodies() -> impl Strategy<Value = Body> {
    let plain = ["null", "true", "false", "0", "-0.0", "1", "1.0", "10e-1", "-1", "1.5", "2", "9007199254740993"];
    let leaf = prop_oneof![
        prop::sample::select(plain.to_vec()).prop_map(Body::Plain),
        prop::sample::select(&TEXTS[..]).prop_map(Body::Text),
    ];
    let nested = leaf.prop_recursive(3, 32, 4, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..5).prop_map(Body::List),
            2 => prop::collection::vec((name(), inner), 0..5).prop_map(Body::Fields),
        ]
    });
    let fields = prop::collection::vec((name(), nested.clone()), 2..7).prop_map(Body::Fields).boxed();
    prop_oneof![
        1 => nested,
        6 => fields.clone(),
        1 => prop::collection::vec(fields, 1..4).prop_map(Body::List),
    ]
}

fn text() -> impl Strategy<Value = Value> {
    prop::sample::select(&TEXTS[..]).prop_map(Value::from)
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![prop::sample::select(&WHOLES[..]).prop_map(Value::from), Just(json!(1.5)), Just(json!(-0.5))]
}

fn condition() -> impl Strategy<Value = Value> {
    let not_empty = || prop::sample::select(&TEXTS[1..]).prop_map(Value::from);
    let affix = || prop::sample::select(vec!["prefix", "suffix"]);
    let some = |one: BoxedStrategy<Value>| prop::collection::vec(one, 1..3).prop_map(Value::from);
    let sign = |signs: &[&'static str]| prop::sample::select(signs.to_vec());
    prop_oneof![
        6 => text(),
        6 => number(),
        1 => Just(Value::Null),
        2 => any::<bool>().prop_map(Value::from),
        2 => any::<bool>().prop_map(|exists| json!({ "exists": exists })),
        1 => (affix(), text()).prop_map(|(affix, text)| json!({ affix: text })),
        1 => (affix(), text()).prop_map(|(affix, text)| json!({ affix: { "equals-ignore-case": text } })),
        1 => text().prop_map(|text| json!({ "equals-ignore-case": text })),
        1 => (sign(&["=", "<", "<=", ">", ">="]), number()).prop_map(|(sign, number)| json!({ "numeric": [sign, number] })),
        1 => (sign(&[">", ">="]), sign(&["<", "<="]), -2_i64..1, 1_i64..3)
            .prop_map(|(from, to, low, high)| json!({ "numeric": [from, low, to, high] })),
        1 => prop_oneof![text(), number(), some(text().boxed()), some(number().boxed())]
            .prop_map(|values| json!({ "anything-but": values })),
        1 => (affix(), prop_oneof![not_empty(), some(not_empty().boxed())])
            .prop_map(|(affix, texts)| json!({ "anything-but": { affix: texts } })),
        1 => prop_oneof![text(), some(text().boxed())]
            .prop_map(|texts| json!({ "anything-but": { "equals-ignore-case": texts } })),
    ]
}

/// What stands at `data`: an object of fields.
fn objects() -> impl Strategy<Value = Value> {
    let conditions = || prop::collection::vec(condition(), 1..5).prop_map(Value::from);
    let flat = prop::collection::btree_map(name().prop_map(str::to_owned), conditions(), 1..3)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()));
    flat.prop_recursive(3, 12, 3, move |inner| {
        let field = prop_oneof![1 => conditions(), 2 => inner.clone()];
        let fields = prop::collection::btree_map(name().prop_map(str::to_owned), field, 1..3);
        (fields, prop::option::weighted(0.3, prop::collection::vec(inner, 2..4))).prop_map(|(fields, or)| {
            let or = or.map(|branches| ("$or".to_owned(), Value::from(branches)));
            Value::Object(fields.into_iter().chain(or).collect())
        })
    })
}

fn patterns() -> impl Strategy<Value = Value> {
    let key = || prop::collection::vec(text(), 1..3);
    prop_oneof![
        6 => objects().prop_map(|data| json!({ "data": data })),
        1 => (objects(), key()).prop_map(|(data, key)| json!({ "data": data, "partitionKey": key })),
        1 => (objects(), objects(), key())
            .prop_map(|(data, other, key)| json!({ "data": data, "$or": [{ "data": other }, { "partitionKey": key }] })),
    ]
}

/// A body, as it is written.
pub(crate) fn written() -> impl Strategy<Value = String> {
    (bodies(), prop::sample::select(vec!["", " ", "\n\t "]), any::<bool>()).prop_map(|(body, space, escape)| {
        let mut text = String::new();
        body.write(space, escape, &mut text);
        text
    })
}

#[test]
fn any_pattern_and_any_body() {
    let mut runner = TestRunner::new(Config::with_cases(Config::default().cases.max(4000)));
    let (all, matched) = (Cell::new(0), Cell::new(0));
    let cases = (prop::collection::vec(patterns(), 1..4), prop::sample::select(&TEXTS[..]), written());
    let result = runner.run(&cases, |(patterns, key, body)| {
        let texts: Vec<String> = patterns.iter().map(Value::to_string).collect();
        let metadata = Metadata { partition_key: key, ..Metadata::default() };
        let verdict = filter(texts.iter().map(String::as_str)).decide(&metadata, body.as_bytes());
        let tree = serde_json::from_str(&body).expect("JSON");
        let known = Map::from_iter([("partitionKey".to_owned(), json!(key))]);
        let record = Record { metadata: &known, text: &body, body: &tree };
        let expected = patterns.iter().any(|pattern| matches_record(pattern.as_object().unwrap(), &record));
        prop_assert_eq!(verdict, if expected { Verdict::Matched } else { Verdict::NotMatched });
        all.set(all.get() + 1);
        matched.set(matched.get() + usize::from(expected));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let (all, matched): (usize, usize) = (all.get(), matched.get());
    // Else the test would say little.
    assert!(matched * 10 > all && (all - matched) * 10 > all, "{matched} of {all} bodies have matched");
}
