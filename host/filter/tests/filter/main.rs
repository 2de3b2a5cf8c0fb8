//! The filter as its users see it: patterns as they write them, records as they come.

mod agree;
mod body;
mod guide;
mod hostile;
mod operators;
mod options;
mod record;
mod refused;
mod slow;

use shardmill_filter::{Filter, Metadata, OnInvalidJson, Pattern, Verdict};

fn pattern(json: &str) -> Pattern {
    Pattern::parse(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn filter<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Filter {
    Filter::new(patterns.into_iter().map(pattern).collect(), OnInvalidJson::default()).expect("a filter")
}

/// The verdict of one pattern about a body with nothing known of its record.
fn decide(pattern: &str, body: impl AsRef<[u8]>) -> Verdict {
    filter([pattern]).decide(&Metadata::default(), body.as_ref())
}

/// Holds one pattern against bodies that it takes and against others.
fn check(pattern: &str, matched: &[&str], not_matched: &[&str]) {
    for body in matched {
        assert_eq!(decide(pattern, body), Verdict::Matched, "{pattern} and {body}");
    }
    for body in not_matched {
        assert_eq!(decide(pattern, body), Verdict::NotMatched, "{pattern} and {body}");
    }
}
