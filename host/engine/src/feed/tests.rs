//! Feeds on paused time, with readers of the test's own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use shardmill_lease::store::memory::Memory;
use shardmill_lease::{HeldLease, one_lease};
use shardmill_record::{Page, PageBuilder, ShardId};
use shardmill_stream::{Demand, Error, ReadFrom, ReadPage, Reader};
use tokio::time::sleep;

use super::*;
use crate::Budget;

const PAGES: u64 = 4;
const MIB: usize = 1 << 20;
/// Batches are small, and so a page has 2 MiB of them beside it.
const BATCH: u64 = 1 << 20;
const TOTAL: u64 = PAGES * (PAGE_BYTES + 2 * BATCH);

/// A lease that is held until the test's end.
async fn lease() -> HeldLease {
    one_lease::hold(&Memory::new(), shardmill_lease::Metrics::default()).await
}

/// What readers have done together.
#[derive(Default)]
struct Watched {
    /// Reads that are under way, and the most that ever were.
    reading: AtomicUsize,
    most: AtomicUsize,
    demands: Mutex<Vec<u64>>,
}

/// Brings pages of one size; asking takes a while, and waiting before it as well.
struct Slow {
    watched: Arc<Watched>,
    budget: Budget,
    waits: Duration,
    page: Page,
}

#[async_trait]
impl Reader for Slow {
    async fn ready(&mut self) -> Result<(), Error> {
        sleep(self.waits).await;
        Ok(())
    }

    async fn read(&mut self, demand: Demand) -> Result<Option<ReadPage>, Error> {
        let reading = self.watched.reading.fetch_add(1, Ordering::SeqCst) + 1;
        self.watched.most.fetch_max(reading, Ordering::SeqCst);
        self.watched.demands.lock().unwrap().push(demand.bytes);
        // What is being received is set aside already.
        assert!(self.budget.available() + reading as u64 * PAGE_BYTES <= TOTAL, "{reading} pages are being read");
        sleep(Duration::from_millis(100)).await;
        self.watched.reading.fetch_sub(1, Ordering::SeqCst);
        Ok(Some(ReadPage {
            page: self.page.clone(),
            continuation: ReadFrom::TrimHorizon,
            millis_behind: None,
            children: None,
            end: false,
            wait: Duration::ZERO,
        }))
    }
}

fn page_of(bytes: usize) -> Page {
    let mut page = PageBuilder::default();
    if bytes > 0 {
        page.push("1", "key", &vec![7; bytes], 0).unwrap();
    }
    page.build()
}

fn feeds(count: usize, budget: &Budget, lease: &HeldLease, waits: Duration, page: &Page) -> (Vec<Feed>, Arc<Watched>) {
    let watched = Arc::new(Watched::default());
    let feed = |_| {
        let (watched, budget, page) = (Arc::clone(&watched), budget.clone(), page.clone());
        let reader = Slow { watched, budget: budget.clone(), waits, page };
        Feed::start(Box::new(reader), budget.shard("p", BATCH), Prefetch::default(), lease.fence())
    };
    ((0..count).map(feed).collect(), watched)
}

#[tokio::test(start_paused = true)]
async fn a_page_is_asked_for_only_when_all_that_it_may_take_is_set_aside() {
    let (budget, lease) = (Budget::new(TOTAL), lease().await);
    let (mut feeds, watched) = feeds(20, &budget, &lease, Duration::ZERO, &page_of(10 * MIB));
    // Nobody is starved, however many there are.
    for _ in 0..5 {
        for feed in &mut feeds {
            let fed = feed.next().await.unwrap().unwrap();
            let reservation = fed.reservation.expect("a page with records is held");
            assert_eq!(reservation.bytes(), fed.page.memory() as u64, "as much is held as the page takes");
        }
    }
    assert_eq!(watched.most.load(Ordering::SeqCst) as u64, PAGES, "as many at a time as fit, and no more");
    assert!(watched.demands.lock().unwrap().iter().all(|bytes| *bytes == PAGE_BYTES));
    drop(feeds);
    // Tasks end when they are next polled.
    sleep(Duration::from_millis(1)).await;
    assert_eq!(budget.available(), TOTAL, "all of it is given back");
}

#[tokio::test(start_paused = true)]
async fn pages_that_nobody_takes_bound_what_is_read() {
    let (budget, lease) = (Budget::new(TOTAL), lease().await);
    let (mut feeds, watched) = feeds(20, &budget, &lease, Duration::ZERO, &page_of(10 * MIB));
    sleep(Duration::from_secs(60)).await;
    let read = watched.demands.lock().unwrap().len();
    // Each page that was read takes its 10 MiB; a page more would need what is no longer free.
    assert!(budget.available() < PAGE_BYTES + 2 * BATCH, "{} bytes are free", budget.available());
    assert!((PAGES as usize..20).contains(&read), "{read} pages were read");
    // One that is taken and dropped makes room for the next.
    let fed = futures::future::select_all(feeds.iter_mut().map(|feed| Box::pin(feed.next()))).await.0;
    drop(fed);
    sleep(Duration::from_secs(1)).await;
    assert!(watched.demands.lock().unwrap().len() > read);
}

