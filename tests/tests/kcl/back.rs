//! We stop half-way, a KCL application carries on, and then we again.

use std::collections::BTreeSet;

use shardmill_record::Checkpoint;
use shardmill_tests::{
    Found, Services, Tail, Worker, Writer, assert_order_of_keys, assert_taken_up, leases, numbers, positions,
};

use crate::application::{Kcl, Limits};
use crate::table::{annotate, assert_kept, items};
use crate::{End, config, services};

#[tokio::test]
#[ignore = "wants a JDK and Maven: `make kcl`"]
async fn a_kcl_carries_on_what_we_have_left_at_our_stop_and_we_after_it_and_nothing_is_repeated() {
    is_carried_on(End::Clean).await;
}

#[tokio::test]
#[ignore = "wants a JDK and Maven: `make kcl`"]
async fn a_kcl_carries_on_from_our_checkpoints_when_we_were_killed_and_we_after_it() {
    is_carried_on(End::Killed).await;
}

async fn is_carried_on(end: End) {
    let services = services(4).await;
    let config = config().processor("batch = { records = 3 }");
    let table = config.lease_table();
    // Wherever we stop, it is most likely in the middle of an aggregate.
    let mut writer = Writer::new(&services, "input", 100).with_large_aggregates();
    writer.put(4_000).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    worker
        .until("checkpoints of all shards", async |_| {
            let rows = leases::rows(&services, table).await;
            (rows.len() == 4 && rows.values().all(|row| row.checkpoint.position().is_some())).then_some(())
        })
        .await;
    end.of_worker(&mut worker).await;
    let (before, rows) = (Tail::all(&services, "output").await, leases::rows(&services, table).await);
    assert!((numbers(&before).len() as u64) < writer.count(), "it was stopped in the middle of its work");
    let is_inside = rows.values().any(|row| row.checkpoint.sub_sequence_number() > 0);
    assert!(is_inside, "no checkpoint is in the middle of an aggregate: {rows:?}");
    annotate(&services, table).await;
    let ours = items(&services, table).await;
    writer.put(300).await;

    let mut kcl = Kcl::start(&services, &config, "kcl-1", &Limits::new()).await;
    let all: BTreeSet<u64> = (0..writer.count()).collect();
    let done_before = numbers(&before);
    kcl.until("the rest of the records", async |kcl| {
        let done: BTreeSet<u64> = done_before.union(&numbers(&kcl.journal())).copied().collect();
        (done == all).then_some(())
    })
    .await;
    kcl.stop().await;
    let (input, by_kcl) = (Tail::all(&services, "input").await, kcl.journal());
    let taken_up = assert_taken_up(&rows, &positions(&input), &before, &by_kcl);
    assert!(taken_up.left > 0, "{taken_up:?}");
    assert!(end == End::Killed || taken_up.repeated == 0, "{taken_up:?}");
    println!("{end:?}: {taken_up:?} by the KCL");
    assert_order_of_keys(&by_kcl);
    assert_kept(&ours, &items(&services, table).await);
    let theirs = leases::rows(&services, table).await;
    for (shard, row) in &theirs {
        assert_eq!(row.epoch, rows[shard].epoch, "{shard}: a KCL leaves our token alone");
        let last = input.iter().rfind(|record| record.shard == *shard).expect("each shard has records");
        assert_eq!(row.checkpoint, Checkpoint::Position(last.position.clone()), "{shard}");
    }

    writer.put(300).await;
    let done: Vec<Found> = before.into_iter().chain(by_kcl).collect();
    goes_on(&services, writer.count(), &done).await;
    for (shard, row) in leases::rows(&services, table).await {
        assert!(row.epoch > theirs[&shard].epoch, "{shard}: the epoch grows with our take");
    }
}

/// Starts a worker on a table that a KCL has left at the end of what there was.
async fn goes_on(services: &Services, count: u64, done: &[Found]) {
    let config = config();
    let rows = leases::rows(services, config.lease_table()).await;
    let mut output = Tail::new(services, "output").await;
    let known = output.count().await;
    let mut worker = Worker::start_ready(services, &config).await;
    let missing = count - numbers(done).len() as u64;
    worker
        .until("the new records", async |_| {
            let new = output.count().await - known;
            (new as u64 >= missing).then_some(())
        })
        .await;
    worker.stop().await;
    output.poll().await;
    let input = Tail::all(services, "input").await;
    let taken_up = assert_taken_up(&rows, &positions(&input), done, &output.found()[known..]);
    assert_eq!((taken_up.left as u64, taken_up.repeated), (missing, 0));
    leases::assert_released_at_the_end(&leases::rows(services, config.lease_table()).await, &input);
}
