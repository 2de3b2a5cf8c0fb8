//! How a call, or the work on one record, fails.

use std::any::Any;
use std::fmt::{self, Display};
use std::time::Duration;

use crate::{batch, output};

/// The whole call failed; its outputs do not exist.
///
/// Made from any error by `?`, which asks for a retry of the batch. Where one record is to blame, report that
/// record in the outcome instead, and the others are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Try the same records again.
    Retry {
        /// For the operator.
        message: String,
        /// Not before this has passed.
        after: Duration,
    },
    /// No attempt can succeed: every record of the batch has failed for good.
    Reject {
        /// For the operator.
        message: String,
    },
    /// This shard must not go on before somebody has looked at it.
    StopShard {
        /// For the operator.
        message: String,
    },
}

/// One record failed.
///
/// Made from any error by `?`. What cannot change from one attempt to the next fails for good: data that is not
/// as expected ([`batch::DataError`], [`serde_json::Error`], [`std::str::Utf8Error`]) and outputs that cannot
/// exist ([`output::Error`]). Anything else is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Another attempt may help.
    Retry {
        /// For the operator.
        reason: String,
    },
    /// No attempt can help.
    ForGood {
        /// For the operator.
        reason: String,
    },
    /// Not this record alone, but the whole call failed.
    Call(Error),
}

// === impl Error ===

impl Error {
    /// Try the same records again, as soon as the failure policy of the configuration says.
    pub fn retry(message: impl Display) -> Error {
        Error::retry_after(Duration::ZERO, message)
    }

    /// Try the same records again, but not before `after` has passed. The interface counts in milliseconds.
    pub fn retry_after(after: Duration, message: impl Display) -> Error {
        Error::Retry { message: message.to_string(), after }
    }

    /// No attempt can succeed: every record of the batch has failed for good.
    pub fn reject(message: impl Display) -> Error {
        Error::Reject { message: message.to_string() }
    }

    /// This shard must not go on before somebody has looked at it.
    pub fn stop_shard(message: impl Display) -> Error {
        Error::StopShard { message: message.to_string() }
    }

    /// What to tell the operator.
    pub fn message(&self) -> &str {
        match self {
            Error::Retry { message, .. } | Error::Reject { message } | Error::StopShard { message } => message,
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

// Neither type is a `std::error::Error` itself, or this would be at odds with `From<T> for T`.
impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Error {
        Error::retry(with_sources(&error))
    }
}

// === impl RecordError ===

impl RecordError {
    /// Another attempt may help.
    pub fn retry(reason: impl Display) -> RecordError {
        RecordError::Retry { reason: reason.to_string() }
    }

    /// No attempt can help: the record goes at once to what the failure policy sets for records that are given up.
    pub fn for_good(reason: impl Display) -> RecordError {
        RecordError::ForGood { reason: reason.to_string() }
    }
}

impl Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Retry { reason } | RecordError::ForGood { reason } => f.write_str(reason),
            RecordError::Call(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> From<E> for RecordError {
    fn from(error: E) -> RecordError {
        let any: &dyn Any = &error;
        let same_every_time = any.is::<batch::DataError>()
            || any.is::<output::Error>()
            || any.is::<std::str::Utf8Error>()
            || any.is::<serde_json::Error>();
        let reason = with_sources(&error);
        if same_every_time { RecordError::ForGood { reason } } else { RecordError::Retry { reason } }
    }
}

impl From<Error> for RecordError {
    fn from(error: Error) -> RecordError {
        RecordError::Call(error)
    }
}

/// The error's message, then each source's that it does not already repeat.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        if !message.ends_with(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        next = source.source();
    }
    message
}
