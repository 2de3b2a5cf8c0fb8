//! A matcher that is slow and obvious says the same: it works on whole trees, of the pattern as of the body.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use shardmill_filter::{Metadata, Verdict};

use crate::filter;

/// How a part of a pattern stands to a part of a body.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    No,
    /// Yes, because nothing is there.
    Without,
    Yes,
}

fn whole(pattern: &Map<String, Value>, key: &str, body: &Value) -> bool {
    pattern.iter().all(|(name, value)| match name.as_str() {
        "data" => object(value.as_object().unwrap(), Some(body)) != Outcome::No,
        "partitionKey" => list(value.as_array().unwrap(), Some(&json!(key))) != Outcome::No,
        "$or" => value.as_array().unwrap().iter().any(|branch| whole(branch.as_object().unwrap(), key, body)),
        _ => unreachable!(),
    })
}

/// What is there when arrays are not seen.
fn spread(value: Option<&Value>) -> Vec<&Value> {
    match value {
        None => Vec::new(),
        Some(Value::Array(values)) => values.iter().flat_map(|value| spread(Some(value))).collect(),
        Some(value) => vec![value],
    }
}

/// Of an object in the pattern: it holds for one of the things that are there, or else it is about absence alone and
/// holds for them all.
fn object(pattern: &Map<String, Value>, value: Option<&Value>) -> Outcome {
    let things = spread(value);
    if things.is_empty() {
        return fields(pattern, &Value::Null);
    }
    let outcomes: Vec<_> = things.into_iter().map(|thing| fields(pattern, thing)).collect();
    if outcomes.contains(&Outcome::Yes) {
        Outcome::Yes
    } else if outcomes.contains(&Outcome::No) {
        Outcome::No
    } else {
        Outcome::Without
    }
}

fn fields(pattern: &Map<String, Value>, thing: &Value) -> Outcome {
    let outcomes = pattern.iter().map(|(name, value)| match value {
        Value::Array(branches) if name == "$or" => {
            branches.iter().map(|branch| fields(branch.as_object().unwrap(), thing)).max().unwrap()
        }
        Value::Array(conditions) => list(conditions, thing.get(name)),
        value => object(value.as_object().unwrap(), thing.get(name)),
    });
    let outcomes: Vec<_> = outcomes.collect();
    if outcomes.contains(&Outcome::No) { Outcome::No } else { outcomes.into_iter().max().unwrap() }
}

fn list(conditions: &[Value], value: Option<&Value>) -> Outcome {
    let values: Vec<_> = spread(value).into_iter().filter(|value| !value.is_object()).collect();
    if values.iter().any(|value| conditions.iter().any(|condition| matches(condition, value))) {
        Outcome::Yes
    } else if values.is_empty() && conditions.contains(&json!({"exists": false})) {
        Outcome::Without
    } else {
        Outcome::No
    }
}

fn matches(condition: &Value, value: &Value) -> bool {
    let Value::Object(operator) = condition else { return equal(condition, value) };
    let (name, operand) = operator.iter().next().unwrap();
    match name.as_str() {
        "exists" => operand.as_bool().unwrap(),
        "anything-but" => match operand {
            Value::Array(values) => !values.iter().any(|one| equal(one, value)),
            Value::Object(inner) => {
                let (name, operands) = inner.iter().next().unwrap();
                let operands = operands.as_array().cloned().unwrap_or_else(|| vec![operands.clone()]);
                !operands.iter().any(|operand| matches(&json!({ name: operand }), value))
            }
            one => !equal(one, value),
        },
        "numeric" => {
            value.is_number()
                && operand.as_array().unwrap().chunks(2).all(|pair| {
                    let order = order(value, &pair[1]);
                    match pair[0].as_str().unwrap() {
                        "=" => order.is_eq(),
                        "<" => order.is_lt(),
                        "<=" => order.is_le(),
                        ">" => order.is_gt(),
                        _ => order.is_ge(),
                    }
                })
        }
        _ => value.as_str().is_some_and(|text| match (name.as_str(), operand) {
            ("equals-ignore-case", Value::String(operand)) => text.to_lowercase() == operand.to_lowercase(),
            ("prefix", Value::String(operand)) => text.starts_with(operand),
            ("suffix", Value::String(operand)) => text.ends_with(operand),
            ("prefix", _) => text.to_lowercase().starts_with(&inner(operand)),
            ("suffix", _) => text.to_lowercase().ends_with(&inner(operand)),
            _ => unreachable!(),
        }),
    }
}

fn inner(operand: &Value) -> String {
    operand["equals-ignore-case"].as_str().unwrap().to_lowercase()
}

fn equal(one: &Value, other: &Value) -> bool {
    if one.is_number() && other.is_number() { order(one, other).is_eq() } else { one == other }
}

/// Exact for the numbers below: large ones are whole, and fractions small.
fn order(one: &Value, other: &Value) -> std::cmp::Ordering {
    let whole = |value: &Value| value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.as_f64().unwrap().partial_cmp(&other.as_f64().unwrap()).unwrap(),
    }
}

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
        let expected = patterns.iter().any(|pattern| whole(pattern.as_object().unwrap(), key, &tree));
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
