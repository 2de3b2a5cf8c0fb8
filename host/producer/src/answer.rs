//! Sorts what the service says, and what happens in place of an answer, by what there is to do about it.

use std::error::Error as StdError;
use std::io;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_kinesis::operation::put_records::PutRecordsOutput;
use aws_sdk_kinesis::types::PutRecordsResultEntry;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use shardmill_cause::{find_cause, with_causes};
use shardmill_record::{SequenceNumber, ShardId};

/// Why a call, or one entry of it, did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    /// A known code of the service or a word of our own, for metrics.
    pub(crate) label: &'static str,
    /// The service's code, or what is in its place.
    pub(crate) code: String,
    /// What the service said, or what happened.
    pub(crate) reason: String,
}

/// Where the service has put a Kinesis record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) shard: ShardId,
    pub(crate) sequence_number: SequenceNumber,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing was done; it may be done later.
    Refused,
    /// Nobody knows whether it was done.
    Unknown,
    /// Nothing was done, nor will be until somebody has done this.
    Operator(&'static str),
}

const CREDENTIALS: Kind = Kind::Operator("check the AWS credentials of this process, its region and its clock");
const PERMISSION: Kind =
    Kind::Operator("grant kinesis:PutRecords and kinesis:ListShards on the stream to this identity");
const DESCRIBING: Kind = Kind::Operator(
    "grant kinesis:DescribeStreamSummary on the stream to this identity, or let records be no larger than 1 MiB",
);
const KMS: Kind = Kind::Operator(
    "check that the stream's KMS key exists and is enabled, and that this identity has kms:GenerateDataKey on it",
);
const NOT_FOUND: Kind =
    Kind::Operator("create the stream, or correct its name, its region or its account in the configuration");
const REQUEST: Kind = Kind::Operator("check the producer's configuration and what answers at the endpoint");

/// Where there are none to sign a call with.
const NO_CREDENTIALS: &str = "credentials";

/// Too many records, bytes or calls.
const THROTTLES: &[&str] = &[
    "ProvisionedThroughputExceededException",
    "LimitExceededException",
    "KMSThrottlingException",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "SlowDown",
];

/// The codes that every AWS service shares, and those of Kinesis.
const CODES: &[(&str, Kind)] = &[
    ("ProvisionedThroughputExceededException", Kind::Refused),
    ("LimitExceededException", Kind::Refused),
    ("KMSThrottlingException", Kind::Refused),
    ("Throttling", Kind::Refused),
    ("ThrottlingException", Kind::Refused),
    ("RequestLimitExceeded", Kind::Refused),
    ("TooManyRequestsException", Kind::Refused),
    ("SlowDown", Kind::Refused),
    // The stream is being created or changed.
    ("ResourceInUseException", Kind::Refused),
    ("ExpiredNextTokenException", Kind::Refused),
    // New credentials come by themselves.
    ("ExpiredToken", Kind::Refused),
    ("ExpiredTokenException", Kind::Refused),
    ("RequestExpired", Kind::Refused),
    ("RequestTimeout", Kind::Unknown),
    ("RequestTimeoutException", Kind::Unknown),
    ("InternalFailure", Kind::Unknown),
    ("InternalFailureException", Kind::Unknown),
    ("InternalServerError", Kind::Unknown),
    ("ServiceUnavailable", Kind::Unknown),
    ("ServiceUnavailableException", Kind::Unknown),
    ("ResourceNotFoundException", NOT_FOUND),
    ("AccessDeniedException", PERMISSION),
    ("AccessDenied", PERMISSION),
    ("NotAuthorized", PERMISSION),
    ("UnauthorizedOperation", PERMISSION),
    ("KMSAccessDeniedException", KMS),
    ("KMSDisabledException", KMS),
    ("KMSInvalidStateException", KMS),
    ("KMSNotFoundException", KMS),
    ("KMSOptInRequired", KMS),
    ("UnrecognizedClientException", CREDENTIALS),
    ("InvalidClientTokenId", CREDENTIALS),
    ("InvalidSignatureException", CREDENTIALS),
    ("SignatureDoesNotMatch", CREDENTIALS),
    ("IncompleteSignature", CREDENTIALS),
    ("IncompleteSignatureException", CREDENTIALS),
    ("MissingAuthenticationToken", CREDENTIALS),
    ("MissingAuthenticationTokenException", CREDENTIALS),
    ("OptInRequired", CREDENTIALS),
    ("InvalidArgumentException", REQUEST),
    ("ValidationException", REQUEST),
    ("SerializationException", REQUEST),
    ("UnknownOperationException", REQUEST),
];

