//! What happens when, made from a seed. Nothing else has a say, so that a seed that failed can be run again.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::action::{Deed, Forget, Reshard, Temper, Trouble, Weather};
use crate::Held;

/// How many worker processes there are.
pub const WORKERS: usize = 3;
/// Open shards of the input at the start.
pub const SHARDS: usize = 4;
/// The most open shards at any time.
pub const MOST_SHARDS: usize = 8;
/// Open shards at any time.
const OPEN: std::ops::RangeInclusive<usize> = 2..=MOST_SHARDS;

/// For a signal, what is in flight, and a start.
const RESTART: Duration = Duration::from_secs(3);
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
/// Shorter than any lease lasts that is not renewed.
const SHORT: std::ops::Range<Duration> = Duration::from_millis(300)..Duration::from_millis(1_500);
/// Longer than a [brief lease](crate::Leases::Brief) lasts.
const LONG: Duration = Duration::from_millis(2_500);
/// Until another build is compiled, or refused.
const RELOAD: Duration = Duration::from_secs(1);
/// How far a clock may be wrong, in seconds.
const WRONG: std::ops::RangeInclusive<i64> = 2..=7_200;
/// The most reshards of a run, however long it is: a stream lists its closed shards for as long as their records are kept.
const MOST_RESHARDS: u32 = 250;
/// Between two rows that are deleted, at least: what has come of their shards up to then is read once more.
const FORGET_EVERY: Duration = Duration::from_secs(4);

/// Something and its time, from the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed<T> {
    /// When it begins, or later if what is before it takes longer.
    pub at: Duration,
    /// What it is.
    pub what: T,
}

/// Everything that is done in one run: lists that are worked off side by side, each one thing after another.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// What it is made from.
    pub seed: u64,
    /// What may be in it.
    pub temper: Temper,
    /// Until everything is over.
    pub length: Duration,
    /// For each worker.
    pub workers: Vec<Vec<Timed<Deed>>>,
    /// For the input.
    pub shards: Vec<Timed<Reshard>>,
    /// For the services.
    pub weather: Vec<Timed<Weather>>,
    /// For the lease table.
    pub rows: Vec<Timed<Forget>>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Kill,
    Roll,
    Surge,
    Freeze,
    CutOff,
    Reload,
    ReloadBad,
    FillDisk,
    SkewClock,
}

/// Deals each of its cards before any of them again.
#[derive(Debug)]
struct Deck<T> {
    cards: Vec<T>,
    left: Vec<T>,
}

/// Dice for one list, which other lists do not touch.
#[derive(Debug)]
struct Lane {
    dice: StdRng,
    temper: Temper,
    length: Duration,
}

/// How long it takes about.
fn time(deed: Deed) -> Duration {
    match deed {
        Deed::Kill { pause } => pause + RESTART,
        Deed::Roll | Deed::Surge => RESTART,
        Deed::Reload | Deed::ReloadBad => RELOAD,
        Deed::Freeze { time } | Deed::CutOff { time, .. } | Deed::FillDisk { time } | Deed::SkewClock { time, .. } => {
            time
        }
    }
}

// === impl Schedule ===

impl Schedule {
    /// The schedule of a seed. A length of less than 120 s may leave out some of what is possible.
    pub fn new(seed: u64, temper: Temper, length: Duration) -> Schedule {
        let lane = |number: u64| Lane {
            dice: StdRng::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number)),
            temper,
            length,
        };
        let (workers, shards, weather, rows) = (lane(0).workers(), lane(1).shards(), lane(2).weather(), lane(3).rows());
        Schedule { seed, temper, length, workers, shards, weather, rows }
    }

    /// How many things are done.
    pub fn count(&self) -> usize {
        let Schedule { workers, shards, weather, rows, .. } = self;
        workers.iter().map(Vec::len).sum::<usize>() + shards.len() + weather.len() + rows.len()
    }

    /// Nothing happens for so long.
    pub fn calm(length: Duration) -> Schedule {
        let workers = vec![Vec::new(); WORKERS];
        let (shards, weather, rows) = (Vec::new(), Vec::new(), Vec::new());
        Schedule { seed: 0, temper: Temper::Gentle, length, workers, shards, weather, rows }
    }
}

// === impl Lane ===

