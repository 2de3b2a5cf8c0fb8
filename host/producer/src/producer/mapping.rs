use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Options;
use crate::answer::Failure;
use crate::backoff::Backoff;
use crate::limits::MAX_RECORD_BYTES;
use crate::listing::{list_shards, max_record_bytes};
use crate::plan::MapWanted;
use crate::shard_map::ShardMap;

/// How often the shards are listed at most, and how often where that fails or brings nothing new: as the KPL does.
const LISTING_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(30);

/// Lists the stream's shards when that is wanted, one listing at a time and not too often.
#[derive(Debug)]
pub(super) struct Mapping {
    client: Client,
    stream: Arc<str>,
    /// Whether the stream is asked how large its records may be.
    asks_size: bool,
    first: Backoff,
    later: Backoff,
    listing: JoinSet<Listed>,
    not_before: Option<Instant>,
    /// Failures, or listings that brought nothing new, one after another.
    vain: u32,
    has_map: bool,
    failing_since: Option<Instant>,
    is_told: bool,
}

/// What a listing brought.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) began: Instant,
    pub(super) result: Result<Found, Failure>,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) map: ShardMap,
    pub(super) record_max_bytes: Option<usize>,
}

// === impl Mapping ===

impl Mapping {
    pub(super) fn new(client: Client, stream: Arc<str>, options: &Options, seed: u64) -> Self {
        Self {
            client,
            stream,
            asks_size: options.record_max_bytes > MAX_RECORD_BYTES,
            first: Backoff::new(options.backoff_min, options.backoff_max, seed),
            later: Backoff::new(LISTING_INTERVAL, LONGEST_INTERVAL, seed),
            listing: JoinSet::new(),
            not_before: None,
            vain: 0,
            has_map: false,
            failing_since: None,
            is_told: false,
        }
    }

    /// Starts a listing if it is time for one. When to ask again, unless something happens.
    pub(super) fn start(&mut self, wanted: Option<MapWanted>, now: Instant) -> Option<Instant> {
        let wanted = wanted?;
        if !self.listing.is_empty() {
            return None;
        }
        // Records wait no longer for a map than they must.
        let soon = (wanted == MapWanted::Now && self.failing_since.is_none()).then_some(now + LISTING_INTERVAL);
        if let Some(at) = self.not_before.map(|at| soon.map_or(at, |soon| soon.min(at)))
            && at > now
        {
            self.not_before = Some(at);
            return Some(at);
        }
        let (client, stream, asks_size) = (self.client.clone(), Arc::clone(&self.stream), self.asks_size);
        self.listing.spawn(async move {
            let began = Instant::now();
            let result = find(&client, &stream, asks_size).await;
            Listed { began, result }
        });
        None
    }

    /// What a listing brought that was started; never, if there is none.
    pub(super) async fn listed(&mut self) -> Listed {
        match self.listing.join_next().await {
            Some(Ok(listed)) => listed,
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            None => std::future::pending().await,
        }
    }

    /// A listing has brought a map.
    pub(super) fn works(&mut self, is_new: bool, shards: usize, now: Instant) {
        let is_first = !std::mem::replace(&mut self.has_map, true);
        if is_new && !is_first {
            tracing::info!(stream = &*self.stream, shards, "the stream's shards have changed; its shard map is new");
        }
        if std::mem::take(&mut self.is_told) {
            tracing::info!(stream = &*self.stream, shards, "the stream's shards can be listed again");
        }
        self.failing_since = None;
        self.vain = if is_new { 0 } else { self.vain.saturating_add(1) };
        self.not_before = Some(now + self.later.delay(self.vain).max(LISTING_INTERVAL));
    }

    /// A listing has failed. For how long that has been so.
    pub(super) fn fails(&mut self, failure: &Failure, now: Instant) -> Duration {
        let began = self.failing_since.is_none();
        if began {
            self.vain = 0;
        }
        self.vain = self.vain.saturating_add(1);
        let backoff = if self.has_map { &self.later } else { &self.first };
        self.not_before = Some(now + backoff.delay(self.vain));
        if self.has_map && !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(
                stream = &*self.stream,
                code = failure.code,
                reason = failure.reason,
                "the stream's shards have changed and cannot be listed; sending goes on by the old shard map"
            );
        }
        now.saturating_duration_since(*self.failing_since.get_or_insert(now))
    }
}

async fn find(client: &Client, stream: &str, asks_size: bool) -> Result<Found, Failure> {
    let map = list_shards(client, stream).await?;
    let record_max_bytes = if asks_size { max_record_bytes(client, stream).await? } else { None };
    Ok(Found { map, record_max_bytes })
}