#[tokio::test(start_paused = true)]
async fn readers_that_wait_or_find_nothing_hold_nothing() {
    let (budget, lease) = (Budget::new(TOTAL), lease().await);
    let (feeds, _watched) = feeds(50, &budget, &lease, Duration::from_secs(3600), &page_of(10 * MIB));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(budget.available(), TOTAL);
    drop(feeds);
    let (mut feeds, _watched) = self::feeds(50, &budget, &lease, Duration::from_millis(1), &page_of(0));
    for feed in &mut feeds {
        assert!(feed.next().await.unwrap().unwrap().reservation.is_none());
    }
    drop(feeds);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(budget.available(), TOTAL);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_takes_more_than_was_set_aside_is_counted_as_it_is() {
    let (budget, lease) = (Budget::new(TOTAL), lease().await);
    // Keys of escaped characters can make a page of JSON three times as long as its keys.
    let (mut feeds, _watched) = feeds(1, &budget, &lease, Duration::ZERO, &page_of(30 * MIB));
    let fed = feeds[0].next().await.unwrap().unwrap();
    assert!(fed.reservation.expect("a reservation").bytes() >= 30 * MIB as u64);
}

/// Brings nothing, and says what it is about.
struct Telling {
    condition: shardmill_stream::polling::Condition,
}

#[async_trait]
impl Reader for Telling {
    fn condition(&self) -> Option<&shardmill_stream::polling::Condition> {
        Some(&self.condition)
    }

    async fn ready(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn read(&mut self, _demand: Demand) -> Result<Option<ReadPage>, Error> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_for_memory_says_so() {
    let (budget, shard) = (Budget::new(TOTAL), ShardId::parse("shardId-000000000000").unwrap());
    let _taken = budget.reserve(TOTAL).await;
    let condition = shardmill_stream::Metrics::default().condition("s", &shard);
    let lease = lease().await;
    let reader = Box::new(Telling { condition: condition.clone() });
    let _feed = Feed::start(reader, budget.shard("p", BATCH), Prefetch::default(), lease.fence());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(condition.seen(Instant::now()).phase, Phase::Memory);
}

/// Brings pages of so many records of 100 bytes each, then nothing more.
struct Scripted {
    pages: std::collections::VecDeque<usize>,
    expects: u64,
    condition: shardmill_stream::polling::Condition,
}

#[async_trait]
impl Reader for Scripted {
    fn condition(&self) -> Option<&shardmill_stream::polling::Condition> {
        Some(&self.condition)
    }

    fn expects(&self) -> u64 {
        self.expects
    }

    async fn ready(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn read(&mut self, demand: Demand) -> Result<Option<ReadPage>, Error> {
        assert_eq!(demand.bytes, self.expects, "what is expected is set aside");
        let Some(records) = self.pages.pop_front() else { return std::future::pending().await };
        let mut page = PageBuilder::default();
        for number in 0..records {
            page.push(&(number + 1).to_string(), "key", &[7; 100], 0).unwrap();
        }
        Ok(Some(ReadPage {
            page: page.build(),
            continuation: ReadFrom::TrimHorizon,
            millis_behind: Some(0),
            children: None,
            end: false,
            wait: Duration::ZERO,
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_read_ahead_until_the_first_of_its_limits_is_reached() {
    let lease = lease().await;
    let without = Prefetch { pages: 1000, records: 1_000_000, bytes: 1 << 40 };
    let (ten, page) = (vec![10; 50], 10 * 150);
    for (prefetch, pages, ahead) in [
        (Prefetch { pages: 1, ..without }, &ten, 1),
        (Prefetch { pages: 7, ..without }, &ten, 7),
        (Prefetch { records: 25, ..without }, &ten, 3),
        (Prefetch { records: 1, ..without }, &ten, 1),
        (Prefetch { bytes: 4 * page, ..without }, &ten, 4),
        // Of those that bring nothing one is told.
        (Prefetch { pages: 3, ..without }, &vec![1, 0, 0, 0, 0, 1, 0, 0, 1, 1], 3),
    ] {
        let budget = Budget::new(TOTAL);
        let shard = ShardId::parse("shardId-000000000000").unwrap();
        let condition = shardmill_stream::Metrics::default().condition("s", &shard);
        let reader = Scripted { pages: pages.clone().into(), expects: MIB as u64, condition: condition.clone() };
        let mut feed = Feed::start(Box::new(reader), budget.shard("p", BATCH), prefetch, lease.fence());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(condition.seen(Instant::now()).phase, Phase::Full, "{prefetch:?}");
        assert_eq!(feed.ahead.so_far().pages, ahead, "{prefetch:?}");
        // For each that is taken another one is read, until all are, and all records come.
        let (mut records, mut taken) = (0, 0);
        while records < pages.iter().sum::<usize>() {
            records += feed.next().await.unwrap().unwrap().page.len();
            taken += 1;
            sleep(Duration::from_secs(1)).await;
            assert!(feed.ahead.so_far().pages <= ahead, "{prefetch:?}");
        }
        assert!(taken <= pages.len());
        assert_eq!(feed.ahead.so_far(), ReadAhead::default());
    }
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_fast_processor_come_while_a_slow_one_takes_nothing() {
    let (budget, lease) = (Budget::new(TOTAL), lease().await);
    let start = |processor: &str, watched: &Arc<Watched>| {
        let reader = Slow {
            watched: Arc::clone(watched),
            budget: budget.clone(),
            waits: Duration::ZERO,
            page: page_of(10 * MIB),
        };
        Feed::start(Box::new(reader), budget.shard(processor, BATCH), Prefetch::default(), lease.fence())
    };
    let (slow_reads, fast_reads) = (Arc::default(), Arc::default());
    // The fast one has no shard yet.
    let _share = budget.shard("fast", BATCH);
    let _slow: Vec<Feed> = (0..20).map(|_| start("slow", &slow_reads)).collect();
    sleep(Duration::from_secs(60)).await;
    let mut fast: Vec<Feed> = (0..2).map(|_| start("fast", &fast_reads)).collect();
    for round in 0..50 {
        for feed in &mut fast {
            let fed = tokio::time::timeout(Duration::from_secs(5), feed.next()).await;
            drop(fed.unwrap_or_else(|_| panic!("it waits for memory in round {round}")));
        }
    }
    assert!(slow_reads.demands.lock().unwrap().len() < 20, "the slow ones still wait");
}

/// Brings small pages. Another reader has the turn whenever it was waited for memory.
struct Beaten {
    /// How many turns have passed.
    passed: Arc<AtomicUsize>,
    lost: bool,
    read_until: Instant,
}

#[async_trait]
impl Reader for Beaten {
    fn expects(&self) -> u64 {
        MIB as u64
    }

    fn lost_its_turn(&self) -> bool {
        self.lost
    }

    async fn ready(&mut self) -> Result<(), Error> {
        // The turn comes again after a while, and passes soon.
        sleep(Duration::from_secs(2)).await;
        self.read_until = Instant::now() + Duration::from_millis(20);
        Ok(())
    }

    async fn read(&mut self, _demand: Demand) -> Result<Option<ReadPage>, Error> {
        self.lost = Instant::now() > self.read_until;
        if self.lost {
            self.passed.fetch_add(1, Ordering::SeqCst);
            return Ok(None);
        }
        Ok(Some(ReadPage {
            page: page_of(1000),
            continuation: ReadFrom::TrimHorizon,
            millis_behind: None,
            children: None,
            end: false,
            wait: Duration::ZERO,
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_has_waited_for_memory_keeps_it_for_its_next_turn() {
    let (budget, lease) = (Budget::new(TOTAL), lease().await);
    // Another processor takes all that there is as soon as it is given back, and holds it for longer than a turn lasts.
    let mut other = budget.shard("other", BATCH);
    let all = other.reserve(TOTAL).await;
    let lost = Arc::new(AtomicUsize::new(0));
    let reader = Beaten { passed: Arc::clone(&lost), lost: false, read_until: Instant::now() };
    let mut feed = Feed::start(Box::new(reader), budget.shard("p", BATCH), Prefetch::default(), lease.fence());
    sleep(Duration::from_secs(10)).await;
    tokio::spawn(async move {
        let mut held = Some(all);
        loop {
            drop(held.take());
            held = Some(other.reserve(TOTAL).await);
            sleep(Duration::from_secs(10)).await;
        }
    });
    let fed = tokio::time::timeout(Duration::from_secs(600), feed.next()).await.expect("a page comes");
    drop(fed);
    assert_eq!(lost.load(Ordering::SeqCst), 1, "one turn is lost, and no more");
}

#[tokio::test(start_paused = true)]
async fn who_can_not_read_for_another_reason_keeps_nothing() {
    /// Never has a page.
    struct Failing;

    #[async_trait]
    impl Reader for Failing {
        async fn ready(&mut self) -> Result<(), Error> {
            sleep(Duration::from_secs(10)).await;
            Ok(())
        }

        async fn read(&mut self, _demand: Demand) -> Result<Option<ReadPage>, Error> {
            Ok(None)
        }
    }

    let (budget, lease) = (Budget::new(TOTAL), lease().await);
    let _feed = Feed::start(Box::new(Failing), budget.shard("p", BATCH), Prefetch::default(), lease.fence());
    for _ in 0..10 {
        sleep(Duration::from_secs(7)).await;
        assert_eq!(budget.available(), TOTAL);
    }
}
