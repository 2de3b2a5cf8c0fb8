use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn ledger(total: u64) -> Ledger {
    Ledger::new(total * MIB)
}

fn name(consumer: &str) -> Arc<str> {
    consumer.into()
}

/// A shard without copies whose pages take so many MiB.
fn shard(ledger: &mut Ledger, consumer: &str, page: u64) -> ShardKey {
    ledger.open(&name(consumer), 0, page * MIB)
}

fn serve_all(ledger: &mut Ledger) -> Vec<(ShardKey, Held)> {
    std::iter::from_fn(|| ledger.serve()).collect()
}

fn served(ledger: &mut Ledger) -> Vec<ShardKey> {
    serve_all(ledger).into_iter().map(|(key, _)| key).collect()
}

fn of(bytes: u64) -> Held {
    Held { page: bytes, content: bytes }
}

#[test]
fn one_consumer_gets_everything_in_turns_of_its_shards() {
    let mut ledger = ledger(64);
    let shards: Vec<_> = (0..6).map(|_| shard(&mut ledger, "p", 16)).collect();
    for key in &shards {
        ledger.ask(*key, 16 * MIB);
    }
    assert_eq!(served(&mut ledger), shards[..4]);
    // Those that hold a page already come after those that hold none, whoever has asked first.
    ledger.ask(shards[0], 16 * MIB);
    ledger.release(shards[1], of(16 * MIB));
    ledger.ask(shards[1], 16 * MIB);
    assert_eq!(served(&mut ledger), [shards[4]]);
    ledger.release(shards[2], of(16 * MIB));
    assert_eq!(served(&mut ledger), [shards[5]]);
    ledger.release(shards[3], of(16 * MIB));
    assert_eq!(served(&mut ledger), [shards[1]]);
}

#[test]
fn what_its_shards_need_stays_free_for_a_consumer_that_has_nothing_at_the_moment() {
    let mut ledger = ledger(64);
    let fast = shard(&mut ledger, "fast", 16);
    let slow: Vec<_> = (0..6).map(|_| shard(&mut ledger, "slow", 16)).collect();
    for key in &slow {
        ledger.ask(*key, 16 * MIB);
    }
    // Its own share, and what is lent of the other one.
    assert_eq!(served(&mut ledger), slow[..3]);
    for _ in 0..100 {
        ledger.ask(fast, 16 * MIB);
        assert_eq!(served(&mut ledger), [fast]);
        ledger.release(fast, of(16 * MIB));
        assert!(served(&mut ledger).is_empty());
    }
    // Its pages are small now: less is kept.
    ledger.ask(fast, MIB);
    assert_eq!(served(&mut ledger), [fast]);
    ledger.release(slow[0], of(16 * MIB));
    assert_eq!(served(&mut ledger), [slow[3]]);
    // It is not read any more: nothing is.
    ledger.release(fast, of(MIB));
    assert!(served(&mut ledger).is_empty());
    ledger.close(fast);
    assert_eq!(served(&mut ledger), [slow[4]]);
}

#[test]
fn where_shares_are_smaller_than_a_page_everybody_gets_a_page_in_turn() {
    let mut ledger = ledger(32);
    let shards: Vec<_> = (0..10).map(|number| shard(&mut ledger, &number.to_string(), 16)).collect();
    let mut held = Vec::new();
    for _ in 0..3 {
        for key in &shards {
            ledger.ask(*key, 16 * MIB);
        }
        for _ in 0..5 {
            held.extend(served(&mut ledger));
            assert_eq!(held.len(), 2);
            for key in held.drain(..) {
                ledger.release(key, of(16 * MIB));
            }
        }
        assert!(served(&mut ledger).is_empty());
        assert!(!ledger.anybody_waits());
    }
}

#[test]
fn a_large_page_is_not_passed_by_small_ones_without_end() {
    let mut ledger = ledger(32);
    let large = shard(&mut ledger, "a", 32);
    let small: Vec<_> = (0..32).map(|_| shard(&mut ledger, "a", 1)).collect();
    for key in &small {
        ledger.ask(*key, MIB);
    }
    assert_eq!(served(&mut ledger).len(), 32);
    ledger.ask(large, 32 * MIB);
    for key in &small {
        ledger.release(*key, of(MIB));
        let next = served(&mut ledger);
        assert!(next == if *key == small[31] { vec![large] } else { vec![] });
        ledger.ask(*key, MIB);
    }
}

