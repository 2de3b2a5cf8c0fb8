//! A matcher that is slow and obvious: it works on whole trees, of the pattern as of the body. Property tests and the fuzz
//! target hold the filter to it.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

/// How a part of a pattern stands to a part of a body.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    No,
    /// Yes, because nothing is there.
    Without,
    Yes,
}

/// A record as the matcher sees it.
pub(crate) struct Record<'a> {
    /// By the names that patterns have for it.
    pub(crate) metadata: &'a Map<String, Value>,
    /// The body as text.
    pub(crate) text: &'a str,
    /// The body as JSON.
    pub(crate) body: &'a Value,
}

/// Whether a pattern matches that [`shardmill_filter::Pattern`] takes.
///
/// # Panics
/// Perhaps, of one that it does not take.
pub(crate) fn matches_record(pattern: &Map<String, Value>, record: &Record<'_>) -> bool {
    pattern.iter().all(|(name, value)| match (name.as_str(), value) {
        ("data", Value::Object(fields)) => object(fields, Some(record.body)) != Outcome::No,
        ("data", Value::Array(conditions)) => list(conditions, Some(&json!(record.text))) != Outcome::No,
        ("$or", Value::Array(branches)) => {
            branches.iter().any(|branch| matches_record(branch.as_object().unwrap(), record))
        }
        (field, Value::Array(conditions)) => list(conditions, record.metadata.get(field)) != Outcome::No,
        _ => unreachable!("{name}: {value}"),
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
            ("equals-ignore-case", Value::String(operand)) => {
                letters(text).len() == letters(operand).len() && begins(&letters(text), &letters(operand))
            }
            ("prefix", Value::String(operand)) => text.starts_with(operand),
            ("suffix", Value::String(operand)) => text.ends_with(operand),
            ("prefix", _) => begins(&letters(text), &inner(operand)),
            ("suffix", _) => begins(&reversed(letters(text)), &reversed(inner(operand))),
            _ => unreachable!("{name}: {operand}"),
        }),
    }
}

fn inner(operand: &Value) -> Vec<char> {
    letters(operand["equals-ignore-case"].as_str().unwrap())
}

fn letters(text: &str) -> Vec<char> {
    text.chars().collect()
}

fn reversed(letters: Vec<char>) -> Vec<char> {
    letters.into_iter().rev().collect()
}

/// Letter by letter, whatever the case.
fn begins(text: &[char], with: &[char]) -> bool {
    let lower = |letter: char| letter.to_lowercase().to_string();
    let upper = |letter: char| letter.to_uppercase().to_string();
    let same = |(one, other): (&char, &char)| lower(*one) == lower(*other) || upper(*one) == upper(*other);
    text.len() >= with.len() && text.iter().zip(with).all(same)
}

fn equal(one: &Value, other: &Value) -> bool {
    if one.is_number() && other.is_number() { order(one, other).is_eq() } else { one == other }
}

/// Whole numbers exactly. Of a fraction and a whole number too: those that doubles round are larger than any fraction.
fn order(one: &Value, other: &Value) -> Ordering {
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.as_f64().unwrap().partial_cmp(&other.as_f64().unwrap()).unwrap(),
    }
}

fn whole(number: &Value) -> Option<i128> {
    let of_double = |double: f64| (double.fract() == 0.0 && double.abs() < 2_f64.powi(127)).then_some(double as i128);
    let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
    whole.or_else(|| number.as_f64().and_then(of_double))
}
