//! What becomes of records before they are handed over: which of them, in which batches, and how many batches at a time.

use std::fmt;
use std::time::Duration;

use shardmill_filter::OnInvalidJson;

use super::units::{Size, Time};

/// The way of a processor's records to its guest.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Lanes of a shard, 1 to 256: so many of its batches may be in hand at a time. A key is always in the same lane.
    pub parallelism: u32,
    /// The field of the body whose value says the lane; `None` for the partition key.
    pub partition_by: Option<Pointer>,
    /// Which records are handed over at all; `None` for all.
    pub filter: Option<Filter>,
    /// Who collects which records, in their order: the first one that matches takes a record. What none takes is collected
    /// by the processor's own batch.
    pub batchers: Vec<Batcher>,
}

/// Patterns of which one must match, and how they were written.
#[derive(Clone)]
pub struct Filter {
    /// The patterns as JSON, one or more.
    pub patterns: Vec<String>,
    /// What decides about records.
    pub rules: shardmill_filter::Filter,
}

/// Collects some of a processor's records in batches of their own.
#[derive(Debug, Clone)]
pub struct Batcher {
    /// Its name; no two of a processor have the same, and none is `default`.
    pub name: String,
    /// Which records it takes, of those that none before it has taken; `None` for all. What is asked for as JSON and is none
    /// does not match.
    pub when: Option<Filter>,
    /// What goes into its batches.
    pub batch: Batch,
}

/// What goes into a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Records, 1 to 10,000.
    pub records: usize,
    /// Bytes of keys and payloads; a record that is larger comes alone.
    pub bytes: usize,
    /// How long a batch that is not full may wait for more records. As long as `window` where nothing else was said.
    pub wait: Duration,
    /// Time by the arrival of records, 1 s to 1 day, is cut in pieces of this length, counted from 1970 on, and no batch
    /// has records of two; `None` does not cut.
    pub window: Option<Duration>,
    /// Whether the guest is called without records where `wait` or `window` has passed without any.
    pub empty: bool,
}

/// A field of a JSON body, as RFC 6901 names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(String);

// === impl Flow ===

impl Flow {
    /// Whether nothing of this was configured: all records, in one lane, in batches of one kind.
    pub fn is_plain(&self) -> bool {
        self.parallelism == 1 && self.filter.is_none() && self.batchers.is_empty()
    }
}

// === impl Filter ===

/// As it was written: what it became is the same for the same text.
impl fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut filter = formatter.debug_struct("Filter");
        filter.field("patterns", &self.patterns).field("on_invalid_json", &self.rules.on_invalid_json()).finish()
    }
}

/// In one line: the first pattern, cut where it is long, and how many more there are.
impl fmt::Display for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 80;
        let (first, more) = self.patterns.split_first().map_or(("", 0), |(first, more)| (first.as_str(), more.len()));
        match first.char_indices().nth(LONGEST) {
            Some((cut, _)) => write!(formatter, "{}…", &first[..cut])?,
            None => formatter.write_str(first)?,
        }
        match more {
            0 => {}
            1 => formatter.write_str(" or 1 more pattern")?,
            more => write!(formatter, " or {more} more patterns")?,
        }
        match self.rules.on_invalid_json() {
            OnInvalidJson::Drop => Ok(()),
            OnInvalidJson::Pass => formatter.write_str("; what is not JSON passes"),
            OnInvalidJson::Fail => formatter.write_str("; what is not JSON fails"),
        }
    }
}

// === impl Batch ===

impl fmt::Display for Batch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = if self.records == 1 { "record" } else { "records" };
        write!(formatter, "{} {records}, {}", self.records, Size(self.bytes as u64))?;
        if !self.wait.is_zero() && Some(self.wait) != self.window {
            write!(formatter, ", {}", Time(self.wait))?;
        }
        if let Some(window) = self.window {
            write!(formatter, ", windows of {}", Time(window))?;
        }
        if self.empty { formatter.write_str(", also empty") } else { Ok(()) }
    }
}

// === impl Pointer ===

impl Pointer {
    /// A pointer to a field: each name after a `/`, with `~1` for a `/` and `~0` for a `~` in it. Not the whole body.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let escapes_are_whole = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        (text.starts_with('/') && escapes_are_whole).then(|| Self(text.to_owned()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names of the fields on the way, from the outermost on; one that is digits may mean a place in a list.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.0.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~"))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
