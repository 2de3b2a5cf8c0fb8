//! Which shards of a stream are read, and in which order: each after its parents, and those that follow when one ends.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_record::{HashKeyRange, ShardId};
use shardmill_stream::{ChildShard, Shard};

use super::start::{Begin, Start};

/// What is known of a stream's shards.
#[derive(Debug)]
pub(super) struct Follower {
    shards: BTreeMap<ShardId, Followed>,
    /// Whether shards that follow those of the start are read as well.
    is_following: bool,
}

#[derive(Debug)]
struct Followed {
    range: HashKeyRange,
    parents: Vec<ShardId>,
    begin: Begin,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// For its parents.
    Waiting,
    Reading,
    Done,
}

/// Shards that the stream does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown(pub(super) Vec<ShardId>);

// === impl Follower ===

impl Follower {
    /// Of all shards of a listing, and of those that follow; or of some of its shards alone.
    pub(super) fn new(listing: &[Shard], start: &Start, only: &[ShardId]) -> Result<Self, Unknown> {
        let is_listed = |id: &ShardId| listing.iter().any(|shard| shard.id == *id);
        let unknown: Vec<ShardId> = only.iter().filter(|id| !is_listed(id)).cloned().collect();
        if !unknown.is_empty() {
            return Err(Unknown(unknown));
        }
        let chosen = listing.iter().filter(|shard| only.is_empty() || only.contains(&shard.id));
        let shards = chosen.map(|shard| {
            let is_past = start.passes_over_closed() && !shard.is_open();
            let state = if is_past { State::Done } else { State::Waiting };
            let followed = Followed { range: shard.range, parents: shard.parents.clone(), begin: start.begin(), state };
            (shard.id.clone(), followed)
        });
        Ok(Self { shards: shards.collect(), is_following: only.is_empty() })
    }

    /// The shards whose time has come; each comes once.
    pub(super) fn take_ready(&mut self) -> Vec<(ShardId, Begin)> {
        let blocks = |parent: &ShardId| self.shards.get(parent).is_some_and(|parent| parent.state != State::Done);
        let is_ready = |shard: &Followed| shard.state == State::Waiting && !shard.parents.iter().any(blocks);
        let mut ready: BTreeSet<ShardId> =
            self.shards.iter().filter(|(_, shard)| is_ready(shard)).map(|(id, _)| id.clone()).collect();
        if ready.is_empty() && !self.shards.values().any(|shard| shard.state == State::Reading) {
            // No stream's shards go round in a circle. If a listing says so all the same, none is left out.
            ready = self.waiting().cloned().collect();
        }
        for id in &ready {
            if let Some(shard) = self.shards.get_mut(id) {
                shard.state = State::Reading;
            }
        }
        ready.into_iter().map(|id| (id.clone(), self.shards[&id].begin.clone())).collect()
    }

    /// A shard was read to its end, and everything of it is shown. The shards that are new in a listing and among those
    /// that its last page names are to be read, from their beginnings. Which shards follow it.
    pub(super) fn ended(&mut self, id: &ShardId, listing: &[Shard], children: &[ChildShard]) -> Vec<ShardId> {
        if let Some(shard) = self.shards.get_mut(id) {
            shard.state = State::Done;
        }
        let listed = listing.iter().map(Shard::as_child);
        let mut followers = BTreeSet::new();
        for child in listed.chain(children.iter().cloned()) {
            if child.parents.contains(id) {
                followers.insert(child.id.clone());
            }
            if self.is_following {
                self.shards.entry(child.id).or_insert_with(|| Followed {
                    range: child.range,
                    parents: child.parents,
                    begin: Begin::whole(),
                    state: State::Waiting,
                });
            }
        }
        followers.into_iter().collect()
    }

    /// The hash keys that a shard takes; all of them for one that is not known.
    pub(super) fn range(&self, id: &ShardId) -> HashKeyRange {
        self.shards.get(id).map_or(HashKeyRange::ALL, |shard| shard.range)
    }

    /// How many shards are being read.
    pub(super) fn reading(&self) -> usize {
        self.shards.values().filter(|shard| shard.state == State::Reading).count()
    }

