//! What DynamoDB's errors mean to leases.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use crate::store::{Error, Source};

/// Which call failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    action: &'static str,
    table: &'a str,
}

/// What went wrong, before it is known what that means for the call.
enum Kind {
    Throttled,
    NotPermitted,
    NoTable,
    /// The request was refused, or never sent.
    NotDone,
    /// It may have been done.
    InDoubt,
}

// === impl Context ===

impl<'a> Context<'a> {
    pub(super) fn new(action: &'static str, table: &'a str) -> Self {
        Self { action, table }
    }

    /// The error of a call that changes nothing.
    pub(super) fn read<E>(self, error: SdkError<E, HttpResponse>) -> Error
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let kind = kind(&error);
        let source: Source = Box::new(error);
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
        let source: Source = Box::new(error);
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
            Kind::NotDone | Kind::InDoubt => Error::Unavailable { table, source },
        }
    }
}

fn kind<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Kind {
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
            Some(
                "AccessDeniedException"
                | "UnrecognizedClientException"
                | "MissingAuthenticationToken"
                | "MissingAuthenticationTokenException"
                | "IncompleteSignature"
                | "IncompleteSignatureException"
                | "InvalidSignatureException"
                | "InvalidClientTokenId"
                | "NotAuthorized"
                | "ExpiredToken"
                | "ExpiredTokenException"
                | "OptInRequired",
            ) => Kind::NotPermitted,
            Some("ResourceNotFoundException") => Kind::NoTable,
            // Other refusals come with a status 4xx; a server's failure says nothing about what was done.
            _ if service.raw().status().is_client_error() => Kind::NotDone,
            _ => Kind::InDoubt,
        },
        _ => Kind::InDoubt,
    }
}
