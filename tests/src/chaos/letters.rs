//! The dead letters of a run: what is in their folder, and whether it is what should be there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::fate::{Fate, SECOND, payload};
use super::violation::Violation;
use super::writer::{Written, number_of};

/// A record that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Its partition key.
    pub key: String,
    /// Its number among those of the key.
    pub nth: u64,
    /// The processor that gave it up.
    pub processor: String,
    /// The life that did.
    pub by: String,
    /// The input's shard that it stands in.
    pub shard: String,
    /// What is wrong with the letter itself, if anything is.
    pub fault: Option<String>,
}

/// A record of which there is more than one letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedLetter {
    /// The lives that have given it up.
    pub by: BTreeSet<String>,
    /// The input's shard that it stands in.
    pub shard: String,
    /// How many letters there are besides the first one.
    pub count: u64,
}

/// What the letters say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Everything that is wrong.
    pub violations: Vec<Violation>,
    /// How many records were given up, each counted once.
    pub records: u64,
    /// Those that were given up more than once.
    pub repeated: Vec<RepeatedLetter>,
    /// How many of those may be in the input more than once.
    pub unclear: u64,
}

/// A line of a file of letters.
#[derive(Debug, Deserialize)]
struct Line {
    processor: String,
    #[serde(default)]
    hops: u64,
    shard: String,
    partition_key: String,
    reason: String,
    worker: String,
    data: String,
}

/// What a payload says of itself.
#[derive(Debug, Deserialize)]
struct Payload {
    n: u64,
}

/// All letters of a folder. A line without an end is one that a worker was killed at.
pub(super) fn read(folder: &Path) -> Vec<Letter> {
    let files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("a file").path());
    let letters = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    letters
        .flat_map(|path| {
            let bytes = std::fs::read(path).expect("a file of letters");
            let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
            whole.map(letter).collect::<Vec<_>>()
        })
        .collect()
}

/// Judges the letters of a run.
pub fn check_letters(written: &Written, letters: &[Letter]) -> Account {
    let mut account = Account::default();
    let mut by_record: BTreeMap<(&str, u64), Vec<&Letter>> = BTreeMap::new();
    for letter in letters {
        let count = written.acknowledged.get(&letter.key).copied().unwrap_or(0);
        let (key, nth) = (letter.key.clone(), letter.nth);
        if letter.nth >= count {
            account.violations.push(Violation::Unknown { key, nth });
            continue;
        }
        let fate = number_of(&letter.key, letter.nth).map_or(Fate::Out, Fate::of);
        if fate.given_up_by() != Some(letter.processor.as_str()) {
            let (by, processor) = (letter.by.clone(), letter.processor.clone());
            account.violations.push(Violation::GivenUp { key, nth, by, processor });
        } else if let Some(fault) = &letter.fault {
            let promise = format!("the letter about record {nth} of {key} holds what there was");
            account.violations.push(Violation::Other { promise, seen: fault.clone() });
        }
        by_record.entry((letter.key.as_str(), letter.nth)).or_default().push(letter);
    }
    account.records = by_record.len() as u64;
    for ((key, nth), letters) in &by_record {
        let count = letters.len() as u64 - 1;
        if count == 0 {
            continue;
        }
        if written.unclear.contains(&((*key).to_owned(), *nth)) {
            account.unclear += count;
            continue;
        }
        let by = letters.iter().map(|letter| letter.by.clone()).collect();
        account.repeated.push(RepeatedLetter { by, shard: letters[0].shard.clone(), count });
    }
    for (key, count) in &written.acknowledged {
        let is_absent = |nth: &u64| {
            let fate = number_of(key, *nth).map_or(Fate::Out, Fate::of);
            fate != Fate::Out && !by_record.contains_key(&(key.as_str(), *nth))
        };
        let numbers: Vec<u64> = (0..*count).filter(is_absent).collect();
        if !numbers.is_empty() {
            account.violations.push(Violation::Lost { key: key.clone(), numbers });
        }
    }
    account
}

