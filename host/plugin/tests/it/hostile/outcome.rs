//! What a guest returns.

use shardmill_plugin::{Cause, Failure, InvalidOutcome, Limits, OutcomeLimits, ProcessError};

use super::{BAD, Bytes, Guest, Host};
use crate::support::{batch, shard};

/// Where lists are that an answer names.
const LIST: u32 = 65_536;

fn refused_as_malformed(failure: &Failure, said: &str) {
    match failure {
        Failure::InvalidOutcome(InvalidOutcome::Malformed(reason)) if reason.contains(said) => {}
        other => panic!("{said:?} is not why: {other:?}"),
    }
}

async fn malformed(guest: &Guest, said: &str) {
    refused_as_malformed(&Host::of(guest).await.attacked().await, said);
}

/// What settling says of an outcome that can be read.
async fn unsettled(guest: &Guest) -> InvalidOutcome {
    let outcome = Host::of(guest).await.survived().await;
    outcome.settle(4, &|name| name == "out", &OutcomeLimits::default()).unwrap_err()
}

#[tokio::test]
async fn that_is_too_large_in_either_form() {
    let limits = Limits { outcome_bytes: 100_000, ..Limits::default() };
    let too_large = Failure::InvalidOutcome(InvalidOutcome::TooLarge { limit: 100_000 });
    // The arena of columns, and one row whose data is all of it.
    let columns = Guest { memory: "8", ..Guest::answering(&Bytes::outcome().list(80, 0, 200_000)) };
    assert_eq!(Host::within(&columns, limits.clone()).await.attacked().await, too_large);
    let row = Bytes::at(LIST).list(0, 1024, 0).list(8, 1024, 1).list(28, 0, 200_000).set(40, 1).set(52, 0);
    let answer = Bytes::outcome().list(64, LIST, 1);
    let rows = Guest { memory: "8", ..Guest::answering(&answer) }.with(&row.data()).in_rows();
    assert_eq!(Host::within(&rows, limits).await.attacked().await, too_large);
}

#[tokio::test]
async fn whose_rows_all_have_the_same_large_data() {
    // A thousand outputs of one place, with 64 KiB there.
    let row = Bytes::at(0).list(0, 1024, 0).list(8, 1024, 1).list(28, 0, 65_536).set(40, 1).set(52, 0);
    let row = row.data().split('"').nth(1).unwrap().repeat(1000);
    let guest = Guest { memory: "4", ..Guest::answering(&Bytes::outcome().list(64, LIST, 1000)) };
    let guest = guest.with(&format!("(data (i32.const {LIST}) \"{row}\")")).in_rows();
    let failure = Host::of(&guest).await.attacked().await;
    assert_eq!(failure, Failure::InvalidOutcome(InvalidOutcome::TooLarge { limit: 32 << 20 }));
}

#[tokio::test]
async fn with_more_outputs_than_there_may_be() {
    // One name, and 100,001 outputs of it that are empty and of the whole batch.
    const COUNT: u32 = 100_001;
    let causes = Bytes::at(LIST).set(0, 1).data().split('"').nth(1).unwrap().to_owned() + &"\\00".repeat(12);
    let causes = format!("(data (i32.const 262144) \"{}\")", causes.repeat(COUNT as usize));
    let answer = Bytes::outcome()
        .list(64, 8192, 1)
        .list(72, 2_097_152, COUNT)
        .list(88, 2_097_152, 3 * COUNT)
        .list(96, 262_144, COUNT);
    let name = Bytes::at(8192).list(0, 8200, 3).set(8, u32::from_le_bytes(*b"out\0"));
    let guest = Guest { memory: "64", ..Guest::answering(&answer) }.with(&name.data()).with(&causes);
    assert_eq!(unsettled(&guest).await, InvalidOutcome::TooManyOutputs { count: COUNT as usize, limit: 100_000 });
}

#[tokio::test]
async fn with_more_acknowledgements_than_records() {
    // Half a million times record 0.
    let answer = Bytes::outcome().set(8, 2).list(12, LIST, 500_000);
    let guest = Guest { memory: "64", ..Guest::answering(&answer) };
    assert_eq!(unsettled(&guest).await, InvalidOutcome::IndexTwice(0));
    // More than the host takes over at once.
    let answer = Bytes::outcome().set(8, 2).list(12, 0, 10_000_000);
    let guest = Guest { memory: "700", ..Guest::answering(&answer) };
    let failure = Host::of(&guest).await.attacked().await;
    assert_eq!(failure, Failure::InvalidOutcome(InvalidOutcome::TooLarge { limit: 32 << 20 }));
}

#[tokio::test]
async fn whose_records_are_named_twice_or_are_not_there() {
    let failed = |first: u32, second: u32| {
        let records = Bytes::at(LIST).set(0, first).list(4, 1024, 0).set(16, second).list(20, 1024, 0).set(28, 0);
        Guest::answering(&Bytes::outcome().list(20, LIST, 2)).with(&records.data())
    };
    assert_eq!(unsettled(&failed(1, 1)).await, InvalidOutcome::IndexTwice(1));
    let outside = InvalidOutcome::IndexOutside { list: "failed", index: u32::MAX, records: 4 };
    assert_eq!(unsettled(&failed(3, u32::MAX)).await, outside);
    let before = Guest::answering(&Bytes::outcome().set(8, 1).set(12, u32::MAX));
    let outside = InvalidOutcome::IndexOutside { list: "done before", index: u32::MAX, records: 4 };
    assert_eq!(unsettled(&before).await, outside);
}

