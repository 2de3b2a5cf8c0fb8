//! What a run tells at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use super::action::{Deed, Temper, Trouble};
use super::agent::{Event, Life};
use super::checker::{Findings, Longest, Repeat};
use super::schedule::Schedule;
use super::violation::Violation;
use super::writer::KEYS;
use crate::history::Summary;
use crate::{Held, paths};

/// What may be the reason why a life's records are repeated, if it was done to it.
const BLOWS: [&str; 3] = ["kill", "freeze", "cut-off"];
/// What may be the reason in absence of such.
const WEATHER: [&str; 2] = ["lease-writes-throttled", "lease-answers-lost"];

/// A run and what became of it.
#[derive(Debug)]
pub struct Report {
    /// What the schedule was made from.
    pub seed: u64,
    /// What might happen.
    pub temper: Temper,
    /// How long it might happen.
    pub length: Duration,
    /// The whole run, from the first record until everything was worked off.
    pub took: Duration,
    /// Records that were acknowledged to the writer.
    pub written: u64,
    /// Of them, those that may be in the input more than once.
    pub unclear: u64,
    /// Records that came out, each counted once.
    pub records: u64,
    /// How often each action was done.
    pub actions: BTreeMap<&'static str, usize>,
    /// Records that came out once more, by what had befallen the worker that had put them before: names of actions, or
    /// none.
    pub repeats: BTreeMap<BTreeSet<&'static str>, u64>,
    /// Of them, those that the same worker has sent again.
    pub sent_again: u64,
    /// Of them, those that may be in the input more than once.
    pub repeated_input: u64,
    /// When the first record came into the input, in milliseconds since 1970.
    pub first: u64,
    /// The longest time from input to output.
    pub delay: Longest,
    /// The longest time between two new records of a key.
    pub silence: Longest,
    /// What became of the leases; `None` if a promise about them was broken.
    pub leases: Option<Summary>,
    /// Every promise that was broken.
    pub violations: Vec<Violation>,
    /// What was done and when.
    pub events: Vec<Event>,
    /// The worker processes.
    pub lives: Vec<Life>,
}

/// What befell a life that may be the reason for a repeat.
fn reasons(life: &str, lives: &[Life], events: &[Event]) -> BTreeSet<&'static str> {
    let Some(life) = lives.iter().find(|candidate| candidate.name == life) else { return BTreeSet::new() };
    let names = |befell: &dyn Fn(&Event) -> bool, reasons: &[&str]| -> BTreeSet<&'static str> {
        let names = events.iter().filter(|event| befell(event)).map(|event| event.what);
        names.filter(|name| reasons.contains(name)).collect()
    };
    let blows = names(&|event| event.whom.as_ref() == Some(&life.name), &BLOWS);
    if !blows.is_empty() {
        return blows;
    }
    names(&|event| event.from < life.until && event.until > life.from, &WEATHER)
}

// === impl Report ===

impl Report {
    pub(super) fn new(schedule: &Schedule, findings: Findings, events: Vec<Event>, lives: Vec<Life>) -> Report {
        let mut report = Report {
            seed: schedule.seed,
            temper: schedule.temper,
            length: schedule.length,
            took: Duration::ZERO,
            written: 0,
            unclear: 0,
            records: findings.records,
            actions: BTreeMap::new(),
            repeats: BTreeMap::new(),
            sent_again: 0,
            repeated_input: 0,
            first: 0,
            delay: Longest::default(),
            silence: findings.silence,
            leases: None,
            violations: findings.violations,
            events,
            lives,
        };
        for event in &report.events {
            *report.actions.entry(event.what).or_default() += 1;
        }
        for (repeat, count) in findings.repeats {
            let life = match &repeat {
                Repeat::Replayed(life) | Repeat::SentAgain(life) => life,
                Repeat::Unclear => {
                    report.repeated_input += count;
                    continue;
                }
            };
            if matches!(repeat, Repeat::SentAgain(_)) {
                report.sent_again += count;
            }
            *report.repeats.entry(reasons(life, &report.lives, &report.events)).or_default() += count;
        }
        report
    }

