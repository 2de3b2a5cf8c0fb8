//! What becomes of a record that was put.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{SequenceNumber, ShardId, UserRecord};

use crate::InvalidRecord;
use crate::answer::{Failure, is_denied};

/// By what a record is known that a producer has accepted: a number that grows from record to record of one
/// [`Producer`](crate::Producer), from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(crate) u64);

/// What has become of a record that is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acknowledged {
    /// The service has stored it.
    Stored(Receipt),
    /// It is on the disk, in the producer's spool, and is sent when the stream takes it. Only a producer
    /// [with a spool](crate::Producer::start_with_spool) says so.
    Spooled {
        /// The record, as [`put`](crate::Producer::put) named it.
        message_id: MessageId,
        /// In how many requests it was before.
        attempts: u32,
        /// From when it was accepted until it was on the disk.
        latency: Duration,
    },
}

/// Where the service has stored a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The record, as [`put`](crate::Producer::put) named it.
    pub message_id: MessageId,
    /// The stream's name or ARN, as the producer was given it.
    pub stream: Arc<str>,
    /// The shard.
    pub shard: ShardId,
    /// The sequence number of its Kinesis record.
    pub sequence_number: SequenceNumber,
    /// Its place in that Kinesis record, from 0.
    pub sub_sequence_number: u64,
    /// In how many requests it was, at least 1.
    pub attempts: u32,
    /// From when it was accepted until it was acknowledged.
    pub latency: Duration,
    /// Whether a reader may meet it more than once: an answer was lost and it was sent again, or an aggregate took it
    /// to a shard that was not its own any more, and it was sent again to its own. It is said of the record, and not of
    /// copies: how many there are nobody knows, and each further answer that was lost may have left one.
    pub may_be_repeated: bool,
}

/// A record that was given up, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {message_id} was not stored: {reason}")]
pub struct Failed {
    /// The record, as [`put`](crate::Producer::put) named it.
    pub message_id: MessageId,
    /// The record itself, to be put again or kept elsewhere.
    pub record: UserRecord,
    /// Why.
    pub reason: Reason,
    /// In how many requests it was.
    pub attempts: u32,
    /// Whether the service may have stored it all the same: an answer was lost, or an aggregate took it to a shard that was not
    /// its own any more.
    pub may_be_stored: bool,
}

/// Why a record was given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It was tried for the whole of [`record_ttl`](crate::Options::record_ttl).
    #[error("its time to live is over{}", Last(.last.as_deref()))]
    Expired {
        /// Why the last attempt failed, if there was one.
        last: Option<Arc<Refusal>>,
    },
    /// The shard took no more, and [`fail_if_throttled`](crate::Options::fail_if_throttled) is on.
    #[error("it was throttled ({}): {}", .0.code, .0.message)]
    Throttled(Arc<Refusal>),
    /// The service refuses it, and will until somebody has mended something.
    #[error("the service refuses it ({}): {}; {}", .0.code, .0.message, .0.advice)]
    Refused(Arc<Refusal>),
    /// It breaks a rule of PutRecords or of its stream.
    #[error("{0}")]
    Invalid(InvalidRecord),
    /// The producer ended before it was stored.
    #[error("the producer was stopped before the record was stored")]
    Stopped,
    /// Its stream could not take it, and neither could the spool, for this reason.
    #[error("the stream could not take it, nor could the spool: {0}")]
    NotSpooled(Arc<str>),
}

/// What the service said, or what happened in place of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The service's code, or a word for what happened in its place: `connection`, `timeout`, `credentials` …
    pub code: String,
    /// What the service said.
    pub message: String,
    /// What to do, in one sentence; empty if it may pass by itself.
    pub advice: &'static str,
}

/// Why a record was not accepted. All of them give the record back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// It breaks a rule of PutRecords.
    #[error("the record cannot be sent: {reason}")]
    Invalid {
        /// The record.
        record: UserRecord,
        /// Which rule.
        reason: InvalidRecord,
    },
    /// There is no room for it now. Only [`try_put`](crate::Producer::try_put) says so; others wait.
    #[error("too many records are pending")]
    Full(UserRecord),
    /// The producer is closed.
    #[error("the producer is closed")]
    Closed(UserRecord),
}

struct Last<'a>(Option<&'a Refusal>);

// === impl Acknowledged ===

impl Acknowledged {
    /// The record, as [`put`](crate::Producer::put) named it.
    pub fn message_id(&self) -> MessageId {
        match self {
            Self::Stored(Receipt { message_id, .. }) | Self::Spooled { message_id, .. } => *message_id,
        }
    }

    /// Where the service has stored the record, if it has.
    pub fn stored(self) -> Option<Receipt> {
        match self {
            Self::Stored(receipt) => Some(receipt),
            Self::Spooled { .. } => None,
        }
    }
}

// === impl MessageId ===

impl MessageId {
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

// === impl Reason ===

impl Reason {
    pub(crate) fn expired(last: Option<&Failure>) -> Self {
        Self::Expired { last: last.map(Refusal::of) }
    }

    pub(crate) fn throttled(failure: &Failure) -> Self {
        Self::Throttled(Refusal::of(failure))
    }

    pub(crate) fn refused(failure: &Failure) -> Self {
        Self::Refused(Refusal::of(failure))
    }

    /// One word: `expired`, `throttled`, `refused`, `invalid`, `stopped` or `not-spooled`, as metrics and the command
    /// line name it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "expired",
            Self::Throttled(_) => "throttled",
            Self::Refused(_) => "refused",
            Self::Invalid(_) => "invalid",
            Self::Stopped => "stopped",
            Self::NotSpooled(_) => "not-spooled",
        }
    }
}

impl fmt::Display for Last<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(refusal) = self.0 else { return Ok(()) };
        write!(formatter, "; the last attempt failed ({}): {}", refusal.code, refusal.message)
    }
}

// === impl Refusal ===

impl Refusal {
    /// Whether the service refuses because of who asks: permissions, keys or credentials.
    pub fn is_denied(&self) -> bool {
        is_denied(&self.code)
    }

    pub(crate) fn of(failure: &Failure) -> Arc<Self> {
        let advice = failure.advice().unwrap_or_default();
        Arc::new(Self { code: failure.code.clone(), message: failure.reason.clone(), advice })
    }
}

// === impl PutError ===

impl PutError {
    /// The record that was not accepted.
    pub fn record(&self) -> &UserRecord {
        match self {
            Self::Invalid { record, .. } | Self::Full(record) | Self::Closed(record) => record,
        }
    }

    /// The record that was not accepted.
    pub fn into_record(self) -> UserRecord {
        match self {
            Self::Invalid { record, .. } | Self::Full(record) | Self::Closed(record) => record,
        }
    }
}
