//! The order in which letters are shown and sent again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::index::Entry;

/// Each shard's letters in the order of their positions, which is the order of keys; shards among each other by time of
/// arrival, so that a key goes on in the shard that followed its own. Times of arrival alone will not do: within a shard
/// they may go back. Letters about one place stand together, the first to be given up first.
pub(super) fn in_order(entries: Vec<Entry>) -> Vec<Entry> {
    let count = entries.len();
    let mut shards: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        shards.entry(entry.shard).or_default().push(entry);
    }
    for shard in shards.values_mut() {
        let place = |entry: &Entry| (entry.given_up_at, entry.file, entry.offset);
        shard.sort_by(|left, right| left.position.cmp(&right.position).then_with(|| place(left).cmp(&place(right))));
    }
    let mut shards: Vec<_> = shards.into_values().map(|shard| shard.into_iter().peekable()).collect();
    let mut heads: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (index, shard) in shards.iter_mut().enumerate() {
        heads.extend(shard.peek().map(|entry| Reverse((entry.arrived_at, index))));
    }
    let mut ordered: Vec<Entry> = Vec::with_capacity(count);
    while let Some(Reverse((_, index))) = heads.pop() {
        let shard = &mut shards[index];
        ordered.extend(shard.next());
        while let Some(copy) = shard.next_if(|next| ordered.last().is_some_and(|last| last.is_at(next))) {
            ordered.push(copy);
        }
        heads.extend(shard.peek().map(|entry| Reverse((entry.arrived_at, index))));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_record::{Position, SequenceNumber};

    use super::*;

    fn entry(shard: u32, position: u32, arrived_at: u64, offset: u64) -> Entry {
        let position = Position::new(SequenceNumber::parse(&position.to_string()).unwrap(), 0);
        Entry { shard, position, arrived_at, given_up_at: 0, file: 0, offset, length: 0 }
    }

    #[test]
    fn a_child_s_letters_follow_its_parent_s_and_a_shard_s_own_order_stands_against_its_clock() {
        let parent = [entry(2, 1, 10, 5), entry(2, 2, 9, 0), entry(2, 3, 20, 1)];
        let child = [entry(1, 1, 21, 2), entry(1, 2, 30, 3)];
        let mut mixed =
            vec![child[1].clone(), parent[2].clone(), parent[0].clone(), child[0].clone(), parent[1].clone()];
        assert_eq!(in_order(mixed.clone()), [&parent[..], &child[..]].concat());
        // Letters about one place stand together whatever they say, the first to be given up first.
        let again = Entry { given_up_at: 7, arrived_at: 1_000, ..parent[0].clone() };
        mixed.insert(0, again.clone());
        assert_eq!(in_order(mixed)[..2], [parent[0].clone(), again]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_each_shard_is_in_order(
            entries in prop::collection::vec((0u32..4, any::<u32>(), any::<u64>()), 0..60),
        ) {
            let entries: Vec<_> = entries
                .into_iter()
                .zip(0..)
                .map(|((shard, position, arrived_at), offset)| entry(shard, position, arrived_at, offset))
                .collect();
            let ordered = in_order(entries.clone());
            let offsets = |entries: &[Entry]| {
                let mut offsets: Vec<_> = entries.iter().map(|entry| entry.offset).collect();
                offsets.sort_unstable();
                offsets
            };
            prop_assert_eq!(offsets(&ordered), offsets(&entries));
            for shard in 0..4 {
                let positions: Vec<_> =
                    ordered.iter().filter(|entry| entry.shard == shard).map(|entry| &entry.position).collect();
                prop_assert!(positions.is_sorted());
            }
        }
    }
}
