//! The codes of this room's errors.

use std::fmt::Display;

use shardmill_cause::code::{engine, lease, stream};
use shardmill_cause::{Code, Coded};

use crate::shard_source::Changed;
use crate::{DeadLetterError, Error, InvalidTolerance, SendError};

/// An error in a sentence that is told far from it, with its code.
pub(crate) fn with_code(error: &(impl Coded + Display)) -> String {
    format!("{error} ({})", error.code())
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Stream(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::LeaseOptions(invalid) => invalid.code(),
            Self::Twin(twin) => twin.code(),
            Self::Foreign { source, .. } => source.code(),
            Self::OtherStream { .. } => engine::OTHER_STREAM,
            Self::OtherForm { .. } => engine::OTHER_FORM,
            Self::SameStreams { .. } => engine::SAME_STREAMS,
            Self::Stopped { .. } => engine::STOPPED,
            Self::NoArn { .. } => engine::NO_ARN,
        }
    }
}

impl Coded for Changed {
    fn code(&self) -> Code {
        stream::STREAM_RECREATED
    }
}

impl Coded for SendError {
    fn code(&self) -> Code {
        match self {
            Self::Fenced => lease::LEASE_LOST,
            Self::Refused { .. } => engine::OUTPUT_REFUSED,
        }
    }
}

impl Coded for DeadLetterError {
    fn code(&self) -> Code {
        match self {
            Self::Fenced => lease::LEASE_LOST,
            Self::Refused { .. } => engine::LETTERS_REFUSED,
        }
    }
}

impl Coded for InvalidTolerance {
    fn code(&self) -> Code {
        engine::TOLERANCE
    }
}
