//! What of a shard has been handed out and is not dealt with: records end in any order, and the checkpoint passes them in
//! theirs. Pure.

use std::collections::VecDeque;

use shardmill_record::{Batch, Position};

/// By what a record is known: grows from record to record.
pub(crate) type Id = u64;

/// Records in order, from the first that is not dealt with.
#[derive(Debug, Default)]
pub(crate) struct Window {
    portions: VecDeque<Portion>,
    /// Of the record that comes next.
    next: Id,
    /// Records that are not dealt with.
    open: usize,
}

/// What was unpacked at once.
#[derive(Debug)]
struct Portion {
    /// Of its first record.
    first: Id,
    /// Without what they hold.
    records: Batch,
    /// What has become of each.
    fates: Vec<Fate>,
    /// How many at the front are settled, and told.
    front: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is not dealt with.
    Open,
    Done,
    /// It is done, and nobody has seen it.
    LeftOut,
}

/// How far everything is dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) through: Position,
    /// The last of those that were not left out.
    pub(crate) last_record: Option<Position>,
    /// How many records more than before.
    pub(crate) records: usize,
}

// === impl Window ===

impl Window {
    /// Takes in records, none of which is dealt with. The first one's id; those of the others follow.
    pub(crate) fn add(&mut self, records: &Batch) -> Id {
        let id = self.next;
        self.next += records.len() as u64;
        self.open += records.len();
        self.portions.push_back(Portion {
            first: id,
            fates: vec![Fate::Open; records.len()],
            records: records.without_contents(),
            front: 0,
        });
        id
    }

    /// The id of the record that comes next.
    pub(crate) fn next(&self) -> Id {
        self.next
    }

    /// Below which id everything is dealt with.
    pub(crate) fn front(&self) -> Id {
        self.portions.front().map_or(self.next, |portion| portion.first + portion.front as u64)
    }

    /// Records that are not dealt with.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Records from the first that is not dealt with on.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.next() - self.front()).unwrap_or(usize::MAX)
    }

    /// These records are dealt with.
    pub(crate) fn settle(&mut self, ids: impl IntoIterator<Item = Id>) {
        self.set(ids, Fate::Done);
    }

    /// These records are dealt with, and nobody has seen them.
    pub(crate) fn leave_out(&mut self, ids: impl IntoIterator<Item = Id>) {
        self.set(ids, Fate::LeftOut);
    }

    fn set(&mut self, ids: impl IntoIterator<Item = Id>, to: Fate) {
        for id in ids {
            let after = self.portions.partition_point(|portion| portion.first <= id);
            let Some(portion) = after.checked_sub(1).and_then(|at| self.portions.get_mut(at)) else { continue };
            let offset = usize::try_from(id - portion.first).unwrap_or(usize::MAX);
            if let Some(fate) = portion.fates.get_mut(offset) {
                self.open -= usize::from(std::mem::replace(fate, to) == Fate::Open);
            }
        }
    }

    /// How far everything is dealt with, if that is further than when it was asked last.
    pub(crate) fn advance(&mut self) -> Option<Passed> {
        let mut passed: Option<Passed> = None;
        while let Some(portion) = self.portions.front_mut() {
            let before = portion.front;
            portion.front += portion.fates[before..].iter().take_while(|fate| **fate != Fate::Open).count();
            let is_whole = portion.front == portion.fates.len();
            let last = (portion.front > before).then(|| portion.records.position(portion.front - 1));
            let through = portion.records.through().filter(|_| is_whole).cloned().max(last);
            if let Some(through) = through {
                let records = passed.as_ref().map_or(0, |passed| passed.records) + portion.front - before;
                let of_done = portion.fates[before..portion.front].iter().rposition(|fate| *fate == Fate::Done);
                let last_record = of_done.map(|offset| portion.records.position(before + offset));
                let last_record = last_record.or_else(|| passed.take().and_then(|passed| passed.last_record));
                passed = Some(Passed { through, last_record, records });
            }
            if !is_whole {
                break;
            }
            self.portions.pop_front();
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_record::{BatchBuilder, Record};

    use super::*;

    fn portion(numbers: std::ops::Range<u64>) -> Batch {
        let mut builder = BatchBuilder::default();
        for number in numbers {
            builder.push(Record {
                sequence_number: &number.to_string(),
                sub_sequence_number: 0,
                partition_key: "key",
                explicit_hash_key: None,
                approximate_arrival: 0,
                data: b"something",
            });
        }
        builder.build()
    }

    proptest! {
        /// In whatever order records end: the front is behind the first that has not, and moves as soon as it can.
        #[test]
        fn the_front_is_where_everything_before_is_dealt_with(
            sizes in prop::collection::vec(0..6u64, 1..8),
            order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
        ) {
            let mut window = Window::default();
            let total: u64 = sizes.iter().sum();
            let mut at = 1;
            for size in sizes {
                let id = window.add(&portion(at..at + size));
                prop_assert_eq!(id, at - 1);
                at += size;
            }
            let mut open: Vec<u64> = (0..total).collect();
            let mut done = std::collections::BTreeSet::new();
            let (mut told, mut records) = (0, 0);
            for (index, is_left_out) in order {
                if open.is_empty() {
                    break;
                }
                let id = open.remove(index.index(open.len()));
                if is_left_out {
                    window.leave_out([id]);
                } else {
                    window.settle([id]);
                    done.insert(id);
                }
                let front = open.iter().min().copied().unwrap_or(total);
                if let Some(passed) = window.advance() {
                    prop_assert!(front > told);
                    prop_assert_eq!(passed.through.sequence_number.to_string(), front.to_string());
                    let last = done.range(told..front).next_back().map(|id| (id + 1).to_string());
                    prop_assert_eq!(passed.last_record.map(|last| last.sequence_number.to_string()), last);
                    records += passed.records as u64;
                    told = front;
                }
                prop_assert_eq!((window.front(), records), (front, front));
                prop_assert_eq!((window.open(), window.len() as u64), (open.len(), total - front));
            }
        }
    }
}
