//! What a host would make of a processor's answer.

use serde_json::Value;

use crate::outcome::{Done, Exception};
use crate::output::{Cause, Columns, Row};
use crate::{HookOutcome, Outcome, Position};

/// What became of a batch.
#[derive(Clone, Debug)]
pub struct Inspected {
    outputs: Vec<Output>,
    verdicts: Vec<Verdict>,
    checkpoint: Option<Position>,
}

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was processed.
    Done,
    /// It was passed over on purpose.
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
    /// It is handed over again.
    NotDone,
}

/// One record for another stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The output's name in the configuration.
    pub name: String,
    /// 1 to 256 Unicode characters.
    pub partition_key: String,
    /// Decimal, below 2^128.
    pub explicit_hash_key: Option<String>,
    /// The payload.
    pub data: Vec<u8>,
    /// Why it exists.
    pub cause: Cause,
}

/// What a hook brought about.
#[derive(Clone, Debug)]
pub struct HookResult {
    /// All outputs, in order.
    pub outputs: Vec<Output>,
    /// How far the host may checkpoint.
    pub checkpoint: Option<Position>,
}

// === impl Inspected ===

impl Inspected {
    #[track_caller]
    pub(super) fn new(outcome: Outcome, records: usize) -> Inspected {
        assert_eq!(outcome.records, records, "the outcome is of another batch");
        let verdicts: Vec<Verdict> = (0..).take(records).map(|index| verdict(&outcome, index)).collect();
        let is_named_beyond = |index: &u32| *index as usize >= records;
        if let Some(index) = outcome.exceptions.keys().find(|index| is_named_beyond(index)) {
            panic!("the outcome names record {index} of a batch of {records}");
        }
        if let Done::Only(done) = &outcome.done
            && let Some(index) = done.iter().find(|index| is_named_beyond(index))
        {
            panic!("the outcome names record {index} of a batch of {records}");
        }
        let mut outputs = outputs(&outcome.outputs);
        outputs.retain(|output| match output.cause {
            Cause::Record(index) => match verdicts.get(index as usize) {
                Some(verdict) => !matches!(verdict, Verdict::Failed { .. }),
                None => panic!("an output is caused by record {index} of a batch of {records}"),
            },
            Cause::Batch | Cause::Hook(_) => true,
        });
        Inspected { outputs, verdicts, checkpoint: outcome.checkpoint }
    }

    /// The outputs that the host would send, in order: not those of failed records.
    pub fn all_outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Those of one name.
    pub fn outputs(&self, name: &str) -> Vec<&Output> {
        self.outputs.iter().filter(|output| output.name == name).collect()
    }

    /// What became of each record, in order.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Whether every record was processed.
    pub fn all_done(&self) -> bool {
        self.verdicts.iter().all(|verdict| *verdict == Verdict::Done)
    }

    /// How far the host may checkpoint, where the configuration leaves that to the processor.
    pub fn checkpoint(&self) -> Option<&Position> {
        self.checkpoint.as_ref()
    }
}

// === impl Output ===

impl Output {
    /// The payload as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.data).expect("the output is text")
    }

    /// The payload as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.data).expect("the output is JSON")
    }
}

impl From<Row<'_>> for Output {
    fn from(row: Row<'_>) -> Output {
        Output {
            name: row.name.to_owned(),
            partition_key: row.partition_key.to_owned(),
            explicit_hash_key: row.explicit_hash_key.map(str::to_owned),
            data: row.data.to_owned(),
            cause: row.cause,
        }
    }
}

// === impl HookResult ===

impl HookResult {
    pub(super) fn new(outcome: &HookOutcome) -> HookResult {
        HookResult { outputs: outputs(&outcome.outputs), checkpoint: outcome.checkpoint.clone() }
    }
}

fn outputs(columns: &Columns) -> Vec<Output> {
    columns.rows().map(Output::from).collect()
}

fn verdict(outcome: &Outcome, index: u32) -> Verdict {
    match outcome.exceptions.get(&index) {
        Some(Exception::Failed { reason, retry }) => Verdict::Failed { reason: reason.clone(), retry: *retry },
        Some(Exception::Skipped { reason }) => Verdict::Skipped { reason: reason.clone() },
        None => {
            let done = match &outcome.done {
                Done::All => true,
                Done::Before(count) => index < *count,
                Done::Only(records) => records.contains(&index),
            };
            if done { Verdict::Done } else { Verdict::NotDone }
        }
    }
}
