//! The codes of this room's errors.

use shardmill_cause::code::lease;
use shardmill_cause::{Code, Coded};

use crate::change::Refused;
use crate::{Error, ForeignWorker, InvalidName, InvalidOptions, Lost, RunError, Twin, store};

impl Coded for store::Error {
    fn code(&self) -> Code {
        match self {
            Self::Conflict { .. } => lease::CONFLICT,
            Self::Refused { refused, .. } => refused.code(),
            Self::Throttled { .. } => lease::TABLE_THROTTLED,
            Self::Unknown { .. } => lease::WRITE_UNKNOWN,
            Self::NotPermitted { .. } => lease::TABLE_NOT_PERMITTED,
            Self::Credentials { .. } => lease::TABLE_CREDENTIALS,
            Self::NoTable { .. } => lease::NO_TABLE,
            Self::WrongTable { .. } => lease::WRONG_TABLE,
            Self::Invalid { .. } => lease::BROKEN_LEASE,
            Self::InvalidDocument { .. } => lease::BROKEN_DOCUMENT,
            Self::Unavailable { .. } => lease::TABLE_UNAVAILABLE,
        }
    }
}

impl Coded for store::InvalidRow {
    fn code(&self) -> Code {
        lease::BROKEN_LEASE
    }
}

impl Coded for Refused {
    fn code(&self) -> Code {
        match self {
            Self::NotHeld
            | Self::Backward { .. }
            | Self::NotAPosition(_)
            | Self::Complete
            | Self::OwnLease
            | Self::OnItsWay { .. }
            | Self::StartIsFixed { .. } => lease::CHANGE_REFUSED,
        }
    }
}

impl Coded for Lost {
    fn code(&self) -> Code {
        match self {
            Self::Expired | Self::Taken { .. } | Self::Evicted | Self::Deleted | Self::Released | Self::Completed => {
                lease::LEASE_LOST
            }
        }
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Lost(lost) => lost.code(),
            Self::Refused(refused) => refused.code(),
            Self::Store(error) => error.code(),
        }
    }
}

impl Coded for RunError {
    fn code(&self) -> Code {
        match self {
            Self::Store(error) => error.code(),
            Self::Twin(twin) => twin.code(),
            Self::Foreign(worker) => worker.code(),
        }
    }
}

impl Coded for Twin {
    fn code(&self) -> Code {
        lease::TWIN
    }
}

impl Coded for ForeignWorker {
    fn code(&self) -> Code {
        lease::FOREIGN
    }
}

impl Coded for InvalidOptions {
    fn code(&self) -> Code {
        match self {
            Self::ExpiryTooShort { .. } | Self::Zero(_) => lease::LEASE_OPTIONS,
        }
    }
}

impl Coded for InvalidName {
    fn code(&self) -> Code {
        lease::LEASE_NAME
    }
}
