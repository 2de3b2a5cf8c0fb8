//! Why a version of a plugin is not taken.

use std::path::PathBuf;

use shardmill_plugin::{Digest, Failure, module};

use super::GrantError;

/// Why a version of a plugin is not taken. The one that runs goes on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Nobody has such a processor.
    #[error("there is no processor `{processor}`: there is {known}")]
    NoProcessor { processor: String, known: String },
    /// The process ends.
    #[error("the worker is stopping")]
    Stopping,
    /// It is not what was meant.
    #[error(
        "its digest is {found}, and {expected} is expected: send the file that has that digest, or name this one's"
    )]
    Digest { expected: Digest, found: Digest },
    /// The file cannot be read.
    #[error("the plugin {} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// It is no guest, or not one that this processor may run.
    #[error(transparent)]
    Module(#[from] module::Error),
    /// What the processor is granted is not there.
    #[error(transparent)]
    Grants(#[from] GrantError),
    /// It does not start with the processor's configuration.
    #[error("it does not start: {0}; correct it, or the processor's `config` or `limits`")]
    Start(Failure),
    /// The trial records cannot be read.
    #[error("the trial records {} cannot be used: {reason}", path.display())]
    TrialRecords { path: PathBuf, reason: String },
    /// It does not process the trial records.
    #[error("it fails with the trial records {}, lines {first} to {last}: {failure}", path.display())]
    Trial { path: PathBuf, first: usize, last: usize, failure: Failure },
}

// === impl Refusal ===

impl Refusal {
    /// Whether the same may be taken at another time: the machine is to blame.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Start(failure) | Self::Trial { failure, .. } => matches!(failure, Failure::Host(_)),
            Self::Module(module::Error::NoProcess { .. }) => true,
            Self::Grants(missing) => missing.is_passing(),
            Self::Read { .. } | Self::TrialRecords { .. } => true,
            _other => false,
        }
    }
}