#[test]
fn a_page_that_costs_more_than_its_processors_share_is_not_passed_by_another_processor_without_end() {
    let mut ledger = ledger(32);
    let large = shard(&mut ledger, "large", 24);
    let small: Vec<_> = (0..10).map(|_| shard(&mut ledger, "small", 4)).collect();
    let mut held = std::collections::VecDeque::new();
    let ask = |ledger: &mut Ledger, held: &mut std::collections::VecDeque<ShardKey>| {
        for key in &small {
            if ledger.shards[key].asks.is_none() && ledger.shards[key].pages < 2 {
                ledger.ask(*key, 4 * MIB);
            }
        }
        held.extend(served(ledger));
    };
    ask(&mut ledger, &mut held);
    assert!(!held.is_empty());
    for round in 0..10 {
        ledger.ask(large, 24 * MIB);
        let mut releases = 0;
        while !held.contains(&large) {
            let oldest = held.pop_front().expect("somebody holds memory while the large page waits");
            ledger.release(oldest, of(4 * MIB));
            ask(&mut ledger, &mut held);
            // Those that hold something when it asks, and the few that are still let in beside it.
            releases += 1;
            assert!(releases <= 8, "round {round}");
            assert!(held.iter().filter(|key| **key != large).count() >= 2, "what is beside it is used");
        }
        held.retain(|key| *key != large);
        ledger.release(large, of(24 * MIB));
        ask(&mut ledger, &mut held);
    }
}

#[test]
fn a_batch_and_its_copy_count_once_for_all_pages_of_a_shard() {
    let mut ledger = ledger(64);
    let key = ledger.open(&name("p"), 8 * MIB, 16 * MIB);
    ledger.ask(key, 16 * MIB);
    let [(_, first)] = serve_all(&mut ledger)[..] else { panic!("one") };
    assert_eq!(ledger.free(), (64 - 16 - 8) * MIB);
    ledger.ask(key, 16 * MIB);
    let [(_, second)] = serve_all(&mut ledger)[..] else { panic!("one") };
    assert_eq!(ledger.free(), (64 - 32 - 8) * MIB);
    // Pages with little in them make small batches.
    let first = ledger.resize(key, first, Held { page: MIB, content: MIB / 2 });
    let second = ledger.resize(key, second, Held { page: MIB, content: MIB / 2 });
    assert_eq!(ledger.free(), (64 - 2 - 2) * MIB);
    ledger.release(key, first);
    assert_eq!(ledger.free(), (64 - 1 - 1) * MIB);
    ledger.close(key);
    ledger.release(key, second);
    assert_eq!(ledger.free(), 64 * MIB);
    assert!(ledger.consumers.is_empty() && ledger.shards.is_empty());
}

#[test]
fn what_is_more_than_expected_is_taken_as_far_as_it_is_free() {
    let mut ledger = ledger(10);
    let key = ledger.open(&name("p"), 2 * MIB, MIB);
    ledger.ask(key, MIB);
    let [(_, held)] = serve_all(&mut ledger)[..] else { panic!("one") };
    assert_eq!(ledger.free(), 7 * MIB);
    let held = ledger.resize(key, held, of(5 * MIB));
    assert_eq!((held.page, ledger.free()), (5 * MIB, 3 * MIB));
    let held = ledger.resize(key, held, of(50 * MIB));
    assert_eq!((held.page, ledger.free()), (8 * MIB, 0));
    ledger.release(key, held);
    assert_eq!(ledger.free(), 10 * MIB);
}

/// Something that happens to the ledger; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Event {
    Open { consumer: usize, copies: u64, page: u64 },
    Ask { shard: usize, page: u64 },
    Withdraw { shard: usize },
    Resize { page: usize, to: u64, content: u64 },
    Release { page: usize },
    Close { shard: usize },
}

