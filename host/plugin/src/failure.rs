use std::fmt;
use std::time::Duration;

use crate::{InvalidOutcome, ProcessError};

/// Why a call did not give an outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The guest says so itself.
    #[error(transparent)]
    Guest(#[from] ProcessError),
    /// The guest's `init` refused its configuration, or its `shutdown` reported a failure.
    #[error("the processor refused: {0}")]
    Refused(String),
    /// The guest crashed.
    #[error("{0}")]
    Trap(Trap),
    /// The guest took too long.
    #[error("{0}")]
    Timeout(Timeout),
    /// The guest wanted more memory than it may have, and crashed for want of it.
    #[error(
        "the guest wanted {wanted} bytes of memory, and may have {limit}: raise the processor's memory limit, or make its batches smaller"
    )]
    Memory {
        /// Bytes of all memories and tables together, had they been granted.
        wanted: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// The guest's outcome cannot be carried out.
    #[error("the processor returned an invalid outcome: {0}")]
    InvalidOutcome(#[from] InvalidOutcome),
    /// The host could not make the call.
    #[error("{0}")]
    Host(String),
}

/// A guest's crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap {
    /// What happened.
    pub message: String,
    /// The guest's call stack, innermost first, a frame on a line, where the crash has one.
    pub backtrace: String,
    /// The end of what the guest wrote to standard error, or logged as an error, during the call: a Rust guest's panic
    /// message.
    pub stderr: String,
}

/// Which limit of time a call went over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// The time that may pass.
    Wall(Duration),
    /// The time that may be computed.
    Cpu(Duration),
}

// === impl Failure ===

impl Failure {
    /// One word for the metrics' label `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Guest(ProcessError::Retry { .. }) => "retry",
            Self::Guest(ProcessError::Reject { .. }) => "reject",
            Self::Guest(ProcessError::StopShard { .. }) => "stop-shard",
            Self::Refused(_) => "refused",
            Self::Trap(_) => "trap",
            Self::Timeout(_) => "timeout",
            Self::Memory { .. } => "memory",
            Self::InvalidOutcome(_) => "invalid-outcome",
            Self::Host(_) => "host",
        }
    }
}

// === impl Trap ===

impl fmt::Display for Trap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the guest crashed: {}", self.message)?;
        if !self.stderr.is_empty() {
            write!(formatter, "; its last words: {}", self.stderr)?;
        }
        Ok(())
    }
}

// === impl Timeout ===

impl fmt::Display for Timeout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wall(limit) => write!(formatter, "the call took longer than the {limit:?} that it may take")?,
            Self::Cpu(limit) => write!(formatter, "the call computed for longer than the {limit:?} that it may")?,
        }
        formatter.write_str(": raise the processor's limit of time, or give the guest less to do in one call")
    }
}
