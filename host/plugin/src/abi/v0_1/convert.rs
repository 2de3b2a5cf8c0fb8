//! Between the host's plain types and the generated ones. What comes from a guest is checked, never trusted.

use std::sync::Arc;
use std::time::Duration;

use shardmill_record::{Batch, HashKey, Position, SequenceNumber, UserRecord};

use super::bindings::exports::shardmill::processor::{batch, columnar, hooks};
use super::bindings::shardmill::processor::types;
use crate::{
    Cause, Done, FailedRecord, GivenUpRecord, HookOutcome, InvalidOutcome, Outcome, Output, ProcessError, ShardContext,
    SkippedRecord, text,
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

pub(super) fn process_error(error: types::ProcessError) -> ProcessError {
    match error {
        types::ProcessError::Retry(retry) => {
            ProcessError::Retry { after: Duration::from_millis(retry.after_ms), message: text::reason(retry.message) }
        }
        types::ProcessError::Reject(message) => ProcessError::Reject { message: text::reason(message) },
        types::ProcessError::StopShard(message) => ProcessError::StopShard { message: text::reason(message) },
    }
}

pub(super) fn rows_outcome(outcome: batch::Outcome) -> Result<Outcome, InvalidOutcome> {
    Ok(Outcome {
        done: done(outcome.done),
        failed: outcome.failed.into_iter().map(failed).collect(),
        skipped: outcome.skipped.into_iter().map(skipped).collect(),
        checkpoint: outcome.checkpoint.map(position).transpose()?,
        outputs: outputs(outcome.outputs)?,
    })
}

pub(super) fn hook_outcome(outcome: hooks::HookOutcome) -> Result<HookOutcome, InvalidOutcome> {
    Ok(HookOutcome { checkpoint: outcome.checkpoint.map(position).transpose()?, outputs: outputs(outcome.outputs)? })
}

pub(super) fn done(done: types::DoneRecords) -> Done {
    match done {
        types::DoneRecords::Others => Done::Others,
        types::DoneRecords::Before(end) => Done::Before(end),
        types::DoneRecords::Listed(indexes) => Done::Listed(indexes),
    }
}

pub(super) fn failed(record: types::FailedRecord) -> FailedRecord {
    FailedRecord { index: record.index, reason: text::reason(record.reason), retry: record.retry }
}

pub(super) fn skipped(record: types::SkippedRecord) -> SkippedRecord {
    SkippedRecord { index: record.index, reason: text::reason(record.reason) }
}

pub(super) fn position(position: types::PositionResult) -> Result<Position, InvalidOutcome> {
    let text = &position.sequence_number;
    // An error shows the text.
    let sequence_number = SequenceNumber::parse(text).or_else(|_| SequenceNumber::parse(&text::clean(text, SHOWN)));
    let sequence_number = sequence_number.map_err(InvalidOutcome::Checkpoint)?;
    Ok(Position::new(sequence_number, position.sub_sequence_number))
}

pub(super) fn cause(cause: types::Cause) -> Cause {
    match cause {
        types::Cause::Record(index) => Cause::Record(index),
        types::Cause::Batch => Cause::Batch,
        types::Cause::Hook(id) => Cause::Hook(id),
    }
}

pub(super) fn hash_key(output: usize, text: &str) -> Result<HashKey, InvalidOutcome> {
    let key = text.parse().or_else(|_| text::clean(text, SHOWN).parse());
    key.map_err(|source| InvalidOutcome::HashKey { output, source })
}

fn outputs(outputs: Vec<types::Output>) -> Result<Vec<Output>, InvalidOutcome> {
    // Most outputs of a batch go where the one before went. No more is remembered: a guest could name a million others.
    let mut name: Arc<str> = Arc::default();
    let mut converted = Vec::with_capacity(outputs.len());
    for (index, output) in outputs.into_iter().enumerate() {
        if *name != *output.name {
            name = output.name.into();
        }
        let explicit_hash_key = output.explicit_hash_key.map(|text| hash_key(index, &text)).transpose()?;
        converted.push(Output {
            name: name.clone(),
            record: UserRecord { partition_key: output.partition_key, explicit_hash_key, data: output.data.into() },
            cause: cause(output.cause),
        });
    }
    Ok(converted)
}
