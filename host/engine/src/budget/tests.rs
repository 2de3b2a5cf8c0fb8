//! Tasks that wait for memory, on paused time.

use std::time::Duration;

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::*;

const MIB: u64 = 1 << 20;

#[tokio::test(start_paused = true)]
async fn what_is_reserved_is_not_there_for_others_until_it_is_given_back() {
    let budget = Budget::new(10 * MIB);
    let mut first = budget.reserve(8 * MIB).await;
    assert_eq!(budget.available(), 2 * MIB);
    assert!(timeout(Duration::from_secs(20), budget.reserve(3 * MIB)).await.is_err());
    first.resize_to(4 * MIB, 0);
    assert_eq!(first.bytes(), 4 * MIB);
    let second = budget.reserve(6 * MIB).await;
    assert_eq!(budget.available(), 0);
    drop((first, second));
    assert_eq!(budget.available(), 10 * MIB);
}

#[tokio::test]
async fn more_than_all_takes_all_and_of_batches_at_most_half_is_counted() {
    let budget = Budget::new(10 * MIB);
    assert_eq!(budget.reserve(1 << 40).await.bytes(), 10 * MIB);
    let mut shard = budget.shard("p", 1 << 40);
    let reservation = shard.reserve(1 << 40).await;
    assert_eq!((reservation.bytes(), budget.available()), (5 * MIB, 0));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_any_more_has_nothing() {
    let budget = Budget::new(10 * MIB);
    let mut shard = budget.shard("p", 0);
    for _ in 0..3 {
        let all = budget.reserve(10 * MIB).await;
        assert!(timeout(Duration::from_secs(1), shard.reserve(MIB)).await.is_err());
        assert!(all.leaves(0), "nobody waits any more");
        drop(all);
        assert_eq!(budget.available(), 10 * MIB);
        // Also if it was given what it asked for, and has not seen that yet.
        let all = budget.reserve(10 * MIB).await;
        let mut waits = Box::pin(shard.reserve(MIB));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        drop(all);
        assert_eq!(budget.available(), 7 * MIB);
        drop(waits);
        assert_eq!(budget.available(), 10 * MIB);
    }
    assert_eq!(shard.reserve(MIB).await.bytes(), MIB);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_knows_what_is_free_and_whether_others_want_it() {
    let budget = Budget::new(10 * MIB);
    let one = budget.reserve(4 * MIB).await;
    assert!(one.leaves(6 * MIB) && !one.leaves(6 * MIB + 1));
    let mut waits = Box::pin(budget.reserve(7 * MIB));
    assert!(futures::poll!(waits.as_mut()).is_pending());
    assert!(!one.leaves(1));
}

#[tokio::test(start_paused = true)]
async fn a_fast_processor_never_waits_for_a_slow_one() {
    let budget = Budget::new(64 * MIB);
    let mut slow = JoinSet::new();
    for _ in 0..50 {
        let mut shard = budget.shard("slow", MIB);
        slow.spawn(async move {
            loop {
                let _page = shard.reserve(14 * MIB).await;
                sleep(Duration::from_secs(3600)).await;
            }
        });
    }
    let mut fast = budget.shard("fast", MIB);
    sleep(Duration::from_secs(1)).await;
    let started = Instant::now();
    for _ in 0..1000 {
        let page = fast.reserve(14 * MIB).await;
        sleep(Duration::from_millis(10)).await;
        drop(page);
    }
    assert_eq!(started.elapsed(), Duration::from_secs(10), "the time of its own work and no more");
}

#[tokio::test]
async fn the_metrics_show_what_is_reserved_by_whom_and_who_waits() {
    let metrics = Metrics::default();
    let budget = Budget::new(10 * MIB).shown_in(&metrics);
    let of = |family: &crate::metrics::OfProcessor, processor: &str| {
        family.get_or_create(&ProcessorLabels { processor: processor.to_owned() }).get()
    };
    let reserved = || {
        let of = |processor| of(&metrics.processor_memory, processor) as u64;
        [metrics.memory_reserved.get() as u64, of("p"), of("q")]
    };
    assert_eq!(metrics.memory_budget.get() as u64, 10 * MIB);
    let [mut p, mut q] = ["p", "q"].map(|processor| budget.open(processor, 0));
    let mut first = p.reserve(8 * MIB).await;
    assert_eq!(reserved(), [8 * MIB, 8 * MIB, 0]);
    let mut waits = Box::pin(q.reserve(3 * MIB));
    assert!(futures::poll!(waits.as_mut()).is_pending());
    assert_eq!(["p", "q"].map(|processor| of(&metrics.memory_waiting, processor)), [0, 1]);
    first.resize_to(MIB, 0);
    let second = waits.await;
    assert_eq!(reserved(), [4 * MIB, MIB, 3 * MIB]);
    assert_eq!(of(&metrics.memory_waiting, "q"), 0);
    drop((first, p));
    assert_eq!(reserved(), [3 * MIB, 0, 3 * MIB]);
    drop((second, q));
    assert_eq!(reserved(), [0, 0, 0]);
}

/// How a shard of the simulation behaves.
#[derive(Debug, Clone)]
struct Behaviour {
    consumer: usize,
    page: u64,
    takes: u64,
    /// How many pages it holds at a time, as with a prefetch.
    pages: usize,
}

fn behaviour() -> impl Strategy<Value = Behaviour> {
    let takes = prop_oneof![1..10u64, 1000..10_000u64];
    (0..4usize, prop_oneof![1..16 * MIB, 1..MIB], takes, 1..4usize)
        .prop_map(|(consumer, page, takes, pages)| Behaviour { consumer, page, takes, pages })
}

const ROUNDS: usize = 20;

/// Reads, finds out how large the page is, and gives up a wait now and then.
async fn runs(budget: Budget, behaviour: Behaviour, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let Behaviour { consumer, page, takes, pages } = behaviour;
    let mut shard = budget.shard(&consumer.to_string(), page / 3);
    let mut held = std::collections::VecDeque::new();
    let mut round = 0;
    while round < ROUNDS {
        if held.len() == pages {
            held.pop_front();
        }
        let patience = Duration::from_millis(random.random_range(0..takes));
        let reserved = if random.random_bool(0.1) {
            timeout(patience, shard.reserve(page)).await.ok()
        } else if held.is_empty() {
            Some(shard.reserve(page).await)
        } else {
            // Its pages are processed while it waits for the next one.
            match timeout(patience, shard.reserve(page)).await {
                Ok(reserved) => Some(reserved),
                Err(_) => {
                    held.pop_front();
                    None
                }
            }
        };
        let Some(mut reserved) = reserved else { continue };
        round += 1;
        sleep(Duration::from_millis(random.random_range(0..takes))).await;
        let came = random.random_range(1..=page);
        reserved.resize_to(came, came - came / 4);
        held.push_back(reserved);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_shard_of_every_processor_gets_all_its_pages(
        total in prop_oneof![Just(32u64), Just(64), 17..400u64],
        shards in prop::collection::vec(behaviour(), 1..40),
        seed: u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let budget = Budget::new(total * MIB);
            let mut running = JoinSet::new();
            for (number, shard) in shards.into_iter().enumerate() {
                running.spawn(runs(budget.clone(), shard, seed ^ number as u64));
            }
            // Far more than all of them need one after another: 40 shards, 20 pages, 10 s.
            let all = timeout(Duration::from_secs(100_000), async { while let Some(ended) = running.join_next().await {
                ended.unwrap();
            }});
            all.await.expect("somebody waits for ever");
            assert_eq!(budget.available(), total * MIB);
        });
    }
}
