//! Whose turn it is, where several readers of a process read one shard: Kinesis gives 5 reads and 2 MiB a second of a
//! shard to all of them together.
//!
//! Each read, and each byte that it brings, moves the time of the next read, whoever makes it. Among those who want to
//! read, it is the turn of whoever has had least (start-time fair queueing): two that are behind get half each, and one
//! alone gets everything. Pure but for the lock: time comes in as a value.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the others wait for one whose turn it is and who does not read: it may wait for memory.
const PATIENCE: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);
/// By how much requests of different readers may be closer together at the service than they were when they were made.
const SLACK: Duration = Duration::from_millis(150);

/// What one shard's readers share.
#[derive(Debug)]
struct Turns {
    /// The last second's reads, the oldest first.
    reads: VecDeque<Instant>,
    /// No read before this, because of the bytes that the last ones brought.
    bytes_free: Instant,
    members: BTreeMap<u64, Member>,
    next_member: u64,
    /// What whoever read last had had before: one who comes back begins there, and not with what it did not use.
    served: Duration,
}

/// One reader.
#[derive(Debug)]
struct Member {
    /// Reads a second, and bytes a second, that its configuration allows.
    reads_per_second: u32,
    bytes_per_second: u64,
    /// Whether it waits for its turn.
    wants: bool,
    /// What it has had, in the time that the service needs to give as much.
    had: Duration,
}

/// A stream's ARN and a shard of it.
type Shard = (String, String);

/// The turns of every shard that is read in this process. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct ReadLimits {
    shards: Arc<Mutex<Shards>>,
}

#[derive(Debug, Default)]
struct Shards {
    read: BTreeMap<Shard, Arc<Mutex<Turns>>>,
    /// Those without a reader. One that comes next must not read what the last one has had already: they are kept until
    /// a shard gets a reader when the service has forgotten what they hold.
    left: BTreeMap<Shard, Arc<Mutex<Turns>>>,
}

/// One reader's place among those of its shard; it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    limits: ReadLimits,
    shard: Shard,
    turns: Arc<Mutex<Turns>>,
    id: u64,
}

// === impl Turns ===

impl Turns {
    fn new(now: Instant) -> Self {
        Self {
            reads: VecDeque::new(),
            bytes_free: now,
            members: BTreeMap::new(),
            next_member: 0,
            served: Duration::ZERO,
        }
    }

    fn join(&mut self, reads_per_second: u32, bytes_per_second: u64) -> u64 {
        let id = self.next_member;
        self.next_member += 1;
        let had = self.served;
        self.members.insert(id, Member { reads_per_second, bytes_per_second, wants: false, had });
        id
    }

    /// Reads a second: the largest of what the readers may. They are mostly configured together.
    fn rate(&self) -> u32 {
        self.members.values().map(|member| member.reads_per_second).max().unwrap_or(1).max(1)
    }

    /// The time that the service gives for a read.
    fn interval(&self) -> Duration {
        SECOND / self.rate()
    }

    fn time_for(&self, bytes: u64) -> Duration {
        let rate = self.members.values().map(|member| member.bytes_per_second).max().unwrap_or(1);
        Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
    }

    /// When the next read may be made.
    fn free(&self) -> Instant {
        // Any second holds so many reads; those of one reader keep a distance by themselves.
        let window = if self.members.len() > 1 { SECOND + SLACK } else { SECOND };
        let oldest = self.reads.len().checked_sub(self.rate() as usize).and_then(|index| self.reads.get(index));
        oldest.map_or(self.bytes_free, |oldest| self.bytes_free.max(*oldest + window))
    }

    /// Whether no read of the past counts any more.
    fn is_over(&self, now: Instant) -> bool {
        self.bytes_free <= now && self.reads.back().is_none_or(|last| *last + SECOND + SLACK <= now)
    }

    /// `None`: this reader may read now. Else the time at which it should ask again.
    fn ask(&mut self, id: u64, now: Instant) -> Option<Instant> {
        let served = self.served;
        let member = self.members.get_mut(&id)?;
        if !member.wants {
            member.wants = true;
            member.had = member.had.max(served);
        }
        let free = self.free();
        if now < free {
            return Some(free);
        }
        let wanting = self.members.iter().filter(|(_, member)| member.wants);
        let first = wanting.min_by_key(|(id, member)| (member.had, **id)).map(|(id, _)| *id);
        let is_late = now >= free + PATIENCE;
        if first == Some(id) || is_late { None } else { Some(free + PATIENCE) }
    }

