//! Between the host's plain types and the generated ones. What comes from a guest is checked, never trusted; and secrets are
//! hidden in whatever of it people read.

use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{Batch, HashKey, Position, SequenceNumber, UserRecord};

use super::bindings::exports::shardmill::processor::{batch, columnar, hooks};
use super::bindings::shardmill::processor::types;
use crate::{
    Cause, Done, FailedRecord, GivenUpRecord, HookOutcome, InvalidOutcome, Mask, Outcome, Output, ProcessError,
    ShardContext, SkippedRecord,
};

/// Bytes of a text that is not what it should be, where an error shows it.
const SHOWN: usize = 60;

pub(super) fn shard_context(shard: &ShardContext) -> types::ShardContext<'_> {
    types::ShardContext {
        application: &shard.application,
        processor: &shard.processor,
        stream: &shard.stream,
        shard_id: shard.shard.as_str(),
        worker: &shard.worker,
        lease_epoch: shard.lease_epoch,
        attempt: shard.attempt,
        millis_behind_latest: shard.millis_behind_latest,
        last_batch: shard.last_batch,
    }
}

pub(super) fn rows(records: &Batch) -> Vec<batch::UserRecord<'_>> {
    records
        .iter()
        .map(|record| batch::UserRecord {
            sequence_number: record.sequence_number,
            sub_sequence_number: record.sub_sequence_number,
            partition_key: record.partition_key,
            explicit_hash_key: record.explicit_hash_key,
            approximate_arrival: record.approximate_arrival,
            data: record.data,
        })
        .collect()
}

pub(super) fn columns(records: &Batch) -> columnar::RecordColumns<'_> {
    columnar::RecordColumns {
        arena: records.arena(),
        lengths: records.lengths(),
        sub_sequence_numbers: records.sub_sequence_numbers(),
        approximate_arrivals: records.approximate_arrivals(),
    }
}

pub(super) fn given_up_record(record: &GivenUpRecord) -> hooks::GivenUpRecord<'_> {
    hooks::GivenUpRecord {
        position: types::PositionParam {
            sequence_number: record.position.sequence_number.as_str(),
            sub_sequence_number: record.position.sub_sequence_number,
        },
        reason: &record.reason,
        attempts: record.attempts,
    }
}

pub(super) fn process_error(error: types::ProcessError, mask: &Mask) -> ProcessError {
    match error {
        types::ProcessError::Retry(retry) => {
            ProcessError::Retry { after: Duration::from_millis(retry.after_ms), message: mask.reason(retry.message) }
        }
        types::ProcessError::Reject(message) => ProcessError::Reject { message: mask.reason(message) },
        types::ProcessError::StopShard(message) => ProcessError::StopShard { message: mask.reason(message) },
    }
}

pub(super) fn rows_outcome(outcome: batch::Outcome, mask: &Mask) -> Result<Outcome, InvalidOutcome> {
    Ok(Outcome {
        done: done(outcome.done),
        failed: failed(outcome.failed, mask),
        skipped: skipped(outcome.skipped, mask),
        checkpoint: position(outcome.checkpoint, mask)?,
        outputs: outputs(outcome.outputs, mask)?,
        mask: mask.clone(),
    })
}

pub(super) fn hook_outcome(outcome: hooks::HookOutcome, mask: &Mask) -> Result<HookOutcome, InvalidOutcome> {
    let checkpoint = position(outcome.checkpoint, mask)?;
    Ok(HookOutcome { checkpoint, outputs: outputs(outcome.outputs, mask)?, mask: mask.clone() })
}

pub(super) fn done(done: types::DoneRecords) -> Done {
    match done {
        types::DoneRecords::Others => Done::Others,
        types::DoneRecords::Before(end) => Done::Before(end),
        types::DoneRecords::Listed(indexes) => Done::Listed(indexes),
    }
}

pub(super) fn failed(records: Vec<types::FailedRecord>, mask: &Mask) -> Vec<FailedRecord> {
    let failed = |types::FailedRecord { index, reason, retry }| {
        let reason = mask.reason(reason);
        FailedRecord { index, reason, retry }
    };
    records.into_iter().map(failed).collect()
}

pub(super) fn skipped(records: Vec<types::SkippedRecord>, mask: &Mask) -> Vec<SkippedRecord> {
    let skipped = |types::SkippedRecord { index, reason }| SkippedRecord { index, reason: mask.reason(reason) };
    records.into_iter().map(skipped).collect()
}

pub(super) fn position(
    position: Option<types::PositionResult>,
    mask: &Mask,
) -> Result<Option<Position>, InvalidOutcome> {
    let Some(position) = position else { return Ok(None) };
    let text = &position.sequence_number;
    // An error shows the text.
    let sequence_number = SequenceNumber::parse(text).or_else(|_| SequenceNumber::parse(&mask.shown(text, SHOWN)));
    let sequence_number = sequence_number.map_err(InvalidOutcome::Checkpoint)?;
    Ok(Some(Position::new(sequence_number, position.sub_sequence_number)))
}

