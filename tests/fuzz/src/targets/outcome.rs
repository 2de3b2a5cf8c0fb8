//! What both forms of an outcome have in common: how one is made of bytes, and what must hold of it.

use std::collections::HashSet;

use arbitrary::{Result, Unstructured};
use shardmill_plugin::fuzzing::outcome::types;
use shardmill_plugin::{Cause, Done, InvalidOutcome, Outcome, OutcomeLimits, Output, Settled, Verdict};

use super::steers;

/// The only output of the configuration.
const OUTPUT: &str = "out";
/// Longer than any reason that is kept, with what shows that it was cut.
const REASON_BYTES: usize = 2020;
/// Longer than what is said of any outcome.
const SAID_BYTES: usize = 2000;
/// The longest partition key that Kinesis takes, in characters.
const KEY_CHARACTERS: usize = 256;

/// The call that an outcome is of.
#[derive(Debug)]
pub(super) struct Call {
    /// Records of its batch.
    pub(super) records: usize,
    pub(super) limits: OutcomeLimits,
}

/// What both forms have.
pub(super) struct Common {
    pub(super) done: types::DoneRecords,
    pub(super) failed: Vec<types::FailedRecord>,
    pub(super) skipped: Vec<types::SkippedRecord>,
    pub(super) checkpoint: Option<types::PositionResult>,
}

pub(super) fn call(from: &mut Unstructured<'_>) -> Result<Call> {
    let records = from.int_in_range(0..=8)?;
    let limits = OutcomeLimits {
        outputs: from.int_in_range(0..=8)?,
        bytes: from.int_in_range(0..=600)?,
        record_bytes: from.int_in_range(0..=300)?,
    };
    Ok(Call { records, limits })
}

pub(super) fn common(from: &mut Unstructured<'_>) -> Result<Common> {
    let done = match from.int_in_range(0..=2)? {
        0 => types::DoneRecords::Others,
        1 => types::DoneRecords::Before(index(from)?),
        _ => types::DoneRecords::Listed(list(from, index)?),
    };
    let failed = list(from, |from| {
        Ok(types::FailedRecord { index: index(from)?, reason: text(from)?, retry: from.arbitrary()? })
    })?;
    let skipped = list(from, |from| Ok(types::SkippedRecord { index: index(from)?, reason: text(from)? }))?;
    Ok(Common { done, failed, skipped, checkpoint: position(from)? })
}

/// Up to ten of something.
pub(super) fn list<'a, T>(
    from: &mut Unstructured<'a>,
    mut one: impl FnMut(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    (0..from.int_in_range(0..=10)?).map(|_| one(from)).collect()
}

/// More often than not that of a record of a small batch.
pub(super) fn index(from: &mut Unstructured<'_>) -> Result<u32> {
    Ok(match from.arbitrary::<u8>()? {
        small @ 0..0xF0 => u32::from(small % 9),
        0xFF => u32::MAX,
        _ => from.arbitrary()?,
    })
}

pub(super) fn text(from: &mut Unstructured<'_>) -> Result<String> {
    Ok(match from.arbitrary::<u8>()? {
        0..0x80 => (0..from.int_in_range(0..=3)?)
            .map(|_| from.choose(&['a', '0', '9', '-']).copied())
            .collect::<Result<_>>()?,
        0x80..0xE0 => from.arbitrary()?,
        0xE0..0xF0 => "no\nERROR \u{1b}[2J\0".to_owned(),
        0xF0..0xF8 => "é".repeat(from.int_in_range(250..=260)?),
        _ => "x\n".repeat(from.int_in_range(900..=1100)?),
    })
}

pub(super) fn position(from: &mut Unstructured<'_>) -> Result<Option<types::PositionResult>> {
    if from.ratio(1, 2)? {
        return Ok(None);
    }
    let sequence_number = digits(from)?;
    Ok(Some(types::PositionResult { sequence_number, sub_sequence_number: from.arbitrary()? }))
}

/// Digits, mostly.
pub(super) fn digits(from: &mut Unstructured<'_>) -> Result<String> {
    Ok(match from.arbitrary::<u8>()? {
        0..0x80 => from.arbitrary::<u128>()?.to_string(),
        0x80..0xC0 => "9".repeat(from.int_in_range(1..=600)?),
        _ => text(from)?,
    })
}

pub(super) fn cause(from: &mut Unstructured<'_>) -> Result<types::Cause> {
    Ok(match from.arbitrary::<u8>()? {
        0..0xA0 => types::Cause::Record(index(from)?),
        0xA0..0xE0 => types::Cause::Batch,
        _ => types::Cause::Hook(from.int_in_range(0..=2)?),
    })
}

pub(super) fn name(from: &mut Unstructured<'_>) -> Result<String> {
    if from.ratio(15, 16)? { Ok(OUTPUT.to_owned()) } else { text(from) }
}

