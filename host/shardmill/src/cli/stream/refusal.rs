//! What it means that a service refuses.

use std::error::Error as StdError;

use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use shardmill_cause::code;
use shardmill_stream::{Call, Error};

use crate::cli::Failure;
use crate::cli::access::Access;

/// What can be done where there are two ways to say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Create,
    Retain,
    Split,
    Merge,
    Scale,
    Describe,
    Delete,
}

const ACCOUNT_LIMITS: &str = "AWS limits how many shards an account may have in a region (`aws kinesis describe-limits`), how \
many streams may be created, split or merged at a time, and how often these calls may be made; wait a little, or ask AWS for a \
higher quota";
const SCALE_LIMITS: &str = "AWS scales a stream to no more than twice and no less than half its open shards at a time, at most \
10 times in 24 hours, to at most 10,000 shards and what is left of the account's quota; go by several steps, or use `shardmill \
stream split` and `merge`";

// === impl Order ===

impl Order {
    fn operation(self) -> &'static str {
        match self {
            Self::Create => "CreateStream",
            Self::Retain => "IncreaseStreamRetentionPeriod",
            Self::Split => "SplitShard",
            Self::Merge => "MergeShards",
            Self::Scale => "UpdateShardCount",
            Self::Describe => "DescribeStreamSummary",
            Self::Delete => "DeleteStream",
        }
    }

    /// What can be said of a refusal by its code alone.
    fn told(self, code: &str, reason: &str, stream: &str) -> Option<Failure> {
        let refused = || {
            Failure::running(format!("{} of stream {stream} is refused: {reason}", self.operation()))
                .code(code::command::SERVICE)
        };
        match (code, self) {
            ("ResourceInUseException", Self::Create) => Some(
                Failure::running(format!("there is a stream {stream} already"))
                    .code(code::command::STREAM_CHANGE)
                    .help(format!("`shardmill stream describe {stream}` shows it")),
            ),
            ("ResourceInUseException", Self::Delete) => Some(
                Failure::running(format!("stream {stream} is not deleted: {reason}"))
                    .code(code::command::STREAM_CHANGE)
                    .help("consumers with enhanced fan-out hold it: --with-consumers deletes them as well"),
            ),
            ("ResourceInUseException", _) => Some(refused().help(
                "a stream is changed by one order after another: wait until it is active, and give the order again",
            )),
            ("LimitExceededException" | "InvalidArgumentException" | "ValidationException", Self::Scale) => {
                Some(refused().help(SCALE_LIMITS))
            }
            ("LimitExceededException", _) => Some(refused().help(ACCOUNT_LIMITS)),
            ("InvalidArgumentException" | "ValidationException", _) => Some(refused()),
            ("UnknownOperationException" | "InvalidAction", _) => Some(
                Failure::unavailable(format!("the service does not know {}: {reason}", self.operation()))
                    .code(code::command::SERVICE)
                    .help(
                        "check what answers at the endpoint; not everything that stands in for Kinesis does all of it",
                    ),
            ),
            _other => None,
        }
    }
}

/// As a failure of the command, with its exit status.
pub(super) fn refused<E>(access: &Access, order: Order, error: &SdkError<E, HttpResponse>) -> Failure
where
    E: StdError + ProvideErrorMetadata + 'static,
{
    if let SdkError::ServiceError(answer) = error {
        let code = answer.err().code().unwrap_or_default();
        let reason = answer.err().message().unwrap_or(code);
        if let Some(failure) = order.told(code, reason, &access.stream) {
            return failure;
        }
    }
    let region = access.client.config().region().map(ToString::to_string);
    Error::sort(Call::stream(order.operation(), &access.stream), region, error).into()
}
