//! Outcomes of guests that return whatever the types allow, from what wasmtime has read to what is settled: never a panic,
//! and what is accepted makes sense.

use std::collections::HashSet;

use proptest::prelude::*;

use super::bindings::exports::shardmill::processor::{batch, columnar, hooks};
use super::bindings::shardmill::processor::types;
use super::{columns, convert};
use crate::{Cause, HookOutcome, InvalidOutcome, Mask, Outcome, OutcomeLimits, Output, Settled, Verdict};

/// Longer than any reason that is kept, with what shows that it was cut.
const REASON_BYTES: usize = 2020;

fn index() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..8, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn indexes() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![4 => prop::collection::vec(index(), 0..5), 1 => prop::collection::vec(index(), 0..300)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z0-9]{0,4}",
        1 => any::<String>(),
        1 => Just("no\nERROR \u{1b}[2J\0".to_owned()),
        1 => Just("é".repeat(257)),
        1 => Just("x\n".repeat(3000)),
    ]
}

fn done() -> impl Strategy<Value = types::DoneRecords> {
    prop_oneof![
        Just(types::DoneRecords::Others),
        index().prop_map(types::DoneRecords::Before),
        indexes().prop_map(types::DoneRecords::Listed),
    ]
}

fn failed() -> impl Strategy<Value = Vec<types::FailedRecord>> {
    let record = (index(), text(), any::<bool>());
    let record = record.prop_map(|(index, reason, retry)| types::FailedRecord { index, reason, retry });
    prop::collection::vec(record, 0..4)
}

fn skipped() -> impl Strategy<Value = Vec<types::SkippedRecord>> {
    let record = (index(), text()).prop_map(|(index, reason)| types::SkippedRecord { index, reason });
    prop::collection::vec(record, 0..4)
}

fn position() -> impl Strategy<Value = Option<types::PositionResult>> {
    let number = prop_oneof![3 => "[0-9]{1,60}", 1 => text(), 1 => Just("9".repeat(600))];
    let position = (number, any::<u64>());
    prop::option::of(position.prop_map(|(sequence_number, sub_sequence_number)| types::PositionResult {
        sequence_number,
        sub_sequence_number,
    }))
}

fn cause() -> impl Strategy<Value = types::Cause> {
    prop_oneof![
        4 => index().prop_map(types::Cause::Record),
        2 => Just(types::Cause::Batch),
        1 => (0u64..3).prop_map(types::Cause::Hook),
    ]
}

fn hash_key() -> impl Strategy<Value = Option<String>> {
    let key = prop_oneof![3 => any::<u128>().prop_map(|key| key.to_string()), 1 => text(), 1 => Just("9".repeat(40))];
    prop::option::weighted(0.3, key)
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![6 => Just("out".to_owned()), 1 => text()]
}

fn outputs() -> impl Strategy<Value = Vec<types::Output>> {
    let data = prop_oneof![3 => prop::collection::vec(any::<u8>(), 0..8), 1 => Just(vec![7; 3000])];
    let output = (name(), text(), hash_key(), data, cause());
    let output = output.prop_map(|(name, partition_key, explicit_hash_key, data, cause)| types::Output {
        name,
        partition_key,
        explicit_hash_key,
        data,
        cause,
    });
    prop::collection::vec(output, 0..6)
}

/// Columns that agree with each other as often as not.
fn output_columns() -> impl Strategy<Value = columnar::OutputColumns> {
    let one = (index().prop_map(|index| index % 3), prop::array::uniform3(0u32..4), cause());
    let extra = prop_oneof![3 => Just(0usize), 1 => 1usize..4];
    let length = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u32>()));
    let byte = prop_oneof![3 => Just(b'1'), 1 => Just(b'a'), 1 => Just(0xffu8)];
    let columns = (prop::collection::vec(one, 0..6), prop::collection::vec(name(), 0..3), extra, length, byte);
    columns.prop_map(|(outputs, names, extra, length, byte)| {
        let mut lengths: Vec<u32> = outputs.iter().flat_map(|(_, lengths, _)| *lengths).collect();
        let arena = vec![byte; lengths.iter().sum::<u32>() as usize + extra / 2];
        if let Some((place, length)) = length
            && !lengths.is_empty()
        {
            let place = place.index(lengths.len());
            lengths[place] = length;
        }
        let mut causes: Vec<_> = outputs.iter().map(|(.., cause)| *cause).collect();
        causes.truncate(causes.len().saturating_sub(extra % 2));
        let name_indexes = outputs.iter().map(|(name, ..)| *name).collect();
        columnar::OutputColumns { names, name_indexes, arena, lengths, causes }
    })
}

fn limits() -> impl Strategy<Value = OutcomeLimits> {
    (0usize..8, 0usize..5000, 0usize..4000).prop_map(|(outputs, bytes, record_bytes)| OutcomeLimits {
        outputs,
        bytes,
        record_bytes,
    })
}