    /// Whether any shard waits for its parents.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting().next().is_some()
    }

    /// Whether nothing will come any more.
    pub(super) fn is_over(&self) -> bool {
        self.shards.values().all(|shard| shard.state == State::Done)
    }

    fn waiting(&self) -> impl Iterator<Item = &ShardId> {
        self.shards.iter().filter(|(_, shard)| shard.state == State::Waiting).map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_record::SequenceNumber;
    use shardmill_stream::ReadFrom;

    use super::*;

    fn id(name: &str) -> ShardId {
        ShardId::parse(name).unwrap()
    }

    fn shard(name: &str, parents: &[&str], is_open: bool) -> Shard {
        let number = |text: &str| SequenceNumber::parse(text).unwrap();
        Shard {
            id: id(name),
            parents: parents.iter().map(|parent| id(parent)).collect(),
            range: HashKeyRange::ALL,
            starting_sequence: number("1"),
            ending_sequence: (!is_open).then(|| number("2")),
        }
    }

    fn names(ready: &[(ShardId, Begin)]) -> Vec<&str> {
        ready.iter().map(|(id, _)| id.as_str()).collect()
    }

    #[test]
    fn a_merge_waits_for_both_parents_and_begins_at_its_beginning() {
        let listing = [shard("a", &["gone"], false), shard("b", &[], true), shard("c", &["a", "b"], true)];
        let mut follower = Follower::new(&listing[..2], &Start::Latest(7), &[]).unwrap();
        let first = follower.take_ready();
        assert_eq!(names(&first), ["b"], "what was closed before is passed over");
        assert_eq!(first[0].1.from, ReadFrom::AtTimestamp(7));
        assert_eq!(follower.ended(&id("b"), &listing, &[]), [id("c")]);
        let next = follower.take_ready();
        assert_eq!((names(&next), &next[0].1.from), (vec!["c"], &ReadFrom::TrimHorizon));

        let mut follower = Follower::new(&listing, &Start::Time(7), &[]).unwrap();
        assert_eq!(names(&follower.take_ready()), ["a", "b"]);
        assert!(follower.is_waiting());
        follower.ended(&id("b"), &listing, &[]);
        assert!(follower.take_ready().is_empty());
        follower.ended(&id("a"), &[], &[]);
        assert_eq!(names(&follower.take_ready()), ["c"]);
        assert!(follower.take_ready().is_empty() && !follower.is_over());
    }

    #[test]
    fn a_child_that_only_its_parents_last_page_names_is_read() {
        let mut follower = Follower::new(&[shard("a", &[], true)], &Start::TrimHorizon, &[]).unwrap();
        follower.take_ready();
        let child = shard("b", &["a"], true).as_child();
        assert_eq!(follower.ended(&id("a"), &[shard("a", &[], false)], &[child]), [id("b")]);
        assert_eq!(names(&follower.take_ready()), ["b"]);
    }

    #[test]
    fn chosen_shards_alone_are_read_and_must_be_there() {
        let listing = [shard("a", &[], false), shard("b", &["a"], false), shard("c", &["b"], true)];
        let mut follower = Follower::new(&listing, &Start::TrimHorizon, &[id("b")]).unwrap();
        assert_eq!(names(&follower.take_ready()), ["b"]);
        assert_eq!(follower.ended(&id("b"), &listing, &[]), [id("c")], "it is told what follows");
        assert!(follower.take_ready().is_empty() && follower.is_over());
        let unknown = Follower::new(&listing, &Start::TrimHorizon, &[id("b"), id("x")]).unwrap_err();
        assert_eq!(unknown, Unknown(vec![id("x")]));
    }

    #[test]
    fn a_circle_is_read_all_the_same() {
        let circle = [shard("a", &["b"], true), shard("b", &["a"], true)];
        let mut follower = Follower::new(&circle, &Start::TrimHorizon, &[]).unwrap();
        assert_eq!(names(&follower.take_ready()), ["a", "b"]);
    }

    /// A stream that is split and merged at random, from one to so many shards.
    fn lineage(changes: &[(bool, u8, u8)]) -> Vec<Shard> {
        let mut shards = vec![shard("s000", &[], true)];
        for (is_split, first, second) in changes {
            let open: Vec<usize> = (0..shards.len()).filter(|index| shards[*index].is_open()).collect();
            let parents: BTreeSet<usize> = if *is_split {
                [open[usize::from(*first) % open.len()]].into()
            } else {
                [first, second].map(|pick| open[usize::from(*pick) % open.len()]).into()
            };
            let names: Vec<String> = parents.iter().map(|index| shards[*index].id.to_string()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for index in &parents {
                shards[*index].ending_sequence = Some(SequenceNumber::parse("2").unwrap());
            }
            for _child in 0..if *is_split { 2 } else { 1 } {
                shards.push(shard(&format!("s{:03}", shards.len()), &names, true));
            }
        }
        shards
    }

    proptest! {
        /// Whatever ends first, and however much of the stream's life has passed when it is listed.
        #[test]
        fn every_shard_is_read_once_and_after_its_parents(
            changes in prop::collection::vec(any::<(bool, u8, u8)>(), 0..20),
            ends in prop::collection::vec(any::<u8>(), 64),
            later in prop::collection::vec(any::<bool>(), 64),
        ) {
            let mut known = 0;
            let listing_of = |known: usize| lineage(&changes[..known]);
            let mut follower = Follower::new(&listing_of(0), &Start::TrimHorizon, &[]).unwrap();
            let mut reading: Vec<ShardId> = Vec::new();
            let mut done: Vec<ShardId> = Vec::new();
            let whole = lineage(&changes);
            for step in 0.. {
                for (id, _) in follower.take_ready() {
                    let shard = whole.iter().find(|shard| shard.id == id).unwrap();
                    prop_assert!(shard.parents.iter().all(|parent| done.contains(parent)), "{id} is read too early");
                    prop_assert!(!reading.contains(&id) && !done.contains(&id), "{id} is read twice");
                    reading.push(id);
                }
                // The stream may change before the next end is seen.
                known = if later[step % 64] { (known + 1).min(changes.len()) } else { known };
                let now = listing_of(known);
                let closed: Vec<&ShardId> = now.iter().filter(|shard| !shard.is_open()).map(|shard| &shard.id).collect();
                let ending: Vec<usize> =
                    (0..reading.len()).filter(|index| closed.contains(&&reading[*index])).collect();
                if ending.is_empty() {
                    if known == changes.len() {
                        break;
                    }
                    known += 1;
                    continue;
                }
                let id = reading.remove(ending[usize::from(ends[step % 64]) % ending.len()]);
                done.push(id.clone());
                follower.ended(&id, &now, &[]);
            }
            prop_assert_eq!(reading.len() + done.len(), whole.len());
            prop_assert!(reading.iter().all(|id| whole.iter().any(|shard| shard.id == *id && shard.is_open())));
        }
    }
}
