use std::collections::BTreeSet;

use proptest::prelude::*;
use shardmill_record::{HashKey, SequenceNumber};

use super::*;

fn id(number: usize) -> ShardId {
    ShardId::parse(&format!("shardId-{number:012}")).unwrap()
}

fn sequence(number: u64) -> SequenceNumber {
    SequenceNumber::parse(&number.to_string()).unwrap()
}

fn shard(number: usize, parents: &[usize], range: (u128, u128), open: bool) -> Shard {
    Shard {
        id: id(number),
        parents: parents.iter().copied().map(id).collect(),
        range: HashKeyRange { start: HashKey::new(range.0), end: HashKey::new(range.1) },
        starting_sequence: sequence(number as u64),
        ending_sequence: (!open).then(|| sequence(number as u64 + 1_000)),
    }
}

fn closed(number: usize, parents: &[usize]) -> Shard {
    shard(number, parents, (0, 9), false)
}

fn open(number: usize, parents: &[usize]) -> Shard {
    shard(number, parents, (0, 9), true)
}

fn leased(states: &[(usize, LeaseState)]) -> BTreeMap<ShardId, LeaseState> {
    states.iter().map(|(number, state)| (id(*number), *state)).collect()
}

const UNREAD: LeaseState =
    LeaseState { complete: false, checkpointed: false, waits_at_beginning: true, start_at: None };
const BEGUN: LeaseState = LeaseState { complete: false, checkpointed: true, waits_at_beginning: false, start_at: None };
const DONE: LeaseState = LeaseState { complete: true, checkpointed: true, waits_at_beginning: false, start_at: None };

fn starts(missing: &[MissingLease]) -> Vec<(ShardId, Checkpoint, Option<u64>)> {
    missing.iter().map(|lease| (lease.shard.clone(), lease.checkpoint.clone(), lease.start_at)).collect()
}

#[test]
fn a_first_start_at_latest_takes_open_shards_with_the_present_time() {
    let listing = [closed(0, &[]), open(1, &[0]), open(2, &[0])];
    let missing = missing_leases(&listing, &BTreeMap::new(), StartPosition::Latest, 77);
    let expected = [1, 2].map(|number| (id(number), Checkpoint::Latest, Some(77)));
    assert_eq!(starts(&missing), expected);
}

#[test]
fn another_first_start_takes_every_listed_shard_parents_first() {
    let listing = [open(3, &[1, 2]), closed(1, &[0]), closed(2, &[0])];
    let missing = missing_leases(&listing, &BTreeMap::new(), StartPosition::TrimHorizon, 77);
    let expected = [1, 2, 3].map(|number| (id(number), Checkpoint::TrimHorizon, None));
    assert_eq!(starts(&missing), expected);
    let missing = missing_leases(&listing, &BTreeMap::new(), StartPosition::AtTimestamp(5), 77);
    let expected = [1, 2, 3].map(|number| (id(number), Checkpoint::AtTimestamp, Some(5)));
    assert_eq!(starts(&missing), expected);
}

#[test]
fn a_child_is_read_from_its_beginning_unless_its_timestamp_counts() {
    let listing = [closed(0, &[]), open(1, &[0])];
    let start = |parent, configured| starts(&missing_leases(&listing, &leased(&[(0, parent)]), configured, 77));
    let trim_horizon = [(id(1), Checkpoint::TrimHorizon, None)];
    let timestamp = |at| [(id(1), Checkpoint::AtTimestamp, Some(at))];
    for parent in [UNREAD, BEGUN, DONE] {
        assert_eq!(start(parent, StartPosition::Latest), trim_horizon);
        assert_eq!(start(parent, StartPosition::TrimHorizon), trim_horizon);
        assert_eq!(start(parent, StartPosition::AtTimestamp(99)), timestamp(99), "still to come");
    }
    assert_eq!(start(UNREAD, StartPosition::AtTimestamp(5)), timestamp(5));
    assert_eq!(start(BEGUN, StartPosition::AtTimestamp(5)), trim_horizon);
    assert_eq!(start(DONE, StartPosition::AtTimestamp(5)), trim_horizon);
}

