//! Which records of a batch are handed over in one call.

use std::collections::VecDeque;

/// The records of a batch that are not dealt with, in the parts in which they are handed over, in order. One part at
/// first; each that a call has failed with as a whole may be split, and is never put together again.
#[derive(Debug)]
pub(crate) struct Parts {
    parts: VecDeque<Part>,
}

#[derive(Debug)]
struct Part {
    /// Places in the batch, in order.
    records: Vec<usize>,
    suspicion: Suspicion,
}

/// What is known of a part that has not been handed over by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    Nothing,
    /// It is the second half of a part that failed: if the first one does not, it is this one that holds what is wrong.
    UnlessFirstHalf,
    /// It holds what is wrong. So it is split without a call that would only fail.
    Certain,
}

// === impl Parts ===

impl Parts {
    /// A batch of so many records in one part.
    pub(crate) fn new(records: usize) -> Self {
        let whole = Part { records: (0..records).collect(), suspicion: Suspicion::Nothing };
        Self { parts: VecDeque::from([whole]) }
    }

    /// The records to hand over next, in order; none when all are dealt with.
    pub(crate) fn next_part(&mut self) -> &[usize] {
        loop {
            match self.parts.front() {
                None => return &[],
                Some(part) if part.records.is_empty() => drop(self.parts.pop_front()),
                Some(part) if part.suspicion == Suspicion::Certain && part.records.len() > 1 => self.split(None),
                Some(_) => return self.in_hand(),
            }
        }
    }

    /// The records of the first part.
    pub(crate) fn in_hand(&self) -> &[usize] {
        self.parts.front().map_or(&[], |part| &part.records)
    }

    /// A call with the first part gave an outcome: nothing in it spoils a call.
    pub(crate) fn is_sound(&mut self) {
        if let Some(part) = self.parts.front_mut() {
            part.suspicion = Suspicion::Nothing;
        }
        self.second_half(Suspicion::Certain);
    }

    /// A call with the first part failed as a whole: the second half may be good.
    pub(crate) fn is_spoiled(&mut self) {
        self.second_half(Suspicion::Nothing);
    }

    /// Splits the first part: in halves, or around the record at this place of it if that is the one to blame.
    pub(crate) fn split(&mut self, suspect: Option<usize>) {
        let Some(Part { records, .. }) = self.parts.pop_front() else { return };
        let part = |records: &[usize], suspicion| Part { records: records.to_vec(), suspicion };
        let split = match suspect.filter(|place| *place < records.len()) {
            Some(place) => {
                let ranges = [&records[..place], &records[place..=place], &records[place + 1..]];
                ranges.map(|range| part(range, Suspicion::Nothing)).into()
            }
            None => {
                let (first, second) = records.split_at(records.len() / 2);
                vec![part(first, Suspicion::Nothing), part(second, Suspicion::UnlessFirstHalf)]
            }
        };
        for part in split.into_iter().rev().filter(|part| !part.records.is_empty()) {
            self.parts.push_front(part);
        }
    }

    /// Keeps the records of the first part that are not dealt with.
    pub(crate) fn retain_in_hand(&mut self, is_pending: impl Fn(usize) -> bool) {
        if let Some(part) = self.parts.front_mut() {
            part.records.retain(|record| is_pending(*record));
        }
    }

    /// Keeps the records of all parts that are not dealt with.
    pub(crate) fn retain(&mut self, is_pending: impl Fn(usize) -> bool) {
        for part in &mut self.parts {
            part.records.retain(|record| is_pending(*record));
        }
    }

    fn second_half(&mut self, suspicion: Suspicion) {
        if let Some(next) = self.parts.get_mut(1).filter(|next| next.suspicion == Suspicion::UnlessFirstHalf) {
            next.suspicion = suspicion;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands records over as long as there are any; calls with one of `poison` fail. Every call's records.
    fn calls(records: usize, poison: &[usize]) -> Vec<Vec<usize>> {
        let mut parts = Parts::new(records);
        let mut calls = Vec::new();
        loop {
            let handed = parts.next_part().to_vec();
            if handed.is_empty() {
                return calls;
            }
            let spoiled = handed.iter().any(|record| poison.contains(record));
            if spoiled {
                parts.is_spoiled();
            } else {
                parts.is_sound();
            }
            if spoiled && handed.len() > 1 {
                parts.split(None);
            } else {
                parts.retain_in_hand(|record| !handed.contains(&record));
            }
            calls.push(handed);
        }
    }

    #[test]
    fn what_must_hold_the_poison_is_not_called_to_find_out() {
        assert_eq!(calls(4, &[]), [vec![0, 1, 2, 3]]);
        // 0 and 1 are good, so 2 and 3 together are not: they come one by one.
        assert_eq!(calls(4, &[2]), [vec![0, 1, 2, 3], vec![0, 1], vec![2], vec![3]]);
        assert_eq!(calls(4, &[3]), [vec![0, 1, 2, 3], vec![0, 1], vec![2], vec![3]]);
        assert_eq!(calls(4, &[0]), [vec![0, 1, 2, 3], vec![0, 1], vec![0], vec![1], vec![2, 3]]);
        assert_eq!(calls(4, &[0, 3])[5..], [vec![2], vec![3]], "a second one is found as well");
    }

    #[test]
    fn one_poison_record_costs_two_calls_for_each_halving_at_most() {
        for records in [1usize, 2, 3, 100, 500, 512] {
            let halvings = records.next_power_of_two().ilog2() as usize;
            for poison in 0..records {
                let calls = calls(records, &[poison]);
                assert!(calls.len() <= 1 + 2 * halvings, "{poison} of {records}: {}", calls.len());
                let handed_over: usize = calls.iter().map(Vec::len).sum();
                assert!(handed_over <= 3 * records, "{poison} of {records}: {handed_over} records in all");
            }
        }
    }

    #[test]
    fn a_record_that_is_known_to_be_to_blame_is_taken_out_at_once() {
        let mut parts = Parts::new(5);
        parts.split(Some(3));
        let mut seen = Vec::new();
        loop {
            let handed = parts.next_part().to_vec();
            if handed.is_empty() {
                break;
            }
            parts.retain_in_hand(|record| !handed.contains(&record));
            seen.push(handed);
        }
        assert_eq!(seen, [vec![0, 1, 2], vec![3], vec![4]]);
        let mut parts = Parts::new(2);
        parts.split(Some(0));
        assert_eq!(parts.next_part(), [0]);
    }
}