/// Whether a code says that this identity may not, or that the service does not know it.
pub(crate) fn is_denied(code: &str) -> bool {
    let is_denial = |kind| [PERMISSION, KMS, CREDENTIALS].contains(&kind);
    code == NO_CREDENTIALS || CODES.iter().any(|(name, kind)| *name == code && is_denial(*kind))
}

// === impl Failure ===

impl Failure {
    /// Of a whole call.
    pub(crate) fn of_call<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: StdError + ProvideErrorMetadata + 'static,
    {
        if let SdkError::ServiceError(answer) = error {
            let status = answer.raw().status().as_u16();
            let refusal = answer.err();
            let reason = refusal.message().map_or_else(|| format!("HTTP status {status}"), str::to_owned);
            return Self::of_code(refusal.code(), status, reason);
        }
        let (kind, label) = match (find_cause::<CredentialsError>(error), error) {
            (Some(CredentialsError::ProviderTimedOut(_) | CredentialsError::ProviderError(_)), _) => {
                (Kind::Refused, NO_CREDENTIALS)
            }
            (Some(_), _) => (CREDENTIALS, NO_CREDENTIALS),
            (None, SdkError::ConstructionFailure(_)) => (REQUEST, "not-sent"),
            (None, SdkError::TimeoutError(_)) => (Kind::Unknown, "timeout"),
            (None, SdkError::DispatchFailure(failure)) if failure.is_timeout() => (Kind::Unknown, "timeout"),
            (None, SdkError::ResponseError(_)) => (Kind::Unknown, "invalid-answer"),
            // Where nobody listens nothing was stored.
            _ if find_cause::<io::Error>(error)
                .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) =>
            {
                (Kind::Refused, "connection")
            }
            _ => (Kind::Unknown, "connection"),
        };
        let reason = match error {
            SdkError::ResponseError(answer) if !answer.raw().status().is_success() => {
                format!("HTTP status {} and nothing that can be read", answer.raw().status().as_u16())
            }
            _ => with_causes(error),
        };
        Self { kind, label, code: label.to_owned(), reason }
    }

    /// Of the question how large a stream's records may be.
    pub(crate) fn of_describing(mut self) -> Self {
        if self.kind == PERMISSION {
            self.kind = DESCRIBING;
        }
        self
    }

    /// An answer that cannot be right.
    pub(crate) fn invalid_answer(reason: String) -> Self {
        let label = "invalid-answer";
        Self { kind: Kind::Unknown, label, code: label.to_owned(), reason }
    }

    fn of_code(code: Option<&str>, status: u16, reason: String) -> Self {
        let code = code.unwrap_or_default();
        let known = CODES.iter().find(|(name, _)| *name == code);
        let (label, kind) = match (known, status) {
            (Some((name, kind)), _) => (*name, *kind),
            (None, 429) => ("other", Kind::Refused),
            (None, 408 | 500..) => ("other", Kind::Unknown),
            (None, _) => ("other", REQUEST),
        };
        let code = if code.is_empty() { format!("HTTP status {status}") } else { code.to_owned() };
        Self { kind, label, code, reason }
    }

    /// What somebody has to do before it can succeed.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Operator(advice) => Some(advice),
            Kind::Refused | Kind::Unknown => None,
        }
    }

    /// Whether the service takes the request for wrong, and not the stream or who asks.
    pub(crate) fn is_about_request(&self) -> bool {
        self.kind == REQUEST
    }

    /// Whether a limit is used up, which ends by itself and is nobody's fault.
    pub(crate) fn is_throttle(&self) -> bool {
        THROTTLES.contains(&self.label)
    }

    /// What helps if it does not pass by itself.
    pub(crate) fn hint(&self) -> &'static str {
        match self.label {
            "KMSThrottlingException" => "If this lasts, raise the account's request quota of KMS",
            _ if self.is_throttle() => "If this lasts, give the stream more shards",
            "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" | NO_CREDENTIALS => {
                "If this lasts, renew the AWS credentials of this process"
            }
            _ => "If this lasts, check the network and the endpoint",
        }
    }

    /// Whether nobody knows whether the records of the call are stored.
    pub(crate) fn is_unknown(&self) -> bool {
        self.kind == Kind::Unknown
    }
}

