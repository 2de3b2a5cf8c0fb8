use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use shardmill_cause::{find_cause, with_causes};
use shardmill_record::{SequenceNumber, ShardId};

use crate::start::write_time;

/// What was asked of the service, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The operation's name, for example `GetRecords`.
    pub operation: &'static str,
    /// The stream, as it was asked for.
    pub stream: Arc<str>,
    /// The shard, where the call is about one.
    pub shard: Option<ShardId>,
}

/// Why a stream or a shard could not be read, sorted by what there is to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too many calls or bytes: ask again later.
    #[error(
        "{call} is throttled: {reason}; if this lasts, other consumers share the limit: add shards, or read less often"
    )]
    Throttled {
        /// What was asked.
        call: Call,
        /// What the service said.
        reason: String,
    },
    /// The service did not answer, or not as it should, for reasons that pass: ask again later.
    #[error("{call} got no answer: {reason}; check the network and the endpoint if this lasts")]
    Unavailable {
        /// What was asked.
        call: Call,
        /// What happened.
        reason: String,
    },
    /// A shard iterator lives five minutes; take a new one.
    #[error("{call}: the shard iterator expired: {reason}")]
    ExpiredIterator {
        /// What was asked.
        call: Call,
        /// What the service said.
        reason: String,
    },
    /// A listing's token lives five minutes; start the listing again.
    #[error("{call}: the listing's token expired: {reason}")]
    ExpiredToken {
        /// What was asked.
        call: Call,
        /// What the service said.
        reason: String,
    },
    /// There is no such stream.
    #[error(
        "{call}: there is no stream `{}` {}: check its name, the region and the account, or create it ({reason})",
        call.stream, Place(region)
    )]
    NotFound {
        /// What was asked.
        call: Call,
        /// The region that was asked, if the client has one.
        region: Option<String>,
        /// What the service said.
        reason: String,
    },
    /// The stream existed when the reader was made, and does not any more.
    #[error(
        "stream `{stream}` was deleted while it was read (shard {shard}): records that were not read are lost; remove it from the configuration, or create it again"
    )]
    StreamGone {
        /// The stream, as it was asked for.
        stream: Arc<str>,
        /// The shard that was read.
        shard: ShardId,
    },
    /// Another stream of the same name took its place: its shards have the same ids, its records have nothing in
    /// common with the checkpoints.
    #[error(
        "stream `{stream}` was deleted and created again (then {known} ms, now {found} ms since 1970; shard {shard}): its checkpoints mean nothing any more; start it under a new lease table, or delete its leases"
    )]
    StreamRecreated {
        /// The stream, as it was asked for.
        stream: Arc<str>,
        /// The shard that was read.
        shard: ShardId,
        /// The creation time that the reader was made for, in milliseconds since 1970.
        known: u64,
        /// The creation time that the stream has now, in milliseconds since 1970.
        found: u64,
    },
    /// The stream is there and does not list the shard: it was closed, and the retention of its last record is over.
    #[error(
        "shard {shard} of stream `{stream}` is gone: it was closed, and its last records are older than the stream's retention; what was not read of it is lost"
    )]
    ShardGone {
        /// The stream, as it was asked for.
        stream: Arc<str>,
        /// The shard that was read.
        shard: ShardId,
    },
    /// The record of the checkpoint at which the shard was resumed is not there any more, and it is not to be passed over.
    #[error(
        "its checkpoint {checkpoint} in stream `{stream}` is out of retention: {}; records after it may be lost, and nothing was passed over: go on with `reset = \"earliest\"` or `\"latest\"`",
        Oldest(first)
    )]
    OutOfRetention {
        /// The stream, as it was asked for.
        stream: Arc<str>,
        /// The shard that was read.
        shard: ShardId,
        /// The checkpoint's record.
        checkpoint: SequenceNumber,
        /// The oldest record that there is, and when it arrived, in milliseconds since 1970; `None` if there is none.
        first: Option<(SequenceNumber, u64)>,
    },
    /// The identity may not do this.
    #[error("{call} is not permitted: {reason}; grant kinesis:{} on the stream to this identity", call.operation)]
    NotPermitted {
        /// What was asked.
        call: Call,
        /// What the service said.
        reason: String,
    },
    /// The stream is encrypted with a key that cannot be used.
    #[error(
        "{call}: the stream's KMS key cannot be used: {reason}; check that the key is enabled and that this identity has kms:Decrypt on it"
    )]
    Kms {
        /// What was asked.
        call: Call,
        /// What the service said.
        reason: String,
    },
    /// There are no credentials, or the service does not take them.
    #[error("{call}: the AWS credentials do not work {}: {reason}; {}", Place(region), advice(*passing))]
    Credentials {
        /// What was asked.
        call: Call,
        /// The region that was asked, if the client has one.
        region: Option<String>,
        /// What happened.
        reason: String,
        /// Whether it may pass: they expired and will be renewed, or their source did not answer.
        passing: bool,
    },
    /// The service refuses the request as such.
    #[error("{call} is refused ({code}): {reason}")]
    Rejected {
        /// What was asked.
        call: Call,
        /// The service's code, or the HTTP status.
        code: String,
        /// What the service said.
        reason: String,
    },
    /// The answer cannot be right, and is not used.
    #[error("{call} brought an answer that cannot be right: {reason}; check what answers at the endpoint")]
    InvalidAnswer {
        /// What was asked.
        call: Call,
        /// What is wrong with it.
        reason: String,
    },
}

