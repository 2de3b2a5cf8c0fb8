//! Whose request of a processor is on its way: so many at a time, over all versions of its plugin together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of one processor. While one version of its plugin takes over from another there are both: there are as many turns
/// as the one of them has that is granted more.
#[derive(Debug)]
pub(super) struct Turns {
    free: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many each version is granted.
    granted: Vec<usize>,
    /// How many there are.
    all: usize,
    /// How many that are away are to be taken out when they are given back.
    owed: usize,
}

/// The right of one version to take turns.
#[derive(Debug)]
pub(super) struct Share {
    turns: Arc<Turns>,
    granted: usize,
}

/// A request that may be on its way. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    /// It is away until the drop.
    permit: Option<OwnedSemaphorePermit>,
}

// === impl Turns ===

impl Default for Turns {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(0)), state: Mutex::default() }
    }
}

impl Turns {
    fn change(&self, change: impl FnOnce(&mut Vec<usize>)) {
        let mut state = self.state();
        change(&mut state.granted);
        let all = state.granted.iter().copied().max().unwrap_or_default();
        if let Some(more) = all.checked_sub(state.all) {
            let paid = more.min(state.owed);
            state.owed -= paid;
            self.free.add_permits(more - paid);
        } else {
            let fewer = state.all - all;
            state.owed += fewer - self.free.forget_permits(fewer);
        }
        state.all = all;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Share ===

impl Share {
    pub(super) fn new(turns: Arc<Turns>, granted: usize) -> Self {
        let granted = granted.clamp(1, Semaphore::MAX_PERMITS);
        turns.change(|all| all.push(granted));
        Self { turns, granted }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self) -> Option<Turn> {
        // Nobody closes it.
        let permit = Arc::clone(&self.turns.free).acquire_owned().await.ok();
        Some(Turn { turns: Arc::clone(&self.turns), permit: Some(permit?) })
    }

    /// How many are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.turns.free.available_permits()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.turns.change(|all| {
            if let Some(place) = all.iter().position(|granted| *granted == self.granted) {
                all.swap_remove(place);
            }
        });
    }
}

// === impl Turn ===

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        let Some(permit) = self.permit.take() else { return };
        if let Some(owed) = state.owed.checked_sub(1) {
            state.owed = owed;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Come(usize),
        Go(prop::sample::Index),
        Take(prop::sample::Index),
        GiveBack(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            2 => (1usize..5).prop_map(Step::Come),
            1 => index().prop_map(Step::Go),
            6 => index().prop_map(Step::Take),
            3 => index().prop_map(Step::GiveBack),
        ]
    }

    proptest! {
        #[test]
        fn there_are_as_many_turns_as_the_version_has_that_is_granted_most(steps in prop::collection::vec(step(), 0..60)) {
            let turns = Arc::new(Turns::default());
            let (mut shares, mut away): (Vec<Share>, Vec<Turn>) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Come(granted) => shares.push(Share::new(Arc::clone(&turns), granted)),
                    Step::Go(index) if !shares.is_empty() => drop(shares.swap_remove(index.index(shares.len()))),
                    Step::Take(index) if !shares.is_empty() => {
                        let most = shares.iter().map(|share| share.granted).max().unwrap();
                        let taken = index.get(&shares).turn().now_or_never().flatten();
                        prop_assert_eq!(taken.is_some(), away.len() < most);
                        away.extend(taken);
                    }
                    Step::GiveBack(index) if !away.is_empty() => drop(away.swap_remove(index.index(away.len()))),
                    _nothing_there => {}
                }
            }
            let most = shares.iter().map(|share| share.granted).max().unwrap_or_default();
            away.clear();
            prop_assert_eq!(turns.free.available_permits(), most);
        }
    }
}
