//! Reads a shard ahead of its processing, as far as the byte budget allows.

use shardmill_lease::Fence;
use shardmill_stream::polling::Phase;
use shardmill_stream::{ChildShard, Demand, Reader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::{Budget, Reservation};

/// What a page may take while it is received and taken apart: the 10 MiB of keys and payloads that one GetRecords brings at
/// most are 13.4 MiB in base64, and for 10,000 records there are 2 MiB of what stands around them, and of columns.
pub(crate) const PAGE_BYTES: u64 = 16 << 20;
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
    pages: mpsc::Receiver<Result<Fed, shardmill_stream::Error>>,
    task: JoinHandle<()>,
}

// === impl Feed ===

impl Feed {
    /// Starts reading: one page is kept ready while another is processed.
    pub(crate) fn start(mut reader: Box<dyn Reader>, budget: Budget, fence: Fence) -> Self {
        let (sender, pages) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            loop {
                // A place in the channel first: budget must not be held for a page that nobody waits for.
                if sender.capacity() == 0 {
                    enter(reader.as_ref(), Phase::Full);
                }
                let Ok(place) = sender.reserve().await else { return };
                match page(reader.as_mut(), &budget, &fence).await {
                    None => return,
                    Some(fed) => {
                        let last = fed.as_ref().map_or(true, |fed| fed.end.is_some());
                        place.send(fed);
                        if last {
                            return;
                        }
                    }
                }
            }
        });
        Self { pages, task }
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
        self.pages.recv().await
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One page. The budget is held while it is asked for and not while the reader waits: shards at their tip, or whose
/// stream cannot be reached, must not keep others from reading. `None` when the lease is lost.
async fn page(reader: &mut dyn Reader, budget: &Budget, fence: &Fence) -> Option<Result<Fed, shardmill_stream::Error>> {
    loop {
        if let Err(error) = reader.ready().await {
            return Some(Err(error));
        }
        enter(reader, Phase::Memory);
        let mut reservation = budget.reserve(PAGE_BYTES).await;
        // fenced: no request for the shard after the lease's deadline.
        fence.check().ok()?;
        match reader.read(Demand { records: PAGE_RECORDS, bytes: reservation.bytes() }).await {
            Ok(None) => {}
            Ok(Some(read)) => {
                reservation.resize_to(read.page.memory() as u64);
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
