//! Which hooks of a plugin are called, and when.

use clap::ValueEnum;

/// A hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Hook {
    /// Before the first batch of a shard.
    Assigned,
    /// After a batch of which records have failed for good.
    GivenUp,
    /// After the last batch.
    Idle,
    /// After the last batch, as if the shard went to another worker.
    Revoked,
    /// After the last batch, as if the shard were closed; the batch is said to be the last one then.
    ShardEnded,
    /// At the end.
    Shutdown,
}

/// Those that are called where nobody says which: a shard that ends is not revoked.
pub(super) const USUAL: [&str; 5] = ["assigned", "given-up", "idle", "shard-ended", "shutdown"];

/// Those of a shard that come after its last batch, in their order.
pub(super) const AT_END: [Hook; 3] = [Hook::Idle, Hook::Revoked, Hook::ShardEnded];

// === impl Hook ===

impl Hook {
    /// The contract's name for it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::GivenUp => "given-up",
            Self::Idle => "idle",
            Self::Revoked => "revoked",
            Self::ShardEnded => "shard-ended",
            Self::Shutdown => "shutdown",
        }
    }
}
