//! What a write does to a lease, as a pure function.
//!
//! The same function tells a store what to write, tells a writer what its row looks like if an answer is lost, and
//! is what property tests and simulations run on.

use shardmill_record::{Checkpoint, ShardId};

use crate::lease::sorted;
use crate::{Lease, WorkerId};

/// A write to a lease. Every one moves the counter by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Make `worker` the holder. Ends a hand-off.
    Take {
        /// The new holder.
        worker: WorkerId,
    },
    /// Prove that the holder lives.
    Renew,
    /// Renew, and note how much the shard carries.
    Measure {
        /// Bytes a second.
        throughput: u64,
    },
    /// Move the checkpoint to a position. Never back.
    Checkpoint {
        /// Everything up to and including this is done. A position: sentinels are not written by this.
        to: Checkpoint,
    },
    /// Begin a hand-off to `to`: it owns the lease from now on, and the holder alone may write until it lets go. The
    /// holder sees it at its next renewal. To the holder itself: end a hand-off as if it had not begun.
    HandOff {
        /// The next holder, or the present one.
        to: WorkerId,
    },
    /// The holder lets go; during a hand-off the lease passes to the new holder.
    Release,
    /// Somebody else ends the holding of a worker that is gone; during a hand-off that of the old holder.
    Evict,
    /// The last record of the shard is done: `SHARD_END`. Nobody holds the lease any more.
    Complete {
        /// The shards that follow.
        children: Vec<ShardId>,
    },
    /// Fix the time at which a lease without a position starts.
    SetStart {
        /// Milliseconds since 1970.
        at: u64,
    },
    /// Note shards that follow this one.
    AddChildren {
        /// The shards that follow.
        children: Vec<ShardId>,
    },
    /// Begin somewhere else, before or behind the checkpoint. By an operator's order alone: nothing else moves a
    /// checkpoint back. The epoch grows as with a take, so that nobody takes what comes now for what came before.
    Rewind {
        /// Where to begin.
        to: Restart,
    },
}

/// Where a shard begins that an operator has rewound. No record is named: what is done is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// With the oldest record that is kept: `TRIM_HORIZON`.
    TrimHorizon,
    /// With the first record that arrived at this time or later, in milliseconds since 1970: `AT_TIMESTAMP`, the time
    /// beside it.
    At(u64),
    /// With what comes from this time on, which is now, in milliseconds since 1970: `LATEST`, the time beside it.
    Latest(u64),
}

/// What must be true of a row for a write to it to succeed, besides its counter being as the writer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The writer is still the one who may write. A hand-off that began unseen does not matter: it leaves the old
    /// holder the right to write, and the counter as it was.
    Writer,
    /// Owner and checkpoint owner are as known, because the write changes them.
    Owners,
    /// The same, and the counter may have moved meanwhile: the holder that is asked to let go lives and renews.
    OwnersAlone,
}

/// Why a change does not apply to a lease: the caller's mistake, not a race.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only a holder can do this.
    #[error("nobody holds the lease")]
    NotHeld,
    /// The checkpoint would go back.
    #[error("the checkpoint would go back from {from} to {to}")]
    Backward {
        /// What the lease holds.
        from: Checkpoint,
        /// What was asked for.
        to: Checkpoint,
    },
    /// Only positions are checkpointed.
    #[error("{0} is not a position: a lease is completed, or its start is set, by a change of its own")]
    NotAPosition(Checkpoint),
    /// The shard is done.
    #[error("the shard is done (SHARD_END)")]
    Complete,
    /// A lease is handed to another worker than the one that has it.
    #[error("the lease is with that worker already")]
    OwnLease,
    /// Whoever gets the lease begins where it was when it asked for it.
    #[error("the lease is on its way to the worker {to}: ask that one, once it has it")]
    OnItsWay {
        /// The next holder.
        to: WorkerId,
    },
    /// A start is fixed once, and only before the first checkpoint.
    #[error("the start cannot be set: the checkpoint is {checkpoint} and the start {start_at:?}")]
    StartIsFixed {
        /// What the lease holds.
        checkpoint: Checkpoint,
        /// The start that the lease holds.
        start_at: Option<u64>,
    },
}

// === impl Change ===

impl Change {
    /// What the write depends on, besides the counter.
    pub fn guard(&self) -> Guard {
        match self {
            Self::Renew
            | Self::Measure { .. }
            | Self::Checkpoint { .. }
            | Self::SetStart { .. }
            | Self::AddChildren { .. } => Guard::Writer,
            Self::HandOff { .. } => Guard::OwnersAlone,
            Self::Take { .. } | Self::Release | Self::Evict | Self::Complete { .. } | Self::Rewind { .. } => {
                Guard::Owners
            }
        }
    }

    /// A short name for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Take { .. } => "take",
            Self::HandOff { .. } => "hand-off",
            Self::Renew | Self::Measure { .. } => "renew",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Release => "release",
            Self::Evict => "evict",
            Self::Complete { .. } => "complete",
            Self::SetStart { .. } => "set-start",
            Self::AddChildren { .. } => "add-children",
            Self::Rewind { .. } => "rewind",
        }
    }
}