pub(super) fn cause(cause: types::Cause) -> Cause {
    match cause {
        types::Cause::Record(index) => Cause::Record(index),
        types::Cause::Batch => Cause::Batch,
        types::Cause::Hook(id) => Cause::Hook(id),
    }
}

pub(super) fn hash_key(output: usize, text: &str, mask: &Mask) -> Result<HashKey, InvalidOutcome> {
    let key = text.parse().or_else(|_| mask.shown(text, SHOWN).parse());
    key.map_err(|source| InvalidOutcome::HashKey { output, source })
}

fn outputs(outputs: Vec<types::Output>, mask: &Mask) -> Result<Vec<Output>, InvalidOutcome> {
    // Most outputs of a batch go where the one before went. No more is remembered: a guest could name a million others.
    let mut name: Arc<str> = Arc::default();
    let mut converted = Vec::with_capacity(outputs.len());
    for (index, output) in outputs.into_iter().enumerate() {
        if *name != *output.name {
            name = output.name.into();
        }
        let explicit_hash_key = output.explicit_hash_key.map(|text| hash_key(index, &text, mask)).transpose()?;
        converted.push(Output {
            name: name.clone(),
            record: UserRecord { partition_key: output.partition_key, explicit_hash_key, data: output.data.into() },
            cause: cause(output.cause),
        });
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    const SECRET: &str = "hunter22-\"and more\"";

    /// A secret that begins so many bytes before the place where a text is cut, in its middle at the latest.
    fn across(cut: usize) -> impl Iterator<Item = String> {
        (1..SECRET.len()).map(move |before| format!("{}{SECRET}{}", "-".repeat(cut - before), "-".repeat(cut)))
    }

    fn assert_hidden(what: &str, said: &str) {
        assert!(!said.contains(|letter: char| "hunter".contains(letter)), "{what}: {said}");
    }

    #[test]
    fn no_part_of_a_secret_is_in_what_is_cut() {
        let mask = Mask::new(&[Secret::new(SECRET)]);
        for text in across(2000) {
            let records = vec![types::FailedRecord { index: 0, reason: text.clone(), retry: true }];
            assert_hidden("failed", &failed(records, &mask)[0].reason);
            let records = vec![types::SkippedRecord { index: 0, reason: text.clone() }];
            assert_hidden("skipped", &skipped(records, &mask)[0].reason);
            for error in [
                types::ProcessError::Retry(types::RetryError { message: text.clone(), after_ms: 0 }),
                types::ProcessError::Reject(text.clone()),
                types::ProcessError::StopShard(text.clone()),
            ] {
                let (ProcessError::Retry { message, .. }
                | ProcessError::Reject { message }
                | ProcessError::StopShard { message }) = process_error(error, &mask);
                assert_hidden("an error", &message);
            }
        }
        for text in across(SHOWN) {
            let checkpoint = types::PositionResult { sequence_number: text.clone(), sub_sequence_number: 0 };
            // The words around it have other letters.
            let InvalidOutcome::Checkpoint(source) = position(Some(checkpoint), &mask).unwrap_err() else { panic!() };
            assert!(!format!("{source:?}").contains("hu") && format!("{source}").contains("-*"), "{source}");
            let error = hash_key(3, &text, &mask).unwrap_err().to_string();
            assert!(!error.contains("hu") && error.contains("-*"), "{error}");
        }
    }

    #[test]
    fn what_is_carried_out_is_as_the_guest_wrote_it_though_a_secret_occurs_in_it() {
        let mask = Mask::new(&[Secret::new("prod"), Secret::new("12345")]);
        let output = types::Output {
            name: "prod-events".to_owned(),
            partition_key: "prod".to_owned(),
            explicit_hash_key: Some("12345".to_owned()),
            data: b"prod".to_vec(),
            cause: types::Cause::Batch,
        };
        let outcome = |outputs| {
            let done = types::DoneRecords::Others;
            batch::Outcome { done, failed: Vec::new(), skipped: Vec::new(), checkpoint: None, outputs }
        };
        let settle = |outcome: Outcome, known: &str| {
            outcome.settle(1, &|name: &str| name == known, &crate::OutcomeLimits::default())
        };
        let settled = settle(rows_outcome(outcome(vec![output.clone()]), &mask).unwrap(), "prod-events").unwrap();
        let Output { name, record, .. } = &settled.outputs[0];
        assert_eq!((&**name, record.partition_key.as_str(), &record.data[..]), ("prod-events", "prod", &b"prod"[..]));
        assert_eq!(record.explicit_hash_key, Some(HashKey::new(12345)));
        // Only where the name is told.
        let unknown = settle(rows_outcome(outcome(vec![output.clone()]), &mask).unwrap(), "other").unwrap_err();
        assert_eq!(unknown, InvalidOutcome::UnknownOutput { output: 0, name: "***-events".to_owned() });
        let empty = types::Output { partition_key: String::new(), cause: types::Cause::Hook(1), ..output };
        let hook = hook_outcome(hooks::HookOutcome { checkpoint: None, outputs: vec![empty] }, &mask).unwrap();
        let empty = hook.settle(1, &|_| true, &crate::OutcomeLimits::default()).unwrap_err().to_string();
        assert!(empty.contains("`***-events`"), "{empty}");
    }
}
