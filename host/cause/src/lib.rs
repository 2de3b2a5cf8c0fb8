//! An error and what lies beneath it: as one line for the operator, and by type for the code that sorts it. Errors
//! that come again and again, as one line where they begin to last and one where they are over. Codes
//! by which errors are looked up, with what there is to say about each.

mod any;
pub mod code;
mod trouble;

pub use any::AnyCoded;
pub use code::{Code, Coded};
pub use trouble::{Failing, Tell, Trouble};

use std::error::Error;
use std::iter::successors;

/// The error and its causes in one line, outermost first, `: ` between them. A cause that the line holds already is
/// left out, because many errors repeat their cause in their own text.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for text in chain(error).map(ToString::to_string) {
        if line.contains(&text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&text);
    }
    line
}

/// The outermost `T` among the error and its causes.
pub fn find_cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Outer {
        text: &'static str,
        source: io::Error,
    }

    fn outer(text: &'static str) -> Outer {
        Outer { text, source: io::Error::other("the disk is full") }
    }

    #[test]
    fn causes_follow_on_the_same_line() {
        assert_eq!(with_causes(&outer("cannot write")), "cannot write: the disk is full");
    }

    #[test]
    fn what_was_said_is_not_said_again() {
        assert_eq!(with_causes(&outer("the disk is full, cannot write")), "the disk is full, cannot write");
        assert_eq!(with_causes(&outer("")), "the disk is full");
    }

    #[test]
    fn a_cause_is_found_by_its_type() {
        let error = outer("cannot write");
        assert_eq!(find_cause::<io::Error>(&error).map(ToString::to_string).as_deref(), Some("the disk is full"));
        assert!(find_cause::<Outer>(&error).is_some());
        assert!(find_cause::<std::fmt::Error>(&error).is_none());
    }
}