fn event() -> impl Strategy<Value = Event> {
    let bytes = || prop_oneof![0..200u64, 0..20u64];
    prop_oneof![
        1 => (0..4usize, 0..60u64, bytes()).prop_map(|(consumer, copies, page)| Event::Open { consumer, copies, page }),
        6 => (any::<usize>(), bytes()).prop_map(|(shard, page)| Event::Ask { shard, page }),
        1 => any::<usize>().prop_map(|shard| Event::Withdraw { shard }),
        4 => (any::<usize>(), bytes(), bytes()).prop_map(|(page, to, content)| Event::Resize { page, to, content }),
        4 => any::<usize>().prop_map(|page| Event::Release { page }),
        1 => any::<usize>().prop_map(|shard| Event::Close { shard }),
    ]
}

/// The ledger, and what the test knows of it.
struct World {
    ledger: Ledger,
    open: Vec<ShardKey>,
    pages: Vec<(ShardKey, Held)>,
    waiting: Vec<ShardKey>,
}

impl World {
    fn new(total: u64) -> Self {
        Self { ledger: Ledger::new(total), open: Vec::new(), pages: Vec::new(), waiting: Vec::new() }
    }

    fn happens(&mut self, event: &Event) {
        let shard = |shard: usize| self.open.get(shard % self.open.len().max(1)).copied();
        let page = |page: usize| page.checked_rem(self.pages.len());
        match *event {
            Event::Open { consumer, copies, page } => {
                let key = self.ledger.open(&name(&consumer.to_string()), copies, page);
                self.open.push(key);
            }
            Event::Ask { shard: number, page } => {
                if let Some(key) = shard(number).filter(|key| !self.waiting.contains(key)) {
                    self.ledger.ask(key, page);
                    self.waiting.push(key);
                }
            }
            Event::Withdraw { shard: number } => {
                if let Some(key) = shard(number) {
                    assert_eq!(self.ledger.withdraw(key), self.waiting.contains(&key));
                    self.waiting.retain(|waiting| *waiting != key);
                }
            }
            Event::Resize { page: number, to, content } => {
                if let Some(number) = page(number) {
                    let (key, from) = self.pages[number];
                    let held = self.ledger.resize(key, from, Held { page: to, content });
                    assert!(held.page <= to && held.content <= content.max(from.content));
                    self.pages[number].1 = held;
                }
            }
            Event::Release { page: number } => {
                if let Some(number) = page(number) {
                    let (key, held) = self.pages.swap_remove(number);
                    self.ledger.release(key, held);
                }
            }
            Event::Close { shard: number } => {
                if let Some(key) = shard(number) {
                    self.ledger.close(key);
                    self.open.retain(|open| *open != key);
                    self.waiting.retain(|waiting| *waiting != key);
                }
            }
        }
        self.agrees();
        self.serve();
    }

    /// Serves everybody who can be; each time to somebody to whom it is due.
    fn serve(&mut self) {
        loop {
            let share = self.ledger.share();
            let before: Vec<(Arc<str>, u64, u64, bool)> = self
                .ledger
                .consumers
                .iter()
                .map(|(name, consumer)| {
                    (Arc::clone(name), consumer.held, consumer.kept(share), !consumer.waiting.is_empty())
                })
                .collect();
            let Some((key, held)) = self.ledger.serve() else { break };
            let owner = Arc::clone(&self.ledger.shards[&key].consumer);
            let (_, had, kept, _) = before.iter().find(|(name, ..)| *name == owner).unwrap();
            let has = self.ledger.consumers[&owner].held;
            for (other, held, kept_for_other, waits) in before.iter().filter(|(name, ..)| *name != owner) {
                // Nobody is given more, while another waits that has less, than what is kept for it.
                assert!(!waits || held >= had || has <= *kept, "{owner} has {has} while {other} waits with {held}");
                // Nor, if it has something already, what is kept for others.
                let left = self.ledger.free + held;
                assert!(*had == 0 || has <= *kept || left >= *kept_for_other, "{owner} took what is kept for {other}");
            }
            assert!(self.waiting.contains(&key));
            self.waiting.retain(|waiting| *waiting != key);
            self.pages.push((key, held));
            self.agrees();
        }
        // Whoever holds nothing and needs no more than its share waits only for those that hold more than theirs, or for one
        // before it that needs more.
        let share = self.ledger.share();
        let cost = |key: &ShardKey| self.ledger.shards[key].cost_of(self.ledger.shards[key].asks.unwrap().page);
        let next = self.ledger.consumers.values().filter_map(|consumer| Some((consumer, consumer.waiting.first()?)));
        let next = next.min_by_key(|(consumer, (_, ticket, _))| (consumer.held, *ticket));
        if next.is_some_and(|(consumer, (_, _, key))| consumer.held == 0 && cost(key) > share) {
            return;
        }
        let lent = self.ledger.consumers.values().any(|consumer| consumer.held > consumer.kept(share));
        for consumer in self.ledger.consumers.values().filter(|consumer| consumer.held == 0) {
            let first = consumer.waiting.first().map(|(_, _, key)| cost(key));
            assert!(first.is_none_or(|cost| lent || cost > share), "a share is free for one that waits for it");
        }
    }

