//! Why work on a shard's records is left before its end.

use crate::Scope;

/// Why the work is left.
#[derive(Debug, Clone)]
pub(crate) enum Leave {
    /// The lease is to be let go.
    Drain,
    Lost,
    Abort,
    /// The shard cannot go on, or the failure policy stops it, and maybe more with it.
    Stop(Scope, String),
    /// The shard's end is reached.
    Closed,
    /// An operator lets the shard rest.
    Pause,
    /// An operator lets the shard begin somewhere else.
    Rewind,
    /// A stopped shard is to begin again.
    Restart,
}

// === impl Leave ===

impl Leave {
    /// The shard cannot go on, whatever the failure policy says.
    pub(crate) fn stop(reason: impl Into<String>) -> Self {
        Self::Stop(Scope::Shard, reason.into())
    }

    /// Whether what is under way is broken off: then nobody knows how far it is.
    pub(crate) fn is_at_once(&self) -> bool {
        matches!(self, Self::Lost | Self::Abort | Self::Rewind)
    }

    /// Of two reasons the one that must be heard: what cannot wait, then an end in order, which needs no further one.
    /// Of two stops what stops more counts, and both are told.
    pub(crate) fn or_worse(self, other: Self) -> Self {
        let rank = |leave: &Self| match leave {
            Self::Lost => 0,
            Self::Abort => 1,
            Self::Rewind => 2,
            Self::Drain => 3,
            Self::Stop(..) => 4,
            Self::Closed | Self::Pause | Self::Restart => 5,
        };
        match (self, other) {
            // Several have often met the same.
            (Self::Stop(scope, reason), Self::Stop(more, other)) if reason.contains(&other) => {
                Self::Stop(scope.max(more), reason)
            }
            (Self::Stop(scope, reason), Self::Stop(more, other)) => {
                Self::Stop(scope.max(more), format!("{reason}; and {other}"))
            }
            (one, other) if rank(&other) < rank(&one) => other,
            (one, _) => one,
        }
    }
}
