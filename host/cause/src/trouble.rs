use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Trouble that many things of one kind can have at a time, told when it begins to last and when all of it is over: in an
/// outage a thousand shards say one thing, and what passes by itself is not worth a line.
#[derive(Debug)]
pub struct Trouble<K> {
    /// How long something must have failed before that is told.
    patience: Duration,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    failing: HashMap<K, Failing>,
    told: bool,
}

/// Something that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// For how long it had been failing when it last did.
    pub lasted: Duration,
    /// What was said then.
    pub reason: String,
}

/// What there is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    /// Nothing.
    Nothing,
    /// It has begun to last: so many are failing.
    Lasts {
        /// How many.
        failing: usize,
    },
    /// All of it is over.
    Over,
}

// === impl Trouble ===

impl<K: Eq + Hash + Clone> Trouble<K> {
    /// Nothing is in trouble.
    pub fn new(patience: Duration) -> Self {
        Self { patience, state: Mutex::new(State { failing: HashMap::new(), told: false }) }
    }

    /// Something fails, and has done so for this long, for what was said.
    pub fn fails_because(&self, what: &K, lasted: Duration, reason: String) -> Tell {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failing.insert(what.clone(), Failing { lasted, reason });
        if state.told || lasted < self.patience {
            return Tell::Nothing;
        }
        state.told = true;
        Tell::Lasts { failing: state.failing.len() }
    }

    /// Whether something fails, and why.
    pub fn failing(&self, what: &K) -> Option<Failing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failing.get(what).cloned()
    }

    /// What has failed for longest, if something fails.
    pub fn worst(&self) -> Option<Failing> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failing.values().max_by_key(|failing| failing.lasted).cloned()
    }

    /// Something works, or is not there any more.
    pub fn works(&self, what: &K) -> Tell {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failing.remove(what).is_none() || !state.failing.is_empty() {
            return Tell::Nothing;
        }
        if std::mem::take(&mut state.told) { Tell::Over } else { Tell::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_once_for_all_and_once_when_all_is_over() {
        let trouble = Trouble::new(Duration::from_secs(2));
        let at = Duration::from_secs;
        let fails = |what, lasted| trouble.fails_because(&what, lasted, "throttled".to_owned());
        assert_eq!(fails("a", at(0)), Tell::Nothing);
        assert_eq!(trouble.works(&"a"), Tell::Nothing, "it passed by itself");
        assert_eq!(fails("a", at(0)), Tell::Nothing);
        assert_eq!(fails("b", at(1)), Tell::Nothing);
        assert_eq!(fails("a", at(2)), Tell::Lasts { failing: 2 });
        assert_eq!(trouble.fails_because(&"b", at(3), "no room".to_owned()), Tell::Nothing, "told");
        assert_eq!(trouble.failing(&"b"), Some(Failing { lasted: at(3), reason: "no room".to_owned() }));
        assert_eq!(trouble.failing(&"c"), None);
        assert_eq!(trouble.worst(), trouble.failing(&"b"));
        assert_eq!(trouble.works(&"a"), Tell::Nothing, "not over");
        assert_eq!(trouble.works(&"b"), Tell::Over);
        assert_eq!(trouble.works(&"b"), Tell::Nothing);
    }
}
