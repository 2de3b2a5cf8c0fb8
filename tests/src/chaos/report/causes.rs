//! Why records are there once more, and how many could have been.
//!
//! A checkpoint says how far a shard is processed; what was put behind it is put again by whoever goes on from there. So
//! what may be repeated after a blow is what the worker that was struck had put shortly before it, from the last
//! checkpoint on, and what it had under way: it is at risk. Each repeat must have been at risk of something that was
//! done, and then it counts as repeated for that; what no event explains is a broken promise.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::super::action::Forget;
use super::super::agent::Event;
use super::super::checker::{Appearance, Repeat, Repeated};
use super::super::letters::RepeatedLetter;
use crate::history::Lapse;

/// How old a checkpoint may be while nothing holds it up: its interval of 300 ms, a batch, and a machine that is busy.
const BEHIND: Duration = Duration::from_secs(5);
/// The longest wait before a checkpoint, a request or a read is tried again.
const BACKOFF: Duration = Duration::from_secs(10);
/// What a worker had under way comes in so long after the end of what was done to it: a brief lease, and a request.
const UNDER_WAY: Duration = Duration::from_secs(6);
/// How many examples there are.
const EXAMPLES: usize = 5;
/// What there is a lease for that was taken from a worker that nothing was done to: it was too slow to renew it.
const TOO_SLOW: &str = "lease-expired";

/// What may be the reason for a repeat, the more special first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It befalls one worker, whose leases are taken by others or whose requests are sent again.
    Blow,
    /// Answers to PutRecords are lost.
    Puts,
    /// The shard is read from its beginning.
    Forgotten,
    /// Renewals and checkpoints do not come through, or nobody learns whether they did.
    Leases,
}

/// One reason, and what it has cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The name of the action.
    pub what: &'static str,
    /// How often it was done.
    pub times: usize,
    /// Records that came out once more because of it.
    pub records: u64,
    /// The most that could have: what was put shortly before it, or was under way.
    pub at_risk: u64,
    /// Dead letters that were written once more, perhaps because of it.
    pub letters: u64,
}

/// Everything that is there once more, with its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// Each reason that there was, even if it has cost nothing.
    pub causes: Vec<Cause>,
    /// Records for which there is none.
    pub unexplained: u64,
    /// Dead letters for which there is none.
    pub unexplained_letters: u64,
    /// Some of those for which there is none, for who looks for it.
    pub examples: Vec<String>,
}

/// What has happened that may be a reason.
#[derive(Debug)]
pub(in crate::chaos) struct Past<'a> {
    /// When the run has begun, in milliseconds since 1970.
    pub(in crate::chaos) began_at: u64,
    /// In the order of time.
    pub(in crate::chaos) events: &'a [Event],
    /// Leases that were taken although nobody had let them go.
    pub(in crate::chaos) lapses: &'a [Lapse],
    /// The input's shard of each record, by its key and its number there.
    pub(in crate::chaos) shards: BTreeMap<(&'a str, u64), &'a str>,
}

/// An event that may be a reason, and for what.
#[derive(Debug)]
struct Reason<'a> {
    kind: Kind,
    event: &'a Event,
    /// When what is at risk was put.
    window: std::ops::Range<Duration>,
}

/// A record that was put. Times are from the start of the run.
#[derive(Debug, Clone, Copy)]
struct Put<'a> {
    life: &'a str,
    shard: Option<&'a str>,
    at: Duration,
}

fn kind(what: &str) -> Option<Kind> {
    match what {
        "kill" | "freeze" | "cut-off" => Some(Kind::Blow),
        "put-answers-lost" => Some(Kind::Puts),
        Forget::NAME => Some(Kind::Forgotten),
        "lease-writes-throttled" | "lease-answers-lost" | "connections-reset" => Some(Kind::Leases),
        _ => None,
    }
}

// === impl Past ===

