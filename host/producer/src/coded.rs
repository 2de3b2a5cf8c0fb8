//! The codes of this room's errors.

use shardmill_cause::code::producer;
use shardmill_cause::{Code, Coded};

use crate::{Error, Failed, InvalidOption, InvalidRecord, PutError, Reason, Refusal, SinkError, Stopped};

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Refused { reason, .. } => reason.code(),
            Self::Rejected { .. } if self.is_denied() => producer::DENIED,
            Self::Rejected { .. } => producer::REFUSED,
            Self::Stopped { source, .. } => source.code(),
        }
    }
}

impl Coded for InvalidRecord {
    fn code(&self) -> Code {
        match self {
            Self::PartitionKey(_) | Self::TooLarge { .. } | Self::AggregateTooLarge { .. } => producer::RECORD_INVALID,
        }
    }
}

impl Coded for Stopped {
    fn code(&self) -> Code {
        producer::STOPPED
    }
}

impl Coded for InvalidOption {
    fn code(&self) -> Code {
        producer::OPTIONS
    }
}

impl Coded for Refusal {
    fn code(&self) -> Code {
        if self.is_denied() { producer::DENIED } else { producer::REFUSED }
    }
}

impl Coded for Reason {
    fn code(&self) -> Code {
        match self {
            Self::Expired { .. } => producer::EXPIRED,
            Self::Throttled(_) => producer::THROTTLED,
            Self::Refused(refusal) => refusal.code(),
            Self::Invalid(reason) => reason.code(),
            Self::Stopped => producer::STOPPED,
            Self::NotSpooled(_) => producer::NOT_SPOOLED,
        }
    }
}

impl Coded for Failed {
    fn code(&self) -> Code {
        self.reason.code()
    }
}

impl Coded for PutError {
    fn code(&self) -> Code {
        match self {
            Self::Invalid { reason, .. } => reason.code(),
            Self::Full(_) => producer::TOO_MANY_PENDING,
            Self::Closed(_) => producer::STOPPED,
        }
    }
}

impl Coded for SinkError {
    fn code(&self) -> Code {
        match self {
            Self::Put(error) => error.code(),
            Self::Failed(failed) => failed.code(),
        }
    }
}