/// One outcome for each entry of a request. The whole call failed if the answer has another number of entries than the
/// request.
pub(crate) fn read(entries: usize, answer: &PutRecordsOutput) -> Result<Vec<Result<Stored, Failure>>, Failure> {
    if answer.records().len() != entries {
        let reason = format!("{entries} records were sent, and {} results came back", answer.records().len());
        return Err(Failure::invalid_answer(reason));
    }
    Ok(answer.records().iter().map(read_entry).collect())
}

fn read_entry(entry: &PutRecordsResultEntry) -> Result<Stored, Failure> {
    if let Some(code) = entry.error_code() {
        let reason = entry.error_message().unwrap_or("no reason is given").to_owned();
        let failure = Failure::of_code(Some(code), 500, reason);
        // An entry that the service itself reports as failed is not stored.
        let kind = if failure.kind == Kind::Unknown { Kind::Refused } else { failure.kind };
        return Err(Failure { kind, ..failure });
    }
    let shard = ShardId::parse(entry.shard_id().unwrap_or_default())
        .map_err(|error| Failure::invalid_answer(error.to_string()))?;
    let sequence_number = SequenceNumber::parse(entry.sequence_number().unwrap_or_default())
        .map_err(|error| Failure::invalid_answer(error.to_string()))?;
    Ok(Stored { shard, sequence_number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(shard: &str, sequence_number: &str) -> PutRecordsResultEntry {
        PutRecordsResultEntry::builder().shard_id(shard).sequence_number(sequence_number).build()
    }

    fn refused(code: &str) -> PutRecordsResultEntry {
        PutRecordsResultEntry::builder().error_code(code).build()
    }

    fn answer(entries: Vec<PutRecordsResultEntry>) -> PutRecordsOutput {
        PutRecordsOutput::builder().set_records(Some(entries)).build().unwrap()
    }

    #[test]
    fn each_entry_of_an_answer_has_its_own_outcome() {
        let answer = answer(vec![
            stored("shardId-000000000000", "49"),
            refused("ProvisionedThroughputExceededException"),
            refused("InternalFailure"),
            refused("KMSDisabledException"),
            refused("SomethingNew"),
            stored("", "49"),
            stored("shardId-000000000000", "x"),
        ]);
        let outcomes = read(7, &answer).unwrap();
        let shard = ShardId::parse("shardId-000000000000").unwrap();
        let sequence_number = SequenceNumber::parse("49").unwrap();
        assert_eq!(outcomes[0], Ok(Stored { shard, sequence_number }));
        let unknown: Vec<_> = outcomes[1..].iter().map(|outcome| outcome.as_ref().unwrap_err().is_unknown()).collect();
        assert_eq!(unknown, [false, false, false, false, true, true]);
        let kinds: Vec<_> = outcomes.iter().filter_map(|outcome| Some(outcome.as_ref().err()?.kind)).collect();
        use Kind::{Refused, Unknown};
        assert_eq!(kinds, [Refused, Refused, KMS, Refused, Unknown, Unknown]);
        assert_eq!(outcomes[4].as_ref().unwrap_err().label, "other");
    }

    #[test]
    fn an_answer_with_too_few_or_too_many_entries_says_nothing() {
        for count in [0, 2] {
            let failure = read(count, &answer(vec![stored("shardId-000000000000", "49")])).unwrap_err();
            assert_eq!((failure.is_unknown(), failure.label), (true, "invalid-answer"));
        }
    }

    #[test]
    fn a_code_that_is_not_known_is_sorted_by_the_status() {
        let kind = |code, status| Failure::of_code(code, status, String::new()).kind;
        assert_eq!(kind(Some("ResourceNotFoundException"), 400), NOT_FOUND);
        assert_eq!(kind(Some("Throttling"), 400), Kind::Refused);
        assert_eq!(kind(Some("SomethingNew"), 400), REQUEST);
        assert_eq!(kind(None, 429), Kind::Refused);
        assert_eq!(kind(None, 503), Kind::Unknown);
        assert_eq!(Failure::of_code(None, 418, String::new()).code, "HTTP status 418");
    }
}