/// Columns of two outputs: the lengths of their keys, hash keys and data.
fn columns(lengths: [u32; 6], arena: u32) -> Guest {
    let answer =
        Bytes::outcome().list(64, 8192, 1).list(72, 8448, 2).list(80, 1024, arena).list(88, LIST, 6).list(96, 8512, 2);
    let name = Bytes::at(8192).list(0, 8200, 3).set(8, u32::from_le_bytes(*b"out\0"));
    let indexes = Bytes::at(8448).list(0, 0, 0);
    let causes = Bytes::at(8512).set(0, 1).set(16, 1).set(28, 0);
    let lengths =
        lengths.iter().enumerate().fold(Bytes::at(LIST), |bytes, (place, length)| bytes.set(4 * place, *length));
    [name, indexes, causes, lengths].iter().fold(Guest::answering(&answer), |guest, bytes| guest.with(&bytes.data()))
}

#[tokio::test]
async fn whose_lengths_add_up_to_more_than_there_is() {
    let invalid = async |guest: Guest| {
        let host = Host::of(&guest).await;
        let mut instance = host.pool.get().await.unwrap();
        match instance.process_batch(&shard(), &batch()).await {
            Err(Failure::InvalidOutcome(invalid)) if instance.is_usable() => invalid,
            other => panic!("{other:?}"),
        }
    };
    let short = |output| InvalidOutcome::ArenaTooShort { output, arena: 10 };
    assert_eq!(invalid(columns([u32::MAX; 6], 10)).await, short(0));
    assert_eq!(invalid(columns([5, 0, 5, 1, 0, u32::MAX], 10)).await, short(1));
    // 2^31 and 2^31 are 0 in 32 bits.
    assert_eq!(invalid(columns([1 << 31, 0, 1 << 31, 5, 0, 5], 10)).await, short(0));
    assert_eq!(invalid(columns([1, 0, 1, 1, 0, 1], 10)).await, InvalidOutcome::ArenaTooLong { rest: 6 });
}

#[tokio::test]
async fn whose_lists_reach_out_of_its_memory() {
    for (place, what) in [(12, "done"), (20, "failed"), (28, "skipped"), (64, "names"), (80, "arena"), (96, "causes")] {
        for (at, length) in [(LIST, 1 << 31), (LIST, u32::MAX), (0xffff_fff0, 16), (131_072, 1)] {
            let answer = Bytes::outcome().set(8, 2).list(12, 0, 0).list(place, at, length);
            let failure = Host::of(&Guest::answering(&answer)).await.attacked().await;
            let is_refused = matches!(
                failure,
                Failure::InvalidOutcome(InvalidOutcome::Malformed(_) | InvalidOutcome::TooLarge { .. })
            );
            assert!(is_refused, "{what} at {at}, {length} long: {failure:?}");
        }
    }
}

#[tokio::test]
async fn that_is_nowhere() {
    for place in ["-8", "131064", "131072", "0x7ffffff8"] {
        malformed(&Guest::attacking(&format!("(i32.const {place})")), "pointer").await;
    }
    malformed(&Guest::attacking("(i32.const 1025)"), "align").await;
}

#[tokio::test]
async fn with_cases_that_the_contract_does_not_have() {
    malformed(&Guest::answering(&Bytes::outcome().set(0, 2)), "expected").await;
    malformed(&Guest::answering(&Bytes::outcome().set(8, 3)), "discriminant").await;
    malformed(&Guest::answering(&Bytes::outcome().set(40, 9)), "option").await;
    malformed(&Guest::answering(&Bytes::outcome().set(0, 1).set(8, 77)), "discriminant").await;
}

#[tokio::test]
async fn whose_texts_are_none() {
    let bytes = "(data (i32.const 65600) \"good\\ff\\fe\")";
    let reason = Bytes::at(LIST).set(0, 1).list(4, 65_600, 6).set(12, 1);
    let failed = Guest::answering(&Bytes::outcome().list(20, LIST, 1)).with(&reason.data()).with(bytes);
    malformed(&failed, "utf-8").await;
    let names = Guest::answering(&Bytes::outcome().list(64, LIST, 1)).with(&Bytes::at(LIST).list(0, 65_600, 6).data());
    malformed(&names.with(bytes), "utf-8").await;
    let rejects = Guest::answering(&Bytes::outcome().set(0, 1).set(8, 1).list(16, 65_600, 6)).with(bytes);
    malformed(&rejects, "utf-8").await;
}

#[tokio::test]
async fn whose_reasons_forge_lines_and_have_no_end() {
    let text = "(data (i32.const 65600) \"no\\0aERROR all is lost\\1b[2J\")";
    let rejects =
        |length: u32| Guest::answering(&Bytes::outcome().set(0, 1).set(8, 1).list(16, 65_600, length)).with(text);
    let reason = async |length| {
        let host = Host::of(&rejects(length)).await;
        let mut instance = host.pool.get().await.unwrap();
        match instance.process_batch(&shard(), &batch()).await {
            Err(Failure::Guest(ProcessError::Reject { message })) => message,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reason(24).await, "no\\nERROR all is lost\\u{1b}[2J");
    let long = reason(60_000).await;
    assert!(long.len() < 2100 && long.ends_with('…'), "{} bytes", long.len());
}

#[tokio::test]
async fn with_a_cause_of_another_call() {
    let row = Bytes::at(LIST).list(0, 8200, 3).list(8, 8200, 3).list(28, 0, 0).set(40, 2).set(48, 7).set(52, 0);
    let name = Bytes::at(8200).set(0, u32::from_le_bytes(*b"out\0"));
    let guest = Guest::answering(&Bytes::outcome().list(64, LIST, 1)).in_rows().with(&row.data()).with(&name.data());
    assert_eq!(unsettled(&guest).await, InvalidOutcome::Cause { output: 0, cause: Cause::Hook(7) });
    assert_eq!(BAD, 4096, "the names above are behind the answer");
}
