//! Why a shard makes no progress.

/// Why a shard makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The guest has a batch and does not return.
    Guest,
    /// A hook of the guest does not return, or what it returned cannot be sent.
    Hook,
    /// Outputs are not acknowledged.
    Outputs,
    /// Dead letters are not taken where they go.
    DeadLetters,
    /// The batch fails again and again.
    Retrying {
        /// How many attempts there were.
        attempts: u32,
        /// Why the last one failed.
        reason: String,
    },
    /// Everything is done, and the shard's end cannot be written.
    Ending,
    /// Work goes on, and the store does not take its checkpoints.
    Checkpoint {
        /// What it said.
        reason: String,
    },
    /// No iterator can be taken.
    NoIterator {
        /// What the service said; nothing if it does not answer.
        reason: Option<String>,
    },
    /// Reads fail.
    Reads {
        /// What kind of failure.
        kind: &'static str,
        /// How many there were in a row.
        failures: u32,
        /// What was said.
        reason: String,
    },
    /// A read is not answered.
    NoAnswer,
    /// The byte budget is taken.
    Memory,
    /// Other readers of the shard in this process have their turn.
    Turn,
    /// The stream is gone, or is asked whether it is.
    Stream,
    /// The store does not take a note without which nothing may be read.
    Store,
    /// A parent is not done and makes no progress itself.
    Parent {
        /// Its lease.
        lease: String,
        /// Who has it.
        holder: Option<String>,
    },
    /// None of these.
    Unknown,
}

// === impl Reason ===

impl Reason {
    /// A word or two for metrics and logs.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Guest => "guest-running".into(),
            Self::Hook => "hook-running".into(),
            Self::Outputs => "outputs-pending".into(),
            Self::DeadLetters => "dead-letters-pending".into(),
            Self::Retrying { .. } => "retrying".into(),
            Self::Ending => "end-not-written".into(),
            Self::Checkpoint { .. } => "checkpoint-failing".into(),
            Self::NoIterator { .. } => "no-iterator".into(),
            Self::Reads { kind, .. } => format!("reads-{kind}"),
            Self::NoAnswer => "read-unanswered".into(),
            Self::Memory => "no-memory".into(),
            Self::Turn => "other-readers".into(),
            Self::Stream => "stream-gone".into(),
            Self::Store => "store-failing".into(),
            Self::Parent { .. } => "parent-pending".into(),
            Self::Unknown => "unknown".into(),
        }
    }

    /// What comes after "because".
    pub(crate) fn because(&self) -> String {
        match self {
            Self::Guest => "its guest is running".into(),
            Self::Hook => "a hook of its guest is running, or what it returned is not acknowledged".into(),
            Self::Outputs => "its outputs are not acknowledged by their destination".into(),
            Self::DeadLetters => "its dead letters are not stored yet where they go".into(),
            Self::Retrying { attempts, reason } => format!("its batch failed {attempts} times: {reason}"),
            Self::Ending => "all of it is done, and its end cannot be written to the lease table".into(),
            Self::Checkpoint { reason } => format!("its checkpoint cannot be written: {reason}"),
            Self::NoIterator { reason: Some(reason) } => format!("no iterator can be taken: {reason}"),
            Self::NoIterator { reason: None } => "an iterator is asked for, and there is no answer".into(),
            Self::Reads { failures, reason, .. } => format!("reading it failed {failures} times: {reason}"),
            Self::NoAnswer => "records are asked for, and there is no answer".into(),
            Self::Memory => "the memory for its next page is taken by other shards (`memory`)".into(),
            Self::Turn => "other readers of this process have taken their turns at it".into(),
            Self::Stream => "its stream is gone or another one, or cannot be asked for".into(),
            Self::Store => "the store does not take a note without which nothing more may be read".into(),
            Self::Parent { lease, holder } => {
                let holder = holder.as_deref().map_or("which nobody holds".to_owned(), |id| format!("held by {id}"));
                format!("its parent {lease} ({holder}) is not done and makes no progress")
            }
            Self::Unknown => "it waits for records, and its reader does not say for what".into(),
        }
    }
}
