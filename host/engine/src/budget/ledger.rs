//! Who of those that wait for memory gets it next. Plain data and plain functions: nothing is waited for here.
//!
//! The budget is shared out twice. Among consumers: each has an equal share of it, and of this share so much is kept for
//! it as its shards need for a page each; what is not kept is lent to whoever asks. Among the shards of a consumer:
//! whoever holds least is next. Nothing is taken back from who has it, so what bounds a slow consumer is what it is given:
//!
//! - Next is the shard that holds least of the consumer that holds least, and of equals the one that has waited longest.
//!   So nobody gets more than others hold that wait.
//! - It gets what it asks for if that is free, and if what is kept for other consumers stays free. A consumer that holds
//!   nothing needs not leave that free: where shares are smaller than a page, each gets a page in its turn.
//! - While it waits, others get only what is kept for them. Where it holds nothing and what it asks for is more than its
//!   share, what is kept for others would not leave that free: what the budget has beside it is shared out among them
//!   then, for as long as it waits.
//!
//! Whoever holds memory needs no more of it to finish. Therefore everybody who waits is served as long as those who hold
//! finish: the consumer that holds least is not passed but by who takes what is kept for him, and all that is kept for
//! others leaves its share free, or what it asks for if that is more. One that waits for more than its share while it
//! holds something holds nothing at last, for it gets nothing meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A shard of a consumer, for as long as it is read or something of it is held.
pub(super) type ShardKey = u64;

/// What is held for one page of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Its own bytes.
    pub(super) page: u64,
    /// Keys and payloads of its records: a batch of them is a copy of these, and the guest has another one.
    pub(super) content: u64,
}

/// The budget, who has what of it, and who waits.
#[derive(Debug)]
pub(super) struct Ledger {
    total: u64,
    free: u64,
    consumers: BTreeMap<Arc<str>, Consumer>,
    shards: BTreeMap<ShardKey, Shard>,
    next_shard: ShardKey,
    next_ticket: u64,
}

#[derive(Debug, Default)]
struct Consumer {
    shards: usize,
    held: u64,
    /// What its shards that are read need for a page each.
    needs: u64,
    /// By what they hold, and then by how long they have waited.
    waiting: BTreeSet<(u64, u64, ShardKey)>,
}

#[derive(Debug)]
struct Shard {
    consumer: Arc<str>,
    /// The most that a batch of it and the guest's copy take.
    most_copies: u64,
    pages: usize,
    page_bytes: u64,
    content: u64,
    /// What the next page needs, while the shard is read.
    need: Option<u64>,
    asks: Option<Ask>,
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    page: u64,
    ticket: u64,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new(total: u64) -> Self {
        Self { total, free: total, consumers: BTreeMap::new(), shards: BTreeMap::new(), next_shard: 0, next_ticket: 0 }
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// What a consumer holds, and how many of its shards wait.
    pub(super) fn of(&self, consumer: &str) -> (u64, usize) {
        self.consumers.get(consumer).map_or((0, 0), |consumer| (consumer.held, consumer.waiting.len()))
    }

    pub(super) fn anybody_waits(&self) -> bool {
        self.consumers.values().any(|consumer| !consumer.waiting.is_empty())
    }

    /// A shard that is going to be read, with pages of so many bytes at first. A batch of it and the guest's copy take
    /// at most `most_copies`, of which half the budget counts.
    pub(super) fn open(&mut self, consumer: &Arc<str>, most_copies: u64, page: u64) -> ShardKey {
        let key = self.next_shard;
        self.next_shard += 1;
        let mut shard = Shard {
            consumer: Arc::clone(consumer),
            most_copies: most_copies.min(self.total / 2),
            pages: 0,
            page_bytes: 0,
            content: 0,
            need: None,
            asks: None,
        };
        let need = shard.cost_of(self.page_within(&shard, page));
        shard.need = Some(need);
        let consumer = self.consumers.entry(Arc::clone(consumer)).or_default();
        consumer.shards += 1;
        consumer.needs += need;
        self.shards.insert(key, shard);
        key
    }

    /// The most that is counted for batches of a shard and the guest's copies.
    pub(super) fn most_copies(&self, key: ShardKey) -> u64 {
        self.shards.get(&key).map_or(0, |shard| shard.most_copies)
    }

    /// The shard is not read any more. What it holds it holds until that is given back.
    pub(super) fn close(&mut self, key: ShardKey) {
        self.withdraw(key);
        self.set_need(key, None);
        self.forget(key);
    }

    /// The shard waits for a page of so many bytes; for one page at a time.
    pub(super) fn ask(&mut self, key: ShardKey, page: u64) {
        self.withdraw(key);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let Some(shard) = self.shards.get(&key) else { return };
        let page = self.page_within(shard, page);
        let empty = Shard { pages: 0, page_bytes: 0, content: 0, consumer: Arc::clone(&shard.consumer), ..*shard };
        self.set_need(key, Some(empty.cost_of(page)));
        self.change(key, |shard| shard.asks = Some(Ask { page, ticket }));
    }

    /// Whether the shard still waits; it does not any more after this.
    pub(super) fn withdraw(&mut self, key: ShardKey) -> bool {
        let waits = self.shards.get(&key).is_some_and(|shard| shard.asks.is_some());
        if waits {
            self.change(key, |shard| shard.asks = None);
        }
        waits
    }

    /// Gives the next one what it asks for, if there is anybody who can be given something: who that is.
    pub(super) fn serve(&mut self) -> Option<(ShardKey, Held)> {
        let key = self.next()?;
        let page = self.shards.get(&key)?.asks?.page;
        let held = Held { page, content: page };
        self.change(key, |shard| {
            shard.asks = None;
            shard.add(held);
        });
        Some((key, held))
    }

    /// Something else is held for a page from now on. Of what is more, as much is taken as is free: what is held then.
    pub(super) fn resize(&mut self, key: ShardKey, from: Held, to: Held) -> Held {
        let Some(shard) = self.shards.get(&key) else { return from };
        let (pages, content) = (shard.page_bytes - from.page + to.page, shard.content - from.content + to.content);
        let held = pages + copies(content, shard.most_copies);
        let missing = held.saturating_sub(shard.held() + self.free);
        let content = if missing > to.page { to.content.min(from.content) } else { to.content };
        let to = Held { page: to.page.saturating_sub(missing), content };
        self.change(key, |shard| {
            shard.remove(from);
            shard.add(to);
        });
        to
    }

    /// A page's memory is free again.
    pub(super) fn release(&mut self, key: ShardKey, held: Held) {
        self.change(key, |shard| shard.remove(held));
        self.forget(key);
    }

    fn next(&self) -> Option<ShardKey> {
        let share = self.share();
        let waiting = self.consumers.values().filter_map(|consumer| Some((consumer, *consumer.waiting.first()?)));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|(consumer, (_held, ticket, _key))| (consumer.held, *ticket));
        let beside = waiting.first().map_or(u64::MAX, |(consumer, (_, _, key))| self.beside(consumer, *key));
        waiting.into_iter().enumerate().find_map(|(place, (consumer, (_held, _ticket, key)))| {
            let shard = self.shards.get(&key)?;
            let cost = shard.cost_of(shard.asks?.page);
            let after = self.free.checked_sub(cost)?;
            let may = if place == 0 {
                consumer.held == 0 || after >= self.kept_but_for(&shard.consumer)
            } else {
                consumer.held + cost <= consumer.kept(share).min(beside)
            };
            may.then_some(key)
        })
    }