    /// Takes the turn, if it is this reader's. A read counts as made from here on.
    fn take(&mut self, id: u64, now: Instant) -> bool {
        if self.ask(id, now).is_some() {
            return false;
        }
        let interval = self.interval();
        let had = self.members.get(&id).map_or(self.served, |member| member.had);
        self.served = self.served.max(had);
        for (other, member) in &mut self.members {
            if *other == id {
                member.wants = false;
                member.had += interval;
            } else if (member.had, *other) < (had, id) {
                // Was to come first, and did not: it asks again when it can read.
                member.wants = false;
            }
        }
        self.reads.push_back(now);
        while self.reads.front().is_some_and(|oldest| *oldest + SECOND + SLACK <= now) {
            self.reads.pop_front();
        }
        true
    }

    /// What a read brought.
    fn spent(&mut self, id: u64, bytes: u64, now: Instant) {
        let (time, interval) = (self.time_for(bytes), self.interval());
        self.bytes_free = self.bytes_free.max(now) + time;
        if let Some(member) = self.members.get_mut(&id) {
            // The read itself was counted when it was made.
            member.had += time.saturating_sub(interval);
        }
    }
}

// === impl ReadLimits ===

impl ReadLimits {
    /// A place for a reader of this shard.
    pub(super) fn join(
        &self,
        stream_arn: &str,
        shard: &str,
        reads_per_second: u32,
        bytes_per_second: u64,
        now: Instant,
    ) -> Place {
        let shard = (stream_arn.to_owned(), shard.to_owned());
        let mut shards = lock(&self.shards);
        let before = shards.left.remove(&shard);
        shards.left.retain(|_, turns| !lock(turns).is_over(now));
        let new = || before.unwrap_or_else(|| Arc::new(Mutex::new(Turns::new(now))));
        let turns = Arc::clone(shards.read.entry(shard.clone()).or_insert_with(new));
        let id = lock(&turns).join(reads_per_second, bytes_per_second);
        Place { limits: self.clone(), shard, turns, id }
    }
}

// === impl Place ===

impl Place {
    /// `None`: the shard may be read now. Else the time at which to ask again.
    pub(super) fn ask(&self, now: Instant) -> Option<Instant> {
        lock(&self.turns).ask(self.id, now)
    }

    /// Whether the shard may be read now; counts the read if so.
    pub(super) fn take(&self, now: Instant) -> bool {
        lock(&self.turns).take(self.id, now)
    }

