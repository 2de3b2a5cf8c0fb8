//! How far the checkpoint may go.

use shardmill_record::Position;

/// Who says how far the checkpoint may go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointBy {
    /// The host: to where everything is done.
    #[default]
    Host,
    /// The guest, and never beyond where everything is done.
    Guest,
}

/// The position up to which everything of a shard is done, over all its batches, and the one up to which its guest lets
/// the checkpoint go.
#[derive(Debug)]
pub(crate) struct Watermark {
    by: CheckpointBy,
    /// The lease's checkpoint when the shard was taken up: a guest may name an older one.
    checkpoint: Option<Position>,
    done: Option<Position>,
    /// The last record of those that are done; what was left out on purpose may stand behind it.
    last_record: Option<Position>,
    /// The last record that the guest has seen.
    handed_over: Option<Position>,
    allowed: Option<Position>,
}

// === impl Watermark ===

impl Watermark {
    /// For a shard that goes on after this checkpoint.
    pub(crate) fn new(by: CheckpointBy, checkpoint: Option<Position>) -> Self {
        Self { by, handed_over: checkpoint.clone(), checkpoint, done: None, last_record: None, allowed: None }
    }

    /// The guest sees the records up to here.
    pub(crate) fn hand_over(&mut self, last: Position) {
        raise(&mut self.handed_over, last);
    }

    /// The last record that the guest has seen, or the checkpoint that it goes on from: it cannot mean any position
    /// behind that.
    pub(crate) fn handed_over(&self) -> Option<&Position> {
        self.handed_over.as_ref()
    }

    /// Everything up to `position` is done; the last record of it is at `last_record`, unless all of it was left out on
    /// purpose. The checkpoint to write, if it moves.
    pub(crate) fn reach(&mut self, position: Position, last_record: Option<Position>) -> Option<Position> {
        raise(&mut self.done, position);
        if let Some(last_record) = last_record {
            raise(&mut self.last_record, last_record);
        }
        self.advance()
    }

    /// The guest lets the checkpoint go up to here, whatever it said before. The checkpoint to write, if it moves.
    pub(crate) fn allow(&mut self, position: Position) -> Option<Position> {
        self.allowed = Some(position);
        self.advance()
    }

    /// Where the guest keeps the checkpoint though later records are done: its position, and the last record's.
    pub(crate) fn held_back(&self) -> Option<(Option<&Position>, &Position)> {
        let last = self.last_record.as_ref().filter(|_| self.by == CheckpointBy::Guest)?;
        self.allowed.as_ref().is_none_or(|allowed| allowed < last).then_some((self.allowed.as_ref(), last))
    }

    fn advance(&mut self) -> Option<Position> {
        let done = self.done.as_ref()?;
        let checkpoint = match self.by {
            CheckpointBy::Host => done,
            CheckpointBy::Guest => done.min(self.allowed.as_ref()?),
        };
        if self.checkpoint.as_ref().is_some_and(|before| checkpoint <= before) {
            return None;
        }
        self.checkpoint = Some(checkpoint.clone());
        self.checkpoint.clone()
    }
}

fn raise(mark: &mut Option<Position>, position: Position) {
    if mark.as_ref().is_none_or(|mark| *mark < position) {
        *mark = Some(position);
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
    fn a_guest_holds_the_checkpoint_back_and_cannot_push_it() {
        let mut watermark = Watermark::new(CheckpointBy::Guest, Some(at(10)));
        assert_eq!(watermark.reach(at(20), Some(at(20))), None, "the guest has not said anything");
        assert_eq!(watermark.held_back(), Some((None, &at(20))));
        assert_eq!(watermark.allow(at(5)), None, "behind the checkpoint that there is");
        assert_eq!(watermark.allow(at(15)), Some(at(15)));
        assert_eq!(watermark.held_back(), Some((Some(&at(15)), &at(20))));
        assert_eq!(watermark.allow(at(12)), None, "what is written does not go back");
        assert_eq!(watermark.held_back(), Some((Some(&at(12)), &at(20))), "and what is said last holds");
        assert_eq!(watermark.allow(at(100)), Some(at(20)), "and not beyond what is done");
        assert_eq!(watermark.held_back(), None);
        assert_eq!(watermark.reach(at(30), Some(at(30))), Some(at(30)));
    }

    #[test]
    fn a_guest_knows_no_position_behind_what_it_has_seen() {
        let mut watermark = Watermark::new(CheckpointBy::Guest, None);
        assert_eq!(watermark.handed_over(), None);
        watermark.hand_over(at(20));
        watermark.hand_over(at(10));
        assert_eq!(watermark.handed_over(), Some(&at(20)));
        let watermark = Watermark::new(CheckpointBy::Guest, Some(at(7)));
        assert_eq!(watermark.handed_over(), Some(&at(7)));
    }

    #[test]
    fn records_that_are_left_out_at_the_end_are_nobody_s_to_allow() {
        let mut watermark = Watermark::new(CheckpointBy::Guest, None);
        watermark.reach(at(25), Some(at(20)));
        assert_eq!(watermark.allow(at(20)), Some(at(20)));
        assert_eq!(watermark.held_back(), None);
    }

    proptest! {
        /// Whatever a guest says and in whatever order, the checkpoint goes forward only, is never beyond what is done,
        /// never beyond what a guest that decides has allowed, and as far as both let it.
        #[test]
        fn the_checkpoint_goes_forward_within_its_bounds(
            by_guest in any::<bool>(),
            start in 0u64..20,
            events in proptest::collection::vec((any::<bool>(), 1u64..60), 0..40),
        ) {
            let by = if by_guest { CheckpointBy::Guest } else { CheckpointBy::Host };
            let mut watermark = Watermark::new(by, Some(at(start)));
            let (mut written, mut done, mut allowed) = (start, 0, 0);
            for (is_done, number) in events {
                let moved = if is_done {
                    done = done.max(number);
                    watermark.reach(at(number), Some(at(number)))
                } else {
                    allowed = number;
                    watermark.allow(at(number))
                };
                let bound = if by_guest { done.min(allowed) } else { done };
                prop_assert_eq!(moved.clone(), (bound > written).then(|| at(bound)));
                written = written.max(bound);
            }
        }
    }
}
