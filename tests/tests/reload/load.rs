//! Many versions while records come.

use std::time::Duration;

use shardmill_tests::{
    Config, Leases, Services, Tail, Worker, Writer, another_build, assert_each_once, assert_order_of_keys,
    assert_taken_up, firsts, leases, memory, positions,
};

use super::{Folder, guest, must_deploy, reloads, stamps};

const SHARDS: i32 = 3;
const RELOADS: u64 = 40;
/// Records that are put with each version.
const RECORDS: u64 = 100;
/// Some shards' calls at a time, in lanes.
const LANES: u32 = 2;
/// What a worker may grow by, of which a few versions at a time are a part.
const GROWTH: u64 = 96 << 20;

/// One processor with lanes, and one that gets each record once.
fn config(folder: &Folder, stamp: u64) -> Config {
    folder
        .config("plugin.wasm")
        .processor(&format!("parallelism = {LANES}\nbatch = {{ records = 10 }}"))
        .guest(&format!("do = \"stamp\"\nstamp = {stamp}"))
        .and_guest("once", "guest_rows", "delivery = \"at-most-once\"", "do = \"echo\"\nhooks = \"silent\"")
}

#[tokio::test]
async fn nothing_is_lost_or_repeated_or_out_of_order_and_no_older_version_follows_a_newer_one() {
    let services = Services::with_streams(SHARDS, 2).await;
    services.create_stream("asides", 1).await;
    let folder = Folder::new();
    let [columnar, rows] = ["guest_columnar", "guest_rows"].map(guest);
    folder.replace("plugin.wasm", &columnar);
    let mut worker = Worker::start_ready(&services, &config(&folder, 0)).await;
    let mut writer = Writer::new(&services, "input", 50);
    let mut resident = Vec::new();
    for reload in 1..=RELOADS {
        writer.put(RECORDS).await;
        // Each way in turn: the guest's configuration, its file, and a plugin that is sent.
        worker.replace_config(&config(&folder, reload).text());
        if reload % 2 == 0 {
            worker.hang_up();
        }
        must_deploy(&worker, "once", another_build(&rows, 1 + reload % 2)).await;
        if reload % 4 == 0 {
            must_deploy(&worker, "copy", another_build(&columnar, 1 + reload / 4 % 2)).await;
        }
        let switched = reload + reload / 4;
        worker
            .until("this round's version", async |worker| {
                (reloads(worker, "copy", "switched").await >= switched).then_some(())
            })
            .await;
        resident.push(memory::resident(worker.pid()));
    }
    writer.put(RECORDS).await;
    let records = RECORDS * (RELOADS + 1);
    let is_done = async |worker: &mut Worker| {
        let done = worker.metric("shardmill_records_done_total", "").await as u64;
        (done >= 2 * records).then_some(())
    };
    worker.until("all records of both", is_done).await;
    assert_eq!(reloads(&worker, "copy", "switched").await, RELOADS + RELOADS / 4, "each was another version, once");
    assert_eq!(reloads(&worker, "once", "switched").await, RELOADS);
    assert_eq!(worker.metric("shardmill_plugin_reloads_total", "refused").await, 0.0);
    // Of the versions before nothing is left, once they have ended.
    let most = f64::from(SHARDS) * f64::from(LANES) + f64::from(SHARDS);
    worker
        .until("no more instances than calls at a time", async |worker| {
            (worker.metric("shardmill_plugin_instances", "").await <= most).then_some(())
        })
        .await;
    worker.stop().await;
    let (early, last) = (resident[9], resident[resident.len() - 1]);
    assert!(last < early + GROWTH, "the worker has grown from {early} to {last} bytes: {resident:?}");

    for stream in ["output", "asides"] {
        let output = Tail::all(&services, stream).await;
        assert_each_once(&output, 0..records);
        assert_order_of_keys(&output);
    }
    let mut last = 0;
    for (key, stamps) in stamps(&services, "output").await {
        assert!(stamps.is_sorted_by_key(|(_, stamp)| *stamp), "{key}: an older version after a newer one: {stamps:?}");
        last = last.max(stamps.last().map_or(0, |(_, stamp)| *stamp));
    }
    assert_eq!(last, RELOADS);
}

#[tokio::test]
async fn a_worker_that_is_killed_in_the_midst_of_reloads_is_followed_by_another_and_nothing_is_lost() {
    let services = Services::with_streams(SHARDS, 1).await;
    let folder = Folder::new();
    let columnar = guest("guest_columnar");
    folder.replace("plugin.wasm", &columnar);
    let config = folder.config("plugin.wasm").leases(Leases::Brief).processor("batch = { records = 10 }");
    let mut writer = Writer::new(&services, "input", 50);
    let mut worker = Worker::start_ready(&services, &config).await;
    for reload in 1..=6 {
        writer.put(RECORDS).await;
        must_deploy(&worker, "copy", another_build(&columnar, 1)).await;
        folder.replace("plugin.wasm", &another_build(&columnar, 2 + reload % 2));
    }
    // One is being loaded now, or is not.
    tokio::time::sleep(Duration::from_millis(210)).await;
    worker.kill().await;
    let before = Tail::all(&services, "output").await;
    let rows = leases::rows(&services, config.lease_table()).await;
    let mut successor = Worker::start_ready(&services, &config).await;
    writer.put(RECORDS).await;
    let records = writer.count();
    successor
        .until("all records", async |_| {
            let found = Tail::all(&services, "output").await;
            (firsts(&found).len() as u64 == records).then_some(())
        })
        .await;
    successor.stop().await;
    let all = Tail::all(&services, "output").await;
    assert_each_once(&firsts(&all), 0..records);
    let after: Vec<_> = all.iter().filter(|found| !before.contains(found)).cloned().collect();
    let positions = positions(&Tail::all(&services, "input").await);
    assert_taken_up(&rows, &positions, &before, &after);
}
