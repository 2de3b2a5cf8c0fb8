use std::fmt;

use super::InvalidRow;
use crate::change::Refused;
use crate::{Lease, LeaseKey};

/// What lies behind a store's error.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store did not do what it was asked for. The kinds are told apart by what the caller can do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The row is not as the caller knows it: somebody else wrote it. Nothing was changed.
    #[error("lease {key} was changed by somebody else")]
    Conflict {
        /// The lease.
        key: LeaseKey,
        /// The row as it is, if the store told.
        current: Option<Box<Lease>>,
    },
    /// The change does not apply to the lease. Nothing was changed.
    #[error("lease {key} cannot be changed: {refused}")]
    Refused {
        /// The lease.
        key: LeaseKey,
        /// Why.
        refused: Refused,
    },
    /// The store has no capacity left; asking again later helps. Nothing was changed.
    #[error("table {table} is throttled: raise its capacity if this goes on")]
    Throttled {
        /// The table.
        table: String,
        /// The store's words.
        source: Source,
    },
    /// The answer to a write was lost: it may have been applied or not, or be applied later.
    #[error("whether a write to table {table} was applied is not known")]
    Unknown {
        /// The table.
        table: String,
        /// What went wrong.
        source: Source,
    },
    /// The credentials do not allow it.
    #[error("{action} on table {table} is not permitted: grant it to the credentials in use, or {remedy}")]
    NotPermitted {
        /// The API action.
        action: &'static str,
        /// The table.
        table: String,
        /// What else helps.
        remedy: &'static str,
        /// The store's words.
        source: Source,
    },
    /// There are no credentials, or the service does not take them. Nothing was changed.
    #[error("table {table}: the AWS credentials do not work{}; {}", Place(region), advice(*passing))]
    Credentials {
        /// The table.
        table: String,
        /// The region that was asked, if the client has one.
        region: Option<String>,
        /// Whether it may pass: they expired and will be renewed, or their source did not answer.
        passing: bool,
        /// The store's words.
        source: Source,
    },
    /// The table does not exist.
    #[error("table {table} does not exist in this account and region")]
    NoTable {
        /// The table.
        table: String,
    },
    /// A table of this name is something else.
    #[error("table {table} is not {expected}: its key is {found}; name another table (`lease-table`)")]
    WrongTable {
        /// The table.
        table: String,
        /// What the table should be.
        expected: &'static str,
        /// The key schema that was found.
        found: String,
    },
    /// The row cannot be read as a lease.
    #[error("table {table} holds a broken lease: {row}")]
    Invalid {
        /// The table.
        table: String,
        /// The row.
        row: InvalidRow,
    },
    /// A document of the sidecar table cannot be read.
    #[error("table {table} holds a broken document `{key}`: {problem}")]
    InvalidDocument {
        /// The table.
        table: String,
        /// The document's key.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// The store cannot be reached or fails. Nothing was changed.
    #[error("table {table} cannot be used now")]
    Unavailable {
        /// The table.
        table: String,
        /// What went wrong.
        source: Source,
    },
}

/// Where it was asked.
struct Place<'a>(&'a Option<String>);

fn advice(passing: bool) -> &'static str {
    if passing { "new ones are waited for" } else { "check them, the region and this machine's clock" }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |region| write!(formatter, " in region {region}"))
    }
}

// === impl Error ===

impl Error {
    /// Whether asking again later can help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Throttled { .. } | Self::Unknown { .. } | Self::Unavailable { .. } => true,
            Self::Credentials { passing, .. } => *passing,
            _ => false,
        }
    }

    /// Whether the table cannot be used until somebody has mended something.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::NotPermitted { .. }
                | Self::NoTable { .. }
                | Self::WrongTable { .. }
                | Self::Credentials { passing: false, .. }
        )
    }

    /// A short name for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::Refused { .. } => "refused",
            Self::Throttled { .. } => "throttled",
            Self::Unknown { .. } => "unknown",
            Self::NotPermitted { .. } => "not-permitted",
            Self::Credentials { .. } => "credentials",
            Self::NoTable { .. } => "no-table",
            Self::WrongTable { .. } => "wrong-table",
            Self::Invalid { .. } | Self::InvalidDocument { .. } => "invalid",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}