    /// All that is summed up is the sum.
    fn agrees(&self) {
        let Ledger { total, free, consumers, shards, .. } = &self.ledger;
        assert_eq!(free + shards.values().map(Shard::held).sum::<u64>(), *total, "what is not free is held");
        for (name, consumer) in consumers {
            let of = |shard: &Shard| shard.consumer == *name;
            assert_eq!(shards.values().filter(|shard| of(shard)).map(Shard::held).sum::<u64>(), consumer.held);
            let needs: u64 = shards.values().filter(|shard| of(shard)).filter_map(|shard| shard.need).sum();
            assert_eq!(needs, consumer.needs);
            assert_eq!(shards.values().filter(|shard| of(shard)).count(), consumer.shards);
        }
        for (key, shard) in shards {
            let pages = || self.pages.iter().filter(|(of, _)| of == key).map(|(_, held)| held);
            let sums = (pages().count(), pages().map(|held| held.page).sum(), pages().map(|held| held.content).sum());
            assert_eq!((shard.pages, shard.page_bytes, shard.content), sums);
            let waits = consumers[&shard.consumer].waiting.iter().any(|(_, _, waiting)| waiting == key);
            assert_eq!((waits, shard.asks.is_some()), (self.waiting.contains(key), waits));
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_and_everybody_is_served_whatever_happens(
        total in 1..400u64,
        events in prop::collection::vec(event(), 0..120),
    ) {
        let mut world = World::new(total);
        for event in &events {
            world.happens(event);
        }
        // Those who hold finish, the oldest last; nobody who waits is left when nobody holds.
        while let Some((key, held)) = world.pages.pop() {
            world.ledger.release(key, held);
            world.agrees();
            world.serve();
        }
        prop_assert_eq!(&world.waiting, &[] as &[ShardKey]);
        for key in std::mem::take(&mut world.open) {
            world.ledger.close(key);
        }
        prop_assert_eq!(world.ledger.free(), total);
        prop_assert!(world.ledger.consumers.is_empty() && world.ledger.shards.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Everybody asks again and again, for as much as it may, also for more than its consumer's share; memory is given back
    /// in the order in which it was taken.
    #[test]
    fn everybody_is_served_after_a_bounded_number_of_releases(
        total in 20..400u64,
        shards in prop::collection::vec((0..4usize, 0..60u64, prop_oneof![1..20u64, 1..400u64], 1..4usize), 1..14),
    ) {
        let mut ledger = Ledger::new(total);
        let shards: Vec<_> = shards
            .into_iter()
            .map(|(consumer, copies, page, pages)| (ledger.open(&name(&consumer.to_string()), copies, page), page, pages))
            .collect();
        let most: usize = shards.iter().map(|(_, _, pages)| *pages).sum();
        // For each that is before it, all that is held is given back, and so is what it gets.
        let bound = 2 * (most + 1) * (shards.len() + 1);
        let mut held = std::collections::VecDeque::new();
        let mut waits: BTreeMap<ShardKey, usize> = BTreeMap::new();
        for release in 0..2 * bound {
            for (key, page, pages) in &shards {
                if ledger.shards[key].asks.is_none() && ledger.shards[key].pages < *pages {
                    ledger.ask(*key, *page);
                    waits.insert(*key, release);
                }
            }
            for (key, page) in serve_all(&mut ledger) {
                waits.remove(&key);
                held.push_back((key, page));
            }
            for (key, since) in &waits {
                prop_assert!(release - since <= bound, "shard {key} has waited for {} releases", release - since);
            }
            let Some((key, page)) = held.pop_front() else { panic!("nobody holds anything, and nobody is served") };
            ledger.release(key, page);
        }
    }
}
