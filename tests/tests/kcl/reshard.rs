//! A split in the middle: one finishes the parent, the other its children.

use std::collections::BTreeSet;

use shardmill_tests::{
    Found, Tail, Worker, Writer, assert_each_once, assert_order_of_keys, assert_taken_up, leases, positions,
};

use crate::application::{Kcl, Limits};
use crate::{config, services};

const PARENT: &str = "shardId-000000000000";
const OTHER: &str = "shardId-000000000001";
const CHILDREN: [&str; 2] = ["shardId-000000000002", "shardId-000000000003"];

/// The numbers of the records that are in these shards.
fn numbers_in(input: &[Found], shards: &[&str]) -> BTreeSet<u64> {
    let is_there = |record: &&Found| shards.contains(&record.shard.as_str());
    input.iter().filter(is_there).map(|record| record.number).collect()
}

#[tokio::test]
#[ignore = "wants a JDK and Maven: `make kcl`"]
async fn we_read_the_children_of_a_shard_that_a_kcl_has_finished() {
    let services = services(2).await;
    let config = config();
    let table = config.lease_table();
    let mut writer = Writer::new(&services, "input", 60).with_aggregates();
    writer.put(300).await;
    services.split("input", PARENT).await;
    writer.put(300).await;
    let limits: Limits = CHILDREN.map(|child| (child.to_owned(), 0)).into();
    let mut kcl = Kcl::start(&services, &config, "kcl-1", &limits).await;
    let input = Tail::all(&services, "input").await;
    let theirs = numbers_in(&input, &[PARENT, OTHER]);
    kcl.until("the parent's end", async |kcl| {
        let rows = leases::rows(&services, table).await;
        let is_ended = rows.get(PARENT)?.checkpoint.is_shard_end();
        (is_ended && kcl.journal().len() == theirs.len()).then_some(())
    })
    .await;
    // A KCL that is asked to stop while it starts with a shard may never end.
    kcl.until_at(&limits).await;
    kcl.stop().await;
    let (by_kcl, rows) = (kcl.journal(), leases::rows(&services, table).await);
    assert_eq!(numbers_in(&by_kcl, &[PARENT, OTHER]), theirs);
    assert!(CHILDREN.iter().all(|child| rows[*child].checkpoint.position().is_none()), "{rows:?}");

    writer.put(200).await;
    let all = writer.count();
    let mut worker = Worker::start_ready(&services, &config).await;
    let rest = all - by_kcl.len() as u64;
    worker.until_records(rest).await;
    worker.stop().await;
    let (input, output) = (Tail::all(&services, "input").await, Tail::all(&services, "output").await);
    assert_taken_up(&rows, &positions(&input), &by_kcl, &output);
    let both: Vec<Found> = by_kcl.into_iter().chain(output).collect();
    assert_each_once(&both, 0..all);
    assert_order_of_keys(&both);
    let rows = leases::rows(&services, table).await;
    leases::assert_lineage(&rows, &services.shards("input").await, &[PARENT]);
    assert_eq!(rows[PARENT].owner.as_deref(), Some("kcl-1"), "a KCL keeps the lease of a shard that is done");
    let open = rows.into_iter().filter(|(shard, _)| shard != PARENT).collect();
    let input: Vec<Found> = input.into_iter().filter(|record| record.shard != PARENT).collect();
    leases::assert_released_at_the_end(&open, &input);
}

#[tokio::test]
#[ignore = "wants a JDK and Maven: `make kcl`"]
async fn a_kcl_reads_the_children_of_a_shard_that_we_have_finished() {
    let services = services(2).await;
    let config = config();
    let table = config.lease_table();
    let mut writer = Writer::new(&services, "input", 60).with_aggregates();
    writer.put(300).await;
    let mut worker = Worker::start_ready(&services, &config).await;
    services.split("input", PARENT).await;
    leases::until_ended(&mut worker, &services, table, &[PARENT]).await;
    worker
        .until("the children's leases and all records", async |worker| {
            let rows = leases::rows(&services, table).await;
            let is_done = worker.records_done().await >= 300;
            (is_done && CHILDREN.iter().all(|child| rows.contains_key(*child))).then_some(())
        })
        .await;
    worker.stop().await;
    let rows = leases::rows(&services, table).await;
    let before = Tail::all(&services, "output").await;
    assert_each_once(&before, 0..300);

    writer.put(300).await;
    let mut kcl = Kcl::start(&services, &config, "kcl-1", &Limits::new()).await;
    kcl.until("the rest", async |kcl| (kcl.journal().len() >= 300).then_some(())).await;
    kcl.stop().await;
    let (input, by_kcl) = (Tail::all(&services, "input").await, kcl.journal());
    assert_each_once(&by_kcl, 300..600);
    assert!(by_kcl.iter().all(|record| record.shard != PARENT), "the parent is not read again");
    assert!(CHILDREN.iter().all(|child| !numbers_in(&by_kcl, &[child]).is_empty()), "both children have records");
    assert_taken_up(&rows, &positions(&input), &before, &by_kcl);
    let both: Vec<Found> = before.into_iter().chain(by_kcl).collect();
    assert_order_of_keys(&both);
    leases::assert_lineage(&leases::rows(&services, table).await, &services.shards("input").await, &[PARENT]);
}