impl Past<'_> {
    /// Finds the reason for each repeat.
    pub(in crate::chaos) fn explain(
        &self,
        output: &[Appearance],
        repeated: &[Repeated],
        letters: &[RepeatedLetter],
    ) -> Causes {
        let reasons = self.reasons();
        let mut causes = Causes { causes: self.at_risk(&reasons, output), ..Causes::default() };
        for repeat in repeated.iter().filter(|repeat| repeat.repeat != Repeat::Unclear) {
            match self.reason(&reasons, repeat) {
                Some(what) => causes.cause(what).records += 1,
                None => {
                    causes.unexplained += 1;
                    causes.example(|| self.describe(repeat));
                }
            }
        }
        for letter in letters {
            match self.reason_of_letter(&reasons, letter) {
                Some(what) => causes.cause(what).letters += letter.count,
                None => {
                    causes.unexplained_letters += letter.count;
                    causes.example(|| format!("letters of {:?} about records of {}", letter.by, letter.shard));
                }
            }
        }
        causes
    }

    fn reasons(&self) -> Vec<Reason<'_>> {
        let with_kind = self.events.iter().filter_map(|event| Some((kind(event.what)?, event)));
        with_kind.map(|(kind, event)| Reason { kind, event, window: self.window(kind, event) }).collect()
    }

    /// When what an event puts at risk was put.
    fn window(&self, kind: Kind, event: &Event) -> std::ops::Range<Duration> {
        let end = event.until + UNDER_WAY;
        match kind {
            // Everything that has come of the shard.
            Kind::Forgotten => Duration::ZERO..end,
            Kind::Puts => event.from..end,
            Kind::Blow => self.checkpointed_before(event.from, event.whom.as_deref())..end,
            Kind::Leases => self.checkpointed_before(event.from, None)..end + BACKOFF,
        }
    }

    /// The last moment before this one up to which everything that was put is checkpointed: whatever was wrong with the
    /// services, or with this worker, may have held up its checkpoint.
    fn checkpointed_before(&self, at: Duration, life: Option<&str>) -> Duration {
        let begins = at.saturating_sub(BEHIND);
        let holds_up = |event: &&Event| {
            let concerns = event.shard.is_none() && (event.whom.is_none() || event.whom.as_deref() == life);
            concerns && event.from < at && event.until + BACKOFF > begins
        };
        let since = self.events.iter().filter(holds_up).map(|event| event.from.saturating_sub(BEHIND)).min();
        since.map_or(begins, |since| since.min(begins))
    }

    fn reason(&self, reasons: &[Reason<'_>], repeated: &Repeated) -> Option<&'static str> {
        let shard = self.shards.get(&(repeated.key.as_str(), repeated.nth)).copied();
        let put = Put { life: &repeated.life, shard, at: self.moment(repeated.before) };
        let again = self.moment(repeated.again);
        let explains = |reason: &&Reason<'_>| {
            let is_sent_for_that = repeated.repeat == Repeat::SentAgain && repeated.was_untold;
            let is_of_its_kind = reason.kind != Kind::Puts || is_sent_for_that;
            // A request that was on its way when its sender was struck may come behind what others have put meanwhile.
            let late = Put { life: &repeated.by, at: again, ..put };
            let is_late = reason.kind == Kind::Blow && reason.puts_at_risk(late);
            is_of_its_kind && again >= reason.event.from && (reason.puts_at_risk(put) || is_late)
        };
        let best =
            reasons.iter().filter(explains).min_by_key(|reason| (reason.kind, std::cmp::Reverse(reason.event.from)));
        best.map(|reason| reason.event.what).or_else(|| self.is_lapsed(put, again).then_some(TOO_SLOW))
    }

    /// When a letter was written is known by the clock of its worker alone, which may be wrong.
    fn reason_of_letter(&self, reasons: &[Reason<'_>], letter: &RepeatedLetter) -> Option<&'static str> {
        let explains = |reason: &&Reason<'_>| match reason.kind {
            Kind::Blow => reason.event.whom.as_ref().is_some_and(|whom| letter.by.contains(whom)),
            Kind::Forgotten => reason.event.shard.as_ref() == Some(&letter.shard),
            Kind::Leases => true,
            Kind::Puts => false,
        };
        let best = reasons.iter().filter(explains).min_by_key(|reason| reason.kind);
        let is_lapsed = || self.lapses.iter().any(|lapse| lapse.shard == letter.shard);
        best.map(|reason| reason.event.what).or_else(|| is_lapsed().then_some(TOO_SLOW))
    }

    /// Whether the lease of its shard was taken from somebody who had not let it go.
    fn is_lapsed(&self, put: Put<'_>, again: Duration) -> bool {
        self.lapses.iter().any(|lapse| {
            let at = self.moment(lapse.time);
            let window = self.checkpointed_before(at, Some(&lapse.from))..at + UNDER_WAY;
            put.shard == Some(&lapse.shard) && window.contains(&put.at) && again + BEHIND >= at
        })
    }

    /// Each reason that there was, with how many records it has put at risk.
    fn at_risk(&self, reasons: &[Reason<'_>], output: &[Appearance]) -> Vec<Cause> {
        let mut by_life: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        let mut by_shard: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        let mut all: Vec<Duration> = Vec::with_capacity(output.len());
        let mut untold: Vec<Duration> = Vec::new();
        for appearance in output {
            let at = self.moment(appearance.arrival);
            all.push(at);
            untold.extend(appearance.is_untold.then_some(at));
            by_life.entry(appearance.by.as_deref().unwrap_or_default()).or_default().push(at);
            if let Some(shard) = self.shards.get(&(appearance.key.as_str(), appearance.nth)) {
                by_shard.entry(shard).or_default().push(at);
            }
        }
        all.sort_unstable();
        untold.sort_unstable();
        by_life.values_mut().chain(by_shard.values_mut()).for_each(|times| times.sort_unstable());
        let within = |times: Option<&Vec<Duration>>, window: &std::ops::Range<Duration>| {
            let times = times.map(Vec::as_slice).unwrap_or_default();
            let before = |limit| times.partition_point(|at| *at < limit);
            (before(window.end) - before(window.start)) as u64
        };
        let mut causes = Causes::default();
        for Reason { kind, event, window } in reasons {
            let times = match kind {
                Kind::Blow => event.whom.as_deref().and_then(|whom| by_life.get(whom)),
                Kind::Forgotten => event.shard.as_deref().and_then(|shard| by_shard.get(shard)),
                Kind::Puts => Some(&untold),
                Kind::Leases => Some(&all),
            };
            let cause = causes.cause(event.what);
            cause.times += 1;
            cause.at_risk += within(times, window);
        }
        if !self.lapses.is_empty() {
            let cause = causes.cause(TOO_SLOW);
            cause.times = self.lapses.len();
            for lapse in self.lapses {
                let at = self.moment(lapse.time);
                let window = self.checkpointed_before(at, Some(&lapse.from))..at + UNDER_WAY;
                cause.at_risk += within(by_shard.get(lapse.shard.as_str()), &window);
            }
        }
        causes.causes
    }

    fn describe(&self, repeated: &Repeated) -> String {
        let Repeated { key, nth, life, by, .. } = repeated;
        let shard = self.shards.get(&(key.as_str(), *nth)).copied().unwrap_or("no shard");
        let [before, again] = [repeated.before, repeated.again].map(|time| self.moment(time).as_secs_f64());
        format!("record {nth} of {key} in {shard}, put by {life} at {before:.2} s and by {by} at {again:.2} s")
    }

    fn moment(&self, time: u64) -> Duration {
        Duration::from_millis(time.saturating_sub(self.began_at))
    }
}

// === impl Reason ===

impl Reason<'_> {
    fn puts_at_risk(&self, put: Put<'_>) -> bool {
        let is_meant = match self.kind {
            Kind::Blow => self.event.whom.as_deref() == Some(put.life),
            Kind::Forgotten => put.shard.is_some() && self.event.shard.as_deref() == put.shard,
            Kind::Puts | Kind::Leases => true,
        };
        is_meant && self.window.contains(&put.at)
    }
}

// === impl Causes ===

impl Causes {
    /// How many records came out once more for a reason that is known, or for none.
    pub fn records(&self) -> u64 {
        self.causes.iter().map(|cause| cause.records).sum::<u64>() + self.unexplained
    }

    /// How many dead letters were written once more.
    pub fn letters(&self) -> u64 {
        self.causes.iter().map(|cause| cause.letters).sum::<u64>() + self.unexplained_letters
    }

    fn example(&mut self, describe: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(describe());
        }
    }

    fn cause(&mut self, what: &'static str) -> &mut Cause {
        let at = self.causes.iter().position(|cause| cause.what == what);
        let at = at.unwrap_or_else(|| {
            self.causes.push(Cause { what, times: 0, records: 0, at_risk: 0, letters: 0 });
            self.causes.len() - 1
        });
        &mut self.causes[at]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KEY: &str = "key-1";
    const SHARD: &str = "shardId-000000000000";
    const BEGAN: u64 = 1_000_000;

    fn event(what: &'static str, whom: Option<&str>, shard: Option<&str>, [from, until]: [u64; 2]) -> Event {
        let [from, until] = [from, until].map(Duration::from_secs);
        let [whom, shard] = [whom, shard].map(|name| name.map(str::to_owned));
        Event { what, whom, shard, from, until, note: String::new() }
    }

    fn repeated(repeat: Repeat, life: &str, [before, again]: [u64; 2]) -> Repeated {
        let [before, again] = [before, again].map(|at| BEGAN + at * 1_000);
        let was_untold = repeat == Repeat::SentAgain;
        let by = if was_untold { life } else { "successor" };
        Repeated {
            key: KEY.to_owned(),
            nth: 0,
            repeat,
            life: life.to_owned(),
            by: by.to_owned(),
            was_untold,
            before,
            again,
        }
    }

    /// What explains this repeat.
    fn reason(events: &[Event], lapses: &[Lapse], repeated: &Repeated) -> Option<&'static str> {
        let shards = [((KEY, 0), SHARD)].into();
        let past = Past { began_at: BEGAN, events, lapses, shards };
        let causes = past.explain(&[], std::slice::from_ref(repeated), &[]);
        assert_eq!(causes.records(), 1);
        causes.causes.iter().find(|cause| cause.records > 0).map(|cause| cause.what)
    }

    #[test]
    fn a_repeat_is_explained_by_what_befell_who_had_put_it_shortly_before() {
        let events = [
            event("kill", Some("a"), None, [40, 41]),
            event("put-answers-lost", None, None, [60, 62]),
            event("lease-answers-lost", None, None, [80, 82]),
            event("lease-deleted", None, Some(SHARD), [100, 100]),
            event("lease-deleted", None, Some("another"), [120, 120]),
        ];
        let [replayed, sent_again] = [Repeat::Replayed, Repeat::SentAgain];
        for (what, repeat, life, times, expected) in [
            ("in flight at a kill", replayed, "a", [38, 43], Some("kill")),
            ("under way at a kill", replayed, "a", [42, 42], Some("kill")),
            ("long before a kill", replayed, "a", [20, 43], None),
            ("before the kill came", replayed, "a", [38, 39], None),
            ("another one was killed", replayed, "b", [38, 43], None),
            ("its answer was lost", sent_again, "a", [61, 63], Some("put-answers-lost")),
            ("an answer that is lost makes nobody else put it", replayed, "a", [61, 63], None),
            ("nobody could renew", replayed, "b", [79, 83], Some("lease-answers-lost")),
            ("its shard is read from the beginning", replayed, "b", [1, 101], Some("lease-deleted")),
            ("it came after that", replayed, "b", [110, 125], None),
        ] {
            assert_eq!(reason(&events, &[], &repeated(repeat, life, times)), expected, "{what}");
        }
    }

    #[test]
    fn a_request_that_was_on_its_way_at_a_blow_may_repeat_what_others_have_put_meanwhile() {
        let freeze = [event("freeze", Some("a"), None, [40, 50])];
        let late = |again| Repeated { by: "a".to_owned(), ..repeated(Repeat::Replayed, "b", [45, again]) };
        assert_eq!(reason(&freeze, &[], &late(51)), Some("freeze"));
        assert_eq!(reason(&freeze, &[], &late(70)), None);
        let of_nobody = repeated(Repeat::Replayed, "b", [45, 51]);
        let past = Past { began_at: BEGAN, events: &freeze, lapses: &[], shards: [((KEY, 0), SHARD)].into() };
        let said = &past.explain(&[], &[of_nobody], &[]).examples[0];
        assert!(said.contains("record 0 of key-1") && said.contains("by successor at 51.00 s"), "{said}");
    }

    #[test]
    fn what_held_up_a_checkpoint_puts_more_at_risk() {
        let kill = event("kill", Some("a"), None, [40, 41]);
        let disk = |whom| event("disk-full", Some(whom), None, [20, 36]);
        let at = |events: &[Event]| reason(events, &[], &repeated(Repeat::Replayed, "a", [18, 43]));
        assert_eq!(at(&[disk("a"), kill.clone()]), Some("kill"));
        assert_eq!(at(&[disk("b"), kill.clone()]), None, "that of another one");
        assert_eq!(at(&[event("calls-fail", None, None, [20, 36]), kill]), Some("kill"));
    }

    #[test]
    fn a_lease_that_was_lost_for_no_known_reason_explains_its_own_shard_alone() {
        let lapse = |shard: &str| Lapse {
            shard: shard.to_owned(),
            time: BEGAN + 40_000,
            from: "a".to_owned(),
            by: "b".to_owned(),
        };
        let repeated = repeated(Repeat::Replayed, "a", [38, 43]);
        assert_eq!(reason(&[], &[lapse(SHARD)], &repeated), Some("lease-expired"));
        assert_eq!(reason(&[], &[lapse("another")], &repeated), None);
    }

    #[test]
    fn what_is_at_risk_bounds_what_is_repeated() {
        let appearance = |(nth, life, at): (u64, &str, u64)| Appearance {
            key: KEY.to_owned(),
            nth,
            shard: SHARD.to_owned(),
            by: Some(life.to_owned()),
            arrival: BEGAN + at * 1_000,
            is_untold: at == 39,
        };
        let output = [(0, "a", 10), (1, "a", 37), (2, "a", 39), (3, "b", 39), (2, "b", 43)].map(appearance);
        let events = [
            event("kill", Some("a"), None, [40, 41]),
            event("lease-deleted", None, Some(SHARD), [50, 50]),
            event("put-answers-lost", None, None, [30, 41]),
        ];
        let shards = (0..4).map(|nth| ((KEY, nth), SHARD)).collect();
        let past = Past { began_at: BEGAN, events: &events, lapses: &[], shards };
        let again = Repeated { nth: 2, ..repeated(Repeat::Replayed, "a", [39, 43]) };
        let unclear = Repeated { repeat: Repeat::Unclear, ..again.clone() };
        let by = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let letters = [RepeatedLetter { by, shard: SHARD.to_owned(), count: 1 }];
        let found = past.explain(&output, &[again, unclear], &letters);
        let kill = Cause { what: "kill", times: 1, records: 1, at_risk: 2, letters: 1 };
        let deleted = Cause { what: "lease-deleted", times: 1, records: 0, at_risk: 5, letters: 0 };
        let untold = Cause { what: "put-answers-lost", times: 1, records: 0, at_risk: 2, letters: 0 };
        assert_eq!(found, Causes { causes: vec![kill, deleted, untold], ..Causes::default() });
        assert_eq!((found.records(), found.letters()), (1, 1));
    }
}
