use std::collections::HashMap;

use shardmill_record::ShardId;
use tokio::time::Instant;

use super::lane::Lane;
use super::{Item, Leaving, Plan};
use crate::Reason;
use crate::shard_map::ShardMap;

// === impl Plan ===

impl<T> Plan<T> {
    /// Takes in a new shard map, of a listing that began then, and how large the stream's records may be, if it says.
    /// Whether the map is another one than before.
    pub(crate) fn set_map(
        &mut self,
        map: ShardMap,
        record_max_bytes: Option<usize>,
        began: Instant,
        now: Instant,
    ) -> bool {
        let is_new = map != self.map;
        self.map_wanted = None;
        if let Some(most) = record_max_bytes {
            self.record_max_bytes = self.rules.record_max_bytes.min(most);
        }
        let (mut kept, homeless) = self.break_up(&map);
        let shards = (0..map.len()).map(|index| Some(map.shard(index).clone()));
        self.lanes = shards
            .chain([None])
            .map(|shard| {
                let lane = shard.as_ref().and_then(|shard| kept.remove(&shard.id));
                lane.unwrap_or_else(|| {
                    self.next_lane += 1;
                    Lane::new(self.next_lane - 1, shard, &self.rules, now)
                })
            })
            .collect();
        self.indexes = self.lanes.iter().enumerate().map(|(index, lane)| (lane.number, index)).collect();
        self.map = map;
        self.first_lane = 0;
        for item in homeless {
            self.push(item);
        }
        self.decide(began);
        is_new
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

    /// Lanes whose shards are in the new map too, and what waits in the others, in order.
    fn break_up(&mut self, map: &ShardMap) -> (HashMap<ShardId, Lane<T>>, Vec<Item<T>>) {
        let mut kept = HashMap::new();
        let mut homeless = Vec::new();
        for lane in std::mem::take(&mut self.lanes) {
            match &lane.shard {
                Some(shard) if map.find(&shard.id).is_some() => {
                    kept.insert(shard.id.clone(), lane);
                }
                _ => {
                    if lane.in_flight > 0 {
                        let (number, range, in_flight) = (lane.number, lane.range(), lane.in_flight);
                        self.leaving.push(Leaving { number, range, in_flight });
                    }
                    homeless.extend(lane.waiting);
                }
            }
        }
        // So that each of them is laid at the end.
        homeless.sort_unstable_by_key(|item| item.id);
        (kept, homeless)
    }
}