#[test]
fn what_was_cleaned_up_is_not_read_again() {
    let listing = [closed(0, &[]), closed(1, &[0]), open(2, &[1])];
    for configured in [StartPosition::TrimHorizon, StartPosition::Latest] {
        assert_eq!(missing_leases(&listing, &leased(&[(2, BEGUN)]), configured, 77), []);
        assert_eq!(missing_leases(&listing, &leased(&[(0, DONE), (2, BEGUN)]), configured, 77), []);
    }
}

#[test]
fn a_parent_that_was_never_leased_is_not_hidden_by_the_child_that_the_other_one_left() {
    let listing = [closed(0, &[]), closed(1, &[]), open(2, &[0, 1])];
    // The first sync was cut short after 0, which came to its end at once.
    let missing = missing_leases(&listing, &leased(&[(0, DONE), (2, UNREAD)]), StartPosition::TrimHorizon, 77);
    assert_eq!(starts(&missing), [(id(1), Checkpoint::TrimHorizon, None)]);
}

#[test]
fn after_a_long_absence_nothing_that_is_listed_is_skipped() {
    // Shard 0 was being read; 0 and its child 1 have since expired.
    let listing = [closed(2, &[1]), open(3, &[2])];
    let stored = LeaseState { start_at: Some(40), ..BEGUN };
    let missing = missing_leases(&listing, &leased(&[(0, stored)]), StartPosition::Latest, 77);
    assert_eq!(starts(&missing), [2, 3].map(|number| (id(number), Checkpoint::Latest, Some(40))));
    // A table that the KCL made remembers no time.
    let missing = missing_leases(&listing, &leased(&[(0, BEGUN)]), StartPosition::Latest, 77);
    assert_eq!(starts(&missing), [2, 3].map(|number| (id(number), Checkpoint::TrimHorizon, None)));
}

#[test]
fn a_merged_shard_waits_for_both_parents_and_never_for_one_that_is_gone() {
    let listing = [closed(0, &[]), closed(1, &[]), open(2, &[0, 1])];
    let parents = [id(0), id(1)];
    assert!(!is_ready(&parents, &leased(&[(0, DONE), (1, BEGUN)]), &listing));
    assert!(is_ready(&parents, &leased(&[(0, DONE), (1, DONE)]), &listing));
    assert!(is_ready(&parents, &leased(&[(0, DONE)]), &listing), "its lease was cleaned up, or never needed");
    assert!(is_ready(&parents, &leased(&[(0, DONE), (1, BEGUN)]), &listing[2..]), "it expired unread");
    let children = children_of(&id(1), &listing);
    assert_eq!(children, [&listing[2]]);
}

#[test]
fn shards_in_a_circle_are_not_forgotten() {
    let listing = [open(0, &[1]), open(1, &[0]), open(2, &[2])];
    assert_eq!(missing_leases(&listing, &BTreeMap::new(), StartPosition::TrimHorizon, 1).len(), 3);
}

/// A stream that is resharded, and one consumer of it that stops and starts at any point.
#[derive(Debug)]
struct World {
    now: u64,
    listing: Vec<Shard>,
    born: BTreeMap<ShardId, u64>,
    leases: BTreeMap<ShardId, LeaseState>,
    /// Every lease that was ever created, with its start in time (0: from the beginning).
    created: BTreeMap<ShardId, u64>,
    /// In the order in which they were finished.
    finished: Vec<ShardId>,
    expired: BTreeSet<ShardId>,
    configured: StartPosition,
    first_start: Option<u64>,
    /// Whether the first creation of leases was cut short.
    cut_short: bool,
    /// All that were listed at the first start and open, or born after it.
    due: BTreeSet<ShardId>,
}

#[derive(Debug, Clone)]
enum Event {
    Split(prop::sample::Index),
    Merge(prop::sample::Index),
    /// The shard that was closed first is not kept any longer.
    Expire,
    /// The consumer compares listing and leases, and dies after so many creations.
    Sync {
        creations: usize,
    },
    /// A shard's reader stores a checkpoint.
    Checkpoint(prop::sample::Index),
    /// A closed shard that is ready is read to its end.
    Finish(prop::sample::Index),
    /// The leases of shards that are done are removed, once all their children are leased.
    CleanUp,
}

