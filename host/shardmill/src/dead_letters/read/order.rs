//! The order in which letters of many files are shown and sent again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Where a letter is and what places it among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry<G, P> {
    /// Its shard, told apart from those of other streams.
    pub(super) group: G,
    /// Its place in the shard.
    pub(super) position: P,
    /// When the record arrived.
    pub(super) arrived_at: u64,
    /// When it was given up.
    pub(super) given_up_at: u64,
    /// The file, by its place among all.
    pub(super) file: u32,
    /// Where its line begins.
    pub(super) offset: u64,
    /// The length of its line.
    pub(super) length: usize,
}

/// Each shard's letters in the order of their positions, which is the order of keys; shards among each other by time of
/// arrival, so that a key goes on in the shard that followed its own. Times of arrival alone will not do: within a shard
/// they may go back.
pub(super) fn in_order<G: Ord + Clone, P: Ord>(entries: Vec<Entry<G, P>>) -> Vec<Entry<G, P>> {
    let count = entries.len();
    let mut groups: BTreeMap<G, Vec<Entry<G, P>>> = BTreeMap::new();
    for entry in entries {
        groups.entry(entry.group.clone()).or_default().push(entry);
    }
    for group in groups.values_mut() {
        let place = |entry: &Entry<G, P>| (entry.given_up_at, entry.file, entry.offset);
        group.sort_by(|left, right| left.position.cmp(&right.position).then_with(|| place(left).cmp(&place(right))));
    }
    let mut groups: Vec<_> = groups.into_values().map(|group| group.into_iter().peekable()).collect();
    let mut heads: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (index, group) in groups.iter_mut().enumerate() {
        heads.extend(group.peek().map(|entry| Reverse((entry.arrived_at, index))));
    }
    let mut ordered = Vec::with_capacity(count);
    while let Some(Reverse((_, index))) = heads.pop() {
        let group = &mut groups[index];
        ordered.extend(group.next());
        heads.extend(group.peek().map(|entry| Reverse((entry.arrived_at, index))));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(group: u8, position: u32, arrived_at: u64, offset: u64) -> Entry<u8, u32> {
        Entry { group, position, arrived_at, given_up_at: 0, file: 0, offset, length: 0 }
    }

    #[test]
    fn a_child_s_letters_follow_its_parent_s_and_a_shard_s_own_order_stands_against_its_clock() {
        let parent = [entry(2, 1, 10, 5), entry(2, 2, 9, 0), entry(2, 3, 20, 1)];
        let child = [entry(1, 1, 21, 2), entry(1, 2, 30, 3)];
        let mut mixed =
            vec![child[1].clone(), parent[2].clone(), parent[0].clone(), child[0].clone(), parent[1].clone()];
        assert_eq!(in_order(mixed.clone()), [&parent[..], &child[..]].concat());
        // Copies of a letter stand together, the first to be given up first.
        let again = Entry { given_up_at: 7, ..parent[0].clone() };
        mixed.insert(0, again.clone());
        assert_eq!(in_order(mixed)[..2], [parent[0].clone(), again]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_each_shard_is_in_order(
            entries in prop::collection::vec((0u8..4, any::<u32>(), any::<u64>()), 0..60),
        ) {
            let entries: Vec<_> = entries
                .into_iter()
                .zip(0..)
                .map(|((group, position, arrived_at), offset)| entry(group, position, arrived_at, offset))
                .collect();
            let ordered = in_order(entries.clone());
            let offsets = |entries: &[Entry<u8, u32>]| {
                let mut offsets: Vec<_> = entries.iter().map(|entry| entry.offset).collect();
                offsets.sort_unstable();
                offsets
            };
            prop_assert_eq!(offsets(&ordered), offsets(&entries));
            for group in 0..4 {
                let positions: Vec<_> =
                    ordered.iter().filter(|entry| entry.group == group).map(|entry| entry.position).collect();
                prop_assert!(positions.is_sorted());
            }
        }
    }
}
