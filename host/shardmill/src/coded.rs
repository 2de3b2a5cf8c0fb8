//! The codes of this crate's errors. Those that only one module can see have theirs beside them.

use shardmill_cause::code::{config, deploy, fleet, process};
use shardmill_cause::{Code, Coded};

use crate::deploy::{GrantError, Refusal};
use crate::fleet::{documents, history, share, source};
use crate::{Error, admin, dead_letters, local, telemetry};

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::ReadPlugin { .. } => config::FILE,
            Self::Plugin { source, .. } => source.code(),
            Self::Grants { source, .. } => source.code(),
            Self::StartPlugin { source, .. } => source.code(),
            Self::Runtime(error) => error.code(),
            Self::Admin(error) => error.code(),
            Self::DeadLetters(error) => error.code(),
            Self::Token(error) => error.code(),
            Self::Undone(_) => process::UNDONE,
            Self::NoRegion => config::NO_REGION,
            Self::Consumer { source, .. } => source.code(),
            Self::Broken { .. } => process::BROKE_DOWN,
        }
    }
}

impl Coded for crate::config::Error {
    fn code(&self) -> Code {
        match self {
            Self::Read { .. } => config::UNREADABLE,
            Self::Mistake(mistake) => mistake.code(),
        }
    }
}

impl Coded for GrantError {
    fn code(&self) -> Code {
        match self {
            Self::NotSet { .. } | Self::NotText { .. } | Self::Read { .. } | Self::Invalid { .. } => {
                config::GRANT_MISSING
            }
        }
    }
}

impl Coded for admin::Error {
    fn code(&self) -> Code {
        process::ADMIN_PORT
    }
}

impl Coded for admin::TokenError {
    fn code(&self) -> Code {
        match self {
            Self::Read { .. } | Self::NotSet(_) | Self::Invalid(_) => config::TOKEN,
        }
    }
}

impl Coded for dead_letters::Error {
    fn code(&self) -> Code {
        process::LETTERS_FOLDER
    }
}

impl Coded for telemetry::Error {
    fn code(&self) -> Code {
        config::LOG_FILTER
    }
}

impl Coded for local::Error {
    fn code(&self) -> Code {
        match self {
            Self::PortInUse { .. } | Self::Bind { .. } => process::LOCAL_PORT,
            Self::Threads(_) | Self::Database(_) => process::MACHINE,
        }
    }
}

impl Coded for Refusal {
    fn code(&self) -> Code {
        match self {
            Self::NoProcessor { .. } => deploy::NO_PROCESSOR,
            Self::Stopping => deploy::STOPPING,
            Self::Digest { .. } => deploy::DIGEST,
            Self::Read { .. } => deploy::UNAVAILABLE,
            Self::Module(error) => error.code(),
            Self::Grants(error) => error.code(),
            Self::Start(failure) => failure.code(),
            Self::TrialRecords { .. } | Self::Trial { .. } => deploy::TRIAL,
        }
    }
}

impl Coded for documents::Error {
    fn code(&self) -> Code {
        match self {
            Self::Store(error) => error.code(),
            Self::Unreadable { .. } => fleet::DOCUMENT,
            Self::Later { .. } => fleet::LATER,
        }
    }
}

impl Coded for history::NoEntry {
    fn code(&self) -> Code {
        match self {
            Self::NothingBefore | Self::Unknown(_) | Self::Ambiguous(_) | Self::NoDigest(_) => fleet::NO_VERSION,
        }
    }
}

impl Coded for source::Invalid {
    fn code(&self) -> Code {
        match self {
            Self::Empty | Self::TooLong | Self::Scheme(_) | Self::Address(_) | Self::Credentials => fleet::SOURCE,
        }
    }
}

impl Coded for share::InvalidShare {
    fn code(&self) -> Code {
        fleet::SHARE
    }
}