impl World {
    fn new(shards: usize, configured: StartPosition) -> Self {
        let width = u128::MAX / shards as u128;
        let mut world = World {
            now: 1,
            listing: Vec::new(),
            born: BTreeMap::new(),
            leases: BTreeMap::new(),
            created: BTreeMap::new(),
            finished: Vec::new(),
            expired: BTreeSet::new(),
            configured,
            first_start: None,
            cut_short: false,
            due: BTreeSet::new(),
        };
        for number in 0..shards {
            let end = if number + 1 == shards { u128::MAX } else { width * (number as u128 + 1) - 1 };
            world.open(&[], width * number as u128, end);
        }
        world
    }

    fn open(&mut self, parents: &[ShardId], start: u128, end: u128) {
        let number = self.born.len();
        let mut opened = shard(number, &[], (start, end), true);
        opened.parents = parents.to_vec();
        self.born.insert(opened.id.clone(), self.now);
        if self.first_start.is_some() {
            self.due.insert(opened.id.clone());
        }
        self.listing.push(opened);
    }

    fn close(&mut self, closing: &ShardId) {
        let now = self.now;
        let closing = self.listing.iter_mut().find(|shard| shard.id == *closing).unwrap();
        closing.ending_sequence = Some(sequence(now));
    }

    fn open_shards(&self) -> Vec<Shard> {
        let mut open: Vec<_> = self.listing.iter().filter(|shard| shard.is_open()).cloned().collect();
        open.sort_by_key(|shard| shard.range.start);
        open
    }

    fn apply(&mut self, event: &Event) {
        self.now += 1;
        match event {
            Event::Split(index) => {
                let open = self.open_shards();
                let parent = index.get(&open).clone();
                let (start, end) = (parent.range.start.get(), parent.range.end.get());
                if end - start > 1 {
                    let middle = start + (end - start) / 2;
                    self.close(&parent.id);
                    self.open(std::slice::from_ref(&parent.id), start, middle);
                    self.open(&[parent.id], middle + 1, end);
                }
            }
            Event::Merge(index) => {
                let open = self.open_shards();
                if open.len() > 1 {
                    let left = index.index(open.len() - 1);
                    let [left, right] = [open[left].clone(), open[left + 1].clone()];
                    self.close(&left.id);
                    self.close(&right.id);
                    self.open(&[left.id, right.id], left.range.start.get(), right.range.end.get());
                }
            }
            Event::Expire => {
                let ended = |shard: &&Shard| shard.ending_sequence.clone();
                if let Some(oldest) = self.listing.iter().filter(|shard| !shard.is_open()).min_by_key(ended) {
                    let oldest = oldest.id.clone();
                    self.listing.retain(|shard| shard.id != oldest);
                    self.expired.insert(oldest);
                }
            }
            Event::Sync { creations } => self.sync(*creations),
            Event::Checkpoint(index) => {
                let readable = self.readable(|_| true);
                if !readable.is_empty() {
                    self.leases.get_mut(index.get(&readable)).unwrap().checkpointed = true;
                }
            }
            Event::Finish(index) => {
                let readable = self.readable(|shard| !shard.is_open());
                if !readable.is_empty() {
                    self.finish(index.get(&readable));
                }
            }
            Event::CleanUp => {
                let removable: Vec<_> = self
                    .leases
                    .iter()
                    .filter(|(_, lease)| lease.complete)
                    .filter(|(id, _)| {
                        let children = children_of(id, &self.listing);
                        let has_begun = |child: &&Shard| {
                            let waits = self.leases.get(&child.id).is_some_and(|lease| lease.waits_at_beginning);
                            self.created.contains_key(&child.id) && !waits
                        };
                        !children.is_empty() && children.iter().all(has_begun)
                    })
                    .map(|(id, _)| id.clone())
                    .collect();
                for id in removable {
                    self.leases.remove(&id);
                }
            }
        }
    }

    fn sync(&mut self, creations: usize) {
        let missing = missing_leases(&self.listing, &self.leases, self.configured, self.now);
        // As long as no lease was created, the next start is the first one.
        if self.leases.is_empty() {
            self.first_start = Some(self.now);
            self.cut_short = creations < missing.len();
            let counts = |shard: &&Shard| shard.is_open() || self.configured != StartPosition::Latest;
            self.due = self.listing.iter().filter(counts).map(|shard| shard.id.clone()).collect();
        }
        for lease in missing.into_iter().take(creations) {
            let state = LeaseState::of(&lease.checkpoint, lease.start_at);
            self.leases.insert(lease.shard.clone(), state);
            let twice = self.created.insert(lease.shard.clone(), lease.start_at.unwrap_or(0));
            assert_eq!(twice, None, "{} was leased twice", lease.shard);
        }
    }