/// An error's kind, as metrics and logs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// [`Error::Throttled`]
    Throttled,
    /// [`Error::Unavailable`]
    Unavailable,
    /// [`Error::ExpiredIterator`]
    ExpiredIterator,
    /// [`Error::ExpiredToken`]
    ExpiredToken,
    /// [`Error::NotFound`]
    NotFound,
    /// [`Error::StreamGone`]
    StreamGone,
    /// [`Error::StreamRecreated`]
    StreamRecreated,
    /// [`Error::ShardGone`]
    ShardGone,
    /// [`Error::OutOfRetention`]
    OutOfRetention,
    /// [`Error::NotPermitted`]
    NotPermitted,
    /// [`Error::Kms`]
    Kms,
    /// [`Error::Credentials`]
    Credentials,
    /// [`Error::Rejected`]
    Rejected,
    /// [`Error::InvalidAnswer`]
    InvalidAnswer,
}

struct Place<'a>(&'a Option<String>);

struct Oldest<'a>(&'a Option<(SequenceNumber, u64)>);

fn advice(passing: bool) -> &'static str {
    if passing { "new ones are waited for" } else { "check them, the region and this machine's clock" }
}

// === impl Call ===

impl Call {
    /// About a stream, by the name or ARN by which it is asked for.
    pub fn stream(operation: &'static str, stream: &str) -> Self {
        Self { operation, stream: stream.into(), shard: None }
    }

    pub(crate) fn shard(operation: &'static str, stream: &Arc<str>, shard: &ShardId) -> Self {
        Self { operation, stream: Arc::clone(stream), shard: Some(shard.clone()) }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shard {
            Some(shard) => write!(formatter, "{} of {shard} of stream `{}`", self.operation, self.stream),
            None => write!(formatter, "{} of stream `{}`", self.operation, self.stream),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(region) => write!(formatter, "in region {region}"),
            None => formatter.write_str("at this endpoint"),
        }
    }
}

impl fmt::Display for Oldest<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((number, arrival)) => {
                write!(formatter, "the oldest record is {number}, which arrived at ")?;
                write_time(*arrival, formatter)
            }
            None => formatter.write_str("the shard holds no record"),
        }
    }
}

// === impl Kind ===

impl Kind {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::ExpiredIterator => "expired-iterator",
            Self::ExpiredToken => "expired-token",
            Self::NotFound => "not-found",
            Self::StreamGone => "stream-gone",
            Self::StreamRecreated => "stream-recreated",
            Self::ShardGone => "shard-gone",
            Self::OutOfRetention => "out-of-retention",
            Self::NotPermitted => "not-permitted",
            Self::Kms => "kms",
            Self::Credentials => "credentials",
            Self::Rejected => "rejected",
            Self::InvalidAnswer => "invalid-answer",
        }
    }
}

// === impl Error ===

