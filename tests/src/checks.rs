//! What is promised about all records of a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use shardmill_record::Position;

use crate::Found;

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

/// Asserts that the records of each key are in the order in which they were written.
pub fn assert_order_of_keys(found: &[Found]) {
    let mut last: BTreeMap<&str, &Found> = BTreeMap::new();
    for record in found {
        if let Some(before) = last.insert(&record.key, record) {
            assert!(before.number < record.number, "out of order: {before:?}, then {record:?}");
        }
    }
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
        for wrong in [&[0, 2, 1][..], &[0, 0]] {
            assert!(is_refused(|| assert_order_of_keys(&found(wrong))), "{wrong:?}");
        }
    }
}
