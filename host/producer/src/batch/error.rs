use std::fmt;

use crate::answer::is_denied;
use crate::{InvalidRecord, Sent, Stopped};

/// Why not every record is acknowledged. What was acknowledged stays stored; of the rest, what was in a request whose
/// answer was lost may be stored too.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A record breaks a rule. Nothing was sent.
    #[error("record {index} cannot be sent: {reason}")]
    Refused {
        /// Which record, from 0.
        index: usize,
        /// Which rule.
        reason: InvalidRecord,
    },
    /// The service refuses, and will until somebody has mended something.
    #[error("{operation} of stream `{stream}`{} is refused ({code}): {reason}; {advice}", Place(region))]
    Rejected {
        /// The stream's name.
        stream: String,
        /// The region that was asked, if the client has one.
        region: Option<String>,
        /// What was asked of the service.
        operation: &'static str,
        /// The service's code.
        code: String,
        /// What the service said.
        reason: String,
        /// What to do.
        advice: &'static str,
        /// For each record, in the order given, where it is stored if it is acknowledged.
        sent: Vec<Option<Sent>>,
    },
    /// The permit was withdrawn. No request was started after that.
    #[error("sending to stream `{stream}` was stopped: {source}")]
    Stopped {
        /// The stream's name.
        stream: String,
        /// Why.
        source: Stopped,
        /// For each record, in the order given, where it is stored if it is acknowledged.
        sent: Vec<Option<Sent>>,
    },
}

/// Where it was asked.
struct Place<'a>(&'a Option<String>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |region| write!(formatter, " in region {region}"))
    }
}

// === impl Error ===

impl Error {
    /// For each record, in the order given, where it is stored if it is acknowledged; empty if nothing was sent.
    pub fn sent(&self) -> &[Option<Sent>] {
        match self {
            Self::Refused { .. } => &[],
            Self::Rejected { sent, .. } | Self::Stopped { sent, .. } => sent,
        }
    }

    /// Whether the service refuses what is in the request, and not the stream or who asks.
    pub fn is_about_records(&self) -> bool {
        let codes = ["ValidationException", "InvalidArgumentException", "SerializationException"];
        matches!(self, Self::Rejected { code, operation, .. } if *operation == "PutRecords" && codes.contains(&code.as_str()))
    }

    /// Whether the service refuses because of who asks: permissions, keys or credentials.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Rejected { code, .. } if is_denied(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_told_from_other_refusals() {
        let rejected = |code: &str| Error::Rejected {
            stream: "orders".to_owned(),
            region: None,
            operation: "PutRecords",
            code: code.to_owned(),
            reason: String::new(),
            advice: "",
            sent: Vec::new(),
        };
        for code in [
            "AccessDeniedException",
            "NotAuthorized",
            "UnauthorizedOperation",
            "IncompleteSignatureException",
            "InvalidClientTokenId",
            "SignatureDoesNotMatch",
            "KMSOptInRequired",
            "credentials",
        ] {
            assert!(rejected(code).is_denied(), "{code}");
        }
        for code in ["ResourceNotFoundException", "ValidationException", "HTTP status 400"] {
            assert!(!rejected(code).is_denied(), "{code}");
        }
    }
}
