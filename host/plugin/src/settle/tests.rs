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
        ..Outcome::default()
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
    let outcome = |id| HookOutcome { outputs: vec![output(Cause::Hook(id))], ..HookOutcome::default() };
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
            ..Outcome::default()
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
