//! What became of a batch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::output::{Cause, Columns, Emit};
use crate::{Position, Record};

/// What became of a batch: begin with [`Batch::outcome`](crate::Batch::outcome), in which every record is done,
/// and say where it is otherwise.
///
/// What is said last of a record counts.
#[derive(Debug)]
pub struct Outcome {
    pub(crate) records: usize,
    pub(crate) done: Done,
    /// Records that are not simply done or not done.
    pub(crate) exceptions: BTreeMap<u32, Exception>,
    pub(crate) checkpoint: Option<Position>,
    pub(crate) outputs: Columns,
}

/// Which records are done, as far as no exception names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    All,
    Before(u32),
    Only(BTreeSet<u32>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exception {
    Failed { reason: String, retry: bool },
    Skipped { reason: String },
}

// === impl Outcome ===

impl Outcome {
    pub(crate) fn new(records: usize) -> Outcome {
        Outcome { records, done: Done::All, exceptions: BTreeMap::new(), checkpoint: None, outputs: Columns::default() }
    }

    /// Begins an output that exists because of a record. It has the record's partition key and explicit hash key
    /// unless it is told otherwise, and is dropped if the record is reported as failed.
    ///
    /// `name` is the output's name in the configuration, not the stream's name.
    pub fn emit<'k>(&mut self, name: &'k str, record: Record<'k>) -> Emit<'_, 'k> {
        let cause = Cause::Record(record.index_in_columns());
        Emit::new(&mut self.outputs, name, cause, record.partition_key()).inherit_hash_key(record.explicit_hash_key())
    }

    /// Begins an output that exists because of the batch as a whole.
    ///
    /// How records fall into batches differs from run to run, and so do such outputs: what has to come out the
    /// same when records are handed over again belongs to a record.
    pub fn emit_for_batch<'k>(&mut self, name: &'k str, partition_key: &'k str) -> Emit<'_, 'k> {
        Emit::new(&mut self.outputs, name, Cause::Batch, partition_key)
    }

    /// The record could not be processed; another attempt may help. The failure policy of the configuration says
    /// how many there are, and what follows.
    pub fn fail(&mut self, record: Record<'_>, reason: impl Display) {
        self.except(record, Exception::Failed { reason: reason.to_string(), retry: true });
    }

    /// The record can never be processed: it goes at once to what the failure policy sets for records that are
    /// given up.
    pub fn fail_for_good(&mut self, record: Record<'_>, reason: impl Display) {
        self.except(record, Exception::Failed { reason: reason.to_string(), retry: false });
    }

    /// The record is passed over on purpose. It counts as done, and is counted and logged as skipped.
    pub fn skip(&mut self, record: Record<'_>, reason: impl Display) {
        self.except(record, Exception::Skipped { reason: reason.to_string() });
    }

    /// Of the records that are neither failed nor skipped, only the first `count` of the batch are done; the
    /// others are handed over again.
    pub fn done_before(&mut self, count: usize) {
        self.done = Done::Before(u32::try_from(count.min(self.records)).unwrap_or(u32::MAX));
    }

    /// Of the records that are neither failed nor skipped, only these are done; the others are handed over again.
    pub fn done_only<'a>(&mut self, records: impl IntoIterator<Item = Record<'a>>) {
        self.done = Done::Only(records.into_iter().map(|record| record.index_in_columns()).collect());
    }

    /// How far the host may checkpoint, where the configuration leaves that to the processor; else it is ignored.
    pub fn checkpoint(&mut self, position: impl Into<Position>) {
        self.checkpoint = Some(position.into());
    }

    fn except(&mut self, record: Record<'_>, exception: Exception) {
        self.exceptions.insert(record.index_in_columns(), exception);
    }
}