fn knows(name: &str) -> bool {
    name == "out"
}

fn outputs_are_sound(outputs: &[Output], limits: &OutcomeLimits) -> Result<(), TestCaseError> {
    prop_assert!(outputs.len() <= limits.outputs);
    let size = |output: &Output| output.record.partition_key.len() + output.record.data.len();
    prop_assert!(outputs.iter().map(size).sum::<usize>() <= limits.bytes);
    for output in outputs {
        prop_assert_eq!(&*output.name, "out");
        prop_assert!(size(output) <= limits.record_bytes);
        prop_assert!((1..=256).contains(&output.record.partition_key.chars().count()));
    }
    Ok(())
}

fn reason_is_sound(reason: &str) -> Result<(), TestCaseError> {
    prop_assert!(reason.len() <= REASON_BYTES && !reason.contains(['\n', '\u{1b}', '\0']), "{:?}", reason);
    Ok(())
}

/// What every outcome that is accepted promises to whoever carries it out.
fn settled_is_sound(settled: &Settled, records: usize, limits: &OutcomeLimits) -> Result<(), TestCaseError> {
    prop_assert_eq!(settled.verdicts.len(), records);
    for verdict in &settled.verdicts {
        if let Verdict::Failed { reason, .. } | Verdict::Skipped { reason } = verdict {
            reason_is_sound(reason)?;
        }
    }
    outputs_are_sound(&settled.outputs, limits)?;
    for output in &settled.outputs {
        match output.cause {
            Cause::Record(index) => {
                let verdict = settled.verdicts.get(index as usize);
                prop_assert!(matches!(verdict, Some(Verdict::Done | Verdict::Skipped { .. })), "{:?}", verdict);
            }
            Cause::Batch => {}
            Cause::Hook(id) => return Err(TestCaseError::fail(format!("a batch is not the hook {id}"))),
        }
    }
    Ok(())
}

fn check(
    outcome: Result<Outcome, InvalidOutcome>,
    records: usize,
    limits: &OutcomeLimits,
) -> Result<(), TestCaseError> {
    let named = outcome.as_ref().ok().map(|outcome| {
        let failed = outcome.failed.iter().map(|record| record.index);
        failed.chain(outcome.skipped.iter().map(|record| record.index)).collect::<Vec<_>>()
    });
    let settled = outcome.and_then(|outcome| outcome.settle(records, &knows, limits));
    match settled {
        Ok(settled) => {
            let named = named.unwrap_or_default();
            prop_assert_eq!(named.iter().collect::<HashSet<_>>().len(), named.len(), "a record is named twice");
            settled_is_sound(&settled, records, limits)
        }
        Err(invalid) => {
            // What is said of it is of a bounded length, on one line, and names a record of the batch or none.
            let said = invalid.to_string();
            prop_assert!(said.len() < 2000 && !said.contains(['\n', '\u{1b}', '\0']), "{:?}", said);
            prop_assert!(invalid.record().is_none_or(|index| index < records));
            Ok(())
        }
    }
}

proptest! {
    #[test]
    fn rows_are_refused_or_make_sense(
        (done, failed, skipped) in (done(), failed(), skipped()),
        checkpoint in position(), outputs in outputs(), records in 0usize..9, limits in limits(),
    ) {
        let outcome = batch::Outcome { done, failed, skipped, checkpoint, outputs };
        check(convert::rows_outcome(outcome, &Mask::default()), records, &limits)?;
    }

    #[test]
    fn columns_are_refused_or_make_sense(
        (done, failed, skipped) in (done(), failed(), skipped()),
        checkpoint in position(), outputs in output_columns(), records in 0usize..9, limits in limits(),
    ) {
        let outcome = columnar::Outcome { done, failed, skipped, checkpoint, outputs };
        check(columns::outcome(outcome, &Mask::default()), records, &limits)?;
    }

    #[test]
    fn hooks_are_refused_or_make_sense(
        checkpoint in position(), outputs in outputs(), id in 0u64..3, limits in limits(),
    ) {
        let outcome = convert::hook_outcome(hooks::HookOutcome { checkpoint, outputs }, &Mask::default());
        if let Ok(settled) = outcome.and_then(|outcome: HookOutcome| outcome.settle(id, &knows, &limits)) {
            outputs_are_sound(&settled.outputs, &limits)?;
            prop_assert!(settled.outputs.iter().all(|output| output.cause == Cause::Hook(id)));
        }
    }

    #[test]
    fn errors_say_little(message in text(), after_ms in any::<u64>(), kind in 0u8..3) {
        let error = match kind {
            0 => types::ProcessError::Retry(types::RetryError { message, after_ms }),
            1 => types::ProcessError::Reject(message),
            _ => types::ProcessError::StopShard(message),
        };
        let said = convert::process_error(error, &Mask::default()).to_string();
        prop_assert!(said.len() < 2100 && !said.contains(['\n', '\u{1b}', '\0']), "{:?}", said);
    }
}
