//! Accounts for every integer of the output: what is missing, repeated, out of order, or none of ours; pure.
//!
//! The integers of a key ascend by [`KEYS`], so what comes next of each key is known, and whatever else comes is a
//! violation: an earlier one is repeated, or one that was passed over; a later one passes over those between. So the
//! account of any number of integers is one number for each key, and those that were passed over.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::integers::{Integers, KEYS};

/// How many of each kind of violation are told one by one.
const TOLD: usize = 10;

/// The account of a stream, whose records are [taken](Checker::take) in the order of their shards.
#[derive(Debug)]
pub struct Checker {
    integers: Arc<Integers>,
    /// There are the integers below this.
    count: u64,
    /// By remainder: the integer that comes next of the key.
    next: Vec<u64>,
    /// Missing, although a later one of the key has come.
    overtaken: BTreeSet<u64>,
    found: u64,
    repeated: Violations,
    late: Violations,
    strange: Violations,
}

/// Violations of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations {
    /// How many there are.
    pub count: u64,
    /// The first of them, each in a few words.
    pub first: Vec<String>,
}

/// Integers of one shard that are missing one after another: of that shard, nothing between them has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The shard's id.
    pub shard: String,
    /// The first integer.
    pub first: u64,
    /// The last integer.
    pub last: u64,
    /// How many they are. Those between the first and the last that are not missing are of other shards.
    pub integers: u64,
}

/// What is to be said of the integers below a mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// How many are missing.
    pub missing: u64,
    /// Of them, those of whose key a later one has come.
    pub overtaken: u64,
    /// The first holes, by their first integers.
    pub holes: Vec<Hole>,
    /// How many holes there are.
    pub hole_count: u64,
    /// Integers that came again.
    pub repeated: Violations,
    /// Integers that came after later ones of their key.
    pub late: Violations,
    /// Records that nobody has put: no integer, one that was never put, another key, or another shard than the key's.
    pub strange: Violations,
}

// === impl Checker ===

impl Checker {
    /// The account of the integers below `count`, of which none has come.
    pub fn new(integers: Arc<Integers>, count: u64) -> Checker {
        Checker {
            integers,
            count,
            next: (0..KEYS).collect(),
            overtaken: BTreeSet::new(),
            found: 0,
            repeated: Violations::default(),
            late: Violations::default(),
            strange: Violations::default(),
        }
    }

    /// Takes in the next record of a shard.
    pub fn take(&mut self, shard: &str, key: &str, payload: &[u8]) {
        let integer = Integers::parse(payload).filter(|integer| *integer < self.count);
        let Some(integer) = integer.filter(|integer| self.integers.key(*integer) == key) else {
            let payload = String::from_utf8_lossy(&payload[..payload.len().min(40)]);
            return self.strange.note(|| format!("{payload:?} of key {key:?} in {shard}"));
        };
        let home = self.integers.shard(integer);
        if home != shard {
            self.strange.note(|| format!("{integer} of key {key:?} in {shard}, whose key goes to {home}"));
        }
        let next = &mut self.next[(integer % KEYS) as usize];
        if integer >= *next {
            self.overtaken.extend((*next..integer).step_by(KEYS as usize));
            *next = integer + KEYS;
            self.found += 1;
        } else if self.overtaken.remove(&integer) {
            self.found += 1;
            let last = *next - KEYS;
            self.late.note(|| format!("{integer} after {last} of key {key:?} in {shard}"));
        } else {
            self.repeated.note(|| format!("{integer} of key {key:?} in {shard}"));
        }
    }

    /// How many integers have come, each counted once.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// Whether every key is at the mark: of each the last integer below it has come, or a later one. Where order is kept,
    /// nothing below it comes any more.
    pub fn has_reached(&self, mark: u64) -> bool {
        self.next.iter().all(|next| *next >= mark)
    }

    /// Whether an integer has come.
    pub fn has(&self, integer: u64) -> bool {
        integer < self.next[(integer % KEYS) as usize] && !self.overtaken.contains(&integer)
    }

