use std::collections::VecDeque;

use super::pace::Kind;

/// Who is next. Those that have just come and those that have computed for a while are served in turns, and among each of
/// them the processors, so that a processor with many calls delays those of others no more than one with a single call.
#[derive(Debug)]
pub(super) struct Turns<T> {
    come: Round<T>,
    given_way: Round<T>,
    /// How many of those that have given way may run at a time, and how many do.
    most: usize,
    running: usize,
    /// Whose turn it is, if both have somebody.
    is_for_given_way: bool,
}

/// Those of one kind that wait, by the number of their processor.
#[derive(Debug)]
struct Round<T> {
    /// Each in the order in which they came.
    queues: Vec<VecDeque<T>>,
    /// The processors for which somebody waits; whoever is next first.
    order: VecDeque<usize>,
}

// === impl Turns ===

impl<T> Turns<T> {
    /// At most so many that have given way run at a time.
    pub(super) fn new(most: usize) -> Self {
        Self { come: Round::new(), given_way: Round::new(), most, running: 0, is_for_given_way: false }
    }

    pub(super) fn push(&mut self, processor: usize, one: T, kind: Kind) {
        match kind {
            Kind::Come => self.come.push(processor, one),
            Kind::GivenWay => self.given_way.push(processor, one),
        }
    }

    /// Whoever is next, whose turn is to be [ended](Self::end).
    pub(super) fn begin(&mut self) -> Option<(T, Kind)> {
        let can_be_given_way = self.has_room_for_given_way();
        let is_for_given_way = self.is_for_given_way;
        self.is_for_given_way = !is_for_given_way;
        if can_be_given_way && (is_for_given_way || self.come.is_empty()) {
            self.running += 1;
            return self.given_way.pop().map(|one| (one, Kind::GivenWay));
        }
        self.come.pop().map(|one| (one, Kind::Come))
    }

    /// Whether one that waits could begin.
    pub(super) fn can_begin(&self) -> bool {
        !self.come.is_empty() || self.has_room_for_given_way()
    }

    fn has_room_for_given_way(&self) -> bool {
        self.running < self.most && !self.given_way.is_empty()
    }

    pub(super) fn end(&mut self, kind: Kind) {
        if kind == Kind::GivenWay {
            self.running -= 1;
        }
    }

    /// Takes one out that waits; it looks at those of its processor alone.
    pub(super) fn take_out(&mut self, processor: usize, is_it: impl Fn(&T) -> bool) -> Option<T> {
        self.come.take_out(processor, &is_it).or_else(|| self.given_way.take_out(processor, &is_it))
    }

    /// Keeps nothing for a processor for which nobody waits, or will.
    pub(super) fn forget(&mut self, processor: usize) {
        self.come.forget(processor);
        self.given_way.forget(processor);
    }
}

// === impl Round ===

