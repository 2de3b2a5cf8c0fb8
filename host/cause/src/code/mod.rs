//! Codes of errors: short names that stay the same while sentences get better, such as `SM0303`.
//!
//! The first two digits name the room that the error comes from, a module here for each; the last two count. A code is
//! never given to something else, and one that nothing has any more is not used again. Each has a title and three short
//! texts: what it means, what is kept where it happens, and what there is to do.

mod macros;

pub mod command;
pub mod config;
pub mod dead_letters;
pub mod deploy;
pub mod engine;
pub mod filter;
pub mod fleet;
pub mod input;
pub mod lease;
pub mod plugin;
pub mod process;
pub mod producer;
pub mod record;
pub mod spool;
pub mod stream;

use std::fmt;
use std::hash::{Hash, Hasher};

use macros::codes;

/// The short name of an error, and what is to be said of it. Compared, ordered and shown by its name.
#[derive(Clone, Copy)]
pub struct Code(&'static Entry);

/// An error that has a code.
pub trait Coded {
    /// The code: the most particular one that is known, such as that of a plugin's crash, and not that of the start it ended.
    fn code(&self) -> Code;
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    title: &'static str,
    means: &'static str,
    kept: &'static str,
    next: &'static str,
}

/// A room, and the codes of its errors.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// What it is about, as the title of a chapter.
    pub title: &'static str,
    /// In order.
    pub codes: &'static [Code],
}

/// Every room, in the order of their codes.
pub const ROOMS: &[Room] = &[
    Room { title: "Records", codes: record::ALL },
    Room { title: "Filters", codes: filter::ALL },
    Room { title: "Leases and their table", codes: lease::ALL },
    Room { title: "Streams that are read", codes: stream::ALL },
    Room { title: "Spools", codes: spool::ALL },
    Room { title: "Records that are sent", codes: producer::ALL },
    Room { title: "Plugins", codes: plugin::ALL },
    Room { title: "Processing", codes: engine::ALL },
    Room { title: "The configuration", codes: config::ALL },
    Room { title: "The process", codes: process::ALL },
    Room { title: "Commands", codes: command::ALL },
    Room { title: "What `put` reads", codes: input::ALL },
    Room { title: "Other versions of plugins", codes: deploy::ALL },
    Room { title: "Deployments to a fleet", codes: fleet::ALL },
    Room { title: "Dead letters", codes: dead_letters::ALL },
];

// === impl Code ===

impl Code {
    /// Every code, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        ROOMS.iter().flat_map(|room| room.codes.iter().copied())
    }

    /// The code of this name, in whichever letters.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|code| code.name().eq_ignore_ascii_case(name))
    }

    /// Its name: `SM` and four digits.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// What has happened, in a few words.
    pub const fn title(self) -> &'static str {
        self.0.title
    }

    /// What that means, and what it comes of.
    pub const fn means(self) -> &'static str {
        self.0.means
    }

    /// What is kept where it happens: what was done, what was not, and what is safe.
    pub const fn kept(self) -> &'static str {
        self.0.kept
    }

    /// What there is to do.
    pub const fn next(self) -> &'static str {
        self.0.next
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Code {}

impl PartialOrd for Code {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Code {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.name().cmp(other.name())
    }
}

impl Hash for Code {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_in_order_and_each_is_of_its_room() {
        let names: Vec<&str> = Code::all().map(Code::name).collect();
        assert!(names.is_sorted_by(|left, right| left < right), "{names:?}");
        let mut seen = BTreeSet::new();
        for room in ROOMS {
            let digits: BTreeSet<&str> = room.codes.iter().map(|code| &code.name()[..4]).collect();
            assert_eq!(digits.len(), 1, "{}: {digits:?}", room.title);
            assert!(seen.is_disjoint(&digits), "{}: {digits:?} are another room's", room.title);
            seen.extend(digits);
        }
        for name in names {
            let digits = name.strip_prefix("SM").unwrap_or_default();
            assert!(digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{name}");
        }
    }

    #[test]
    fn each_code_says_what_it_means_what_is_kept_and_what_to_do() {
        let mut titles = BTreeSet::new();
        for code in Code::all() {
            assert!(titles.insert(code.title()), "{code}: two have the title {:?}", code.title());
            assert!(!code.title().ends_with('.') && code.title().len() < 90, "{code}: {:?}", code.title());
            for (part, least) in [(code.means(), 60), (code.kept(), 15), (code.next(), 40)] {
                assert!(part.len() >= least, "{code}: {part:?} says too little");
                assert!(part.ends_with('.') && !part.contains("  ") && !part.contains('\n'), "{code}: {part:?}");
            }
        }
    }

    #[test]
    fn a_code_is_found_by_its_name_in_whichever_letters() {
        for name in ["SM0301", "sm0301", "Sm0301"] {
            assert_eq!(Code::parse(name), Some(lease::TABLE_THROTTLED));
        }
        assert_eq!(Code::parse("SM9999"), None);
        assert_eq!(Code::parse(""), None);
    }
}
