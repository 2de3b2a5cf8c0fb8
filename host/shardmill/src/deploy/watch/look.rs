//! When a file that moves is to be read: what is decided at each look at it.

use std::time::Duration;

use tokio::time::Instant;

use crate::watching::Identity;

/// A file that has stood still for so long is read.
pub(super) const SETTLE: Duration = Duration::from_millis(200);
/// A file that has stood still for so long is as it is meant to be, whatever is in it or is missing.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    There(Identity),
    /// It cannot be looked at, and why.
    Gone(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, before it moves.
    Nothing,
    /// To look again after this time at the latest.
    LookAgain(Duration),
    /// To read it. `is_last`: whether what is in it counts also if that is no whole file.
    Read { is_last: bool },
    /// To tell that it is gone.
    Missing(String),
}

/// What is known of a file that is watched.
#[derive(Debug, Default)]
pub(super) struct FileLook {
    /// As it was when it was last dealt with.
    dealt_with: Option<Seen>,
    moving: Option<Moving>,
    /// It is left alone until then.
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Moving {
    seen: Seen,
    since: Instant,
    /// Whether it was read, and was no whole file.
    is_incomplete: bool,
}

// === impl FileLook ===

impl FileLook {
    /// Says what is to be done about a file that is seen like this now.
    pub(super) fn look(&mut self, now: Instant, seen: &Seen) -> Next {
        if let Some(until) = self.not_before.filter(|until| now < *until) {
            return Next::LookAgain(until - now);
        }
        if self.dealt_with.as_ref() == Some(seen) {
            self.moving = None;
            return Next::Nothing;
        }
        let moving = match &mut self.moving {
            Some(moving) if moving.seen == *seen => moving,
            moving => {
                *moving = Some(Moving { seen: seen.clone(), since: now, is_incomplete: false });
                return Next::LookAgain(SETTLE);
            }
        };
        let stood = now.saturating_duration_since(moving.since);
        match seen {
            // Whoever replaces a file may remove it first.
            Seen::Gone(reason) if stood >= PATIENCE => {
                let reason = reason.clone();
                self.dealt_with(seen.clone());
                Next::Missing(reason)
            }
            Seen::There(_) if stood >= PATIENCE || (stood >= SETTLE && !moving.is_incomplete) => {
                Next::Read { is_last: stood >= PATIENCE }
            }
            Seen::There(_) if stood < SETTLE => Next::LookAgain(SETTLE - stood),
            _waits => Next::LookAgain(PATIENCE - stood),
        }
    }

    /// Says that what was read is no whole file.
    pub(super) fn is_incomplete(&mut self) {
        if let Some(moving) = &mut self.moving {
            moving.is_incomplete = true;
        }
    }

    /// Says that the file as it was seen needs nothing more.
    pub(super) fn dealt_with(&mut self, seen: Seen) {
        self.dealt_with = Some(seen);
        self.moving = None;
    }

    /// Says that the file is to be dealt with again, as if it had moved, but not before then.
    pub(super) fn again(&mut self, not_before: Instant) {
        self.dealt_with = None;
        self.not_before = Some(not_before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this number.
    fn file(number: u64) -> Seen {
        Seen::There(Identity::of_number(number))
    }

    fn gone() -> Seen {
        Seen::Gone("no such file".to_owned())
    }

    struct Watched {
        look: FileLook,
        began: Instant,
    }

    impl Watched {
        fn new() -> Self {
            Self { look: FileLook::default(), began: Instant::now() }
        }

        fn at(&mut self, millis: u64, seen: &Seen) -> Next {
            self.look.look(self.began + Duration::from_millis(millis), seen)
        }
    }

    #[test]
    fn a_file_is_read_once_when_it_has_stood_still() {
        let mut watched = Watched::new();
        assert_eq!(watched.at(0, &file(1)), Next::LookAgain(SETTLE));
        assert_eq!(watched.at(150, &file(1)), Next::LookAgain(Duration::from_millis(50)));
        assert_eq!(watched.at(190, &file(2)), Next::LookAgain(SETTLE), "it moves");
        assert_eq!(watched.at(300, &file(2)), Next::LookAgain(Duration::from_millis(90)));
        assert_eq!(watched.at(390, &file(2)), Next::Read { is_last: false });
        watched.look.dealt_with(file(2));
        assert_eq!(watched.at(10_000, &file(2)), Next::Nothing);
        assert_eq!(watched.at(10_001, &file(1)), Next::LookAgain(SETTLE), "back to what it was is a change too");
        assert_eq!(watched.at(10_300, &file(2)), Next::Nothing, "and back again is none");
    }

    #[test]
    fn what_is_no_whole_file_is_waited_for_and_counts_in_the_end() {
        let mut watched = Watched::new();
        watched.at(0, &file(1));
        assert_eq!(watched.at(200, &file(1)), Next::Read { is_last: false });
        watched.look.is_incomplete();
        assert_eq!(watched.at(1_000, &file(1)), Next::LookAgain(Duration::from_secs(2)));
        assert_eq!(watched.at(1_500, &file(2)), Next::LookAgain(SETTLE), "more of it has come");
        assert_eq!(watched.at(1_700, &file(2)), Next::Read { is_last: false });
        watched.look.is_incomplete();
        assert_eq!(watched.at(4_500, &file(2)), Next::Read { is_last: true });
    }

    #[test]
    fn a_file_that_is_gone_for_a_moment_is_not_told_of() {
        let mut watched = Watched::new();
        watched.at(0, &file(1));
        watched.look.dealt_with(file(1));
        assert_eq!(watched.at(1_000, &gone()), Next::LookAgain(SETTLE));
        assert_eq!(watched.at(1_200, &file(2)), Next::LookAgain(SETTLE));
        assert_eq!(watched.at(1_400, &file(2)), Next::Read { is_last: false });
        watched.look.dealt_with(file(2));
        watched.at(2_000, &gone());
        assert_eq!(watched.at(3_000, &gone()), Next::LookAgain(Duration::from_secs(2)));
        assert_eq!(watched.at(5_000, &gone()), Next::Missing("no such file".to_owned()));
        assert_eq!(watched.at(9_000, &gone()), Next::Nothing, "told once");
        watched.at(9_500, &file(2));
        assert_eq!(watched.at(9_700, &file(2)), Next::Read { is_last: false }, "and when it is back, it is looked at");
    }

    #[test]
    fn what_may_be_taken_later_is_dealt_with_again_after_a_while() {
        let mut watched = Watched::new();
        watched.at(0, &file(1));
        assert_eq!(watched.at(200, &file(1)), Next::Read { is_last: false });
        watched.look.dealt_with(file(1));
        watched.look.again(watched.began + Duration::from_secs(10));
        assert_eq!(watched.at(4_000, &file(1)), Next::LookAgain(Duration::from_secs(6)));
        assert_eq!(watched.at(10_000, &file(1)), Next::LookAgain(SETTLE));
        assert_eq!(watched.at(10_200, &file(1)), Next::Read { is_last: false });
    }
}
