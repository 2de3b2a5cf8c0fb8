//! Accounts for every record: what is lost, out of order, passed over, or repeated.
//!
//! What is promised of the output, key by key: every acknowledged record is there; what comes first of each record comes
//! in the order of the numbers; and what is repeated is repeated from a checkpoint on. For the last, appearances are
//! told apart by the worker process (a *life*) that has put them: between two appearances that a life has put, nothing
//! may be missing but what others have put since the first of the two.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_record::SequenceNumber;

use super::violation::Violation;
use super::writer::{Written, nth_of_key};
use crate::history::acknowledged;
use crate::{Found, Write};

/// A record in the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appearance {
    /// Its partition key.
    pub key: String,
    /// Its number among those of the key.
    pub nth: u64,
    /// The output's shard that it is in.
    pub shard: String,
    /// The life that has put it; `None` if it is not in the journal.
    pub by: Option<String>,
    /// When the service took it in, in milliseconds since 1970.
    pub arrival: u64,
}

/// Why there is more than one of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repeat {
    /// This life had put it, and another one put it again.
    Replayed(String),
    /// This life has put it, and did so again.
    SentAgain(String),
    /// It may be in the input more than once.
    Unclear,
}

/// The longest of several times.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Longest {
    /// How long, in milliseconds as the service's clock has it.
    pub time: u64,
    /// Whose record ended it.
    pub key: String,
    /// When it ended, in milliseconds since 1970.
    pub until: u64,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Everything that is wrong.
    pub violations: Vec<Violation>,
    /// How many records are there, each counted once.
    pub records: u64,
    /// What is there besides them, and why.
    pub repeats: BTreeMap<Repeat, u64>,
    /// The longest time between two new records of a key.
    pub silence: Longest,
}

/// Who has put what, from the output (each shard's records in their order) and what a proxy has seen of PutRecords.
pub fn appearances(output: &[Found], writes: &[Write]) -> Vec<Appearance> {
    let mut lives: BTreeMap<(String, SequenceNumber), &str> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.operation == "PutRecords" && write.status == 200) {
        lives.extend(acknowledged(&write.answer).into_iter().map(|place| (place, write.link.as_str())));
    }
    let appearance = |found: &Found| {
        let place = (found.shard.clone(), found.position.sequence_number.clone());
        Appearance {
            key: found.key.clone(),
            nth: nth_of_key(found.number),
            shard: found.shard.clone(),
            by: lives.get(&place).map(|life| (*life).to_owned()),
            arrival: found.arrival,
        }
    };
    output.iter().map(appearance).collect()
}

/// The longest time from the arrival of a record in the input to its first arrival in the output.
pub(super) fn longest_delay(input: &[Found], output: &[Found]) -> Longest {
    let mut arrivals: BTreeMap<u64, u64> = BTreeMap::new();
    for record in input {
        arrivals.entry(record.number).or_insert(record.arrival);
    }
    let mut longest = Longest::default();
    for record in output {
        if let Some(arrived) = arrivals.remove(&record.number) {
            longest.or(arrived, record.arrival, &record.key);
        }
    }
    longest
}

/// Judges an output: the appearances of each shard in their order.
pub fn check(written: &Written, output: &[Appearance]) -> Findings {
    let mut findings = Findings::default();
    let mut by_key: BTreeMap<&str, Vec<&Appearance>> =
        written.acknowledged.keys().map(|key| (key.as_str(), Vec::new())).collect();
    for appearance in output {
        by_key.entry(&appearance.key).or_default().push(appearance);
    }
    for (key, appearances) in by_key {
        OfKey::new(key, written, &appearances).check(&mut findings);
    }
    findings
}

/// The appearances of one key.
struct OfKey<'a> {
    key: &'a str,
    written: &'a Written,
    appearances: &'a [&'a Appearance],
    /// By number: where it is among the appearances, and who has put it there.
    places: BTreeMap<u64, Vec<(usize, &'a str)>>,
}

// === impl Longest ===

impl Longest {
    fn or(&mut self, from: u64, until: u64, key: &str) {
        let time = until.saturating_sub(from);
        if time > self.time {
            *self = Longest { time, key: key.to_owned(), until };
        }
    }
}

// === impl OfKey ===

