//! A stream's shard map, for all who send to the stream: the shards are listed when somebody wants that, one listing at a
//! time and not too often, and everybody gets what it brought.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use shardmill_cause::code;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Options;
use crate::answer::Failure;
use crate::backoff::Backoff;
use crate::limits::MAX_RECORD_BYTES;
use crate::listing::{list_shards, max_record_bytes};
use crate::metrics::StreamMetrics;
use crate::plan::MapWanted;
use crate::shard_map::ShardMap;

/// How often the shards are listed at most, and how often where that fails or brings nothing new: as the KPL does.
const LISTING_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(30);

/// What is known of a stream's shards.
#[derive(Debug)]
pub(crate) struct Shards {
    client: Client,
    stream: Arc<str>,
    metrics: Arc<StreamMetrics>,
    /// Whether the stream is asked how large its records may be.
    asks_size: bool,
    first: Backoff,
    later: Backoff,
    state: Mutex<State>,
    /// The last listing that ended.
    listed: watch::Sender<Option<Listed>>,
}

#[derive(Debug, Default)]
struct State {
    /// What the last good listing brought, and when it began.
    known: Option<(Instant, Found)>,
    is_listing: bool,
    /// Whether records wait for the listing.
    is_urgent: bool,
    not_before: Option<Instant>,
    /// Failures, or listings that brought nothing new, one after another.
    vain: u32,
    failing_since: Option<Instant>,
    is_told: bool,
}

/// One sender's view of the shards.
#[derive(Debug)]
pub(crate) struct Mapping {
    shards: Arc<Shards>,
    listed: watch::Receiver<Option<Listed>>,
}

/// What a listing brought.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) began: Instant,
    pub(crate) result: Result<Found, Arc<Failure>>,
    /// For how long no listing has been good, if this one was not.
    pub(crate) failing_for: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) map: Arc<ShardMap>,
    pub(crate) record_max_bytes: Option<usize>,
}

/// A listing under way. However it ends, that is told.
struct Listing {
    shards: Arc<Shards>,
    began: Instant,
    result: Option<Result<Found, Failure>>,
}

// === impl Shards ===

impl Shards {
    /// Of options that are within their bounds. Nothing is called before somebody wants it.
    pub(crate) fn new(
        client: Client,
        stream: Arc<str>,
        options: &Options,
        metrics: Arc<StreamMetrics>,
        seed: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            stream,
            metrics,
            asks_size: options.record_max_bytes > MAX_RECORD_BYTES,
            first: Backoff::new(options.backoff_min, options.backoff_max, seed),
            later: Backoff::new(LISTING_INTERVAL, LONGEST_INTERVAL, seed),
            state: Mutex::default(),
            listed: watch::Sender::new(None),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, wanted: MapWanted, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        if state.is_listing {
            return None;
        }
        // Records wait no longer for a map than they must.
        let soon = (wanted == MapWanted::Now && state.failing_since.is_none()).then_some(now + LISTING_INTERVAL);
        if let Some(at) = state.not_before.map(|at| soon.map_or(at, |soon| soon.min(at)))
            && at > now
        {
            state.not_before = Some(at);
            return Some(at);
        }
        state.is_listing = true;
        state.is_urgent = wanted == MapWanted::Now;
        drop(state);
        let listing = Listing { shards: Arc::clone(self), began: now, result: None };
        // A task of its own: who wants it may be gone before it ends, and others may want it by then.
        tokio::spawn(listing.run());
        None
    }

    async fn find(&self) -> Result<Found, Failure> {
        let map = Arc::new(list_shards(&self.client, &self.stream).await?);
        let record_max_bytes = if self.asks_size { max_record_bytes(&self.client, &self.stream).await? } else { None };
        Ok(Found { map, record_max_bytes })
    }

    fn ended(&self, began: Instant, result: Result<Found, Failure>) {
        let now = Instant::now();
        let mut state = self.state();
        state.is_listing = false;
        let (result, failing_for) = match result {
            Ok(found) => {
                self.works(&mut state, began, &found, now);
                (Ok(found), Duration::ZERO)
            }
            Err(failure) => {
                self.metrics.error(failure.label);
                let failing_for = self.fails(&mut state, &failure, now);
                (Err(Arc::new(failure)), failing_for)
            }
        };
        drop(state);
        self.listed.send_replace(Some(Listed { began, result, failing_for }));
    }

    /// A listing has brought a map.
    fn works(&self, state: &mut State, began: Instant, found: &Found, now: Instant) {
        let (shards, stream) = (found.map.len(), &*self.stream);
        let old = state.known.replace((began, found.clone()));
        let is_new = old.as_ref().is_none_or(|(_, old)| old.map != found.map);
        if is_new && old.is_some() {
            tracing::info!(stream, shards, "the stream's shards have changed; its shard map is new");
        }
        if std::mem::take(&mut state.is_told) {
            tracing::info!(stream, shards, "the stream's shards can be listed again");
        }
        state.failing_since = None;
        state.vain = if is_new { 0 } else { state.vain.saturating_add(1) };
        state.not_before = Some(now + self.later.delay(state.vain).max(LISTING_INTERVAL));
    }

    /// A listing has failed. For how long that has been so.
    fn fails(&self, state: &mut State, failure: &Failure, now: Instant) -> Duration {
        if state.failing_since.is_none() {
            state.vain = 0;
        }
        state.vain = state.vain.saturating_add(1);
        let has_map = state.known.is_some();
        let backoff = if has_map && !state.is_urgent { &self.later } else { &self.first };
        state.not_before = Some(now + backoff.delay(state.vain));
        if has_map && !std::mem::replace(&mut state.is_told, true) {
            tracing::warn!(
                stream = &*self.stream,
                service_code = failure.code,
                code = %code::producer::NOT_TAKEN,
                reason = failure.reason,
                "the stream's shards have changed and cannot be listed; sending goes on by the old shard map"
            );
        }
        now.saturating_duration_since(*state.failing_since.get_or_insert(now))
    }
}

// === impl Listing ===

impl Listing {
    async fn run(mut self) {
        self.result = Some(self.shards.find().await);
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let is_lost = || Err(Failure::invalid_answer("the task that lists the shards has ended".to_owned()));
        self.shards.ended(self.began, self.result.take().unwrap_or_else(is_lost));
    }
}

// === impl Mapping ===

impl Mapping {
    pub(crate) fn new(shards: &Arc<Shards>) -> Self {
        Self { listed: shards.listed.subscribe(), shards: Arc::clone(shards) }
    }

    /// What is listed, for others to look at as well.
    pub(crate) fn shards(&self) -> &Arc<Shards> {
        &self.shards
    }

    /// What the last good listing brought, and when it began.
    pub(crate) fn known(&self) -> Option<(Instant, Found)> {
        self.shards.state().known.clone()
    }

    /// Starts a listing if it is time for one and none is under way. When to ask again, unless something happens.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn start(&self, wanted: Option<MapWanted>, now: Instant) -> Option<Instant> {
        self.shards.start(wanted?, now)
    }

    /// What the next listing brings, whoever started it.
    pub(crate) async fn listed(&mut self) -> Listed {
        // Who tells is in the shards, which are here.
        if self.listed.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.listed.borrow_and_update().clone().expect("a listing has ended")
    }
}
