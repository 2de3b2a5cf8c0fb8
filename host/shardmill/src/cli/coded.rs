//! The codes of what only commands can say.

use shardmill_cause::code::{command, input};
use shardmill_cause::{Code, Coded};

use super::put::{Bad, InputError};
use super::stream::ReshardError;

impl Coded for InputError {
    fn code(&self) -> Code {
        match self {
            Self::Io { .. } => input::UNREADABLE,
            Self::Columns { .. } => input::COLUMNS,
            Self::TooLong { .. } => input::ROW_TOO_LONG,
        }
    }
}

impl Coded for Bad {
    fn code(&self) -> Code {
        match self {
            Self::Json(_)
            | Self::Tail(_)
            | Self::Open(_)
            | Self::Suspect(_)
            | Self::NoField(_)
            | Self::Kind(..)
            | Self::Fields { .. }
            | Self::Text(_)
            | Self::TooLong => input::BAD_LINES,
        }
    }
}

impl Coded for ReshardError {
    fn code(&self) -> Code {
        match self {
            Self::NoShard { .. } => command::NO_SHARD,
            Self::Closed(..) | Self::OneKey(..) | Self::Outside(..) | Self::Same(_) | Self::Apart(..) => {
                command::STREAM_CHANGE
            }
        }
    }
}