impl Lane {
    fn workers(mut self) -> Vec<Vec<Timed<Deed>>> {
        let gentle =
            [Kind::Roll, Kind::Surge, Kind::Freeze, Kind::Reload, Kind::ReloadBad, Kind::FillDisk, Kind::SkewClock];
        let mut deck = Deck::new(match self.temper {
            Temper::Gentle => gentle.to_vec(),
            Temper::Rough => gentle.into_iter().chain([Kind::Kill, Kind::CutOff]).collect(),
        });
        let mut deeds = vec![Vec::new(); WORKERS];
        let mut free: Vec<Option<Duration>> = vec![Some(Duration::ZERO); WORKERS];
        // The one who has nothing to do first is the next one.
        let next = |free: &[Option<Duration>]| {
            let waiting = free.iter().enumerate().filter_map(|(worker, since)| Some(((*since)?, worker)));
            waiting.min()
        };
        while let Some((since, worker)) = next(&free) {
            let at = since + self.pause();
            let kind = deck.deal(&mut self.dice);
            let what = self.deed(kind);
            let end = at + time(what);
            free[worker] = (end <= self.length).then_some(end);
            if end <= self.length {
                deeds[worker].push(Timed { at, what });
            }
        }
        deeds
    }

    fn shards(mut self) -> Vec<Timed<Reshard>> {
        let mut reshards = Vec::new();
        let mut open = SHARDS;
        let mut at = self.pause();
        while at <= self.length {
            let splits = open == *OPEN.start() || (open < *OPEN.end() && self.dice.random_bool(0.5));
            let what = if splits {
                Reshard::Split { index: self.dice.random_range(0..open) }
            } else {
                Reshard::Merge { index: self.dice.random_range(0..open - 1) }
            };
            open = if splits { open + 1 } else { open - 1 };
            reshards.push(Timed { at, what });
            at += self.pause().max(self.length / MOST_RESHARDS);
        }
        reshards
    }

    /// A lease that is gone is a reason to repeat a whole shard.
    fn rows(mut self) -> Vec<Timed<Forget>> {
        if self.temper == Temper::Gentle {
            return Vec::new();
        }
        let mut rows = Vec::new();
        let mut at = FORGET_EVERY + self.pause();
        while at <= self.length {
            rows.push(Timed { at, what: Forget { index: self.dice.random_range(0..MOST_SHARDS) } });
            at += FORGET_EVERY + self.pause() + self.length / 20;
        }
        rows
    }

    fn weather(mut self) -> Vec<Timed<Weather>> {
        let mut deck = Deck::new(match self.temper {
            Temper::Gentle => Trouble::GENTLE.to_vec(),
            Temper::Rough => Trouble::GENTLE.into_iter().chain(Trouble::ROUGH).collect(),
        });
        let mut weather = Vec::new();
        let mut at = self.pause();
        loop {
            let trouble = deck.deal(&mut self.dice);
            let (chance, time) = (self.dice.random_range(0.2..0.9), self.pause());
            if at + time > self.length {
                return weather;
            }
            weather.push(Timed { at, what: Weather { trouble, chance, time } });
            at += time + self.pause() / 3;
        }
    }

    fn deed(&mut self, kind: Kind) -> Deed {
        match kind {
            // At once, or so late that the leases have expired.
            Kind::Kill if self.dice.random_bool(0.5) => Deed::Kill { pause: Duration::ZERO },
            Kind::Kill => Deed::Kill { pause: self.dice.random_range(SHORT.start..LONG + SHORT.end) },
            Kind::Roll => Deed::Roll,
            Kind::Surge => Deed::Surge,
            Kind::Freeze => Deed::Freeze { time: self.absence() },
            Kind::CutOff => {
                let held = if self.dice.random_bool(0.5) { Held::Lost } else { Held::Delivered };
                Deed::CutOff { time: self.absence(), held }
            }
            Kind::Reload => Deed::Reload,
            Kind::ReloadBad => Deed::ReloadBad,
            Kind::FillDisk => Deed::FillDisk { time: self.absence() },
            Kind::SkewClock => {
                let seconds = self.dice.random_range(WRONG);
                let seconds = if self.dice.random_bool(0.5) { seconds } else { -seconds };
                Deed::SkewClock { seconds, time: self.absence() }
            }
        }
    }

    /// Shorter than a lease lasts, or longer.
    fn absence(&mut self) -> Duration {
        if self.temper == Temper::Gentle || self.dice.random_bool(0.4) {
            return self.dice.random_range(SHORT);
        }
        let longest = (self.length / 4).clamp(Duration::from_secs(3), Duration::from_secs(20));
        self.dice.random_range(LONG..=longest)
    }

    fn pause(&mut self) -> Duration {
        let longest = (self.length / 8).clamp(Duration::from_secs(1), Duration::from_secs(8));
        self.dice.random_range(SHORTEST_PAUSE..=longest)
    }
}

// === impl Deck ===

impl<T: Copy> Deck<T> {
    fn new(cards: Vec<T>) -> Deck<T> {
        Deck { cards, left: Vec::new() }
    }

    fn deal(&mut self, dice: &mut StdRng) -> T {
        if self.left.is_empty() {
            self.left.clone_from(&self.cards);
            self.left.shuffle(dice);
        }
        self.left.pop().expect("a deck has cards")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(schedule: &Schedule) -> BTreeSet<&'static str> {
        let deeds = schedule.workers.iter().flatten().map(|deed| deed.what.name());
        let reshards = schedule.shards.iter().map(|reshard| reshard.what.name());
        let weather = schedule.weather.iter().map(|weather| weather.what.trouble.name());
        let rows = schedule.rows.iter().map(|_| Forget::NAME);
        deeds.chain(reshards).chain(weather).chain(rows).collect()
    }

