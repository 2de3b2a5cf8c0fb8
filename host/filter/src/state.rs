/// How a part of a pattern stands to a part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// It does not hold.
    Fails,
    /// It holds, and only because fields are absent. Such a part picks no element of an array: where there are several,
    /// it must hold for all of them.
    Absent,
    /// It holds, and something that is there has matched.
    Holds,
}

// === impl State ===

impl State {
    /// Of parts that must all hold.
    pub(crate) fn and(self, other: Self) -> Self {
        if self == Self::Fails || other == Self::Fails { Self::Fails } else { self.max(other) }
    }

    /// Of branches of which one must hold.
    pub(crate) fn or(self, other: Self) -> Self {
        self.max(other)
    }

    /// Of one part, for two elements of an array. For a part that may be absent, [`State::Absent`] changes nothing; for
    /// any other one, [`State::Fails`] does not: that is what it starts with for an empty array.
    pub(crate) fn beside(self, other: Self) -> Self {
        if self == Self::Holds || other == Self::Holds { Self::Holds } else { self.min(other) }
    }
}

#[cfg(test)]
mod tests {
    use super::State::{Absent, Fails, Holds};

    #[test]
    fn states_combine() {
        assert_eq!(
            [Fails.and(Holds), Absent.and(Fails), Absent.and(Holds), Absent.and(Absent)],
            [Fails, Fails, Holds, Absent]
        );
        assert_eq!(
            [Fails.or(Holds), Absent.or(Fails), Absent.or(Holds), Fails.or(Fails)],
            [Holds, Absent, Holds, Fails]
        );
        assert_eq!(
            [Fails.beside(Holds), Absent.beside(Fails), Absent.beside(Holds), Absent.beside(Absent)],
            [Holds, Fails, Holds, Absent]
        );
    }
}