    /// An equal part of the budget.
    fn share(&self) -> u64 {
        self.total / (self.consumers.len() as u64).max(1)
    }

    /// What each of the others may hold while this shard of a consumer waits, and is next.
    fn beside(&self, consumer: &Consumer, key: ShardKey) -> u64 {
        let cost = self.shards.get(&key).and_then(|shard| Some(shard.cost_of(shard.asks?.page))).unwrap_or(0);
        if consumer.held > 0 || cost <= self.share() {
            return u64::MAX;
        }
        let others = (self.consumers.len() as u64).saturating_sub(1).max(1);
        self.total.saturating_sub(cost) / others
    }

    /// What has to stay free for the others.
    fn kept_but_for(&self, name: &str) -> u64 {
        let share = self.share();
        let others = self.consumers.iter().filter(|(other, _)| &***other != name);
        others.map(|(_, consumer)| consumer.kept(share).saturating_sub(consumer.held)).sum()
    }

    /// What is asked for a page: no more than the budget has beside the copies.
    fn page_within(&self, shard: &Shard, page: u64) -> u64 {
        page.clamp(1, (self.total - shard.most_copies).max(1))
    }

    fn set_need(&mut self, key: ShardKey, need: Option<u64>) {
        let Some(shard) = self.shards.get_mut(&key) else { return };
        let before = std::mem::replace(&mut shard.need, need);
        if let Some(consumer) = self.consumers.get_mut(&shard.consumer) {
            consumer.needs = consumer.needs - before.unwrap_or(0) + need.unwrap_or(0);
        }
    }

    /// Changes a shard and everything that is summed up of it.
    fn change(&mut self, key: ShardKey, change: impl FnOnce(&mut Shard)) {
        let Some(shard) = self.shards.get_mut(&key) else { return };
        let Some(consumer) = self.consumers.get_mut(&shard.consumer) else { return };
        if let Some(ask) = shard.asks {
            consumer.waiting.remove(&(shard.held(), ask.ticket, key));
        }
        let before = shard.held();
        change(shard);
        let after = shard.held();
        consumer.held = consumer.held - before + after;
        self.free = self.free + before - after;
        if let Some(ask) = shard.asks {
            consumer.waiting.insert((after, ask.ticket, key));
        }
    }

    /// Drops a shard that is not read and holds nothing.
    fn forget(&mut self, key: ShardKey) {
        let Some(shard) = self.shards.get(&key).filter(|shard| shard.need.is_none() && shard.pages == 0) else {
            return;
        };
        let name = Arc::clone(&shard.consumer);
        self.shards.remove(&key);
        if let Some(consumer) = self.consumers.get_mut(&name) {
            consumer.shards -= 1;
            if consumer.shards == 0 {
                self.consumers.remove(&name);
            }
        }
    }
}

// === impl Consumer ===

impl Consumer {
    /// What of its share is kept for it.
    fn kept(&self, share: u64) -> u64 {
        self.needs.min(share)
    }
}

// === impl Shard ===

impl Shard {
    fn held(&self) -> u64 {
        self.page_bytes + copies(self.content, self.most_copies)
    }

    /// What a page more would take.
    fn cost_of(&self, page: u64) -> u64 {
        self.page_bytes + page + copies(self.content + page, self.most_copies) - self.held()
    }

    fn add(&mut self, held: Held) {
        self.pages += 1;
        self.page_bytes += held.page;
        self.content += held.content;
    }

    fn remove(&mut self, held: Held) {
        self.pages -= 1;
        self.page_bytes -= held.page;
        self.content -= held.content;
    }
}

/// What a batch takes of pages with so much in them: itself, and the guest's copy. One batch of a shard is out at a time.
fn copies(content: u64, most: u64) -> u64 {
    content.saturating_mul(2).min(most)
}

#[cfg(test)]
mod tests;
