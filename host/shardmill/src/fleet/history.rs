//! What became of a processor's plugin so far, and what a rollback goes back to.

use serde::{Deserialize, Serialize};
use shardmill_plugin::Digest;

use super::share::Share;

/// Entries that are kept.
const ENTRIES: usize = 20;
/// Fewer digits of a digest are a slip.
const PREFIX: usize = 4;

/// Entries, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct History(Vec<Entry>);

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// In milliseconds since 1970, by the clock of whoever decided.
    pub(crate) at: u64,
    /// A person at a machine, or a worker.
    pub(crate) by: String,
    pub(crate) why: Why,
    #[serde(with = "super::hex")]
    pub(crate) digest: Digest,
    /// A path or a URL.
    pub(crate) source: String,
    pub(crate) share: Share,
}

/// What a decision was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Why {
    /// A version was asked for.
    Deploy,
    /// The same version, for more or fewer workers.
    Share,
    /// Back to an earlier version.
    Rollback,
    /// A worker was started with a file that none was started with before.
    File,
}

/// Why there is nothing to go back to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoEntry {
    #[error("the history knows nothing before what is wanted now")]
    NothingBefore,
    #[error("the history has no version whose digest begins with {0}")]
    Unknown(String),
    #[error("the history has several versions whose digests begin with {0}: write more of it")]
    Ambiguous(String),
    #[error("`{0}` is no digest: at least its first {PREFIX} hexadecimal digits are expected")]
    NoDigest(String),
}

// === impl History ===

impl History {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.0
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.0.push(entry);
        self.0.drain(..self.0.len().saturating_sub(ENTRIES));
    }

    /// What was there before all the rest, as far as there is room.
    pub(super) fn push_oldest(&mut self, entry: Entry) {
        if self.0.len() < ENTRIES {
            self.0.insert(0, entry);
        }
    }

    /// What a rollback goes back to: what was there before what is there now. A version that was rolled back from is no
    /// good one, so the next rollback goes further back, unless that version was deployed again.
    pub(crate) fn before(&self) -> Result<&Entry, NoEntry> {
        let mut good: Vec<&Entry> = Vec::new();
        for entry in &self.0 {
            let place = good.iter().rposition(|earlier| earlier.digest == entry.digest);
            match (entry.why, place) {
                (Why::Rollback, Some(place)) => good.truncate(place + 1),
                // What it went back to has fallen out of the history, and all that is left came after that.
                (Why::Rollback, None) => good = vec![entry],
                (_, Some(place)) => {
                    good.remove(place);
                    good.push(entry);
                }
                (_, None) => good.push(entry),
            }
        }
        good.pop();
        good.pop().ok_or(NoEntry::NothingBefore)
    }

    /// The last entry of the version whose digest begins so.
    pub(crate) fn find(&self, digits: &str) -> Result<&Entry, NoEntry> {
        let prefix = digits.to_ascii_lowercase();
        if prefix.len() < PREFIX || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NoEntry::NoDigest(digits.to_owned()));
        }
        let mut found = self.0.iter().rev().filter(|entry| entry.digest.to_string().starts_with(&prefix));
        let last = found.next().ok_or_else(|| NoEntry::Unknown(prefix.clone()))?;
        if found.any(|entry| entry.digest != last.digest) {
            return Err(NoEntry::Ambiguous(prefix));
        }
        Ok(last)
    }
}

// === impl Why ===

impl Why {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deploy => "deploy",
            Self::Share => "share",
            Self::Rollback => "rollback",
            Self::File => "file",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn history(entries: &[(Why, &str)]) -> History {
        let mut history = History::default();
        for (why, name) in entries {
            history.push(entry(*why, name));
        }
        history
    }

    fn entry(why: Why, name: &str) -> Entry {
        let digest = Digest::of(name.as_bytes());
        Entry { at: 0, by: "me".to_owned(), why, digest, source: name.to_owned(), share: Share::ALL }
    }

    #[test]
    fn a_rollback_goes_to_what_was_before_and_the_next_one_further_back() {
        use Why::{Deploy, File, Rollback, Share};
        let back = |entries: &[(Why, &str)]| history(entries).before().map(|entry| entry.source.clone());
        let nothing = Err(NoEntry::NothingBefore);
        assert_eq!((back(&[]), back(&[(File, "a")])), (nothing.clone(), nothing.clone()));
        assert_eq!(back(&[(File, "a"), (Deploy, "b")]), Ok("a".to_owned()));
        assert_eq!(back(&[(File, "a"), (Deploy, "b"), (Share, "b"), (Deploy, "c"), (Share, "c")]), Ok("b".to_owned()));
        let twice = [(File, "a"), (Deploy, "b"), (Deploy, "c"), (Rollback, "b")];
        assert_eq!(back(&twice), Ok("a".to_owned()), "c was no good one");
        assert_eq!(back(&[&twice[..], &[(Rollback, "a")]].concat()), nothing.clone());
        assert_eq!(back(&[&twice[..], &[(Deploy, "c"), (Deploy, "d")]].concat()), Ok("c".to_owned()), "deployed again");
        assert_eq!(back(&[(File, "a"), (Deploy, "b"), (File, "image")]), Ok("b".to_owned()));
        assert_eq!(back(&[(Deploy, "b"), (Rollback, "z")]), nothing, "what z was has fallen out of the history");
    }

    #[test]
    fn a_version_is_found_by_the_beginning_of_its_digest() {
        let history = history(&[(Why::File, "a"), (Why::Deploy, "b"), (Why::Share, "b")]);
        let digest = Digest::of(b"b").to_string();
        for digits in [&digest[..4], &digest, &digest.to_uppercase()[..12]] {
            assert_eq!(history.find(digits).map(|entry| entry.why), Ok(Why::Share), "{digits}");
        }
        assert_eq!(history.find("123"), Err(NoEntry::NoDigest("123".to_owned())));
        assert_eq!(history.find("wxyz"), Err(NoEntry::NoDigest("wxyz".to_owned())));
        assert_eq!(history.find("00000000"), Err(NoEntry::Unknown("00000000".to_owned())));
    }

    proptest! {
        #[test]
        fn the_last_entries_are_kept_and_a_rollback_never_goes_to_what_is_there(
            steps in prop::collection::vec((0..4_usize, 0..5_u8), 0..60)
        ) {
            let mut history = History::default();
            for (why, name) in &steps {
                let why = [Why::Deploy, Why::Share, Why::Rollback, Why::File][*why];
                history.push(entry(why, &name.to_string()));
            }
            prop_assert_eq!(history.entries().len(), steps.len().min(ENTRIES));
            if let (Ok(back), Some(last)) = (history.before(), history.entries().last()) {
                prop_assert_ne!(back.digest, last.digest);
            }
            // Rollbacks come to an end.
            for _ in 0..ENTRIES {
                let Ok(back) = history.before().cloned() else { return Ok(()) };
                history.push(Entry { why: Why::Rollback, ..back });
            }
            prop_assert_eq!(history.before(), Err(NoEntry::NothingBefore));
        }
    }
}
