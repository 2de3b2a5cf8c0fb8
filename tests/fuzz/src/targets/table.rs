//! One row of a table, as DynamoDB's `UpdateItem` sees and changes it: as much of its expressions as leases need.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_lease::store::dynamodb::fuzzing::{Item, Write};

/// Whether a row meets a write's condition.
///
/// # Panics
/// If DynamoDB would not take the write.
pub(super) fn meets(item: &Item, write: &Write) -> bool {
    let mut words = Words { words: words(&write.condition), at: 0 };
    let is_met = either(&mut words, item, write);
    assert_eq!(words.at, words.words.len(), "{}", write.condition);
    is_met
}

/// The row after a write.
///
/// # Panics
/// If DynamoDB would not take the write.
pub(super) fn after(item: &Item, write: &Write) -> Item {
    let mut item = item.clone();
    let mut written = BTreeSet::new();
    let mut clause = String::new();
    let mut words = words(&write.update).into_iter().peekable();
    while let Some(word) = words.next() {
        if ["SET", "REMOVE", "ADD"].contains(&word.as_str()) {
            clause = word;
            continue;
        }
        let name = name(write, &word);
        assert!(written.insert(name.to_owned()), "{name} twice in {}", write.update);
        match clause.as_str() {
            "SET" => {
                assert_eq!(words.next().as_deref(), Some("="), "{}", write.update);
                let value = value(write, &words.next().expect("a value"));
                item.insert(name.to_owned(), value.clone());
            }
            "REMOVE" => drop(item.remove(name)),
            "ADD" => {
                let value = value(write, &words.next().expect("a value"));
                add(&mut item, name, value);
            }
            other => panic!("{other} in {}", write.update),
        }
    }
    item
}

/// Names and values that stand in neither expression are refused.
pub(super) fn uses_all(write: &Write) {
    let used: BTreeSet<String> = words(&write.update).into_iter().chain(words(&write.condition)).collect();
    for word in write.names.keys().chain(write.values.keys()) {
        assert!(used.contains(word), "{word} is not used: {write:?}");
    }
}

fn add(item: &mut Item, name: &str, value: &AttributeValue) {
    let more = value.as_ss().expect("shards are added as a set of texts");
    assert!(!more.is_empty(), "a set is never empty");
    let mut all = match item.get(name) {
        None => Vec::new(),
        Some(AttributeValue::Ss(texts)) => texts.clone(),
        Some(other) => panic!("texts cannot be added to {name}, which is {other:?}"),
    };
    let new = more.iter().filter(|text| !all.contains(text)).cloned().collect::<Vec<_>>();
    all.extend(new);
    item.insert(name.to_owned(), AttributeValue::Ss(all));
}

struct Words {
    words: Vec<String>,
    at: usize,
}

fn words(expression: &str) -> Vec<String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace(',', " ").replace('=', " = ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

fn either(words: &mut Words, item: &Item, write: &Write) -> bool {
    let mut is_met = both(words, item, write);
    while words.takes("OR") {
        is_met |= both(words, item, write);
    }
    is_met
}

fn both(words: &mut Words, item: &Item, write: &Write) -> bool {
    let mut is_met = one(words, item, write);
    while words.takes("AND") {
        is_met &= one(words, item, write);
    }
    is_met
}

fn one(words: &mut Words, item: &Item, write: &Write) -> bool {
    if words.takes("(") {
        let is_met = either(words, item, write);
        assert!(words.takes(")"), "{}", write.condition);
        return is_met;
    }
    if words.takes("attribute_not_exists") {
        assert!(words.takes("("), "{}", write.condition);
        let is_absent = !item.contains_key(name(write, &words.word()));
        assert!(words.takes(")"), "{}", write.condition);
        return is_absent;
    }
    let found = item.get(name(write, &words.word()));
    assert!(words.takes("="), "{}", write.condition);
    let value = value(write, &words.word());
    found.is_some_and(|found| is_same(found, value))
}

/// Numbers are compared as such.
fn is_same(one: &AttributeValue, other: &AttributeValue) -> bool {
    let number = |value: &AttributeValue| value.as_n().ok().and_then(|digits| digits.parse::<u64>().ok());
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn name<'a>(write: &'a Write, word: &str) -> &'a str {
    write.names.get(word).unwrap_or_else(|| panic!("{word} has no name: {write:?}"))
}

fn value<'a>(write: &'a Write, word: &str) -> &'a AttributeValue {
    let values: &HashMap<String, AttributeValue> = &write.values;
    values.get(word).unwrap_or_else(|| panic!("{word} has no value: {write:?}"))
}

// === impl Words ===

impl Words {
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at).is_some_and(|next| next == word);
        self.at += usize::from(is_next);
        is_next
    }

    fn word(&mut self) -> String {
        self.at += 1;
        self.words.get(self.at - 1).cloned().expect("the expression goes on")
    }
}
