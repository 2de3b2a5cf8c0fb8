use std::collections::HashMap;

use shardmill_record::{HashKey, HashKeyRange, ShardId};

/// A shard that takes records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenShard {
    pub(crate) id: ShardId,
    pub(crate) range: HashKeyRange,
}

/// Says to which shard a hash key goes, as far as the last listing of the stream's shards knows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardMap {
    /// By the beginning of their ranges.
    shards: Vec<OpenShard>,
    indexes: HashMap<ShardId, usize>,
}

// === impl ShardMap ===

impl ShardMap {
    /// From the open shards in any order. Of shards that are named twice one is taken.
    pub(crate) fn new(mut shards: Vec<OpenShard>) -> Self {
        shards.sort_by(|left, right| (left.range.start, &left.id).cmp(&(right.range.start, &right.id)));
        shards.dedup_by(|right, left| right.id == left.id);
        let indexes = shards.iter().enumerate().map(|(index, shard)| (shard.id.clone(), index)).collect();
        Self { shards, indexes }
    }

    /// How many open shards there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Which shard takes this hash key: an index below [`len`](Self::len). `None` if no range that is known holds it,
    /// as can be while shards are split or merged.
    pub(crate) fn predict(&self, key: HashKey) -> Option<usize> {
        let after = self.shards.partition_point(|shard| shard.range.start <= key);
        let index = after.checked_sub(1)?;
        self.shards[index].range.contains(key).then_some(index)
    }

    /// The shard at an index that this map gave.
    pub(crate) fn shard(&self, index: usize) -> &OpenShard {
        &self.shards[index]
    }

    /// Where a shard is, if it is open.
    pub(crate) fn find(&self, id: &ShardId) -> Option<usize> {
        self.indexes.get(id).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shard(number: usize, start: u128, end: u128) -> OpenShard {
        let range = HashKeyRange { start: HashKey::new(start), end: HashKey::new(end) };
        OpenShard { id: ShardId::parse(&format!("shardId-{number:012}")).unwrap(), range }
    }

    #[test]
    fn a_hash_key_in_no_range_has_no_shard() {
        let map = ShardMap::new(vec![shard(2, 200, 299), shard(1, 0, 99)]);
        let predict = |key| map.predict(HashKey::new(key)).map(|index| map.shard(index).id.as_str());
        assert_eq!(predict(0), Some("shardId-000000000001"));
        assert_eq!(predict(99), Some("shardId-000000000001"));
        assert_eq!(predict(100), None);
        assert_eq!(predict(200), Some("shardId-000000000002"));
        assert_eq!(predict(u128::MAX), None);
        assert_eq!(ShardMap::default().predict(HashKey::MIN), None);
    }

    proptest! {
        #[test]
        fn every_key_of_a_whole_ring_has_the_shard_whose_range_holds_it(
            mut cuts in prop::collection::btree_set(1..u128::MAX, 0..20),
            keys in prop::collection::vec(any::<u128>(), 1..20),
            twice: bool,
        ) {
            cuts.insert(0);
            let starts: Vec<u128> = cuts.into_iter().collect();
            let end = |index: usize| starts.get(index + 1).map_or(u128::MAX, |next| next - 1);
            let shards = |from: usize| (from..starts.len()).map(|index| shard(index, starts[index], end(index)));
            let mut listed: Vec<_> = shards(0).rev().collect();
            if twice {
                listed.extend(shards(0));
            }
            let map = ShardMap::new(listed);
            prop_assert_eq!(map.len(), starts.len());
            for key in keys.into_iter().chain(starts.iter().copied()).map(HashKey::new) {
                let index = map.predict(key).unwrap();
                prop_assert!(map.shard(index).range.contains(key));
                prop_assert_eq!(map.find(&map.shard(index).id), Some(index));
            }
        }
    }
}
