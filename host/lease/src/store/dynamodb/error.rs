//! What DynamoDB's errors mean to leases.

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::config::Region;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use crate::store::{Error, Source};

/// Which call failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    action: &'static str,
    table: &'a str,
    region: Option<&'a Region>,
}

/// What went wrong, before it is known what that means for the call.
enum Kind {
    Throttled,
    NotPermitted,
    Credentials {
        passing: bool,
    },
    NoTable,
    /// The request was refused, or never sent.
    NotDone,
    /// It may have been done.
    InDoubt,
}

/// An error without a code, as what stands before a service answers in its place.
#[derive(Debug, thiserror::Error)]
#[error("HTTP status {status} and nothing that can be read")]
struct Unreadable {
    status: u16,
}

// === impl Context ===

impl<'a> Context<'a> {
    pub(super) fn new(action: &'static str, table: &'a str, region: Option<&'a Region>) -> Self {
        Self { action, table, region }
    }

    /// The error of a call that changes nothing.
    pub(super) fn read<E>(self, error: SdkError<E, HttpResponse>) -> Error
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let kind = kind(&error);
        let source = source(error);
        match kind {
            Kind::InDoubt | Kind::NotDone => Error::Unavailable { table: self.table.to_owned(), source },
            kind => self.common(&kind, source),
        }
    }

    /// The error of a write.
    pub(super) fn write<E>(self, error: SdkError<E, HttpResponse>) -> Error
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let kind = kind(&error);
        let source = source(error);
        match kind {
            Kind::InDoubt => Error::Unknown { table: self.table.to_owned(), source },
            kind => self.common(&kind, source),
        }
    }

    fn common(self, kind: &Kind, source: Source) -> Error {
        let table = self.table.to_owned();
        match kind {
            Kind::Throttled => Error::Throttled { table, source },
            Kind::NoTable => Error::NoTable { table },
            Kind::NotPermitted => {
                let remedy = match self.action {
                    "dynamodb:CreateTable" => "create the table beforehand",
                    _ => "check which credentials are used",
                };
                Error::NotPermitted { action: self.action, table, remedy, source }
            }
            Kind::Credentials { passing } => {
                Error::Credentials { table, region: self.region.map(ToString::to_string), passing: *passing, source }
            }
            Kind::NotDone | Kind::InDoubt => Error::Unavailable { table, source },
        }
    }
}

fn kind<E>(error: &SdkError<E, HttpResponse>) -> Kind
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match error {
        SdkError::ConstructionFailure(_) => Kind::NotDone,
        SdkError::ServiceError(service) => match service.err().code() {
            Some(
                "ProvisionedThroughputExceededException"
                | "ThrottlingException"
                | "Throttling"
                | "RequestLimitExceeded"
                | "LimitExceededException"
                | "TransactionConflictException"
                | "ReplicatedWriteConflictException",
            ) => Kind::Throttled,
            Some("AccessDeniedException" | "AccessDenied" | "NotAuthorized" | "UnauthorizedOperation") => {
                Kind::NotPermitted
            }
            // New ones come by themselves.
            Some("ExpiredToken" | "ExpiredTokenException" | "RequestExpired") => Kind::Credentials { passing: true },
            Some(
                "UnrecognizedClientException"
                | "MissingAuthenticationToken"
                | "MissingAuthenticationTokenException"
                | "IncompleteSignature"
                | "IncompleteSignatureException"
                | "InvalidSignatureException"
                | "SignatureDoesNotMatch"
                | "InvalidClientTokenId"
                | "OptInRequired",
            ) => Kind::Credentials { passing: false },
            Some("ResourceNotFoundException") => Kind::NoTable,
            // Other refusals come with a status 4xx; a server's failure says nothing about what was done.
            _ if service.raw().status().is_client_error() => Kind::NotDone,
            _ => Kind::InDoubt,
        },
        // Without credentials nothing was sent.
        error => match find::<CredentialsError>(error) {
            Some(CredentialsError::ProviderTimedOut(_) | CredentialsError::ProviderError(_)) => {
                Kind::Credentials { passing: true }
            }
            Some(_) => Kind::Credentials { passing: false },
            None => Kind::InDoubt,
        },
    }
}

/// What an error message shows as the store's words.
fn source<E>(error: SdkError<E, HttpResponse>) -> Source
where
    E: std::error::Error + Send + Sync + 'static,
{
    match error {
        SdkError::ResponseError(answer) if !answer.raw().status().is_success() => {
            Box::new(Unreadable { status: answer.raw().status().as_u16() })
        }
        error => Box::new(error),
    }
}

fn find<'a, T: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
