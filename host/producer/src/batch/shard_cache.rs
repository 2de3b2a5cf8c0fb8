use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::answer::Failure;
use crate::listing::list_shards;
use crate::shard_map::ShardMap;

/// How often the shards are listed at most: ListShards may be called 1,000 times a second for a stream by everybody
/// together, and a listing is no newer a moment later.
const LISTING_INTERVAL: Duration = Duration::from_secs(1);

/// A stream's shard map, shared by all who send to the stream.
#[derive(Debug)]
pub(crate) struct ShardCache {
    client: Client,
    stream: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    map: Option<Arc<ShardMap>>,
    /// When the shards were listed last, or that was tried.
    listed: Option<Instant>,
    /// Whether the log tells that they cannot be listed.
    is_told: bool,
}

// === impl ShardCache ===

impl ShardCache {
    pub(crate) fn new(client: Client, stream: String) -> Self {
        Self { client, stream, state: Mutex::default() }
    }

    /// The map; the first to ask waits for the listing.
    pub(crate) async fn get(&self) -> Result<Arc<ShardMap>, Failure> {
        let mut state = self.state.lock().await;
        if let Some(map) = &state.map {
            return Ok(Arc::clone(map));
        }
        let map = Arc::new(list_shards(&self.client, &self.stream).await?);
        state.listed = Some(Instant::now());
        state.map = Some(Arc::clone(&map));
        Ok(map)
    }

    /// A newer map than this one, which has turned out to be wrong; the same one if the stream cannot be listed now.
    /// If it was listed a moment ago this waits only when somebody needs to know.
    pub(crate) async fn refresh(&self, old: &Arc<ShardMap>, needed: bool) -> Arc<ShardMap> {
        let mut state = self.state.lock().await;
        if let Some(map) = &state.map
            && !Arc::ptr_eq(map, old)
        {
            return Arc::clone(map);
        }
        if let Some(next) = state.listed.map(|listed| listed + LISTING_INTERVAL)
            && next > Instant::now()
        {
            if !needed {
                return Arc::clone(old);
            }
            sleep_until(next).await;
        }
        state.listed = Some(Instant::now());
        match list_shards(&self.client, &self.stream).await {
            Ok(map) => {
                let stream = &self.stream;
                tracing::info!(stream, shards = map.len(), "the stream's shards have changed; its shard map is new");
                let map = Arc::new(map);
                state.map = Some(Arc::clone(&map));
                state.is_told = false;
                map
            }
            Err(failure) => {
                if !std::mem::replace(&mut state.is_told, true) {
                    tracing::warn!(
                        stream = self.stream,
                        code = failure.code,
                        reason = failure.reason,
                        "the stream's shards have changed and cannot be listed; sending goes on by the old shard map"
                    );
                }
                Arc::clone(old)
            }
        }
    }
}
