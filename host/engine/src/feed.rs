//! Reads a shard ahead of its processing, as far as the byte budget and the limits of its prefetch allow.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_lease::Fence;
use shardmill_stream::polling::Phase;
use shardmill_stream::{ChildShard, Demand, Reader};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::budget::{Reservation, ShardBudget};
use crate::prefetch::{Prefetch, ReadAhead};

/// The most that a page takes while it is received and taken apart.
pub(crate) const PAGE_BYTES: u64 = shardmill_stream::WHOLE_PAGE;
const PAGE_RECORDS: u32 = 10_000;

/// One page and what is known with it.
#[derive(Debug)]
pub(crate) struct Fed {
    pub(crate) page: shardmill_record::Page,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) millis_behind: Option<u64>,
    pub(crate) end: Option<ShardClosed>,
}

/// The shard has no record after this page.
#[derive(Debug)]
pub(crate) struct ShardClosed {
    /// Its children, where the service named them.
    pub(crate) children: Option<Vec<ChildShard>>,
}

/// A task that reads one shard. Ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Feed {
    pages: mpsc::UnboundedReceiver<Result<Fed, shardmill_stream::Error>>,
    ahead: Arc<Ahead>,
    /// The most bytes that may be in batches at a time.
    most_in_batches: u64,
    task: JoinHandle<()>,
}

/// What was read and not taken yet.
#[derive(Debug, Default)]
struct Ahead {
    read: Mutex<ReadAhead>,
    /// Something was taken.
    taken: Notify,
}

// === impl Feed ===

impl Feed {
    /// Starts reading, ahead of who takes the pages as far as `prefetch` allows.
    pub(crate) fn start(
        mut reader: Box<dyn Reader>,
        mut memory: ShardBudget,
        prefetch: Prefetch,
        fence: Fence,
    ) -> Self {
        let (sender, pages) = mpsc::unbounded_channel();
        let ahead = Arc::new(Ahead::default());
        let read = Arc::clone(&ahead);
        let most_in_batches = memory.most_in_batches();
        let task = tokio::spawn(async move {
            let mut was_empty = false;
            loop {
                // Before memory is asked for: none must be held for a page that nobody waits for.
                if !prefetch.allows(read.so_far()) {
                    enter(reader.as_ref(), Phase::Full);
                    read.allowed_by(&prefetch).await;
                }
                let Some(fed) = page(reader.as_mut(), &mut memory, &fence).await else { return };
                let last = fed.as_ref().map_or(true, |fed| fed.end.is_some());
                // That there is nothing new is told once and not as long as nobody has looked at it.
                let is_empty = !last && fed.as_ref().is_ok_and(|fed| fed.page.is_empty());
                if std::mem::replace(&mut was_empty, is_empty) && is_empty && read.so_far().pages > 0 {
                    continue;
                }
                read.add(&fed);
                if sender.send(fed).is_err() || last {
                    return;
                }
            }
        });
        Self { pages, ahead, most_in_batches, task }
    }

    /// The most bytes of the shard's records that may be in batches at a time, by what the budget counts for them.
    pub(crate) fn most_in_batches(&self) -> u64 {
        self.most_in_batches
    }

    /// Reads nothing more, and lets go of what was read ahead. When the first record of that arrived, in milliseconds
    /// since 1970.
    pub(crate) fn stop(&mut self) -> Option<u64> {
        self.task.abort();
        self.pages.close();
        let mut first = None;
        while let Ok(fed) = self.pages.try_recv() {
            let page = fed.ok().map(|fed| fed.page).filter(|page| !page.is_empty());
            first = first.or(page.map(|page| page.approximate_arrival(0)));
        }
        first
    }

    /// The next page; `None` after the shard's end or after an error was returned. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Fed, shardmill_stream::Error>> {
        let fed = self.pages.recv().await?;
        self.ahead.remove(&fed);
        Some(fed)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Ahead ===

impl Ahead {
    fn read(&self) -> MutexGuard<'_, ReadAhead> {
        // Numbers are whole whatever panics elsewhere.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn so_far(&self) -> ReadAhead {
        *self.read()
    }

    fn add(&self, fed: &Result<Fed, shardmill_stream::Error>) {
        let more = ReadAhead::of(fed);
        let mut read = self.read();
        read.pages += more.pages;
        read.records += more.records;
        read.bytes += more.bytes;
    }

    fn remove(&self, fed: &Result<Fed, shardmill_stream::Error>) {
        let less = ReadAhead::of(fed);
        let mut read = self.read();
        read.pages -= less.pages;
        read.records -= less.records;
        read.bytes -= less.bytes;
        drop(read);
        self.taken.notify_one();
    }

    /// Returns when so much is taken that more may be read.
    async fn allowed_by(&self, prefetch: &Prefetch) {
        while !prefetch.allows(self.so_far()) {
            self.taken.notified().await;
        }
    }
}

// === impl ReadAhead ===

impl ReadAhead {
    fn of(fed: &Result<Fed, shardmill_stream::Error>) -> Self {
        fed.as_ref().map_or_else(
            |_| Self::default(),
            |fed| Self { pages: 1, records: fed.page.len() as u64, bytes: fed.page.memory() as u64 },
        )
    }
}

/// One page. The budget is held while it is asked for and not while the reader waits: shards at their tip, or whose
/// stream cannot be reached, must not keep others from reading. But what was waited for while another reader took the
/// turn is kept until the next one: else whoever waits for memory would lose its turn again and again. `None` when the
/// lease is lost.
async fn page(
    reader: &mut dyn Reader,
    memory: &mut ShardBudget,
    fence: &Fence,
) -> Option<Result<Fed, shardmill_stream::Error>> {
    let mut kept = None;
    loop {
        if let Err(error) = reader.ready().await {
            return Some(Err(error));
        }
        let mut reservation = match kept.take() {
            Some(reservation) => reservation,
            None => {
                enter(reader, Phase::Memory);
                memory.reserve(reader.expects()).await
            }
        };
        // fenced: no request for the shard after the lease's deadline.
        fence.check().ok()?;
        match reader.read(Demand { records: PAGE_RECORDS, bytes: reservation.bytes() }).await {
            Ok(None) => kept = reader.lost_its_turn().then_some(reservation),
            Ok(Some(read)) => {
                reservation.resize_to(read.page.memory() as u64, read.page.content() as u64);
                return Some(Ok(Fed {
                    reservation: (!read.page.is_empty()).then_some(reservation),
                    page: read.page,
                    millis_behind: read.millis_behind,
                    end: read.end.then_some(ShardClosed { children: read.children }),
                }));
            }
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Says what is waited for, where the reader says what it is about.
fn enter(reader: &dyn Reader, phase: Phase) {
    if let Some(condition) = reader.condition() {
        condition.enter(phase, Instant::now());
    }
}

#[cfg(test)]
mod tests;
