//! Feeds on paused time, with readers of the test's own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use shardmill_lease::store::memory::Memory;
use shardmill_lease::{
    Coordinator, Event, HeldLease, Lease, LeaseKey, NewLease, ShardSource, Survey, TokioClock, WorkerId,
};
use shardmill_record::{Checkpoint, Page, PageBuilder, ShardId};
use shardmill_stream::{Demand, Error, ReadFrom, ReadPage, Reader};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;

const PAGES: u64 = 4;
const TOTAL: u64 = PAGES * PAGE_BYTES;
const MIB: usize = 1 << 20;

struct OneShard;

#[async_trait]
impl ShardSource for OneShard {
    async fn survey(&self, leases: &[Lease]) -> Result<Survey, Box<dyn std::error::Error + Send + Sync>> {
        let key = LeaseKey::of_shard(&ShardId::parse("shardId-000000000000")?);
        let checkpoint = Checkpoint::TrimHorizon;
        let lease = NewLease { key, checkpoint, start_at: None, parents: Vec::new(), range: None };
        Ok(Survey { missing: if leases.is_empty() { vec![lease] } else { Vec::new() }, listed: Vec::new() })
    }
}

/// A lease that is held until the test's end.
async fn lease() -> HeldLease {
    let options = shardmill_lease::Options::new("application", WorkerId::parse("w").unwrap());
    let (store, clock) = (Arc::new(Memory::new()), Arc::new(TokioClock::default()));
    let metrics = shardmill_lease::Metrics::default();
    let (coordinator, _handle, mut events) =
        Coordinator::new(options, store, clock, Arc::new(OneShard), metrics, 7).unwrap();
    tokio::spawn(coordinator.run(CancellationToken::new()));
    let Some(Event::Held(lease)) = events.recv().await else { panic!("no lease") };
    tokio::spawn(async move { while events.recv().await.is_some() {} });
    lease
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
        Feed::start(Box::new(reader), budget, lease.fence())
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
            assert!(reservation.bytes() >= fed.page.memory() as u64, "as much is held as the page takes");
            assert!(reservation.bytes() < fed.page.memory() as u64 + 1024, "and no more");
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
    assert!(budget.available() < PAGE_BYTES, "{} bytes are free", budget.available());
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
    let _feed = Feed::start(Box::new(Telling { condition: condition.clone() }), budget, lease.fence());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(condition.seen(Instant::now()).phase, Phase::Memory);
}
