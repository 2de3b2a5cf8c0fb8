//! Where leases are kept: one trait, and the stores behind it.
//!
//! Every write is a compare-and-set on what the writer knows of the row. A store never repeats a write by itself: an
//! answer that was lost must be seen by who can tell from the row what happened.

#[doc(hidden)]
pub mod conformance;
pub mod dynamodb;
mod error;
pub mod memory;
mod sidecar;
mod stream_claim;

use std::fmt;

use async_trait::async_trait;

pub use error::{Error, Source};
pub use sidecar::{Document, Sidecar};
pub use stream_claim::{KeyForm, StreamClaim, StreamIdentity, claim_stream, retire_leases};

use crate::change::Change;
use crate::{Lease, LeaseKey, NewLease};

/// What the sidecar table's name has behind the lease table's.
pub const SIDECAR_SUFFIX: &str = "-shardmill";

/// A table of leases, with its sidecar table for everything of ours that is not a lease.
#[async_trait]
pub trait Store: Sidecar {
    /// The name of the lease table, for messages.
    fn lease_table(&self) -> &str;

    /// Makes sure that both tables are there and have the right keys.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if a table is missing and may not be created, [`Error::WrongTable`] if one is there
    /// that is something else.
    async fn ensure(&self) -> Result<Ensured, Error>;

    /// Reads all leases, consistently row by row. A row that cannot be read fails only itself.
    async fn list(&self) -> Result<Listing, Error>;

    /// Reads one lease, consistently.
    async fn get(&self, key: &LeaseKey) -> Result<Option<Lease>, Error>;

    /// Creates a lease that nobody holds. `false` if it is there already: of several creators one wins.
    async fn create(&self, lease: &NewLease) -> Result<bool, Error>;

    /// Applies a change if the row is still as known ([`crate::change::holds`]), and returns the row afterwards.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the row is not as known, [`Error::Refused`] if the change does not apply to it, and
    /// [`Error::Unknown`] if it may have been applied or not.
    async fn write(&self, known: &Lease, change: &Change) -> Result<Lease, Error>;

    /// Deletes a lease if its row is still as known. Deleting what is gone succeeds.
    async fn delete(&self, known: &Lease) -> Result<(), Error>;
}

/// What [`Store::ensure`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ensured {
    /// The lease table was created: the application starts for the first time.
    Created,
    /// The lease table was there.
    Existing,
}

/// What [`Store::list`] read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The leases, in no order.
    pub leases: Vec<Lease>,
    /// Rows that should be leases and cannot be read as such.
    pub invalid: Vec<InvalidRow>,
}

/// A row that cannot be read as a lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InvalidRow {
    /// The row's key.
    pub key: LeaseKey,
    /// The attribute that is wrong.
    pub attribute: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

// === impl InvalidRow ===

impl fmt::Display for InvalidRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "row `{}`: attribute `{}` {}", self.key, self.attribute, self.problem)
    }
}
