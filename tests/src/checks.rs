//! What is promised about all records of a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use shardmill_record::{Checkpoint, Position};

use crate::Found;
use crate::leases::Row;

/// The numbers that were found.
pub fn numbers(found: &[Found]) -> BTreeSet<u64> {
    found.iter().map(|record| record.number).collect()
}

/// Where each number stands: its shard and its position there.
pub fn positions(found: &[Found]) -> BTreeMap<u64, (String, Position)> {
    found.iter().map(|record| (record.number, (record.shard.clone(), record.position.clone()))).collect()
}

/// Asserts that each of these numbers was found once, and no other.
pub fn assert_each_once(found: &[Found], expected: Range<u64>) {
    let mut counts: BTreeMap<u64, usize> = expected.map(|number| (number, 0)).collect();
    let mut others = Vec::new();
    for record in found {
        match counts.get_mut(&record.number) {
            Some(count) => *count += 1,
            None => others.push(record.number),
        }
    }
    let with = |wanted: fn(usize) -> bool| -> Vec<u64> {
        counts.iter().filter(|(_, count)| wanted(**count)).map(|(number, _)| *number).collect()
    };
    let (missing, repeated) = (with(|count| count == 0), with(|count| count > 1));
    assert!(
        missing.is_empty() && repeated.is_empty() && others.is_empty(),
        "of {} records {} are missing {}, {} repeated {}, {} should not be there {}",
        counts.len(),
        missing.len(),
        some(&missing),
        repeated.len(),
        some(&repeated),
        others.len(),
        some(&others),
    );
}

/// The records without those that came before.
pub fn firsts(found: &[Found]) -> Vec<Found> {
    let mut seen = BTreeSet::new();
    found.iter().filter(|record| seen.insert(record.number)).cloned().collect()
}

/// Asserts that the records of each key are in the order in which they were written.
pub fn assert_order_of_keys(found: &[Found]) {
    let mut last: BTreeMap<&str, &Found> = BTreeMap::new();
    for record in found {
        if let Some(before) = last.insert(&record.key, record) {
            assert!(before.number < record.number, "out of order: {before:?}, then {record:?}");
        }
    }
}

/// What [`assert_taken_up`] has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenUp {
    /// Records that the predecessor left undone.
    pub left: usize,
    /// Records that were done once more.
    pub repeated: usize,
}

/// Asserts that a worker went on where the checkpoints of its predecessor stood. `rows` are the leases and `before` the
/// outputs as the predecessor left them, `after` are those that came until the next one went, and `positions` says where
/// the input's records stand.
pub fn assert_taken_up(
    rows: &BTreeMap<String, Row>,
    positions: &BTreeMap<u64, (String, Position)>,
    before: &[Found],
    after: &[Found],
) -> TakenUp {
    let done = numbers(before);
    let passed = |shard: &String, position: &Position| {
        rows.get(shard).is_some_and(|row| Checkpoint::Position(position.clone()) <= row.checkpoint)
    };
    let mut taken_up = TakenUp { left: 0, repeated: 0 };
    for (number, (shard, position)) in positions {
        taken_up.left += usize::from(!done.contains(number));
        assert!(
            !passed(shard, position) || done.contains(number),
            "record {number} was lost: the checkpoint of {shard} had passed it and its output was not there",
        );
    }
    let mut seen = BTreeSet::new();
    for record in after {
        assert!(seen.insert(record.number), "record {} came twice from one run", record.number);
        let (shard, position) = &positions[&record.number];
        assert!(
            !passed(shard, position),
            "record {} at {position} was repeated although the checkpoint of {shard} was {:?}",
            record.number,
            rows[shard].checkpoint,
        );
        taken_up.repeated += usize::from(done.contains(&record.number));
    }
    taken_up
}

fn some(numbers: &[u64]) -> String {
    format!("{:?}", &numbers[..numbers.len().min(10)])
}

#[cfg(test)]
mod tests {
    use shardmill_record::SequenceNumber;

    use super::*;

    fn found(numbers: &[u64]) -> Vec<Found> {
        let record = |number: &u64| Found {
            number: *number,
            key: "key".to_owned(),
            shard: "shardId-000000000000".to_owned(),
            position: Position::new(SequenceNumber::parse("1").unwrap(), 0),
            arrival: 0,
        };
        numbers.iter().map(record).collect()
    }

    /// Records 0, 1, … of a shard at 1, 2, …, of which the checkpoint has passed the first two.
    fn taken_up(before: &[u64], after: &[u64]) -> TakenUp {
        let shard = "shardId-000000000000".to_owned();
        let position = |number: u64| Position::new(SequenceNumber::parse(&(number + 1).to_string()).unwrap(), 0);
        let positions = (0..5).map(|number| (number, (shard.clone(), position(number)))).collect();
        let row = Row {
            owner: None,
            checkpoint: Checkpoint::Position(position(1)),
            epoch: 1,
            start_at: None,
            parents: BTreeSet::new(),
            children: BTreeSet::new(),
        };
        assert_taken_up(&BTreeMap::from([(shard, row)]), &positions, &found(before), &found(after))
    }

    #[test]
    fn a_successor_may_repeat_what_the_checkpoint_has_not_passed_and_nothing_else() {
        assert_eq!(taken_up(&[0, 1, 2], &[2, 3, 4]), TakenUp { left: 2, repeated: 1 });
        for (before, after) in [(&[0][..], &[2, 3, 4][..]), (&[0, 1, 2], &[1, 3, 4]), (&[0, 1], &[2, 3, 3])] {
            assert!(is_refused(|| _ = taken_up(before, after)), "{before:?}, then {after:?}");
        }
    }

    fn is_refused(check: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(check).is_err()
    }

    #[test]
    fn checks_see_what_is_missing_repeated_strange_or_out_of_order() {
        assert_each_once(&found(&[1, 0, 2]), 0..3);
        for wrong in [&[0, 2][..], &[0, 1, 1, 2], &[0, 1, 2, 3]] {
            assert!(is_refused(|| assert_each_once(&found(wrong), 0..3)), "{wrong:?}");
        }
        assert_order_of_keys(&found(&[0, 2, 5]));
        assert_each_once(&firsts(&found(&[1, 0, 1, 2, 0])), 0..3);
        for wrong in [&[0, 2, 1][..], &[0, 0]] {
            assert!(is_refused(|| assert_order_of_keys(&found(wrong))), "{wrong:?}");
        }
    }
}
