use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::operation::list_shards::ListShardsOutput;
use aws_sdk_kinesis::types::{Shard, ShardFilter, ShardFilterType};
use shardmill_record::{HashKeyRange, ShardId, StreamArn};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::answer::Failure;
use crate::shard_map::{OpenShard, ShardMap};

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
        let map = Arc::new(self.list().await?);
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
        match self.list().await {
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

    async fn list(&self) -> Result<ShardMap, Failure> {
        let at_latest = ShardFilter::builder().r#type(ShardFilterType::AtLatest).build();
        let first = self.client.list_shards();
        let first = if StreamArn::is_meant(&self.stream) {
            first.stream_arn(&self.stream)
        } else {
            first.stream_name(&self.stream)
        };
        let filter = at_latest.map_err(|error| Failure::invalid_answer(error.to_string()))?;
        let mut page = first.shard_filter(filter).send().await.map_err(|error| Failure::of_call(&error))?;
        let mut seen = HashSet::new();
        let mut open = Vec::new();
        // A page that brings nothing new ends the listing too, whatever its token says.
        while let (true, Some(token)) = (take_page(&page, &mut seen, &mut open)?, page.next_token()) {
            let next = self.client.list_shards().next_token(token).send().await;
            page = next.map_err(|error| Failure::of_call(&error))?;
        }
        if open.is_empty() {
            return Err(Failure::invalid_answer("the stream has no open shard".to_owned()));
        }
        Ok(ShardMap::new(open))
    }
}

/// Whether there was a shard that had not been seen.
fn take_page(page: &ListShardsOutput, seen: &mut HashSet<ShardId>, open: &mut Vec<OpenShard>) -> Result<bool, Failure> {
    let mut new = false;
    for shard in page.shards() {
        let id = ShardId::parse(shard.shard_id()).map_err(|error| Failure::invalid_answer(error.to_string()))?;
        if seen.insert(id.clone()) {
            new = true;
            if is_open(shard) {
                open.push(OpenShard { range: range(shard)?, id });
            }
        }
    }
    Ok(new)
}

fn is_open(shard: &Shard) -> bool {
    shard.sequence_number_range().is_none_or(|range| range.ending_sequence_number().is_none())
}

fn range(shard: &Shard) -> Result<HashKeyRange, Failure> {
    let invalid = |reason: String| Failure::invalid_answer(format!("shard {}: {reason}", shard.shard_id()));
    let Some(range) = shard.hash_key_range() else {
        return Err(invalid("it has no hash key range".to_owned()));
    };
    let key = |text: &str| text.parse().map_err(|error: shardmill_record::InvalidHashKey| invalid(error.to_string()));
    Ok(HashKeyRange { start: key(range.starting_hash_key())?, end: key(range.ending_hash_key())? })
}

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::types::{HashKeyRange as Keys, SequenceNumberRange};

    use super::*;

    fn shard(id: &str, keys: (&str, &str), ending: Option<&str>) -> Shard {
        let keys = Keys::builder().starting_hash_key(keys.0).ending_hash_key(keys.1).build().unwrap();
        let numbers = SequenceNumberRange::builder().starting_sequence_number("1");
        let numbers = numbers.set_ending_sequence_number(ending.map(str::to_owned)).build().unwrap();
        Shard::builder().shard_id(id).hash_key_range(keys).sequence_number_range(numbers).build().unwrap()
    }

    #[test]
    fn closed_shards_and_shards_of_an_earlier_page_are_passed_over() {
        let page = |shards| ListShardsOutput::builder().set_shards(Some(shards)).build();
        let first = shard("shardId-000000000000", ("0", "9"), Some("5"));
        let second = shard("shardId-000000000001", ("0", "4"), None);
        let third = shard("shardId-000000000002", ("5", "9"), None);
        let (mut seen, mut open) = (HashSet::new(), Vec::new());
        assert_eq!(take_page(&page(vec![first.clone(), second.clone()]), &mut seen, &mut open), Ok(true));
        assert_eq!(take_page(&page(vec![second.clone(), third]), &mut seen, &mut open), Ok(true));
        assert_eq!(take_page(&page(vec![first, second]), &mut seen, &mut open), Ok(false));
        let ids: Vec<_> = open.iter().map(|shard| shard.id.as_str()).collect();
        assert_eq!(ids, ["shardId-000000000001", "shardId-000000000002"]);
        let broken = page(vec![shard("shardId-000000000003", ("0", "x"), None)]);
        assert!(take_page(&broken, &mut seen, &mut open).is_err());
    }
}