fn letter(line: &[u8]) -> Letter {
    let text = String::from_utf8_lossy(line);
    let line: Line = serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error}: {text}"));
    let data = aws_smithy_types::base64::decode(&line.data).unwrap_or_else(|error| panic!("{error}: {text}"));
    // What is behind the JSON of a torn record does not matter here.
    let payload_of_it = serde_json::Deserializer::from_slice(&data).into_iter::<Payload>().next();
    let number = match payload_of_it {
        Some(Ok(payload)) => payload.n,
        other => panic!("{other:?}: {text}"),
    };
    let is_whole = data == payload(number, &line.partition_key);
    let has_come_so_far = line.hops == u64::from(line.processor == SECOND);
    let has_reason = !line.reason.is_empty();
    Letter {
        nth: super::writer::nth_of_key(number),
        fault: (!is_whole || !has_come_so_far || !has_reason).then(|| text.trim_end().to_owned()),
        key: line.partition_key,
        processor: line.processor,
        by: line.worker,
        shard: line.shard,
    }
}

#[cfg(test)]
mod tests {
    use aws_smithy_types::base64::encode;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::super::fate::FIRST;
    use super::*;

    /// Number 147 of the stream is this key's second one, and one that the guest fails.
    const KEY: &str = "key-47";

    fn written(count: u64) -> Written {
        Written { acknowledged: [(KEY.to_owned(), count)].into(), unclear: BTreeSet::new() }
    }

    fn line(nth: u64, processor: &str, worker: &str) -> Value {
        let number = number_of(KEY, nth).unwrap();
        json!({
            "processor": processor, "hops": u64::from(processor == SECOND), "shard": "shardId-000000000000",
            "partition_key": KEY, "reason": "this record is poison", "worker": worker,
            "data": encode(payload(number, KEY)),
        })
    }

    fn account(lines: &[Value], count: u64) -> Account {
        let folder = TempDir::new().expect("a temporary folder");
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.path().join("copy-1.jsonl"), text + r#"{"killed":"#).expect("a file of letters");
        std::fs::write(folder.path().join(".replayed"), "not a letter\n").expect("another file");
        check_letters(&written(count), &read(folder.path()))
    }

    #[test]
    fn each_poison_record_has_its_letter_and_those_that_have_more_are_counted() {
        let one = account(&[line(1, FIRST, "a")], 10);
        assert_eq!(one, Account { records: 1, ..Account::default() });
        let again = account(&[line(1, FIRST, "a"), line(1, FIRST, "b"), line(1, FIRST, "b")], 10);
        let by = ["a", "b"].map(str::to_owned).into();
        let repeated = RepeatedLetter { by, shard: "shardId-000000000000".to_owned(), count: 2 };
        assert_eq!(again, Account { records: 1, repeated: vec![repeated], ..Account::default() });
    }

    #[test]
    fn what_has_no_letter_or_should_have_none_or_another_one_is_seen() {
        let key = || KEY.to_owned();
        assert_eq!(account(&[], 10).violations, [Violation::Lost { key: key(), numbers: vec![1] }]);
        assert_eq!(account(&[], 1).violations, [], "it was not written");
        let unknown = account(&[line(1, FIRST, "a")], 1);
        assert_eq!(unknown.violations, [Violation::Unknown { key: key(), nth: 1 }]);
        for (nth, processor) in [(1, SECOND), (2, FIRST)] {
            let found = account(&[line(1, FIRST, "a"), line(nth, processor, "b")], 10);
            let given_up = Violation::GivenUp { key: key(), nth, by: "b".to_owned(), processor: processor.to_owned() };
            assert_eq!(found.violations, [given_up]);
        }
        let mut torn = line(1, FIRST, "a");
        torn["data"] = encode(br#"{"n":147}"#).into();
        assert!(matches!(&account(&[torn], 10).violations[..], [Violation::Other { .. }]));
    }
}