impl<T> Round<T> {
    fn new() -> Self {
        Self { queues: Vec::new(), order: VecDeque::new() }
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn push(&mut self, processor: usize, one: T) {
        if self.queues.len() <= processor {
            self.queues.resize_with(processor + 1, VecDeque::new);
        }
        let queue = &mut self.queues[processor];
        if queue.is_empty() {
            self.order.push_back(processor);
        }
        queue.push_back(one);
    }

    fn pop(&mut self) -> Option<T> {
        let processor = self.order.pop_front()?;
        let queue = &mut self.queues[processor];
        let one = queue.pop_front();
        if !queue.is_empty() {
            self.order.push_back(processor);
        }
        one
    }

    fn take_out(&mut self, processor: usize, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let queue = self.queues.get_mut(processor)?;
        let place = queue.iter().position(is_it)?;
        let one = queue.remove(place);
        if queue.is_empty() {
            self.order.retain(|&waiting| waiting != processor);
        }
        one
    }

    fn forget(&mut self, processor: usize) {
        if let Some(queue) = self.queues.get_mut(processor).filter(|queue| queue.is_empty()) {
            *queue = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next<T>(turns: &mut Turns<T>) -> Option<T> {
        turns.begin().map(|(one, _)| one)
    }

    #[test]
    fn whoever_has_come_and_whoever_has_given_way_are_served_in_turns_each_in_order() {
        let mut turns = Turns::new(10);
        (1..=4).for_each(|number| turns.push(0, number, Kind::GivenWay));
        (10..=11).for_each(|number| turns.push(0, number, Kind::Come));
        let order: Vec<i32> = std::iter::from_fn(|| next(&mut turns)).collect();
        assert_eq!(order, [10, 1, 11, 2, 3, 4]);
    }

    #[test]
    fn processors_are_served_in_turns_whoever_has_more_that_wait() {
        for kind in [Kind::Come, Kind::GivenWay] {
            let mut turns = Turns::new(100);
            ["a1", "a2", "a3", "a4"].into_iter().for_each(|one| turns.push(7, one, kind));
            ["b1", "b2"].into_iter().for_each(|one| turns.push(0, one, kind));
            assert_eq!([next(&mut turns), next(&mut turns)], [Some("a1"), Some("b1")]);
            // One that comes now waits for one turn of each other.
            turns.push(3, "c1", kind);
            let order: Vec<_> = std::iter::from_fn(|| next(&mut turns)).collect();
            assert_eq!(order, ["a2", "b2", "c1", "a3", "a4"]);
        }
    }

    #[test]
    fn one_call_that_computes_has_its_part_beside_two_hundred_of_another_processor() {
        const THREADS: usize = 4;
        const WANTED: usize = 70;
        let (spins, computes) = (0, 1);
        let mut turns = Turns::new(THREADS);
        (0..200).for_each(|_| turns.push(spins, spins, Kind::GivenWay));
        turns.push(computes, computes, Kind::GivenWay);
        let (mut had, mut rounds) = (0, 0);
        // In each round every thread has a turn of the same length.
        while had < WANTED {
            rounds += 1;
            let served: Vec<_> = (0..THREADS).map(|_| turns.begin().unwrap()).collect();
            for (processor, kind) in served {
                turns.end(kind);
                turns.push(processor, processor, kind);
                had += usize::from(processor == computes);
            }
        }
        assert_eq!(rounds, WANTED);
    }

    #[test]
    fn those_that_have_given_way_never_have_the_last_thread() {
        let mut turns = Turns::new(2);
        (0..5).for_each(|number| turns.push(number, number, Kind::GivenWay));
        assert_eq!([next(&mut turns), next(&mut turns), next(&mut turns)], [Some(0), Some(1), None]);
        assert!(!turns.can_begin());
        // Whoever comes has it, and leaves it to nobody else.
        turns.push(0, 10, Kind::Come);
        assert!(turns.can_begin());
        assert_eq!([next(&mut turns), next(&mut turns)], [Some(10), None]);
        turns.end(Kind::Come);
        assert_eq!(next(&mut turns), None);
        turns.end(Kind::GivenWay);
        assert_eq!([next(&mut turns), next(&mut turns)], [Some(2), None]);
    }

    #[test]
    fn nobody_waits_for_ever_however_many_come_and_however_many_spin() {
        let mut turns = Turns::new(1);
        (0..5).for_each(|spinning| turns.push(0, spinning, Kind::GivenWay));
        turns.push(0, 0, Kind::Come);
        let mut served = [0; 5];
        for turn in 0..1_000 {
            let (number, kind) = turns.begin().unwrap();
            turns.end(kind);
            match kind {
                Kind::GivenWay => {
                    served[number] += 1;
                    turns.push(0, number, kind);
                }
                // The next one comes as soon as this one is served.
                Kind::Come => {
                    assert!(turn <= 2 * number, "call {number} had its turn at {turn}");
                    turns.push(0, number + 1, kind);
                }
            }
        }
        assert_eq!(served, [100; 5]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(usize, bool),
        Begin,
        TakeOut(usize, usize),
        Forget(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0usize..4, any::<bool>()).prop_map(|(processor, come)| Step::Push(processor, come)),
            2 => Just(Step::Begin),
            1 => (0usize..4, 0usize..60).prop_map(|(processor, one)| Step::TakeOut(processor, one)),
            1 => (0usize..4).prop_map(Step::Forget),
        ]
    }

    proptest! {
        // Whatever comes and is taken out: everybody has one turn, those of a processor in order, and between two turns of
        // a processor for which somebody waits each other processor has one at most.
        #[test]
        fn nobody_is_lost_or_passed_over(steps in prop::collection::vec(step(), 0..60)) {
            let mut turns = Turns::new(1_000);
            let mut waiting: Vec<(usize, Kind, usize)> = Vec::new();
            // How often others had a turn since this processor had one, or began to wait.
            let mut passed = std::collections::HashMap::<(usize, bool, usize), usize>::new();
            let ends = std::iter::repeat_n(Step::Begin, 60);
            for (number, step) in steps.into_iter().chain(ends).enumerate() {
                match step {
                    Step::Push(processor, come) => {
                        let kind = if come { Kind::Come } else { Kind::GivenWay };
                        turns.push(processor, (processor, number), kind);
                        waiting.push((processor, kind, number));
                    }
                    Step::Begin => {
                        prop_assert_eq!(turns.can_begin(), !waiting.is_empty());
                        let Some(((processor, one), kind)) = turns.begin() else {
                            prop_assert!(waiting.is_empty());
                            continue;
                        };
                        let first = waiting.iter().position(|w| (w.0, w.1) == (processor, kind));
                        prop_assert_eq!(first.map(|first| waiting.remove(first).2), Some(one));
                        passed.retain(|key, _| !(key.0 == processor && key.1 == (kind == Kind::Come)));
                        for other in waiting.iter().filter(|w| w.1 == kind && w.0 != processor) {
                            let others = passed.entry((other.0, kind == Kind::Come, processor)).or_default();
                            if waiting.iter().find(|w| (w.0, w.1) == (other.0, kind)) == Some(other) {
                                *others += 1;
                                prop_assert!(*others <= 1, "{processor} passed {} twice", other.0);
                            }
                        }
                    }
                    Step::TakeOut(processor, one) => {
                        let place = waiting.iter().position(|w| w.0 == processor && w.2 == one);
                        let taken = turns.take_out(processor, |waiting| waiting.1 == one);
                        prop_assert_eq!(taken.is_some(), place.is_some());
                        if let Some(place) = place {
                            let (_, kind, _) = waiting.remove(place);
                            if !waiting.iter().any(|w| (w.0, w.1) == (processor, kind)) {
                                passed.retain(|key, _| !(key.0 == processor && key.1 == (kind == Kind::Come)));
                            }
                        }
                    }
                    Step::Forget(processor) => turns.forget(processor),
                }
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
