//! A KCL application stops half-way, and we carry on.

use std::collections::BTreeSet;

use shardmill_record::Checkpoint;
use shardmill_tests::{
    Tail, TakenUp, Worker, Writer, assert_order_of_keys, assert_taken_up, leases, numbers, positions,
};

use crate::application::{CHECKPOINT_EVERY, Kcl, halves};
use crate::table::{annotate, assert_kept, is_lease, items};
use crate::{End, config, services};

#[tokio::test]
#[ignore = "wants a JDK and Maven: `make kcl`"]
async fn what_a_kcl_has_left_at_its_stop_is_carried_on_and_nothing_is_repeated() {
    carries_on(End::Clean).await;
}

#[tokio::test]
#[ignore = "wants a JDK and Maven: `make kcl`"]
async fn what_a_killed_kcl_has_left_is_carried_on_from_its_checkpoints() {
    carries_on(End::Killed).await;
}

async fn carries_on(end: End) {
    let services = services(4).await;
    let config = config();
    let table = config.lease_table();
    let mut writer = Writer::new(&services, "input", 100).with_aggregates();
    writer.put(1_200).await;
    let limits = halves(&Tail::all(&services, "input").await);
    let mut kcl = Kcl::start(&services, &config, "kcl-1", &limits).await;
    kcl.until_at(&limits).await;
    // What follows its last checkpoint it has prepared: the first of two phases.
    let prepared = items(&services, table).await;
    let prepared = prepared.values().filter(|item| item.contains_key("pendingCheckpointState")).count();
    assert_eq!(prepared, limits.len());
    end.of_kcl(&mut kcl).await;

    let (by_kcl, rows) = (kcl.journal(), leases::rows(&services, table).await);
    assert_eq!(rows.keys().collect::<Vec<_>>(), limits.keys().collect::<Vec<_>>());
    for (shard, row) in &rows {
        let done: Vec<_> = by_kcl.iter().filter(|record| record.shard == *shard).collect();
        assert_eq!(done.len(), limits[shard]);
        let expected = match end {
            End::Clean => done.len(),
            End::Killed => done.len() / CHECKPOINT_EVERY * CHECKPOINT_EVERY,
        };
        let expected = Checkpoint::Position(done[expected - 1].position.clone());
        assert_eq!(row.checkpoint, expected, "{shard}: what the KCL has checkpointed");
        assert!(end == End::Killed || expected.sub_sequence_number() > 0, "in the middle of an aggregate");
    }
    annotate(&services, table).await;
    let before = items(&services, table).await;
    assert!(before.values().any(|item| !is_lease(item)), "a KCL keeps rows of other kinds in the table: {before:?}");

    let mut worker = Worker::start_ready(&services, &config).await;
    writer.put(300).await;
    let all: BTreeSet<u64> = (0..writer.count()).collect();
    let mut output = Tail::new(&services, "output").await;
    worker
        .until("the rest of the records", async |_| {
            output.poll().await;
            let done: BTreeSet<u64> = numbers(&by_kcl).union(&numbers(output.found())).copied().collect();
            (done == all).then_some(())
        })
        .await;
    worker.stop().await;
    output.poll().await;
    let (input, output) = (Tail::all(&services, "input").await, output.found());
    let taken_up = assert_taken_up(&rows, &positions(&input), &by_kcl, output);
    let repeated = match end {
        End::Clean => 0,
        End::Killed => limits.values().map(|limit| limit % CHECKPOINT_EVERY).sum(),
    };
    assert_eq!(taken_up, TakenUp { left: all.len() - by_kcl.len(), repeated });
    assert_order_of_keys(output);
    leases::assert_released_at_the_end(&leases::rows(&services, table).await, &input);

    let after = items(&services, table).await;
    assert_kept(&before, &after);
    for (key, item) in after {
        let pending: Vec<_> = item.keys().filter(|name| name.starts_with("pendingCheckpoint")).collect();
        assert!(pending.is_empty(), "{key}: what the KCL had prepared was passed: {pending:?}");
    }
}