    /// How many records came out once more, without those that may be in the input more than once.
    pub fn repeated(&self) -> u64 {
        self.repeats.values().sum()
    }

    /// How often something was done.
    pub fn count(&self, action: &str) -> usize {
        self.actions.get(action).copied().unwrap_or(0)
    }

    /// The command that repeats this run's schedule.
    pub fn command(seed: u64, length: Duration) -> String {
        format!("make chaos SEED={seed} SECONDS={}", length.as_secs())
    }

    /// Asserts that no promise was broken. If one was, what was done and what the workers wrote is kept in a folder, which
    /// the panic names with the command that repeats the run.
    pub fn assert_kept(&self) {
        let Report { violations, seed, length, .. } = self;
        if violations.is_empty() {
            return;
        }
        let kept = match self.keep() {
            Ok(folder) => format!("what was done is in {}", folder.display()),
            Err(error) => format!("what was done cannot be kept: {error}"),
        };
        panic!(
            "{} promises are broken with seed {seed}, which `{}` repeats; {kept}:\n{}",
            violations.len(),
            Report::command(*seed, *length),
            list(violations),
        );
    }

    /// Writes what helps to understand a run; the folder where it is.
    ///
    /// # Errors
    /// What the file system says.
    pub fn keep(&self) -> io::Result<PathBuf> {
        let folder = paths::target().join("chaos").join(format!("{}-{}", self.temper.name(), self.seed));
        let events = self.events.iter().map(|Event { what, whom, from, until, note }| {
            let whom = whom.as_deref().unwrap_or("all");
            format!("{:6.2} s to {:6.2} s: {what} {whom} {note}\n", from.as_secs_f64(), until.as_secs_f64())
        });
        // Of an earlier run there may be more workers.
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::fs::create_dir_all(&folder)?,
        }
        std::fs::write(folder.join("events"), events.collect::<String>())?;
        std::fs::write(folder.join("report"), format!("{self}:\n{}\n", list(&self.violations)))?;
        for life in &self.lives {
            std::fs::write(folder.join(format!("{}.log", life.name)), &life.log)?;
        }
        Ok(folder)
    }
}

fn list(violations: &[Violation]) -> String {
    let lines: Vec<String> = violations.iter().map(|violation| format!("  {violation}")).collect();
    lines.join("\n")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, temper, length, took, written, unclear, records, .. } = self;
        let seconds = |milliseconds: u64| milliseconds as f64 / 1_000.0;
        let longest = |Longest { time, key, until }: &Longest| {
            format!("{:.1} s ({key}, until {:.1} s)", seconds(*time), seconds(until.saturating_sub(self.first)))
        };
        writeln!(
            f,
            "chaos: seed {seed}, {}, {} s: {written} records of {KEYS} keys, {unclear} sent again by their writer, \
             {records} came out, after {:.1} s in all",
            temper.name(),
            length.as_secs(),
            took.as_secs_f64(),
        )?;
        let actions: Vec<String> = self.actions.iter().map(|(action, count)| format!("{action} {count}")).collect();
        writeln!(f, "  actions: {}", actions.join(", "))?;
        let repeats = self.repeats.iter().map(|(reasons, count)| {
            let reasons: Vec<&str> = reasons.iter().copied().collect();
            if reasons.is_empty() {
                format!("{count} without a reason")
            } else {
                format!("{count} after {}", reasons.join(" and "))
            }
        });
        let repeats: Vec<String> = repeats.collect();
        writeln!(
            f,
            "  repeats: {}{}{}; {} of them sent again by the same worker; besides, {} that may be twice in the input",
            self.repeated(),
            if repeats.is_empty() { "" } else { ": " },
            repeats.join(", "),
            self.sent_again,
            self.repeated_input,
        )?;
        writeln!(
            f,
            "  longest: from input to output {}, between two new records of a key {}",
            longest(&self.delay),
            longest(&self.silence),
        )?;
        match &self.leases {
            Some(Summary { takes, late, .. }) => writeln!(f, "  leases: taken {takes} times, {late} late requests")?,
            None => writeln!(f, "  leases: a promise is broken")?,
        }
        write!(f, "  promises broken: {}", self.violations.len())
    }
}

