//! A KCL worker is alive on the table.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_tests::{
    Config, Found, Leases, Services, Tail, TakenUp, Worker, Writer, assert_order_of_keys, assert_says, assert_taken_up,
    leases, numbers, positions,
};

use crate::application::{CHECKPOINT_EVERY, Kcl, Limits, halves};
use crate::table::{Item, is_lease, items};
use crate::{config, services};

const WORKER: &str = "orders-kcl-7";
const CONFIGURATION: i32 = 78;

/// A KCL that has done half of the records and lives on.
async fn half_way(services: &Services, config: &Config) -> (Kcl, Limits) {
    Writer::new(services, "input", 100).with_aggregates().put(1_200).await;
    let limits = halves(&Tail::all(services, "input").await);
    let mut kcl = Kcl::start(services, config, WORKER, &limits).await;
    kcl.until_at(&limits).await;
    (kcl, limits)
}

fn counter(item: &Item) -> u64 {
    item["leaseCounter"].as_n().expect("a number").parse().expect("a number")
}

/// Waits until the KCL has renewed each of its leases so many times more.
async fn until_renewed(kcl: &mut Kcl, services: &Services, table: &str, times: u64) {
    let before: BTreeMap<String, u64> = leases_of(services, table).await;
    kcl.until("renewals by the KCL", async |_| {
        let now = leases_of(services, table).await;
        before.iter().all(|(key, counter)| now[key] >= counter + times).then_some(())
    })
    .await;
}

async fn leases_of(services: &Services, table: &str) -> BTreeMap<String, u64> {
    let items = items(services, table).await.into_iter();
    items.filter(|(_, item)| is_lease(item)).map(|(key, item)| (key, counter(&item))).collect()
}

/// Asserts that all leases are as only a KCL writes them, and that of this worker.
async fn assert_only_the_kcls(services: &Services, table: &str, limits: &Limits) {
    let items = items(services, table).await;
    let leases: Vec<_> = items.iter().filter(|(_, item)| is_lease(item)).map(|(key, _)| key).collect();
    assert_eq!(leases, limits.keys().collect::<Vec<_>>(), "no lease is new or gone");
    for key in leases {
        let item = &items[key];
        assert_eq!(item["leaseOwner"].as_s().expect("a text"), WORKER, "{key}");
        for ours in ["leaseEpoch", "startAt", "checkpointOwner"] {
            assert!(!item.contains_key(ours), "{key}: {ours} is written: {item:?}");
        }
    }
    assert!(Tail::all(services, "output").await.is_empty(), "nothing is processed");
}

#[tokio::test]
#[ignore = "wants a JDK and Maven: `make kcl`"]
async fn a_table_on_which_a_kcl_worker_is_alive_is_refused_until_it_has_stopped() {
    let services = services(4).await;
    let config = config();
    let table = config.lease_table();
    let (mut kcl, limits) = half_way(&services, &config).await;

    let mut refused = Worker::start(&services, &config);
    let status = refused.wait(Duration::from_secs(60)).await;
    assert_eq!(status.code(), Some(CONFIGURATION), "{}", refused.stderr());
    assert_says("the refusal", &refused.stderr(), &[WORKER, table, r#"leases.takeover = "force""#]);
    assert_only_the_kcls(&services, table, &limits).await;
    until_renewed(&mut kcl, &services, table, 2).await;
    assert!(kcl.is_running(), "the KCL has noticed nothing");

    // The same start is good as soon as it is gone.
    kcl.stop().await;
    let (by_kcl, rows) = (kcl.journal(), leases::rows(&services, table).await);
    finishes(&services, &mut Worker::start_ready(&services, &config).await, &by_kcl).await;
    let (input, output) = (Tail::all(&services, "input").await, Tail::all(&services, "output").await);
    let taken_up = assert_taken_up(&rows, &positions(&input), &by_kcl, &output);
    assert_eq!(taken_up, TakenUp { left: input.len() - by_kcl.len(), repeated: 0 });
}

#[tokio::test]
#[ignore = "wants a JDK and Maven: `make kcl`"]
async fn a_forced_takeover_waits_for_the_leases_of_a_kcl_that_lives_and_takes_them_when_it_is_gone() {
    let services = services(4).await;
    // The KCL renews every second, and the machine may be busy.
    let config = config().leases(Leases::Seconds(6));
    let table = config.lease_table();
    let (mut kcl, limits) = half_way(&services, &config).await;

    let text = config.text().replace("[leases]\n", "[leases]\ntakeover = \"force\"\n");
    let mut worker = Worker::start_with(&services, &text);
    worker.until("its start", async |worker| (!worker.logged("INFO", "admin server").is_empty()).then_some(())).await;
    worker.ready().await;
    until_renewed(&mut kcl, &services, table, 5).await;
    assert!(worker.ended().is_none(), "it goes on");
    let expected = leases_of(&services, table).await;
    assert_eq!(expected.keys().collect::<Vec<_>>(), limits.keys().collect::<Vec<_>>());
    for (shard, row) in leases::rows(&services, table).await {
        assert_eq!((row.owner.as_deref(), row.epoch), (Some(WORKER), 0), "{shard} is renewed, and not taken");
    }
    assert!(Tail::all(&services, "output").await.is_empty(), "nothing is processed by two");

    kcl.kill().await;
    let (by_kcl, rows) = (kcl.journal(), leases::rows(&services, table).await);
    finishes(&services, &mut worker, &by_kcl).await;
    let (input, output) = (Tail::all(&services, "input").await, Tail::all(&services, "output").await);
    let taken_up = assert_taken_up(&rows, &positions(&input), &by_kcl, &output);
    let repeated = limits.values().map(|limit| limit % CHECKPOINT_EVERY).sum();
    assert_eq!(taken_up, TakenUp { left: input.len() - by_kcl.len(), repeated });
    assert_order_of_keys(&output);
}

/// Waits until a worker has done what the KCL has left, and stops it.
async fn finishes(services: &Services, worker: &mut Worker, by_kcl: &[Found]) {
    let input = Tail::all(services, "input").await.len();
    let mut output = Tail::new(services, "output").await;
    worker
        .until("the rest of the records", async |_| {
            output.poll().await;
            (numbers(by_kcl).union(&numbers(output.found())).count() == input).then_some(())
        })
        .await;
    worker.stop().await;
}