impl<'a> OfKey<'a> {
    fn new(key: &'a str, written: &'a Written, appearances: &'a [&'a Appearance]) -> OfKey<'a> {
        let mut places: BTreeMap<u64, Vec<(usize, &str)>> = BTreeMap::new();
        for (index, appearance) in appearances.iter().enumerate() {
            let life = appearance.by.as_deref().unwrap_or_default();
            places.entry(appearance.nth).or_default().push((index, life));
        }
        OfKey { key, written, appearances, places }
    }

    fn check(&self, findings: &mut Findings) {
        self.check_completeness(findings);
        self.check_first_appearances(findings);
        self.count_repeats(findings);
        self.check_replays(findings);
    }

    fn check_completeness(&self, findings: &mut Findings) {
        let key = || self.key.to_owned();
        let count = self.written.acknowledged.get(self.key).copied().unwrap_or(0);
        let lost: Vec<u64> = (0..count).filter(|nth| !self.places.contains_key(nth)).collect();
        if !lost.is_empty() {
            findings.violations.push(Violation::Lost { key: key(), numbers: lost });
        }
        for (nth, _) in self.places.range(count..) {
            findings.violations.push(Violation::Unknown { key: key(), nth: *nth });
        }
        for appearance in self.appearances.iter().filter(|appearance| appearance.by.is_none()) {
            findings.violations.push(Violation::PutByNobody { key: key(), nth: appearance.nth });
        }
        let shards: BTreeSet<String> = self.appearances.iter().map(|appearance| appearance.shard.clone()).collect();
        if shards.len() > 1 {
            findings.violations.push(Violation::Scattered { key: key(), shards });
        }
    }

    fn check_first_appearances(&self, findings: &mut Findings) {
        let mut highest: Option<&Appearance> = None;
        for (index, appearance) in self.appearances.iter().enumerate() {
            if self.places[&appearance.nth][0].0 != index {
                continue;
            }
            findings.records += 1;
            match highest {
                Some(before) if before.nth > appearance.nth => {
                    let (nth, by) = (appearance.nth, before.nth);
                    findings.violations.push(Violation::Overtaken { key: self.key.to_owned(), nth, by });
                    continue;
                }
                Some(before) => {
                    findings.silence.or(before.arrival, appearance.arrival, self.key);
                }
                None => {}
            }
            highest = Some(appearance);
        }
    }

    fn count_repeats(&self, findings: &mut Findings) {
        for (nth, places) in &self.places {
            for (at, (_, life)) in places.iter().enumerate().skip(1) {
                let before = &places[..at];
                let repeat = if self.is_unclear(*nth) {
                    Repeat::Unclear
                } else if before.iter().any(|(_, earlier)| earlier == life) {
                    Repeat::SentAgain((*life).to_owned())
                } else {
                    Repeat::Replayed(before[before.len() - 1].1.to_owned())
                };
                *findings.repeats.entry(repeat).or_default() += 1;
            }
        }
    }

    fn check_replays(&self, findings: &mut Findings) {
        // By life: where it is.
        let mut cursors: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for (index, appearance) in self.appearances.iter().enumerate() {
            let nth = appearance.nth;
            if self.is_unclear(nth) {
                continue;
            }
            let life = appearance.by.as_deref().unwrap_or_default();
            if let Some(&(since, from)) = cursors.get(life) {
                let others_put = |nth: &u64| {
                    let places = self.places.get(nth).map(Vec::as_slice).unwrap_or_default();
                    places.iter().any(|(at, other)| *other != life && (since..index).contains(at))
                };
                // What was on its way when it lost the lease: where it goes on is not behind that.
                if others_put(&nth) {
                    continue;
                }
                if (from + 1..nth).any(|between| !self.is_unclear(between) && !others_put(&between)) {
                    let (key, life) = (self.key.to_owned(), life.to_owned());
                    findings.violations.push(Violation::Skipped { key, life, from, to: nth });
                }
            }
            cursors.insert(life, (index, nth));
        }
    }

    fn is_unclear(&self, nth: u64) -> bool {
        self.written.unclear.contains(&(self.key.to_owned(), nth))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shardmill_record::Position;

    use super::*;

    const KEY: &str = "key-1";

    /// The findings for an output of one key, `count` of whose records were acknowledged: who has put which number.
    fn found(count: u64, unclear: &[u64], output: &[(&str, u64)]) -> Findings {
        let written = Written {
            acknowledged: [(KEY.to_owned(), count)].into(),
            unclear: unclear.iter().map(|nth| (KEY.to_owned(), *nth)).collect(),
        };
        let appearance = |(arrival, (life, nth)): (u64, &(&str, u64))| Appearance {
            key: KEY.to_owned(),
            nth: *nth,
            shard: "shardId-000000000000".to_owned(),
            by: Some((*life).to_owned()),
            arrival: arrival * 1_000,
        };
        check(&written, &(0..).zip(output).map(appearance).collect::<Vec<_>>())
    }

    fn put(life: &str, numbers: impl IntoIterator<Item = u64>) -> Vec<(&str, u64)> {
        numbers.into_iter().map(|nth| (life, nth)).collect()
    }

    fn replayed(life: &str, count: u64) -> (Repeat, u64) {
        (Repeat::Replayed(life.to_owned()), count)
    }

    fn sent_again(life: &str, count: u64) -> (Repeat, u64) {
        (Repeat::SentAgain(life.to_owned()), count)
    }

    #[test]
    fn legal_histories_pass_and_their_repeats_are_counted() {
        let cases = [
            ("everything once", [put("a", 0..10)].concat(), vec![]),
            ("a hand-over", [put("a", 0..5), put("b", 5..10)].concat(), vec![]),
            ("a replay from a checkpoint", [put("a", 0..8), put("b", 4..10)].concat(), vec![replayed("a", 4)]),
            (
                "a replay that is killed, and another one",
                [put("a", 0..8), put("b", 4..6), put("c", 3..10)].concat(),
                // Two were last put by the one that was killed, three by the first.
                vec![replayed("a", 2 + 3), replayed("b", 2)],
            ),
            ("a lost answer", [put("a", 0..5), put("a", 3..10)].concat(), vec![sent_again("a", 2)]),
            (
                "a late request of the old holder, already replayed",
                [put("a", 0..6), put("b", 4..8), put("a", 6..8), put("b", 8..10)].concat(),
                vec![replayed("a", 2), replayed("b", 2)],
            ),
            (
                "a late request of the old holder, before its replay",
                [put("a", 0..6), put("b", 4..5), put("a", 6..7), put("b", 5..10)].concat(),
                vec![replayed("a", 3)],
            ),
            (
                "a late request, and later the lease again",
                [put("a", 0..6), put("b", 4..8), put("a", 6..7), put("a", 8..10)].concat(),
                vec![replayed("a", 2), replayed("b", 1)],
            ),
            ("there and back again", [put("a", 0..5), put("b", 5..7), put("a", 7..10)].concat(), vec![]),
        ];
        for (what, output, repeats) in cases {
            let findings = found(10, &[], &output);
            assert_eq!(findings.violations, [], "{what}");
            assert_eq!(findings.records, 10, "{what}");
            assert_eq!(findings.repeats.into_iter().collect::<Vec<_>>(), repeats, "{what}");
        }
    }

    #[test]
    fn what_is_lost_overtaken_skipped_or_from_nowhere_is_seen() {
        let key = || KEY.to_owned();
        let lost = |numbers: &[u64]| Violation::Lost { key: key(), numbers: numbers.to_vec() };
        let skipped = |life: &str, from, to| Violation::Skipped { key: key(), life: life.to_owned(), from, to };
        let overtaken = |nth, by| Violation::Overtaken { key: key(), nth, by };
        let cases = [
            ("nothing", vec![], vec![lost(&[0, 1, 2, 3, 4, 5])]),
            ("the last one lost", put("a", 0..5), vec![lost(&[5])]),
            ("one lost on the way", put("a", [0, 1, 3, 4, 5]), vec![lost(&[2]), skipped("a", 1, 3)]),
            ("one lost at a hand-over", [put("a", 0..2), put("b", 3..6)].concat(), vec![lost(&[2])]),
            ("reordered", put("a", [0, 2, 1, 3, 4, 5]), vec![overtaken(1, 2), skipped("a", 0, 2), skipped("a", 1, 3)]),
            (
                "a forward jump over what another one brings later",
                [put("a", 0..2), put("b", 3..6), put("a", 2..3)].concat(),
                vec![overtaken(2, 5)],
            ),
            ("a replay with a gap", [put("a", 0..5), put("b", [2, 4, 5])].concat(), vec![skipped("b", 2, 4)]),
            ("its own replay with a gap", put("a", [0, 1, 2, 3, 4, 1, 3, 4, 5]), vec![skipped("a", 1, 3)]),
            (
                "a gap that another one has put, but before",
                [put("a", 0..5), put("b", 1..3), put("b", 4..6)].concat(),
                vec![skipped("b", 2, 4)],
            ),
            ("more than was written", put("a", 0..7), vec![Violation::Unknown { key: key(), nth: 6 }]),
        ];
        for (what, output, violations) in cases {
            assert_eq!(found(6, &[], &output).violations, violations, "{what}");
        }
    }

    #[test]
    fn what_may_be_twice_in_the_input_may_be_so_in_the_output() {
        let output = put("a", [0, 1, 2, 3, 1, 2, 4, 5]);
        let findings = found(6, &[1, 2], &output);
        assert_eq!((findings.violations, findings.repeats), (vec![], [(Repeat::Unclear, 2)].into()));
        assert_eq!(found(6, &[], &output).violations.len(), 1);
        assert_eq!(found(6, &[1, 2], &put("a", [0, 1, 3, 4, 5])).violations.len(), 1, "and not less than once");
    }

    #[test]
    fn a_key_has_one_shard_and_each_record_somebody_who_put_it() {
        let written = Written { acknowledged: [(KEY.to_owned(), 2)].into(), unclear: BTreeSet::new() };
        let appearance = |nth: u64, shard: &str, by: Option<&str>| Appearance {
            key: KEY.to_owned(),
            nth,
            shard: shard.to_owned(),
            by: by.map(str::to_owned),
            arrival: 0,
        };
        let findings = check(&written, &[appearance(0, "first", Some("a")), appearance(1, "second", None)]);
        let shards = ["first", "second"].map(str::to_owned).into();
        let expected = [
            Violation::PutByNobody { key: KEY.to_owned(), nth: 1 },
            Violation::Scattered { key: KEY.to_owned(), shards },
        ];
        assert_eq!(findings.violations, expected);
    }

    #[test]
    fn who_has_put_a_record_is_in_the_journal_and_how_long_it_took_in_the_streams() {
        let record = |number, at: u64, arrival| Found {
            number,
            key: KEY.to_owned(),
            shard: "shardId-000000000000".to_owned(),
            position: Position::new(SequenceNumber::parse(&at.to_string()).unwrap(), 0),
            arrival,
        };
        let put = |link: &str, status, at: u64| Write {
            link: link.to_owned(),
            operation: "PutRecords".to_owned(),
            stream: Some("output".to_owned()),
            table: None,
            carried: at,
            answered: at,
            status,
            request: Value::Null,
            answer: json!({ "Records": [
                { "ErrorCode": "InternalFailure" },
                { "ShardId": "shardId-000000000000", "SequenceNumber": at.to_string() },
            ] }),
        };
        let output = [record(1, 5, 4_000), record(101, 6, 9_000), record(1, 7, 9_500), record(201, 8, 9_500)];
        let writes = [put("a", 200, 5), put("a", 200, 6), put("b", 200, 7), put("c", 500, 8)];
        let found: Vec<_> =
            appearances(&output, &writes).into_iter().map(|appearance| (appearance.nth, appearance.by)).collect();
        let by = |life: &str| Some(life.to_owned());
        assert_eq!(found, [(0, by("a")), (1, by("a")), (0, by("b")), (2, None)]);
        let input = [record(1, 1, 3_000), record(101, 2, 3_500), record(201, 3, 9_000)];
        assert_eq!(longest_delay(&input, &output), Longest { time: 5_500, key: KEY.to_owned(), until: 9_000 });
    }

    #[test]
    fn a_silence_is_the_time_between_two_new_records() {
        // A second apart each; the replay brings nothing new for four seconds.
        let findings = found(10, &[], &[put("a", 0..6), put("b", 3..10)].concat());
        assert_eq!(findings.silence, Longest { time: 4_000, key: KEY.to_owned(), until: 9_000 });
    }
}
