//! Why a host cannot start or go on.

use std::path::PathBuf;

use shardmill_lease::store;

use crate::admin;
use crate::deploy::GrantError;

/// Why a host cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A plugin's file cannot be read.
    #[error("processor {processor}: the plugin {} cannot be read: {source}; build it, or correct `plugin`", path.display())]
    ReadPlugin {
        /// The processor.
        processor: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A plugin is not accepted.
    #[error("processor {processor}")]
    Plugin {
        /// The processor.
        processor: String,
        /// Why.
        source: shardmill_plugin::module::Error,
    },
    /// What a processor is granted is not there.
    #[error("processor {processor}: {source}")]
    Grants {
        /// The processor.
        processor: String,
        /// Why.
        source: GrantError,
    },
    /// A plugin does not start with its configuration.
    #[error(
        "processor {processor}: the plugin {} does not start: {source}; correct its `config` or `limits`, or the plugin",
        path.display()
    )]
    StartPlugin {
        /// The processor.
        processor: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: shardmill_plugin::Failure,
    },
    /// WebAssembly cannot be set up.
    #[error("plugins cannot be run on this machine")]
    Runtime(#[from] shardmill_plugin::runtime::Error),
    /// The admin server.
    #[error(transparent)]
    Admin(#[from] admin::Error),
    /// Dead letters cannot be kept where they should be.
    #[error(transparent)]
    DeadLetters(#[from] crate::dead_letters::Error),
    /// The token for commands.
    #[error("commands cannot be taken: {0}")]
    Token(#[from] admin::TokenError),
    /// A run that was to end by itself did, with shards that are stopped or streams that are gone: a sentence for each.
    #[error("everything else is done, and this is not: {}", .0.join("; "))]
    Undone(Vec<String>),
    /// No region is set anywhere.
    #[error("no AWS region is set: set `region` in [aws], or AWS_REGION, or a profile with a region")]
    NoRegion,
    /// A consumer cannot go on.
    #[error("processor {processor}")]
    Consumer {
        /// The processor.
        processor: String,
        /// Why.
        source: Box<shardmill_engine::Error>,
    },
    /// Part of the process broke down.
    #[error("processor {processor} broke down, please report it: {reason}")]
    Broken {
        /// The processor.
        processor: String,
        /// The panic.
        reason: String,
    },
}

/// What kind of failure an error is, for exit statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Configuration,
    NotPermitted,
    Unavailable,
    /// The failure policy has stopped the process, or its last processor.
    Stopped,
    Running,
}

// === impl Class ===

impl Class {
    /// Of a failure to read or describe a stream.
    pub(crate) fn of_stream(kind: shardmill_stream::Kind) -> Self {
        use shardmill_stream::Kind;
        match kind {
            Kind::NotPermitted | Kind::Kms | Kind::Credentials => Self::NotPermitted,
            Kind::NotFound | Kind::Unavailable | Kind::InvalidAnswer | Kind::Throttled => Self::Unavailable,
            _other => Self::Running,
        }
    }

    /// Of a failure to use a table.
    pub(crate) fn of_store(error: &store::Error) -> Self {
        match error {
            store::Error::NotPermitted { .. } | store::Error::Credentials { .. } => Self::NotPermitted,
            store::Error::WrongTable { .. } => Self::Configuration,
            store::Error::Throttled { .. }
            | store::Error::Unknown { .. }
            | store::Error::NoTable { .. }
            | store::Error::Unavailable { .. } => Self::Unavailable,
            _other => Self::Running,
        }
    }
}

// === impl Error ===

impl Error {
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::ReadPlugin { .. }
            | Self::Plugin { .. }
            | Self::Grants { .. }
            | Self::StartPlugin { .. }
            | Self::DeadLetters(_)
            | Self::Token(_)
            | Self::NoRegion => Class::Configuration,
            Self::Admin(_) => Class::Unavailable,
            Self::Runtime(_) | Self::Broken { .. } => Class::Running,
            Self::Undone(_) => Class::Stopped,
            Self::Consumer { source, .. } => match source.as_ref() {
                shardmill_engine::Error::Stream(error) => Class::of_stream(error.kind()),
                shardmill_engine::Error::Store(error) => Class::of_store(error),
                shardmill_engine::Error::OtherStream { .. }
                | shardmill_engine::Error::OtherForm { .. }
                | shardmill_engine::Error::SameStreams { .. }
                | shardmill_engine::Error::Twin(_)
                | shardmill_engine::Error::Foreign { .. } => Class::Configuration,
                shardmill_engine::Error::Stopped { .. } => Class::Stopped,
                _other => Class::Running,
            },
        }
    }
}
