//! The codes of this room's errors.

use shardmill_cause::code::stream;
use shardmill_cause::{Code, Coded};

use crate::{Error, Kind, polling, start};

impl Coded for Error {
    fn code(&self) -> Code {
        self.kind().code()
    }
}

impl Coded for Kind {
    fn code(&self) -> Code {
        match self {
            Self::Throttled => stream::THROTTLED,
            Self::Unavailable => stream::UNAVAILABLE,
            Self::ExpiredIterator | Self::ExpiredToken => stream::EXPIRED,
            Self::NotFound => stream::NOT_FOUND,
            Self::StreamGone => stream::STREAM_GONE,
            Self::StreamRecreated => stream::STREAM_RECREATED,
            Self::ShardGone => stream::SHARD_GONE,
            Self::OutOfRetention => stream::OUT_OF_RETENTION,
            Self::NotPermitted => stream::NOT_PERMITTED,
            Self::Kms => stream::KMS,
            Self::Credentials => stream::CREDENTIALS,
            Self::Rejected => stream::REJECTED,
            Self::InvalidAnswer => stream::INVALID_ANSWER,
        }
    }
}

impl Coded for start::Error {
    fn code(&self) -> Code {
        match self {
            Self::Unknown(_) | Self::Seconds(_) | Self::TooEarly(_) => stream::START_POSITION,
        }
    }
}

impl Coded for polling::OptionsError {
    fn code(&self) -> Code {
        match self {
            Self::OutOfBounds { .. } => stream::READ_OPTIONS,
        }
    }
}