    /// The integers below a mark that are missing.
    pub fn missing(&self, mark: u64) -> impl Iterator<Item = u64> {
        let first = self.next.iter().chain(self.overtaken.first()).min().copied().unwrap_or(0);
        (first..mark).filter(|integer| !self.has(*integer))
    }

    /// What is to be said of the integers below a mark.
    pub fn findings(&self, mark: u64) -> Findings {
        let mut holes = self.holes(mark);
        let hole_count = holes.len() as u64;
        let missing = holes.iter().map(|hole| hole.integers).sum();
        holes.truncate(TOLD);
        Findings {
            missing,
            overtaken: self.overtaken.range(..mark).count() as u64,
            holes,
            hole_count,
            repeated: self.repeated.clone(),
            late: self.late.clone(),
            strange: self.strange.clone(),
        }
    }

    fn holes(&self, mark: u64) -> Vec<Hole> {
        let mut holes: Vec<Hole> = Vec::new();
        let mut missing = self.missing(mark).peekable();
        let first = missing.peek().copied().unwrap_or(mark);
        let mut open: Vec<Hole> = Vec::new();
        for integer in first..mark {
            let shard = self.integers.shard(integer);
            let at = open.iter().position(|hole| hole.shard == shard);
            match (missing.next_if_eq(&integer), at) {
                (Some(_), Some(at)) => {
                    open[at].last = integer;
                    open[at].integers += 1;
                }
                (Some(_), None) => {
                    open.push(Hole { shard: shard.to_owned(), first: integer, last: integer, integers: 1 });
                }
                (None, Some(at)) => holes.push(open.swap_remove(at)),
                (None, None) => {}
            }
        }
        holes.append(&mut open);
        holes.sort_by_key(|hole| hole.first);
        holes
    }
}

// === impl Violations ===

impl Violations {
    fn note(&mut self, tell: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < TOLD {
            self.first.push(tell());
        }
    }
}

// === impl Findings ===

impl Findings {
    /// Whether each integer has come exactly once, in the order of its key, and nothing else.
    pub fn are_none(&self) -> bool {
        self.missing + self.repeated.count + self.late.count + self.strange.count == 0
    }
}

#[cfg(test)]
mod tests {
    use shardmill_record::{HashKey, HashKeyRange};

    use super::*;

    const LEG: u64 = 3 * KEYS;

    fn integers() -> Arc<Integers> {
        let middle = HashKey::new(1 << 127);
        let low = HashKeyRange { start: HashKey::MIN, end: HashKey::new(middle.get() - 1) };
        let high = HashKeyRange { start: middle, end: HashKey::MAX };
        Arc::new(Integers::new(7, &[("low".to_owned(), low), ("high".to_owned(), high)]))
    }

    /// An account of two legs after these integers have come.
    fn after(come: impl IntoIterator<Item = u64>) -> Checker {
        let integers = integers();
        let mut checker = Checker::new(Arc::clone(&integers), 2 * LEG);
        for integer in come {
            let record = integers.record(integer);
            checker.take(integers.shard(integer), &record.partition_key, &record.data);
        }
        checker
    }

    #[test]
    fn nothing_is_wrong_when_each_integer_has_come_once_and_keys_ascend_whatever_the_order_of_keys() {
        let integers = integers();
        // One shard after the other, and the last key of the second leg first.
        let (mut low, mut high): (Vec<u64>, Vec<u64>) = (0..LEG).partition(|integer| integers.shard(*integer) == "low");
        high.push(LEG + high[0]);
        high.append(&mut low);
        let checker = after(high);
        assert!(checker.has_reached(LEG) && !checker.has_reached(LEG + KEYS));
        assert_eq!((checker.findings(LEG), checker.found()), (Findings::default(), LEG + 1));
        assert!(checker.findings(LEG).are_none());
        // A mark need not be a multiple of the number of keys.
        assert!(after(0..2_500).has_reached(2_500) && !after(0..2_499).has_reached(2_500));
    }