    /// What the read brought.
    pub(super) fn spent(&self, bytes: u64, now: Instant) {
        lock(&self.turns).spent(self.id, bytes, now);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shards = lock(&self.limits.shards);
        let mut turns = lock(&self.turns);
        turns.members.remove(&self.id);
        if turns.members.is_empty()
            && let Some((shard, turns)) = shards.read.remove_entry(&self.shard)
        {
            shards.left.insert(shard, turns);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain values: a panic elsewhere cannot leave them half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const RATE: u64 = 2 * MIB;

    /// A reader of a simulation.
    struct Reader {
        id: u64,
        /// What a read brings.
        page: u64,
        /// How long it is busy after a read.
        busy: Duration,
        asks_at: Instant,
        bytes: u64,
        reads: Vec<Instant>,
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Lets readers of one shard read for so long, and gives what each got.
    fn simulate(readers: &[(u64, Duration)], time: Duration) -> Vec<Reader> {
        let start = Instant::now();
        let mut turns = Turns::new(start);
        let mut readers: Vec<Reader> = readers
            .iter()
            .map(|(page, busy)| {
                let id = turns.join(5, RATE);
                Reader { id, page: *page, busy: *busy, asks_at: start, bytes: 0, reads: Vec::new() }
            })
            .collect();
        loop {
            let next = readers.iter_mut().min_by_key(|reader| reader.asks_at).expect("a reader");
            let now = next.asks_at;
            if now >= start + time {
                return readers;
            }
            match turns.ask(next.id, now) {
                Some(later) => {
                    assert!(later > now, "no reader asks without end");
                    next.asks_at = later;
                }
                None => {
                    assert!(turns.take(next.id, now), "what was offered can be taken");
                    turns.spent(next.id, next.page, now);
                    next.bytes += next.page;
                    next.reads.push(now);
                    next.asks_at = now + next.busy;
                }
            }
        }
    }

    #[test]
    fn one_alone_gets_everything() {
        let seconds = 60;
        let [bytes] = &simulate(&[(MIB, Duration::ZERO)], Duration::from_secs(seconds))[..] else { panic!() };
        assert_eq!(bytes.bytes, seconds * RATE);
        let [reads] = &simulate(&[(100, Duration::ZERO)], Duration::from_secs(seconds))[..] else { panic!() };
        assert_eq!(reads.reads.len() as u64, seconds * 5);
        // One that is at the tip, and asks once a second, takes only what it reads.
        let [behind, _at_tip] = &simulate(&[(MIB, Duration::ZERO), (0, ms(1_000))], Duration::from_secs(seconds))[..]
        else {
            panic!()
        };
        assert!(behind.bytes * 10 >= seconds * RATE * 9, "{} bytes", behind.bytes);
    }

    #[test]
    fn two_that_are_behind_get_half_each_whatever_the_size_of_their_pages() {
        for pages in [[MIB, MIB], [10 * MIB, MIB / 2], [100, 100]] {
            let readers = pages.map(|page| (page, Duration::ZERO));
            let [first, second] = &simulate(&readers, Duration::from_secs(600))[..] else { panic!() };
            let (first, second) = if pages[0] == 100 {
                (first.reads.len() as f64, second.reads.len() as f64)
            } else {
                (first.bytes as f64, second.bytes as f64)
            };
            assert!((0.8..1.25).contains(&(first / second)), "{pages:?}: {first} and {second}");
        }
    }

    #[test]
    fn one_that_does_not_take_its_turn_holds_nobody_up() {
        let start = Instant::now();
        let mut turns = Turns::new(start);
        let (stuck, other) = (turns.join(1, RATE), turns.join(1, RATE));
        assert!(turns.take(other, start));
        let now = start + SECOND + SLACK;
        assert_eq!(turns.ask(stuck, now), None, "it is its turn");
        assert_eq!(turns.ask(other, now), Some(now + PATIENCE));
        let now = now + PATIENCE;
        assert!(turns.take(other, now), "it has waited for long enough");
        let now = now + SECOND + SLACK;
        assert!(turns.take(other, now), "and does not wait again for one that asks no more");
        assert!(!turns.take(stuck, now), "nor is a turn that has passed used later");
        let now = now + SECOND + SLACK;
        assert!(turns.take(stuck, now));
    }

    #[test]
    fn readers_of_one_shard_meet_by_its_streams_arn_and_leave_nothing_behind() {
        let now = Instant::now();
        let limits = ReadLimits::default();
        let first = limits.join("arn", "shard", 1, RATE, now);
        let second = limits.clone().join("arn", "shard", 1, RATE, now);
        let other = limits.join("another arn", "shard", 1, RATE, now);
        assert!(first.take(now));
        assert!(!second.take(now) && other.take(now));
        drop(first);
        assert!(!second.take(now), "what was read stays read");
        drop((second, other));
        let left = |limits: &ReadLimits| lock(&limits.shards).left.len();
        assert!(lock(&limits.shards).read.is_empty());
        assert_eq!(left(&limits), 2);
        let next = limits.join("arn", "other shard", 1, RATE, now + ms(1_149));
        assert_eq!(left(&limits), 2, "what was read still counts");
        drop(next);
        let _next = limits.join("arn", "shard", 1, RATE, now + ms(1_150));
        assert_eq!(left(&limits), 0);
    }

    #[test]
    fn a_reader_that_follows_another_one_goes_on_with_its_limits() {
        let now = Instant::now();
        let limits = ReadLimits::default();
        let join = |after| limits.join("arn", "shard", 5, RATE, now + ms(after));
        let first = join(0);
        for read in 0..5 {
            assert!(first.take(now + ms(read * 10)));
        }
        drop(first);
        let second = join(100);
        assert!(!second.take(now + ms(999)), "a sixth read within a second");
        assert!(second.take(now + ms(1_000)));
        second.spent(10 * MIB, now + ms(1_000));
        drop(second);
        let third = join(1_100);
        assert!(!third.take(now + ms(5_999)), "10 MiB take 5 s");
        assert!(third.take(now + ms(6_000)));
    }

    proptest! {
        #[test]
        fn together_they_stay_within_the_services_limits(
            readers in proptest::collection::vec((0..12 * MIB, 0..3_000_u64), 1..6),
        ) {
            let readers: Vec<_> = readers.into_iter().map(|(page, busy)| (page, ms(busy))).collect();
            let time = Duration::from_secs(120);
            let done = simulate(&readers, time);
            let mut reads: Vec<(Instant, u64)> =
                done.iter().flat_map(|reader| reader.reads.iter().map(|at| (*at, reader.page))).collect();
            reads.sort();
            let mut paid_until = reads[0].0;
            for pair in reads.windows(2) {
                paid_until = paid_until.max(pair[0].0) + Duration::from_secs_f64(pair[0].1 as f64 / RATE as f64);
                prop_assert!(pair[1].0 >= paid_until, "read before the bytes were there");
            }
            for six in reads.windows(6) {
                prop_assert!(six[5].0 - six[0].0 >= SECOND, "more than 5 reads a second");
            }
            // Nobody is left out.
            prop_assert!(done.iter().all(|reader| !reader.reads.is_empty()));
        }
    }
}
