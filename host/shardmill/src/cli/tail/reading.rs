//! Reads one shard, a task for each, and hands its pages on.

use std::sync::Arc;
use std::time::Duration;

use shardmill_record::ShardId;
use shardmill_stream::polling::{Options, Source};
use shardmill_stream::{ChildShard, Demand, Error, Kind, Kinesis, Metrics, PollingReader, ReadPage, Reader, Shard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::start::Begin;

/// What is asked for at a time, of one shard.
const DEMAND: Demand = Demand { records: 10_000, bytes: 2 << 20 };
/// How often a listing is looked at for the shards that follow one that has ended, where the service has not named them.
const LISTINGS: u32 = 5;
const LISTING_PAUSE: Duration = Duration::from_secs(1);

/// What all readers of a stream share.
#[derive(Debug, Clone)]
pub(super) struct Readers {
    pub(super) kinesis: Kinesis,
    pub(super) stream: Arc<str>,
    /// In milliseconds since 1970.
    pub(super) creation_time_ms: u64,
    pub(super) options: Options,
    pub(super) metrics: Metrics,
    /// Each page that is asked for, or in memory, has one.
    pub(super) room: Arc<Semaphore>,
    pub(super) events: mpsc::Sender<Event>,
}

/// What has become of a shard.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) shard: ShardId,
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) enum News {
    /// The next page. The room that it takes is held until this is dropped.
    Page(ReadPage, OwnedSemaphorePermit),
    /// It was read to its end: the shards that there are, and those that its last page names as its children.
    Ended { listing: Vec<Shard>, children: Vec<ChildShard> },
    /// Its last records are older than the stream's retention, so that it is gone.
    Gone(Error, Vec<Shard>),
    /// Somebody has to know of it.
    Failed(Error),
}

// === impl Readers ===

impl Readers {
    /// Reads a shard to its end; comes back then, or when nobody wants more.
    pub(super) async fn read(self, shard: ShardId, begin: Begin) {
        let news = match self.read_to_end(&shard, begin).await {
            Ok(Some(news)) => news,
            // Nobody wants it any more.
            Ok(None) => return,
            Err(error) if error.kind() == Kind::ShardGone => match self.kinesis.list_shards(&self.stream).await {
                Ok(listing) => News::Gone(error, listing),
                Err(error) => News::Failed(error),
            },
            Err(error) => News::Failed(error),
        };
        // As above.
        let _ = self.events.send(Event { shard, news }).await;
    }

    async fn read_to_end(&self, shard: &ShardId, begin: Begin) -> Result<Option<News>, Error> {
        let source =
            Source { stream: Arc::clone(&self.stream), shard: shard.clone(), creation_time_ms: self.creation_time_ms };
        let seed = rand::random();
        let mut reader =
            PollingReader::new(self.kinesis.clone(), source, begin.from, &self.options, &self.metrics, seed);
        loop {
            reader.ready().await?;
            let Ok(room) = Arc::clone(&self.room).acquire_owned().await else { return Ok(None) };
            let Some(page) = reader.read(DEMAND).await? else { continue };
            let (is_end, children) = (page.end, page.children.clone());
            let event = Event { shard: shard.clone(), news: News::Page(page, room) };
            if self.events.send(event).await.is_err() {
                return Ok(None);
            }
            if is_end {
                let listing = self.listing_after(shard, children.as_deref()).await?;
                return Ok(Some(News::Ended { listing, children: children.unwrap_or_default() }));
            }
        }
    }

    /// The stream's shards after one has ended. All of them, because another parent of a child may be a shard that nobody
    /// has told of yet.
    async fn listing_after(&self, shard: &ShardId, children: Option<&[ChildShard]>) -> Result<Vec<Shard>, Error> {
        for attempt in 1.. {
            let listing = match self.kinesis.list_shards(&self.stream).await {
                Ok(listing) => listing,
                Err(error) if error.is_transient() && attempt < LISTINGS => {
                    tokio::time::sleep(LISTING_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let has_followers = listing.iter().any(|listed| listed.parents.contains(shard));
            if has_followers || children.is_some() || attempt >= LISTINGS {
                return Ok(listing);
            }
            tokio::time::sleep(LISTING_PAUSE).await;
        }
        Ok(Vec::new())
    }
}
