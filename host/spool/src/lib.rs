//! User records on the disk, for as long as their stream does not take them.
//!
//! A [`Spool`] is a folder with an embedded database. [`Spool::store`] returns when records are durable, and many callers
//! share one sync of the disk; [`Spool::front`] and [`Spool::remove`] give them out and take them away, in the order in
//! which they were stored, stream by stream; [`Sender::drain_once`] does both around a function that sends. What the files take
//! is bounded. A folder belongs to one process at a time.
//!
//! Nothing that was accepted is lost when the process is killed at any point. Damage is found: each record has a checksum,
//! the database's structure is checked when it is opened, and a number beside it says how far it must reach.
//!
//! The rooms: `layout` says what fits into the bound and is pure; `folder` has the files, `private` keeps others away
//! from them; `database` changes them and checks them; `writer` is the thread that owns the database; `state` is what
//! the handles know without asking it.

mod coded;
mod database;
mod drain;
mod error;
mod folder;
mod group;
mod job;
mod layout;
mod metrics;
mod options;
mod private;
mod spool;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub use database::{Aside, Selection, Spooled};
pub use drain::{Answer, Batch, Drained, Fate, Next, Pacing};
pub use error::{Error, Refused, StoreError};
pub use metrics::Metrics;
pub use options::{Full, InvalidOptions, Options};
pub use spool::{Counted, Sender, Spool};
pub use state::{Depth, StreamDepth};

/// A record's place in the spool that it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// First, so that ids sort as records of all streams were stored.
    number: u64,
    stream: i64,
    /// Key and payload.
    bytes: u64,
}

// === impl Id ===

impl Id {
    /// Counted from 1 over all streams and all times; later ones are larger.
    pub fn number(&self) -> u64 {
        self.number
    }
}