/// Whether a row is still as the writer of a change knows it.
pub fn holds(guard: Guard, known: &Lease, row: &Lease) -> bool {
    let same_owners = match guard {
        Guard::Writer => known.writer() == row.writer(),
        Guard::Owners | Guard::OwnersAlone => {
            known.owner == row.owner && known.checkpoint_owner == row.checkpoint_owner
        }
    };
    same_owners && (guard == Guard::OwnersAlone || known.counter == row.counter)
}

/// The lease after a change.
///
/// The counter grows by one with every change but the beginning of a hand-off, which is not the holder's; the epoch with
/// takes and rewinds alone; the checkpoint never goes back but by a rewind.
pub fn apply(lease: &Lease, change: &Change) -> Result<Lease, Refused> {
    let mut after = lease.clone();
    after.counter += 1;
    match change {
        Change::Take { worker } => take(&mut after, worker)?,
        Change::HandOff { to } => {
            after.counter = lease.counter;
            hand_off(&mut after, to)?;
        }
        Change::Evict | Change::Release => let_go(&mut after)?,
        Change::Renew => must_be_held(lease)?,
        Change::Measure { throughput } => {
            must_be_held(lease)?;
            after.throughput = Some(*throughput);
        }
        Change::Checkpoint { to } => {
            must_be_held(lease)?;
            checkpoint(&mut after, to)?;
        }
        Change::Complete { children } => {
            must_be_held(lease)?;
            add_children(&mut after, children);
            after.checkpoint = Checkpoint::ShardEnd;
            after.owner_switches_since_checkpoint = 0;
            after.owner = None;
            after.checkpoint_owner = None;
        }
        Change::SetStart { at } => {
            must_be_held(lease)?;
            set_start(&mut after, *at)?;
        }
        Change::AddChildren { children } => {
            must_be_held(lease)?;
            add_children(&mut after, children);
        }
        Change::Rewind { to } => {
            must_be_held(lease)?;
            rewind(&mut after, *to)?;
        }
    }
    Ok(after)
}

fn take(lease: &mut Lease, worker: &WorkerId) -> Result<(), Refused> {
    if lease.is_complete() {
        return Err(Refused::Complete);
    }
    if lease.writer().is_some_and(|holder| holder != worker) {
        lease.owner_switches_since_checkpoint += 1;
    }
    lease.owner = Some(worker.clone());
    lease.checkpoint_owner = None;
    lease.epoch = lease.epoch.next();
    Ok(())
}

fn hand_off(lease: &mut Lease, to: &WorkerId) -> Result<(), Refused> {
    if lease.is_complete() {
        return Err(Refused::Complete);
    }
    match &lease.owner {
        Some(owner) if owner != to => {
            // During a hand-off the old holder stays the one who writes: who was to be next has gone.
            let holder = lease.checkpoint_owner.clone().unwrap_or_else(|| owner.clone());
            lease.owner = Some(to.clone());
            lease.checkpoint_owner = Some(holder).filter(|holder| holder != to);
            Ok(())
        }
        Some(_) => Err(Refused::OwnLease),
        None => Err(Refused::NotHeld),
    }
}

fn let_go(lease: &mut Lease) -> Result<(), Refused> {
    must_be_held(lease)?;
    if lease.checkpoint_owner.take().is_none() {
        lease.owner = None;
    }
    Ok(())
}

fn checkpoint(lease: &mut Lease, to: &Checkpoint) -> Result<(), Refused> {
    if lease.is_complete() {
        return Err(Refused::Complete);
    }
    if to.position().is_none() {
        return Err(Refused::NotAPosition(to.clone()));
    }
    if *to < lease.checkpoint {
        return Err(Refused::Backward { from: lease.checkpoint.clone(), to: to.clone() });
    }
    lease.checkpoint = to.clone();
    lease.owner_switches_since_checkpoint = 0;
    Ok(())
}

fn set_start(lease: &mut Lease, at: u64) -> Result<(), Refused> {
    let startable = matches!(lease.checkpoint, Checkpoint::Latest | Checkpoint::AtTimestamp);
    let fixed_otherwise = lease.start_at.is_some_and(|start_at| start_at != at);
    if !startable || fixed_otherwise {
        return Err(Refused::StartIsFixed { checkpoint: lease.checkpoint.clone(), start_at: lease.start_at });
    }
    lease.start_at = Some(at);
    Ok(())
}

fn rewind(lease: &mut Lease, to: Restart) -> Result<(), Refused> {
    if lease.is_complete() {
        return Err(Refused::Complete);
    }
    // Whoever it is handed to knows it by its epoch.
    if let (Some(to), Some(_holder)) = (&lease.owner, &lease.checkpoint_owner) {
        return Err(Refused::OnItsWay { to: to.clone() });
    }
    (lease.checkpoint, lease.start_at) = match to {
        Restart::TrimHorizon => (Checkpoint::TrimHorizon, None),
        Restart::At(at) => (Checkpoint::AtTimestamp, Some(at)),
        Restart::Latest(now) => (Checkpoint::Latest, Some(now)),
    };
    lease.owner_switches_since_checkpoint = 0;
    lease.epoch = lease.epoch.next();
    Ok(())
}

fn add_children(lease: &mut Lease, children: &[ShardId]) {
    let all = lease.children.iter().chain(children).cloned().collect();
    lease.children = sorted(all);
}

fn must_be_held(lease: &Lease) -> Result<(), Refused> {
    lease.writer().map(|_| ()).ok_or(Refused::NotHeld)
}

#[cfg(test)]
mod tests;