    fn many() -> impl Iterator<Item = Schedule> {
        let lengths = [120, 300].map(Duration::from_secs);
        let tempers = [Temper::Gentle, Temper::Rough];
        (0..200).flat_map(move |seed| {
            lengths.into_iter().flat_map(move |length| tempers.map(|temper| Schedule::new(seed, temper, length)))
        })
    }

    #[test]
    fn a_seed_says_it_all() {
        let of = |seed| Schedule::new(seed, Temper::Rough, Duration::from_secs(20));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7).workers, of(8).workers);
        assert_ne!(of(7).shards, of(8).shards);
        assert_ne!(of(7).weather, of(8).weather);
        assert_ne!(of(7).rows, of(8).rows);
    }

    #[test]
    fn whatever_the_seed_everything_that_may_happen_does() {
        let gentle: BTreeSet<_> = [
            "answers-late",
            "calls-fail",
            "clock-wrong",
            "connections-reset",
            "disk-full",
            "freeze",
            "lease-writes-throttled",
            "merge",
            "puts-slow",
            "puts-throttled",
            "reads-throttled",
            "reload",
            "reload-bad",
            "roll",
            "split",
            "surge",
        ]
        .into();
        let rough = ["cut-off", "kill", "lease-answers-lost", "lease-deleted", "put-answers-lost"];
        let rough: BTreeSet<_> = gentle.iter().copied().chain(rough).collect();
        let mut without_a_reshard = 0;
        for mut schedule in many() {
            let expected = if schedule.temper == Temper::Gentle { &gentle } else { &rough };
            // Which of the two it is is thrown anew each time.
            let kinds: BTreeSet<_> = schedule.shards.drain(..).map(|reshard| reshard.what.name()).collect();
            without_a_reshard += usize::from(kinds.len() < 2);
            let found: BTreeSet<_> = names(&schedule).into_iter().chain(["merge", "split"]).collect();
            assert_eq!(found, *expected, "{schedule:?}");
        }
        assert!(without_a_reshard < 8, "{without_a_reshard} of 800 have no splits or no merges");
    }

    #[test]
    fn one_thing_after_another_and_all_of_it_within_the_length() {
        for schedule in many() {
            for deeds in &schedule.workers {
                let mut free = Duration::ZERO;
                for Timed { at, what } in deeds {
                    assert!(*at >= free, "{schedule:?}");
                    free = *at + time(*what);
                }
                assert!(free <= schedule.length, "{schedule:?}");
            }
            let mut clears = Duration::ZERO;
            for Timed { at, what } in &schedule.weather {
                assert!(*at >= clears && (0.0..1.0).contains(&what.chance), "{schedule:?}");
                clears = *at + what.time;
            }
            assert!(clears <= schedule.length, "{schedule:?}");
        }
    }

    #[test]
    fn a_run_of_hours_has_no_more_shards_than_a_listing_takes() {
        let schedule = Schedule::new(7, Temper::Rough, Duration::from_secs(4 * 3_600));
        let reshards = schedule.shards.len();
        assert!((100..=MOST_RESHARDS as usize).contains(&reshards), "{reshards}");
        let deeds: usize = schedule.workers.iter().map(Vec::len).sum();
        assert!(deeds > 1_000 && schedule.weather.len() > 1_000, "and no less of everything else: {deeds}");
    }

    #[test]
    fn shards_that_are_split_or_merged_are_open_and_some_are_always_left() {
        for schedule in many() {
            let mut open = SHARDS;
            for reshard in &schedule.shards {
                match reshard.what {
                    Reshard::Split { index } => {
                        assert!(index < open, "{schedule:?}");
                        open += 1;
                    }
                    Reshard::Merge { index } => {
                        assert!(index + 1 < open, "{schedule:?}");
                        open -= 1;
                    }
                }
                assert!(OPEN.contains(&open), "{schedule:?}");
            }
        }
    }

    #[test]
    fn what_is_gentle_is_shorter_than_a_lease_and_what_is_rough_is_both() {
        let mut longest = Duration::ZERO;
        let mut shortest = Duration::MAX;
        for schedule in many() {
            for deed in schedule.workers.iter().flatten() {
                let Deed::Freeze { time } = deed.what else { continue };
                assert!(schedule.temper == Temper::Rough || time < SHORT.end, "{schedule:?}");
                longest = longest.max(time);
                shortest = shortest.min(time);
            }
        }
        assert!(shortest < Duration::from_secs(1) && longest > Duration::from_secs(18), "{shortest:?} {longest:?}");
    }
}