pub(super) fn knows(name: &str) -> bool {
    name == OUTPUT
}

/// Settles an outcome that could be read, and holds the result to the contract.
pub(super) fn check(read: Result<Outcome, InvalidOutcome>, call: &Call) {
    let outcome = match read {
        Ok(outcome) => outcome,
        Err(invalid) => return is_said(&invalid, call),
    };
    let is_valid = names_records_once(&outcome, call.records) && may_be_sent(&outcome.outputs, call);
    match outcome.clone().settle(call.records, &knows, &call.limits) {
        Ok(settled) => {
            assert!(is_valid, "an outcome is accepted that breaks the contract: {outcome:?}");
            each_record_has_its_verdict(&outcome, &settled, call.records);
            outputs_follow_verdicts(&outcome, &settled);
            assert_eq!(settled.checkpoint, outcome.checkpoint);
        }
        Err(invalid) => {
            assert!(!is_valid, "an outcome is refused that keeps to the contract ({invalid}): {outcome:?}");
            is_said(&invalid, call);
        }
    }
}

/// In one line of bounded length, about a record of the batch or none.
pub(super) fn is_said(invalid: &InvalidOutcome, call: &Call) {
    let said = invalid.to_string();
    assert!(!said.is_empty() && said.len() <= SAID_BYTES && !said.contains(steers), "{said:?}");
    assert!(invalid.record().is_none_or(|index| index < call.records), "{said}");
}

/// A guest's text as people get it.
pub(super) fn is_reason(reason: &str) {
    assert!(reason.len() <= REASON_BYTES && !reason.contains(steers), "{reason:?}");
}

fn names_records_once(outcome: &Outcome, records: usize) -> bool {
    let (listed, before): (&[u32], u32) = match &outcome.done {
        Done::Others => (&[], 0),
        Done::Before(end) => (&[], *end),
        Done::Listed(indexes) => (&indexes[..], 0),
    };
    let failed = outcome.failed.iter().map(|record| record.index);
    let skipped = outcome.skipped.iter().map(|record| record.index);
    let named: Vec<u32> = failed.chain(skipped).chain(listed.iter().copied()).collect();
    let is_once = named.iter().collect::<HashSet<_>>().len() == named.len();
    is_once && before as usize <= records && named.iter().all(|index| (*index as usize) < records)
}

fn may_be_sent(outputs: &[Output], call: &Call) -> bool {
    let size = |output: &Output| output.record.partition_key.len() + output.record.data.len();
    let each = outputs.iter().all(|output| {
        let is_caused = match output.cause {
            Cause::Record(index) => (index as usize) < call.records,
            Cause::Batch => true,
            Cause::Hook(_) => false,
        };
        let characters = output.record.partition_key.chars().count();
        let is_taken = (1..=KEY_CHARACTERS).contains(&characters) && size(output) <= call.limits.record_bytes;
        knows(&output.name) && is_caused && is_taken
    });
    each && outputs.len() <= call.limits.outputs && outputs.iter().map(size).sum::<usize>() <= call.limits.bytes
}

fn each_record_has_its_verdict(outcome: &Outcome, settled: &Settled, records: usize) {
    assert_eq!(settled.verdicts.len(), records);
    for (place, verdict) in settled.verdicts.iter().enumerate() {
        let index = u32::try_from(place).expect("batches are small");
        let failed = outcome.failed.iter().find(|record| record.index == index);
        let skipped = outcome.skipped.iter().find(|record| record.index == index);
        let is_done = match &outcome.done {
            Done::Others => true,
            Done::Before(end) => index < *end,
            Done::Listed(indexes) => indexes.contains(&index),
        };
        match (verdict, failed, skipped) {
            (Verdict::Failed { reason, retry }, Some(failed), None) => {
                assert_eq!((reason, *retry), (&failed.reason, failed.retry));
                is_reason(reason);
            }
            (Verdict::Skipped { reason }, None, Some(skipped)) => {
                assert_eq!(*reason, skipped.reason);
                is_reason(reason);
            }
            (Verdict::Done, None, None) if is_done => {}
            (Verdict::Unacknowledged, None, None) if !is_done => {}
            _ => panic!("record {index} is {verdict:?} of {outcome:?}"),
        }
    }
}

/// Those of records that are not done are left out, and nothing else.
fn outputs_follow_verdicts(outcome: &Outcome, settled: &Settled) {
    let is_sent = |output: &&Output| match output.cause {
        Cause::Record(index) => {
            matches!(settled.verdicts[index as usize], Verdict::Done | Verdict::Skipped { .. })
        }
        Cause::Batch | Cause::Hook(_) => true,
    };
    assert!(settled.outputs.iter().eq(outcome.outputs.iter().filter(is_sent)));
    assert_eq!(settled.outputs.len() + settled.dropped_outputs, outcome.outputs.len());
}
