use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// So many things are told one by one: a guest can make up names without end.
const MOST: usize = 32;

/// What the operator has been told of a processor: each host that it is refused, or each name, once.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<HashSet<String>>);

/// Whether something is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    /// It is new.
    This,
    /// It is new, and one more than are told one by one.
    EnoughOfIt,
    Nothing,
}

// === impl Told ===

impl Told {
    pub(crate) fn is_new(&self, what: &str) -> Tell {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > MOST || told.contains(what) {
            return Tell::Nothing;
        }
        told.insert(what.to_owned());
        if told.len() > MOST { Tell::EnoughOfIt } else { Tell::This }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_a_bounded_number_at_all() {
        let told = Told::default();
        assert_eq!((told.is_new("a"), told.is_new("a"), told.is_new("b")), (Tell::This, Tell::Nothing, Tell::This));
        let answers: Vec<Tell> = (0..100).map(|number| told.is_new(&number.to_string())).collect();
        assert_eq!(answers.iter().filter(|answer| **answer == Tell::This).count(), MOST - 2);
        assert_eq!(answers.iter().filter(|answer| **answer == Tell::EnoughOfIt).count(), 1);
        assert_eq!(told.is_new("new"), Tell::Nothing);
    }
}
