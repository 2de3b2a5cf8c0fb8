//! Guests that compute without end on every thread that guests have take neither leases nor another processor's turns.

use shardmill_tests::raw::{self, Raw};
use shardmill_tests::{Config, Leases, Services, Tail, Worker, Writer, assert_each_once, leases, paths};

/// More than any machine that runs this has processors, and enough to keep whatever shares their threads waiting for
/// seconds.
const SPINNING: i32 = 200;
const SHARDS: i32 = 4;
const RECORDS: u64 = 4_000;
/// In seconds, from one renewal to the next, and until a lease is lost that is not renewed.
const RENEW: u32 = 1;
const EXPIRY: u32 = 6;
/// How often each lease is renewed while the test looks on: for longer than it lasts without.
const RENEWALS: i32 = 8;

/// A record for each shard of a stream.
fn one_in_each(shards: i32) -> Vec<Raw> {
    let width = u128::MAX / shards as u128;
    let record = |shard: u128| Raw {
        key: format!("key-{shard}"),
        hash_key: Some((shard * width + width / 2).to_string()),
        data: b"{}".to_vec(),
    };
    (0..shards as u128).map(record).collect()
}

fn config() -> String {
    let plugin = paths::plugin("guest_rows");
    let spins = format!(
        r#"
[processors.spins]
stream = "spinning"
plugin = {plugin:?}
config = {{ do = "spin", hooks = "silent" }}
limits = {{ batch-timeout = "1h", instances = {SPINNING} }}
"#
    );
    let config = Config::copy().leases(Leases::Seconds(EXPIRY)).top(r#"shutdown-timeout = "3s""#).others(&spins).text();
    // Hundreds of leases are work for the local backend too.
    let slower = config.replace(r#"renew = "300ms""#, &format!("renew = \"{RENEW}s\""));
    assert_ne!(slower, config, "the time from one renewal to the next is in the configuration");
    slower
}

async fn renewals(worker: &Worker, application: &str) -> f64 {
    let labels = format!("application=\"{application}\"");
    worker.metric("shardmill_lease_renew_late_seconds_count", &labels).await
}

#[tokio::test]
async fn guests_that_spin_on_every_thread_cost_no_lease_and_no_other_processor_its_turn() {
    let services = Services::with_streams(SHARDS, 1).await;
    services.create_stream("spinning", SPINNING).await;
    raw::put(&services, "spinning", &one_in_each(SPINNING)).await;
    let mut worker = Worker::start_with(&services, &config());
    worker.ready().await;
    worker
        .until("all guests that spin", async |worker| {
            let calls = worker.metric("shardmill_plugin_instances", "processor=\"spins\"").await;
            (calls >= f64::from(SPINNING)).then_some(())
        })
        .await;

    // From now on every thread of guests is busy, and always will be.
    let before = [renewals(&worker, "tests-spins").await, renewals(&worker, "tests-copy").await];
    let mut writer = Writer::new(&services, "input", 50);
    for _ in 0..4 {
        writer.put(RECORDS / 4).await;
    }
    worker.until_records_of("input", RECORDS).await;
    worker
        .until("renewals of all leases for longer than they last", async |worker| {
            let now = [renewals(worker, "tests-spins").await, renewals(worker, "tests-copy").await];
            let made = [now[0] - before[0], now[1] - before[1]];
            (made[0] >= f64::from(RENEWALS * SPINNING) && made[1] >= f64::from(RENEWALS * SHARDS)).then_some(())
        })
        .await;
    assert_each_once(&Tail::all(&services, "output").await, 0..RECORDS);
    assert_eq!(worker.metric("shardmill_lease_lost_total", "").await, 0.0, "leases are lost");
    let late = worker.histogram("shardmill_lease_renew_late_seconds").await;
    let latest = f64::from(EXPIRY - RENEW);
    assert!(late.quantile(1.0) <= latest, "renewals were late by more than {latest} s: {late:?}");
    for table in ["tests-spins", "tests-copy"] {
        for (shard, row) in leases::rows(&services, table).await {
            assert_eq!((row.epoch, row.owner.is_some()), (1, true), "{table}: {shard} has changed hands");
        }
    }
    // The guests that spin are still at it: they are given up, and their leases let go.
    assert_eq!(worker.metric("shardmill_records_done_total", "stream=\"spinning\"").await, 0.0);
    worker.stop().await;
}
