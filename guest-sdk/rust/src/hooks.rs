//! Events of a shard's life.

use std::time::Duration;

use crate::output::{Cause, Columns, Emit};
use crate::{Error, Position, Processor, ShardContext};

/// Events of a shard's life; each does nothing unless it is implemented. Export them with
/// `processor!(Type, hooks)`.
///
/// A hook may run on any instance, and each is bounded in time by the configuration.
pub trait Hooks: Processor {
    /// The shard's lease is held, and its first batch comes next.
    ///
    /// # Errors
    /// As [`Processor::process`]; likewise below.
    fn assigned(&mut self, shard: &ShardContext, outcome: &mut HookOutcome) -> Result<(), Error> {
        let _ = (shard, outcome);
        Ok(())
    }

    /// The shard goes to another worker, or this one stops; after `time_left` the call is ended.
    fn revoked(&mut self, shard: &ShardContext, time_left: Duration, outcome: &mut HookOutcome) -> Result<(), Error> {
        let _ = (shard, time_left, outcome);
        Ok(())
    }

    /// The shard is closed, and every record of it is done.
    fn shard_ended(&mut self, shard: &ShardContext, outcome: &mut HookOutcome) -> Result<(), Error> {
        let _ = (shard, outcome);
        Ok(())
    }

    /// The shard had nothing new.
    fn idle(&mut self, shard: &ShardContext, outcome: &mut HookOutcome) -> Result<(), Error> {
        let _ = (shard, outcome);
        Ok(())
    }

    /// These records are given up, by the failure policy. Told once.
    fn given_up(
        &mut self,
        shard: &ShardContext,
        records: &[GivenUpRecord],
        outcome: &mut HookOutcome,
    ) -> Result<(), Error> {
        let _ = (shard, records, outcome);
        Ok(())
    }

    /// The instance will not be called again.
    fn shutdown(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A record that the failure policy has given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUpRecord {
    /// Where the record stands in its shard.
    pub position: Position,
    /// Why it failed at last.
    pub reason: String,
    /// How often it was handed over.
    pub attempts: u32,
}

/// What a hook brings about.
#[derive(Debug)]
pub struct HookOutcome {
    id: u64,
    pub(crate) checkpoint: Option<Position>,
    pub(crate) outputs: Columns,
}

// === impl HookOutcome ===

impl HookOutcome {
    pub(crate) fn new(id: u64) -> HookOutcome {
        HookOutcome { id, checkpoint: None, outputs: Columns::default() }
    }

    /// Begins an output, caused by this call.
    pub fn emit<'k>(&mut self, name: &'k str, partition_key: &'k str) -> Emit<'_, 'k> {
        Emit::new(&mut self.outputs, name, Cause::Hook(self.id), partition_key)
    }

    /// How far the host may checkpoint, where the configuration leaves that to the processor; else it is ignored.
    pub fn checkpoint(&mut self, position: impl Into<Position>) {
        self.checkpoint = Some(position.into());
    }
}