/// What becomes of a worker or of the services, for a log.
pub(super) fn describe_deed(deed: Deed) -> String {
    match deed {
        Deed::Kill { pause } => format!("and {pause:.1?} without it"),
        Deed::Roll | Deed::Surge => String::new(),
        Deed::Freeze { time } => format!("for {time:.1?}"),
        Deed::CutOff { time, held: Held::Lost } => format!("for {time:.1?}, what was sent is lost"),
        Deed::CutOff { time, held: Held::Delivered } => format!("for {time:.1?}, what was sent arrives then"),
    }
}

pub(super) fn describe_trouble(trouble: Trouble, chance: f64, befallen: u64) -> String {
    let calls = match trouble {
        Trouble::ReadsThrottled => "GetRecords",
        Trouble::PutsThrottled | Trouble::PutsSlow => "PutRecords",
        Trouble::LeaseWritesThrottled | Trouble::LeaseAnswersLost => "UpdateItem",
    };
    format!("{befallen} calls of {calls}, a chance of {chance:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(name: &str, from: u64, until: u64) -> Life {
        let (from, until) = (Duration::from_secs(from), Duration::from_secs(until));
        Life { name: name.to_owned(), from, until, log: String::new() }
    }

    fn event(what: &'static str, whom: Option<&str>, from: u64, until: u64) -> Event {
        let (from, until) = (Duration::from_secs(from), Duration::from_secs(until));
        Event { what, whom: whom.map(str::to_owned), from, until, note: String::new() }
    }

    #[test]
    fn repeats_are_shown_with_what_explains_them() {
        let lives = vec![life("a", 0, 5), life("b", 5, 20), life("c", 0, 20)];
        let events = vec![
            event("kill", Some("a"), 5, 6),
            event("freeze", Some("a"), 1, 2),
            event("lease-answers-lost", None, 4, 8),
            event("reads-throttled", None, 9, 12),
            event("roll", Some("c"), 9, 12),
            event("lease-writes-throttled", None, 21, 22),
        ];
        let repeats = [
            (Repeat::Replayed("a".to_owned()), 7),
            (Repeat::SentAgain("b".to_owned()), 2),
            (Repeat::Replayed("b".to_owned()), 1),
            (Repeat::Unclear, 4),
        ];
        let findings = Findings { repeats: repeats.into(), ..Findings::default() };
        let schedule = Schedule::new(7, Temper::Rough, Duration::from_secs(20));
        let report = Report::new(&schedule, findings, events, lives);
        let expected = [(BTreeSet::from(["freeze", "kill"]), 7), (BTreeSet::from(["lease-answers-lost"]), 3)];
        assert_eq!(report.repeats, expected.into());
        assert_eq!((report.repeated(), report.sent_again, report.repeated_input), (10, 2, 4));
        assert_eq!((report.count("kill"), report.count("surge")), (1, 0));
        let text = report.to_string();
        assert!(text.contains("repeats: 10: 7 after freeze and kill, 3 after lease-answers-lost;"), "{text}");
    }

    #[test]
    fn a_broken_promise_is_told_with_the_way_to_repeat_it() {
        let violation = Violation::Overtaken { key: "key-1".to_owned(), nth: 4, by: 5 };
        let schedule = Schedule::new(7, Temper::Rough, Duration::from_secs(20));
        let of =
            |violations| Report::new(&schedule, Findings { violations, ..Findings::default() }, Vec::new(), Vec::new());
        of(vec![]).assert_kept();
        let broken = of(vec![violation]);
        let panic = std::panic::catch_unwind(|| broken.assert_kept()).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.contains("`make chaos SEED=7 SECONDS=20`") && said.contains("record 4 of key-1"), "{said}");
    }
}
