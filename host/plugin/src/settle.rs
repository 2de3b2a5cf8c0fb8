use shardmill_record::{InvalidHashKey, InvalidSequenceNumber, Position};

use crate::outcome::{Cause, Done, HookOutcome, Outcome, Output};
use crate::{Mask, OutcomeLimits};

/// The longest partition key that Kinesis takes, in Unicode characters.
const PARTITION_KEY_CHARACTERS: usize = 256;
/// How much of an output's name is shown.
const NAME_BYTES: usize = 128;

/// An outcome that has been checked as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// What became of each record of the batch.
    pub verdicts: Vec<Verdict>,
    /// How far the guest allows to checkpoint.
    pub checkpoint: Option<Position>,
    /// What is to be sent, in the guest's order.
    pub outputs: Vec<Output>,
    /// Outputs that were left out because the record that caused them has not been dealt with.
    pub dropped_outputs: usize,
}

/// What became of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has been dealt with.
    Done,
    /// It was passed over on purpose, and counts as done.
    Skipped {
        /// Why.
        reason: String,
    },
    /// It could not be processed.
    Failed {
        /// Why.
        reason: String,
        /// Whether another attempt can help.
        retry: bool,
    },
    /// The guest did not say: it is to be handed over again.
    Unacknowledged,
}

/// A hook's outcome that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledHook {
    /// How far the guest allows to checkpoint.
    pub checkpoint: Option<Position>,
    /// What is to be sent.
    pub outputs: Vec<Output>,
}

/// Why nothing of an outcome can be carried out. Indexes and outputs are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutcome {
    /// An index that is not one of the batch.
    #[error("`{list}` names record {index}, and the batch has {records}")]
    IndexOutside {
        /// The part of the outcome that names it.
        list: &'static str,
        /// The index.
        index: u32,
        /// Records of the batch.
        records: usize,
    },
    /// An index that stands in the lists twice.
    #[error("record {0} is named twice among done, failed and skipped")]
    IndexTwice(u32),
    /// An output for which the configuration has no stream.
    #[error(
        "output {output} is for `{name}`, which is not among the processor's outputs: add it to the configuration, or \
         correct the name in the guest"
    )]
    UnknownOutput {
        /// Which of the outputs.
        output: usize,
        /// The name, cut to a readable length.
        name: String,
    },
    /// An output that names a cause which this call cannot have.
    #[error("output {output} has the cause {cause:?}, which this call is not")]
    Cause {
        /// Which of the outputs.
        output: usize,
        /// The cause.
        cause: Cause,
    },
    /// An explicit hash key that is no hash key.
    #[error("output {output}: {source}")]
    HashKey {
        /// Which of the outputs.
        output: usize,
        /// What is wrong.
        source: InvalidHashKey,
    },
    /// A partition key that is empty or too long.
    #[error("output {output}, for `{name}`, has a partition key of {characters} characters, and 1 to 256 are allowed")]
    PartitionKey {
        /// Which of the outputs.
        output: usize,
        /// Its name.
        name: String,
        /// Why it exists.
        cause: Cause,
        /// Its length.
        characters: usize,
    },
    /// A record that Kinesis would not take.
    #[error("output {output}, for `{name}`, has {bytes} bytes of partition key and data, and {limit} are allowed")]
    RecordTooLarge {
        /// Which of the outputs.
        output: usize,
        /// Its name.
        name: String,
        /// Why it exists.
        cause: Cause,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// More outputs than are allowed.
    #[error("there are {count} outputs, and {limit} are allowed: make the processor's batches smaller")]
    TooManyOutputs {
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// More bytes of outputs than are allowed.
    #[error(
        "the outputs have {bytes} bytes together, and {limit} are allowed: raise the processor's limit of an outcome, or \
         make its batches smaller"
    )]
    OutputsTooLarge {
        /// How many.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A checkpoint that is no position.
    #[error("checkpoint: {0}")]
    Checkpoint(InvalidSequenceNumber),
    /// A checkpoint that is no position of what the guest has seen.
    #[error("checkpoint: {position} is behind {}", .last.as_ref().map_or("everything, as no record was handed over yet".to_owned(), |last| format!("the last record that was handed over, at {last}")))]
    CheckpointBeyond {
        /// What it was to be.
        position: Position,
        /// The last record that was handed over.
        last: Option<Position>,
    },
    /// A column whose length does not go with the number of outputs.
    #[error("the column `{column}` has {entries} entries, and {expected} belong to {outputs} outputs")]
    ColumnLength {
        /// Which column.
        column: &'static str,
        /// Its length.
        entries: usize,
        /// What it would have to be.
        expected: usize,
        /// How many outputs there are by the column of names.
        outputs: usize,
    },
    /// An output that reaches beyond the arena.
    #[error("output {output} ends after the arena's {arena} bytes")]
    ArenaTooShort {
        /// Which of the outputs.
        output: usize,
        /// The arena's length.
        arena: usize,
    },
    /// Bytes of the arena that belong to no output.
    #[error("{rest} bytes of the arena follow the last output")]
    ArenaTooLong {
        /// How many.
        rest: usize,
    },
    /// An index that is not one of the outputs' names.
    #[error("output {output} has the name number {index}, and there are {names} names")]
    NameIndex {
        /// Which of the outputs.
        output: usize,
        /// The index.
        index: u32,
        /// How many names there are.
        names: usize,
    },
    /// A text that is not UTF-8.
    #[error("output {output} has {what} that is not UTF-8")]
    NotText {
        /// Which of the outputs.
        output: usize,
        /// Which text.
        what: &'static str,
    },
    /// More bytes than the host copies out of a guest in one call.
    #[error(
        "the guest handed the host more than {limit} bytes in one call: raise the processor's limit of an outcome, or \
         make its batches smaller"
    )]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// Bytes in the guest's memory that are not what the contract says.
    #[error("what the guest returned cannot be read: {0}")]
    Malformed(String),
}

