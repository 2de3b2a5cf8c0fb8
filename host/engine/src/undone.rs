//! How old the oldest record of a shard is that was read and that no checkpoint has passed: what falls out of the stream's
//! retention first. Pure.

use std::collections::VecDeque;

use shardmill_record::Position;

/// Of more parts than these, two that follow each other count as one, with the older one's time.
const PARTS: usize = 256;

/// What was handed out, in order.
#[derive(Debug, Default)]
pub(crate) struct Undone {
    /// The last record of each batch, and when its first one arrived, in milliseconds since 1970.
    parts: VecDeque<(Position, u64)>,
    /// A time before which nothing arrived of what was read and has not been handed out.
    rest: Option<u64>,
}

// === impl Undone ===

impl Undone {
    /// Records up to `through` are handed out, or handed out again, or only these are left of what was: the first of them
    /// arrived at this time. 0 stands for a time that is not known. `rest`: when what follows arrived, if something was
    /// read that does.
    pub(crate) fn hand_out(&mut self, through: Position, arrived: u64, rest: Option<u64>) {
        while self.parts.back().is_some_and(|(last, _)| *last >= through) {
            self.parts.pop_back();
        }
        if arrived > 0 {
            self.parts.push_back((through, arrived));
        }
        if self.parts.len() > PARTS {
            let parts = std::mem::take(&mut self.parts);
            let mut parts = parts.into_iter();
            while let Some((through, arrived)) = parts.next() {
                let through = parts.next().map_or(through, |(through, _)| through);
                self.parts.push_back((through, arrived));
            }
        }
        self.rest = rest.filter(|arrived| *arrived > 0);
    }

    /// What was read ahead is given up, and began at this time: it is still to be done.
    pub(crate) fn give_up(&mut self, arrived: Option<u64>) {
        self.rest = self.rest.or(arrived.filter(|arrived| *arrived > 0));
    }

    /// The checkpoint is at this position.
    pub(crate) fn done(&mut self, checkpoint: &Position) {
        while self.parts.front().is_some_and(|(through, _)| through <= checkpoint) {
            self.parts.pop_front();
        }
    }

    /// The shard begins somewhere else.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// When the oldest record arrived that is not done, in milliseconds since 1970; a time before that where records were
    /// put together.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.parts.front().map(|(_, arrived)| *arrived).or(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_record::SequenceNumber;

    use super::*;

    fn at(number: u64) -> Position {
        Position::new(SequenceNumber::parse(&number.to_string()).unwrap(), 0)
    }

    #[test]
    fn the_oldest_is_what_no_checkpoint_has_passed_and_then_the_rest_of_the_page() {
        let mut undone = Undone::default();
        assert_eq!(undone.oldest(), None);
        undone.hand_out(at(10), 1_000, Some(1_900));
        undone.hand_out(at(20), 2_000, Some(2_900));
        assert_eq!(undone.oldest(), Some(1_000), "done or not: a successor would begin there");
        undone.done(&at(9));
        assert_eq!(undone.oldest(), Some(1_000));
        undone.done(&at(10));
        assert_eq!(undone.oldest(), Some(2_000));
        // Of the batch, only its end is left.
        undone.hand_out(at(20), 2_500, Some(2_900));
        assert_eq!(undone.oldest(), Some(2_500));
        undone.done(&at(20));
        assert_eq!(undone.oldest(), Some(2_900), "the page goes on");
        undone.hand_out(at(30), 3_000, None);
        undone.done(&at(30));
        assert_eq!(undone.oldest(), None);
        undone.give_up(Some(4_000));
        assert_eq!(undone.oldest(), Some(4_000), "it was read ahead, and is let go");
        // Again from the last checkpoint.
        undone.hand_out(at(40), 4_000, None);
        undone.hand_out(at(50), 5_000, None);
        undone.hand_out(at(35), 3_500, None);
        assert_eq!(undone.oldest(), Some(3_500));
        undone.forget();
        assert_eq!(undone.oldest(), None);
        undone.hand_out(at(60), 0, Some(0));
        assert_eq!(undone.oldest(), None, "the service tells no times");
    }

    proptest! {
        /// However many batches wait for their checkpoint: what is told is never younger than the oldest of them, exact
        /// while they are few, and bounded.
        #[test]
        fn nothing_is_told_to_be_younger_than_it_is(batches in 1..2_000_u64, checkpoint in 0..2_000_u64) {
            let mut undone = Undone::default();
            for number in 1..=batches {
                undone.hand_out(at(number), number * 10, None);
                prop_assert!(undone.parts.len() <= PARTS);
            }
            undone.done(&at(checkpoint));
            let expected = (checkpoint < batches).then_some((checkpoint + 1) * 10);
            if batches <= PARTS as u64 {
                prop_assert_eq!(undone.oldest(), expected);
            } else {
                prop_assert_eq!(undone.oldest().is_some(), expected.is_some());
                prop_assert!(undone.oldest() <= expected);
            }
        }
    }
}
