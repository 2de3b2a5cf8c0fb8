use shardmill_record::{InvalidHashKey, InvalidSequenceNumber, Position};

use crate::OutcomeLimits;
use crate::outcome::{Cause, Done, HookOutcome, Outcome, Output};

/// The longest partition key that Kinesis takes, in Unicode characters.
const PARTITION_KEY_CHARACTERS: usize = 256;

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
        check_outputs(&self.outputs, knows_output, limits, |cause| match cause {
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
        check_outputs(&self.outputs, knows_output, limits, |cause| cause == Cause::Hook(id))?;
        Ok(SettledHook { checkpoint: self.checkpoint, outputs: self.outputs })
    }
}

fn check_outputs(
    outputs: &[Output],
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
            return Err(InvalidOutcome::UnknownOutput { output, name: name.chars().take(128).collect() });
        }
        if !may_cause(*cause) {
            return Err(InvalidOutcome::Cause { output, cause: *cause });
        }
        if record.partition_key.is_empty() || record.partition_key.len() > PARTITION_KEY_CHARACTERS {
            let characters = record.partition_key.chars().count();
            if characters == 0 || characters > PARTITION_KEY_CHARACTERS {
                let (name, cause) = (name.to_string(), *cause);
                return Err(InvalidOutcome::PartitionKey { output, name, cause, characters });
            }
        }
        let bytes = record.partition_key.len() + record.data.len();
        if bytes > limits.record_bytes {
            let (name, cause, limit) = (name.to_string(), *cause, limits.record_bytes);
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
mod tests {
    use std::collections::HashSet;

    use bytes::Bytes;
    use proptest::prelude::*;
    use shardmill_record::UserRecord;

    use super::*;
    use crate::outcome::{FailedRecord, SkippedRecord};

    fn output(cause: Cause) -> Output {
        let record = UserRecord { partition_key: "k".into(), explicit_hash_key: None, data: Bytes::from_static(b"x") };
        Output { name: "out".into(), record, cause }
    }

    fn settle(outcome: Outcome, records: usize) -> Result<Settled, InvalidOutcome> {
        outcome.settle(records, &|name| name == "out", &OutcomeLimits::default())
    }

    fn with_output(change: impl Fn(&mut Output)) -> Result<Settled, InvalidOutcome> {
        let mut bad = output(Cause::Batch);
        change(&mut bad);
        settle(Outcome { outputs: vec![output(Cause::Batch), bad], ..Outcome::default() }, 2)
    }

    #[test]
    fn outputs_of_records_that_are_not_done_are_left_out() {
        let outcome = Outcome {
            done: Done::Before(2),
            failed: vec![FailedRecord { index: 0, reason: "no".into(), retry: true }],
            skipped: vec![SkippedRecord { index: 2, reason: "old".into() }],
            checkpoint: None,
            outputs: [Cause::Record(0), Cause::Record(1), Cause::Record(2), Cause::Record(3), Cause::Batch]
                .map(output)
                .into(),
        };
        let settled = settle(outcome, 4).unwrap();
        let failed = Verdict::Failed { reason: "no".into(), retry: true };
        let skipped = Verdict::Skipped { reason: "old".into() };
        assert_eq!(settled.verdicts, [failed, Verdict::Done, skipped, Verdict::Unacknowledged]);
        let causes: Vec<_> = settled.outputs.iter().map(|output| output.cause).collect();
        assert_eq!(causes, [Cause::Record(1), Cause::Record(2), Cause::Batch]);
        assert_eq!(settled.dropped_outputs, 2);
    }

    #[test]
    fn an_output_that_kinesis_would_not_take_refuses_the_outcome_by_its_number() {
        let unknown = with_output(|output| output.name = "other".into()).unwrap_err();
        assert_eq!(unknown, InvalidOutcome::UnknownOutput { output: 1, name: "other".into() });
        let outside = with_output(|output| output.cause = Cause::Record(2)).unwrap_err();
        assert_eq!(outside, InvalidOutcome::Cause { output: 1, cause: Cause::Record(2) });
        let hook = with_output(|output| output.cause = Cause::Hook(7)).unwrap_err();
        assert_eq!(hook, InvalidOutcome::Cause { output: 1, cause: Cause::Hook(7) });
        for (key, characters) in [(String::new(), 0), ("é".repeat(257), 257)] {
            let result = with_output(|output| output.record.partition_key = key.clone());
            let (name, cause) = ("out".to_owned(), Cause::Batch);
            assert_eq!(result.unwrap_err(), InvalidOutcome::PartitionKey { output: 1, name, cause, characters });
        }
        assert!(with_output(|output| output.record.partition_key = "é".repeat(256)).is_ok());
        let large = with_output(|output| output.record.data = vec![0; 1 << 20].into()).unwrap_err();
        let (name, cause, bytes) = ("out".to_owned(), Cause::Batch, (1 << 20) + 1);
        assert_eq!(large, InvalidOutcome::RecordTooLarge { output: 1, name, cause, bytes, limit: 1 << 20 });
    }

    #[test]
    fn the_outputs_are_bounded_in_number_and_size() {
        let limits = OutcomeLimits { outputs: 2, bytes: 3, record_bytes: 2 };
        let outcome = |count| Outcome { outputs: vec![output(Cause::Batch); count], ..Outcome::default() };
        let settle = |count| outcome(count).settle(0, &|_| true, &limits).map(|settled| settled.outputs.len());
        assert_eq!(settle(1), Ok(1));
        assert_eq!(settle(2), Err(InvalidOutcome::OutputsTooLarge { bytes: 4, limit: 3 }));
        assert_eq!(settle(3), Err(InvalidOutcome::TooManyOutputs { count: 3, limit: 2 }));
    }

    #[test]
    fn a_hook_speaks_for_its_own_call_only() {
        let outcome = |id| HookOutcome { checkpoint: None, outputs: vec![output(Cause::Hook(id))] };
        assert!(outcome(5).settle(5, &|_| true, &OutcomeLimits::default()).is_ok());
        assert!(outcome(6).settle(5, &|_| true, &OutcomeLimits::default()).is_err());
    }

    fn indexes() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(0u32..12, 0..5)
    }

    fn done() -> impl Strategy<Value = Done> {
        prop_oneof![Just(Done::Others), (0u32..12).prop_map(Done::Before), indexes().prop_map(Done::Listed)]
    }

    proptest! {
        // What each rule of the contract says of a record, written down record by record.
        #[test]
        fn every_record_has_the_verdict_that_the_contract_gives_it(
            records in 0usize..10, done in done(), failed in indexes(), skipped in indexes(), caused in indexes(),
        ) {
            let outcome = Outcome {
                done: done.clone(),
                failed: failed.iter().map(|&index| FailedRecord { index, reason: "f".into(), retry: index.is_multiple_of(2) }).collect(),
                skipped: skipped.iter().map(|&index| SkippedRecord { index, reason: "s".into() }).collect(),
                checkpoint: None,
                outputs: caused.iter().map(|&index| output(Cause::Record(index))).collect(),
            };
            let listed = if let Done::Listed(listed) = &done { listed.clone() } else { Vec::new() };
            let named: Vec<u32> = failed.iter().chain(&skipped).chain(&listed).copied().collect();
            let valid = named.iter().chain(&caused).all(|&index| (index as usize) < records)
                && named.iter().collect::<HashSet<_>>().len() == named.len()
                && !matches!(done, Done::Before(end) if end as usize > records);
            let settled = settle(outcome, records);
            prop_assert_eq!(settled.is_ok(), valid);
            let Ok(settled) = settled else { return Ok(()) };
            prop_assert_eq!(settled.verdicts.len(), records);
            for (place, verdict) in settled.verdicts.iter().enumerate() {
                let index = place as u32;
                let expected = if failed.contains(&index) {
                    Verdict::Failed { reason: "f".into(), retry: index.is_multiple_of(2) }
                } else if skipped.contains(&index) {
                    Verdict::Skipped { reason: "s".into() }
                } else if match &done {
                    Done::Others => true,
                    Done::Before(end) => index < *end,
                    Done::Listed(listed) => listed.contains(&index),
                } {
                    Verdict::Done
                } else {
                    Verdict::Unacknowledged
                };
                prop_assert_eq!(verdict, &expected);
            }
            let is_done = |index: &&u32| matches!(settled.verdicts[**index as usize], Verdict::Done | Verdict::Skipped { .. });
            let sent: Vec<_> = caused.iter().filter(is_done).map(|&index| output(Cause::Record(index))).collect();
            prop_assert_eq!(settled.dropped_outputs, caused.len() - sent.len());
            prop_assert_eq!(settled.outputs, sent);
        }
    }
}
