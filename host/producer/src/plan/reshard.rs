use std::sync::Arc;

use tokio::time::Instant;

use super::lane::Lane;
use super::{Item, Leaving, Plan};
use crate::Reason;
use crate::answer::Failure;
use crate::shard_map::ShardMap;

// === impl Plan ===

impl<T> Plan<T> {
    /// Takes in a new shard map, of a listing that began then, and how large the stream's records may be, if it says.
    pub(crate) fn set_map(
        &mut self,
        map: Arc<ShardMap>,
        record_max_bytes: Option<usize>,
        began: Instant,
        now: Instant,
    ) {
        self.map_wanted = None;
        self.map_failure = None;
        if let Some(most) = record_max_bytes {
            self.record_max_bytes = self.rules.record_max_bytes.min(most);
        }
        let (kept, homeless) = self.break_up(&map);
        let mut lanes = Vec::with_capacity(map.len() + 1);
        for (index, lane) in kept.into_iter().enumerate() {
            lanes.push(lane.unwrap_or_else(|| {
                let shard = map.shard(index);
                Lane::new(self.lane_number(), Some(shard.range), self.rates.of(&shard.id, now))
            }));
        }
        lanes.push(Lane::new(self.lane_number(), None, None));
        self.lanes = lanes;
        self.indexes.clear();
        self.indexes.extend(self.lanes.iter().enumerate().map(|(index, lane)| (lane.number, index)));
        self.indexes.sort_unstable();
        self.rates.keep(|shard| map.find(shard).is_some());
        self.map = map;
        self.first_lane = 0;
        for item in homeless {
            self.push(item);
        }
        self.decide(began);
    }

    /// There is no map yet, for this reason, and it is tried again.
    pub(crate) fn map_failed(&mut self, failure: &Arc<Failure>) {
        self.map_failure = Some(Arc::clone(failure));
    }

    /// The stream cannot be listed until somebody has mended something. Without a map nothing is sent; with an old one
    /// records whose shard is unknown are sent again.
    pub(crate) fn map_refused(&mut self, reason: &Reason, now: Instant) {
        if self.has_map() {
            self.decide(now);
        } else {
            self.give_up_waiting(reason);
        }
    }

    fn lane_number(&mut self) -> u64 {
        self.next_lane += 1;
        self.next_lane - 1
    }

    /// By the indexes of the new map the lanes whose shards are in the old one too, and what waits in the others, in order.
    fn break_up(&mut self, map: &ShardMap) -> (Vec<Option<Lane<T>>>, Vec<Item<T>>) {
        let mut kept: Vec<Option<Lane<T>>> = std::iter::repeat_with(|| None).take(map.len()).collect();
        let mut homeless = Vec::new();
        for (index, lane) in std::mem::take(&mut self.lanes).into_iter().enumerate() {
            // The last lane is the one of the unknown.
            let shard = (index < self.map.len()).then(|| self.map.shard(index));
            // A stream that was deleted and made again has the same ids for other ranges.
            let same = |stays: &usize| shard.is_some_and(|shard| map.shard(*stays).range == shard.range);
            if let Some(stays) = shard.and_then(|shard| map.find(&shard.id)).filter(same) {
                kept[stays] = Some(lane);
                continue;
            }
            if lane.in_flight > 0 {
                self.leaving.push(Leaving { number: lane.number, range: lane.range, in_flight: lane.in_flight });
            }
            homeless.extend(lane.waiting);
        }
        // So that each of them is laid at the end.
        homeless.sort_unstable_by_key(|item| item.id);
        (kept, homeless)
    }
}
