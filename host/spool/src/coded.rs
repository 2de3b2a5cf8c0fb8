//! The codes of this room's errors.

use shardmill_cause::code::spool;
use shardmill_cause::{Code, Coded};

use crate::{Error, InvalidOptions, Refused, StoreError};

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::InUse { .. } | Self::Taken { .. } => spool::IN_USE,
            Self::NotThere(_) => spool::NOT_THERE,
            Self::Options(invalid) => invalid.code(),
            Self::Full { .. } => spool::FULL,
            Self::TooLarge { .. } => spool::TOO_LARGE,
            Self::DiskFull { .. } => spool::DISK_FULL,
            Self::Damaged { .. } => spool::DAMAGED,
            Self::Foreign { .. } => spool::FOREIGN,
            Self::NotPrivate { .. } => spool::NOT_PRIVATE,
            Self::Io { .. } => spool::IO,
            Self::Closed(_) => spool::CLOSED,
        }
    }
}

impl Coded for InvalidOptions {
    fn code(&self) -> Code {
        spool::OPTIONS
    }
}

impl Coded for Refused {
    fn code(&self) -> Code {
        self.reason.code()
    }
}

impl Coded for StoreError {
    /// That of the first record: what is wrong with it is wrong with all behind it, unless it is its size.
    fn code(&self) -> Code {
        self.refused.first().map_or(spool::CLOSED, Coded::code)
    }
}
