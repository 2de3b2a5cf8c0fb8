//! Which records a processor gets: patterns on JSON bodies and on what is known of a record besides, with the meaning
//! that they have in AWS Lambda's event filtering.
//!
//! Pure: nothing here does I/O, reads a clock or spawns a task. A [`Filter`] is made of [`Pattern`]s, once; it then
//! decides about records one by one, reads a body only where the rest of the record does not decide, and looks
//! only at the fields of it that a pattern names. No tree of the body is built.
//!
//! ```
//! use shardmill_filter::{Filter, Metadata, OnInvalidJson, Pattern, Verdict};
//!
//! let pattern = Pattern::parse(r#"{"data": {"status": ["paid"], "total": [{"numeric": [">", 100]}]}}"#)?;
//! let filter = Filter::new(vec![pattern], OnInvalidJson::Drop)?;
//! let metadata = Metadata::default();
//! assert_eq!(filter.decide(&metadata, br#"{"status": "paid", "total": 120.5}"#), Verdict::Matched);
//! assert_eq!(filter.decide(&metadata, br#"{"status": "open", "total": 120.5}"#), Verdict::NotMatched);
//! assert_eq!(filter.decide(&metadata, b"paid, 120.5"), Verdict::InvalidJson);
//! # Ok::<(), shardmill_filter::Error>(())
//! ```

mod coded;
mod condition;
mod error;
mod filter;
mod letters;
mod metadata;
mod number;
mod operators;
mod pattern;
mod plan;
mod scan;
mod state;
mod tree;

pub use error::Error;
pub use filter::{Action, Filter, OnInvalidJson, Verdict};
pub use metadata::Metadata;
pub use pattern::Pattern;

/// The most patterns that a filter may have. Each costs time with every record; a list of values in one pattern costs
/// next to none.
pub const MAX_PATTERNS: usize = 100;
/// The most values that a pattern may hold, all lists together.
pub const MAX_VALUES: usize = 10_000;
/// How deep objects and lists of a pattern may stand in each other. A body is read to a depth of 127, arrays included,
/// so that there is room for arrays that the pattern does not see.
pub const MAX_DEPTH: usize = 64;
