//! Accounts for every record in the output: what is lost, out of order, passed over, or repeated.
//!
//! What is promised of the output, key by key: every acknowledged record that is no poison is there, and none that is; what
//! comes first of each record comes in the order of the numbers; and what is repeated is repeated from a checkpoint on. For
//! the last, appearances are told apart by the worker process (a *life*) that has put them: between two appearances that a
//! life has put, nothing may be missing but what others have put since the first of the two.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shardmill_record::SequenceNumber;

use super::fate::Fate;
use super::violation::Violation;
use super::writer::{Written, nth_of_key, number_of};
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
    /// When it was stored, in milliseconds since 1970: by the journal, or if it is not there by the service, whose clock may
    /// have whole seconds.
    pub arrival: u64,
    /// Whether the answer to the request that put it was kept from its life.
    pub is_untold: bool,
}

/// In which way a record is there once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repeat {
    /// One life had put it, and another one put it again.
    Replayed,
    /// A life has put it, and did so again.
    SentAgain,
    /// It may be in the input more than once.
    Unclear,
}

/// A record that is there once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated {
    /// Its key.
    pub key: String,
    /// Its number among those of the key.
    pub nth: u64,
    /// In which way.
    pub repeat: Repeat,
    /// The life that had put it before.
    pub life: String,
    /// The life that has put it again.
    pub by: String,
    /// Whether that life was not told that it was stored.
    pub was_untold: bool,
    /// When it was put before, in milliseconds since 1970.
    pub before: u64,
    /// When it was put again.
    pub again: u64,
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
    /// What is there besides them.
    pub repeated: Vec<Repeated>,
    /// The longest time between two new records of a key.
    pub silence: Longest,
}

/// Who has put what, from the output (each shard's records in their order) and what a proxy has seen of PutRecords:
/// what was written, and the answers that it has kept from workers.
pub fn appearances(output: &[Found], writes: &[Write], untold: &[Value]) -> Vec<Appearance> {
    let untold: BTreeSet<(String, SequenceNumber)> = untold.iter().flat_map(acknowledged).collect();
    let mut puts: BTreeMap<(String, SequenceNumber), (&str, u64)> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.operation == "PutRecords" && write.status == 200) {
        let put = (write.link.as_str(), write.time);
        puts.extend(acknowledged(&write.answer).into_iter().map(|place| (place, put)));
    }
    let appearance = |found: &Found| {
        let place = (found.shard.clone(), found.position.sequence_number.clone());
        let put = puts.get(&place);
        Appearance {
            key: found.key.clone(),
            nth: nth_of_key(found.number),
            shard: found.shard.clone(),
            by: put.map(|(life, _)| (*life).to_owned()),
            arrival: put.map_or(found.arrival, |(_, time)| *time),
            is_untold: untold.contains(&place),
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

/// Judges an output: the appearances of each shard in their order. `anew` are the records, by key and number, of shards whose
/// leases were deleted: whoever had such a lease may have it again at once, and read its shard from the beginning while a
/// request of before is on its way.
pub fn check(written: &Written, anew: &BTreeSet<(String, u64)>, output: &[Appearance]) -> Findings {
    let mut findings = Findings::default();
    let mut by_key: BTreeMap<&str, Vec<&Appearance>> =
        written.acknowledged.keys().map(|key| (key.as_str(), Vec::new())).collect();
    for appearance in output {
        by_key.entry(&appearance.key).or_default().push(appearance);
    }
    for (key, appearances) in by_key {
        OfKey::new(key, written, anew, &appearances).check(&mut findings);
    }
    findings
}

/// The appearances of one key.
struct OfKey<'a> {
    key: &'a str,
    written: &'a Written,
    anew: &'a BTreeSet<(String, u64)>,
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
    fn new(
        key: &'a str,
        written: &'a Written,
        anew: &'a BTreeSet<(String, u64)>,
        appearances: &'a [&'a Appearance],
    ) -> OfKey<'a> {
        let mut places: BTreeMap<u64, Vec<(usize, &str)>> = BTreeMap::new();
        for (index, appearance) in appearances.iter().enumerate() {
            let life = appearance.by.as_deref().unwrap_or_default();
            places.entry(appearance.nth).or_default().push((index, life));
        }
        OfKey { key, written, anew, appearances, places }
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
        let lost = (0..count).filter(|nth| !self.is_poison(*nth) && !self.places.contains_key(nth));
        let lost: Vec<u64> = lost.collect();
        if !lost.is_empty() {
            findings.violations.push(Violation::Lost { key: key(), numbers: lost });
        }
        for (nth, _) in self.places.range(count..) {
            findings.violations.push(Violation::Unknown { key: key(), nth: *nth });
        }
        for nth in self.places.keys().filter(|nth| self.is_poison(**nth)) {
            findings.violations.push(Violation::Escaped { key: key(), nth: *nth });
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
            for (at, (index, life)) in places.iter().enumerate().skip(1) {
                let (last, own) = (places[at - 1], places[..at].iter().rev().find(|(_, earlier)| earlier == life));
                let (repeat, (before, earlier)) = match own {
                    _ if self.is_unclear(*nth) => (Repeat::Unclear, last),
                    Some(own) => (Repeat::SentAgain, *own),
                    None => (Repeat::Replayed, last),
                };
                findings.repeated.push(Repeated {
                    key: self.key.to_owned(),
                    nth: *nth,
                    repeat,
                    life: earlier.to_owned(),
                    by: (*life).to_owned(),
                    was_untold: self.appearances[before].is_untold,
                    before: self.appearances[before].arrival,
                    again: self.appearances[*index].arrival,
                });
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
                let may_miss = |nth: u64| self.is_unclear(nth) || self.is_poison(nth);
                if (from + 1..nth).any(|between| !may_miss(between) && !others_put(&between)) {
                    let was_put = |nth: u64| self.places.get(&nth).is_some_and(|places| places[0].0 < index);
                    let is_anew = self.anew.contains(&(self.key.to_owned(), nth));
                    // Its own request of before: what it reads anew is not so far yet.
                    if is_anew && (from + 1..nth).all(|between| may_miss(between) || was_put(between)) {
                        continue;
                    }
                    let (key, life) = (self.key.to_owned(), life.to_owned());
                    findings.violations.push(Violation::Skipped { key, life, from, to: nth });
                }
            }
            cursors.insert(life, (index, nth));
        }
    }

    /// Whether a record is to become a dead letter.
    fn is_poison(&self, nth: u64) -> bool {
        number_of(self.key, nth).is_some_and(|number| Fate::of(number) != Fate::Out)
    }

    fn is_unclear(&self, nth: u64) -> bool {
        self.written.unclear.contains(&(self.key.to_owned(), nth))
    }
}