    #[test]
    fn a_hole_is_found_with_its_shard_and_its_ends_as_soon_as_every_key_has_gone_on() {
        let integers = integers();
        let lost: Vec<u64> = (1_100..1_300).filter(|integer| integers.shard(*integer) == "high").collect();
        let checker = after((0..LEG).filter(|integer| !lost.contains(integer)));
        assert!(checker.has_reached(LEG));
        let findings = checker.findings(LEG);
        let (first, last, count) = (lost[0], lost[lost.len() - 1], lost.len() as u64);
        assert_eq!(findings.holes, [Hole { shard: "high".to_owned(), first, last, integers: count }]);
        assert_eq!((findings.missing, findings.overtaken, findings.hole_count), (count, count, 1));
        assert!(!findings.are_none() && checker.missing(LEG).eq(lost));
    }

    #[test]
    fn holes_of_a_shard_are_told_apart_by_what_has_come_between_them() {
        let integers = integers();
        let low: Vec<u64> = (0..LEG).filter(|integer| integers.shard(*integer) == "low").collect();
        let lost = [low[3], low[4], low[6]];
        let findings = after((0..LEG).filter(|integer| !lost.contains(integer))).findings(LEG);
        let hole = |first, last, integers| Hole { shard: "low".to_owned(), first, last, integers };
        assert_eq!(findings.holes, [hole(low[3], low[4], 2), hole(low[6], low[6], 1)]);
    }

    #[test]
    fn what_has_not_come_up_to_the_mark_is_missing_and_not_overtaken() {
        let checker = after(0..LEG - 1);
        assert!(!checker.has_reached(LEG));
        let findings = checker.findings(LEG);
        assert_eq!((findings.missing, findings.overtaken), (1, 0));
        assert_eq!((findings.holes[0].first, findings.holes[0].last), (LEG - 1, LEG - 1));
        assert_eq!(after([]).findings(LEG).missing, LEG);
    }

    #[test]
    fn a_repeat_is_found_whether_it_comes_at_once_or_long_after() {
        for again in [LEG - 1, 17] {
            let checker = after((0..LEG).chain([again]));
            let findings = checker.findings(LEG);
            assert_eq!((findings.repeated.count, findings.missing, findings.late.count), (1, 0, 0));
            assert!(findings.repeated.first[0].starts_with(&format!("{again} of key")), "{findings:?}");
            assert!(!findings.are_none());
            assert_eq!(checker.found(), LEG);
        }
    }

    #[test]
    fn an_integer_that_comes_behind_a_later_one_of_its_key_is_late_and_neither_missing_nor_repeated() {
        let checker = after((0..LEG).filter(|integer| *integer != 1_017).chain([1_017]));
        let findings = checker.findings(LEG);
        assert_eq!((findings.late.count, findings.missing, findings.repeated.count), (1, 0, 0));
        assert!(findings.late.first[0].starts_with("1017 after 2017 of key"), "{findings:?}");
        assert!(!findings.are_none());
        assert_eq!(after((0..LEG).filter(|integer| *integer != 17).chain([17, 17])).findings(LEG).repeated.count, 1);
    }

    #[test]
    fn what_nobody_has_put_is_found() {
        let integers = integers();
        let (key, shard) = (integers.key(17), integers.shard(17));
        let other = if shard == "low" { "high" } else { "low" };
        for (shard, key, payload) in [
            (shard, key, "seventeen"),
            (shard, key, "018"),
            (shard, key, "6017"),
            (shard, integers.key(18), "17"),
            (other, key, "17"),
        ] {
            let mut checker = after((0..LEG).filter(|integer| *integer != 17));
            checker.take(shard, key, payload.as_bytes());
            let findings = checker.findings(LEG);
            assert_eq!(findings.strange.count, 1, "{payload} of {key} in {shard}");
            assert!(!findings.are_none());
        }
    }
}