    fn readable(&self, which: impl Fn(&Shard) -> bool) -> Vec<ShardId> {
        let readable = |shard: &&Shard| {
            self.leases.get(&shard.id).is_some_and(|lease| !lease.complete)
                && which(shard)
                && is_ready(&shard.parents, &self.leases, &self.listing)
        };
        self.listing.iter().filter(readable).map(|shard| shard.id.clone()).collect()
    }

    fn finish(&mut self, finished: &ShardId) {
        let shard = self.listing.iter().find(|shard| shard.id == *finished).unwrap();
        for parent in &shard.parents {
            let never_leased = !self.created.contains_key(parent);
            let done = self.finished.contains(parent) || self.expired.contains(parent);
            assert!(done || never_leased, "{finished} was read before its parent {parent}");
        }
        let lease = self.leases.get_mut(finished).unwrap();
        (lease.complete, lease.checkpointed) = (true, true);
        self.finished.push(finished.clone());
    }

    /// Lets the consumer run undisturbed, and checks what has to hold then.
    fn settle(&mut self) {
        self.now += 1;
        self.sync(usize::MAX);
        assert_eq!(
            missing_leases(&self.listing, &self.leases, self.configured, self.now),
            [],
            "nothing is missing now"
        );

        let mut next_key = Some(0);
        for open in self.open_shards() {
            assert_eq!(Some(open.range.start.get()), next_key, "open shards leave no hole");
            next_key = open.range.end.get().checked_add(1);
            assert!(self.leases.contains_key(&open.id), "open {} has no lease", open.id);
        }
        assert_eq!(next_key, None);

        for shard in self.due.iter().filter(|shard| !self.expired.contains(*shard)) {
            assert!(self.created.contains_key(shard), "{shard} was forgotten");
        }
        for (shard, start) in &self.created {
            let first_start = self.first_start.unwrap();
            let latest_start = match self.configured {
                StartPosition::AtTimestamp(at) => at,
                StartPosition::TrimHorizon => 0,
                StartPosition::Latest => first_start.max(self.born[shard]),
            };
            assert!(*start <= latest_start, "{shard}, born at {}, starts too late: {start}", self.born[shard]);
            if self.configured == StartPosition::Latest && !self.cut_short {
                assert!(self.due.contains(shard), "{shard} was closed before the first start");
            }
        }

        loop {
            let readable = self.readable(|shard| !shard.is_open());
            let Some(next) = readable.first() else { break };
            self.finish(&next.clone());
        }
        for shard in &self.listing {
            if let Some(lease) = self.leases.get(&shard.id) {
                assert!(shard.is_open() || lease.complete, "closed {} is blocked for ever", shard.id);
                assert!(is_ready(&shard.parents, &self.leases, &self.listing), "{} is blocked for ever", shard.id);
            }
        }
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let index = any::<prop::sample::Index>;
    let event = prop_oneof![
        4 => index().prop_map(Event::Split),
        3 => index().prop_map(Event::Merge),
        2 => Just(Event::Expire),
        2 => (0..6_usize).prop_map(|creations| Event::Sync { creations }),
        2 => Just(Event::Sync { creations: usize::MAX }),
        1 => index().prop_map(Event::Checkpoint),
        4 => index().prop_map(Event::Finish),
        1 => Just(Event::CleanUp),
    ];
    prop::collection::vec(event, 0..60)
}

proptest! {
    #[test]
    fn every_shard_is_leased_once_and_read_after_its_parents(
        shards in 1..5_usize,
        start in prop_oneof![
            Just(StartPosition::TrimHorizon),
            Just(StartPosition::Latest),
            (0..90_u64).prop_map(StartPosition::AtTimestamp),
        ],
        events in events(),
    ) {
        let mut world = World::new(shards, start);
        for event in &events {
            world.apply(event);
        }
        world.settle();
    }
}