impl Error {
    /// Whether the same call may succeed later although nobody does anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Throttled { .. }
            | Self::Unavailable { .. }
            | Self::ExpiredIterator { .. }
            | Self::ExpiredToken { .. }
            | Self::Credentials { passing: true, .. } => true,
            Self::NotFound { .. }
            | Self::StreamGone { .. }
            | Self::StreamRecreated { .. }
            | Self::ShardGone { .. }
            | Self::OutOfRetention { .. }
            | Self::NotPermitted { .. }
            | Self::Kms { .. }
            | Self::Credentials { passing: false, .. }
            | Self::Rejected { .. }
            | Self::InvalidAnswer { .. } => false,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Throttled { .. } => Kind::Throttled,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::ExpiredIterator { .. } => Kind::ExpiredIterator,
            Self::ExpiredToken { .. } => Kind::ExpiredToken,
            Self::NotFound { .. } => Kind::NotFound,
            Self::StreamGone { .. } => Kind::StreamGone,
            Self::StreamRecreated { .. } => Kind::StreamRecreated,
            Self::ShardGone { .. } => Kind::ShardGone,
            Self::OutOfRetention { .. } => Kind::OutOfRetention,
            Self::NotPermitted { .. } => Kind::NotPermitted,
            Self::Kms { .. } => Kind::Kms,
            Self::Credentials { .. } => Kind::Credentials,
            Self::Rejected { .. } => Kind::Rejected,
            Self::InvalidAnswer { .. } => Kind::InvalidAnswer,
        }
    }

    /// Sorts an SDK error of a call. `region` is the client's.
    pub fn sort<E>(call: Call, region: Option<String>, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: StdError + ProvideErrorMetadata + 'static,
    {
        if let SdkError::ServiceError(answer) = error {
            let status = answer.raw().status().as_u16();
            let refusal = answer.err();
            let reason = match refusal.message() {
                Some(message) => message.to_owned(),
                None => format!("HTTP status {status}"),
            };
            return Self::of_refusal(call, region, refusal.code(), status, reason);
        }
        let reason = match error {
            SdkError::ResponseError(answer) if !answer.raw().status().is_success() => {
                format!("HTTP status {} and nothing that can be read", answer.raw().status().as_u16())
            }
            _ => with_causes(error),
        };
        if let Some(credentials) = find_cause::<CredentialsError>(error) {
            let passing =
                matches!(credentials, CredentialsError::ProviderTimedOut(_) | CredentialsError::ProviderError(_));
            return Self::Credentials { call, region, reason, passing };
        }
        match error {
            SdkError::ConstructionFailure(_) => Self::Rejected { call, code: "not sent".into(), reason },
            SdkError::ResponseError(answer) if answer.raw().status().is_success() && !is_cut(error) => {
                Self::InvalidAnswer { call, reason }
            }
            _ => Self::Unavailable { call, reason },
        }
    }

    /// Sorts what the service says, by its code: the codes that every AWS service shares, and those of Kinesis.
    fn of_refusal(call: Call, region: Option<String>, code: Option<&str>, status: u16, reason: String) -> Self {
        match code.unwrap_or_default() {
            "ProvisionedThroughputExceededException"
            | "LimitExceededException"
            | "KMSThrottlingException"
            | "Throttling"
            | "ThrottlingException"
            | "ThrottledException"
            | "RequestThrottled"
            | "RequestThrottledException"
            | "RequestLimitExceeded"
            | "TooManyRequestsException"
            | "SlowDown" => Self::Throttled { call, reason },
            "ExpiredIteratorException" => Self::ExpiredIterator { call, reason },
            "ExpiredNextTokenException" => Self::ExpiredToken { call, reason },
            "ResourceNotFoundException" => Self::NotFound { call, region, reason },
            // The stream is being created or changed.
            "ResourceInUseException" => Self::Unavailable { call, reason },
            "AccessDeniedException" | "AccessDenied" | "NotAuthorized" | "UnauthorizedOperation" => {
                Self::NotPermitted { call, reason }
            }
            "KMSAccessDeniedException"
            | "KMSDisabledException"
            | "KMSInvalidStateException"
            | "KMSNotFoundException"
            | "KMSOptInRequired" => Self::Kms { call, reason },
            "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" => {
                Self::Credentials { call, region, reason, passing: true }
            }
            "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "IncompleteSignature"
            | "IncompleteSignatureException"
            | "MissingAuthenticationToken"
            | "MissingAuthenticationTokenException"
            | "OptInRequired" => Self::Credentials { call, region, reason, passing: false },
            "RequestTimeout"
            | "RequestTimeoutException"
            | "InternalFailure"
            | "InternalFailureException"
            | "InternalServerError"
            | "ServiceUnavailable"
            | "ServiceUnavailableException" => Self::Unavailable { call, reason },
            _ if status == 429 => Self::Throttled { call, reason },
            _ if status >= 500 || status == 408 => Self::Unavailable { call, reason },
            code => {
                let code = if code.is_empty() { format!("HTTP status {status}") } else { code.to_owned() };
                Self::Rejected { call, code, reason }
            }
        }
    }
}

/// Whether the connection ended before the answer did.
fn is_cut(error: &(dyn StdError + 'static)) -> bool {
    find_cause::<std::io::Error>(error).is_some()
        || find_cause::<aws_smithy_types::byte_stream::error::Error>(error).is_some()
}