// === impl Outcome ===

impl Outcome {
    /// Checks the outcome as a whole and says what becomes of each record of a batch of `records`.
    ///
    /// `knows_output` says whether the processor's configuration has an output of this name.
    ///
    /// # Errors
    /// The first thing that is wrong. Then nothing of the outcome may be carried out, and the batch has failed.
    pub fn settle(
        self,
        records: usize,
        knows_output: &impl Fn(&str) -> bool,
        limits: &OutcomeLimits,
    ) -> Result<Settled, InvalidOutcome> {
        let verdicts = self.verdicts(records)?;
        check_outputs(&self.outputs, &self.mask, knows_output, limits, |cause| match cause {
            Cause::Record(index) => (index as usize) < records,
            Cause::Batch => true,
            Cause::Hook(_) => false,
        })?;
        let all = self.outputs.len();
        let mut outputs = self.outputs;
        outputs.retain(|output| match output.cause {
            Cause::Record(index) => matches!(verdicts[index as usize], Verdict::Done | Verdict::Skipped { .. }),
            Cause::Batch | Cause::Hook(_) => true,
        });
        let dropped_outputs = all - outputs.len();
        Ok(Settled { verdicts, checkpoint: self.checkpoint, outputs, dropped_outputs })
    }

    fn verdicts(&self, records: usize) -> Result<Vec<Verdict>, InvalidOutcome> {
        let mut verdicts: Vec<Option<Verdict>> = vec![None; records];
        let mut give = |list, index: u32, verdict| match verdicts.get_mut(index as usize) {
            None => Err(InvalidOutcome::IndexOutside { list, index, records }),
            Some(Some(_)) => Err(InvalidOutcome::IndexTwice(index)),
            Some(unnamed) => {
                *unnamed = Some(verdict);
                Ok(())
            }
        };
        for record in &self.failed {
            let verdict = Verdict::Failed { reason: record.reason.clone(), retry: record.retry };
            give("failed", record.index, verdict)?;
        }
        for record in &self.skipped {
            give("skipped", record.index, Verdict::Skipped { reason: record.reason.clone() })?;
        }
        let done_before = match &self.done {
            Done::Others => records,
            Done::Before(end) if *end as usize > records => {
                return Err(InvalidOutcome::IndexOutside { list: "done before", index: *end, records });
            }
            Done::Before(end) => *end as usize,
            Done::Listed(indexes) => {
                for index in indexes {
                    give("done", *index, Verdict::Done)?;
                }
                0
            }
        };
        let unnamed = |index| if index < done_before { Verdict::Done } else { Verdict::Unacknowledged };
        Ok(verdicts.into_iter().enumerate().map(|(index, named)| named.unwrap_or_else(|| unnamed(index))).collect())
    }
}

// === impl InvalidOutcome ===

impl InvalidOutcome {
    /// The record of the batch that caused what is wrong, by its place, where that is known.
    pub fn record(&self) -> Option<usize> {
        match self {
            Self::PartitionKey { cause: Cause::Record(index), .. }
            | Self::RecordTooLarge { cause: Cause::Record(index), .. } => Some(*index as usize),
            _ => None,
        }
    }
}

// === impl HookOutcome ===

impl HookOutcome {
    /// Checks the outcome of the hook that was called with this id.
    ///
    /// # Errors
    /// As [`Outcome::settle`].
    pub fn settle(
        self,
        id: u64,
        knows_output: &impl Fn(&str) -> bool,
        limits: &OutcomeLimits,
    ) -> Result<SettledHook, InvalidOutcome> {
        check_outputs(&self.outputs, &self.mask, knows_output, limits, |cause| cause == Cause::Hook(id))?;
        Ok(SettledHook { checkpoint: self.checkpoint, outputs: self.outputs })
    }
}

fn check_outputs(
    outputs: &[Output],
    mask: &Mask,
    knows_output: &impl Fn(&str) -> bool,
    limits: &OutcomeLimits,
    may_cause: impl Fn(Cause) -> bool,
) -> Result<(), InvalidOutcome> {
    if outputs.len() > limits.outputs {
        return Err(InvalidOutcome::TooManyOutputs { count: outputs.len(), limit: limits.outputs });
    }
    let mut sum = 0;
    for (output, Output { name, record, cause }) in outputs.iter().enumerate() {
        if !knows_output(name) {
            return Err(InvalidOutcome::UnknownOutput { output, name: mask.shown(name, NAME_BYTES) });
        }
        if !may_cause(*cause) {
            return Err(InvalidOutcome::Cause { output, cause: *cause });
        }
        if record.partition_key.is_empty() || record.partition_key.len() > PARTITION_KEY_CHARACTERS {
            let characters = record.partition_key.chars().count();
            if characters == 0 || characters > PARTITION_KEY_CHARACTERS {
                let (name, cause) = (mask.shown(name, NAME_BYTES), *cause);
                return Err(InvalidOutcome::PartitionKey { output, name, cause, characters });
            }
        }
        let bytes = record.partition_key.len() + record.data.len();
        if bytes > limits.record_bytes {
            let (name, cause, limit) = (mask.shown(name, NAME_BYTES), *cause, limits.record_bytes);
            return Err(InvalidOutcome::RecordTooLarge { output, name, cause, bytes, limit });
        }
        sum += bytes;
    }
    if sum > limits.bytes {
        return Err(InvalidOutcome::OutputsTooLarge { bytes: sum, limit: limits.bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
