//! What a run tells at its end: a text, JSON, and a page with a timeline.
//!
//! | file | job |
//! |---|---|
//! | `causes` | why records are there once more, and how many could have been; pure |
//! | `curves` | how the run went over time; pure |
//! | `text`, `json`, `page` | the three forms |
//! | `timeline` | the page's drawing |

mod causes;
mod curves;
mod json;
mod page;
mod text;
mod timeline;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(super) use causes::Past;
pub use causes::{Cause, Causes};
pub use curves::{Curves, Point};
pub(super) use text::{describe_deed, describe_trouble};

use super::action::Temper;
use super::agent::{Event, Life};
use super::checker::{Findings, Longest, Repeat};
use super::letters::Account;
use super::schedule::Schedule;
use super::violation::Violation;
use crate::history::Summary;
use crate::paths;

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
    /// When it began, in milliseconds since 1970.
    pub began_at: u64,
    /// Records that were acknowledged to the writer.
    pub written: u64,
    /// Of them, those that may be in the input more than once.
    pub unclear: u64,
    /// Records that came out, each counted once.
    pub records: u64,
    /// Records that are dead letters, each counted once.
    pub letters: u64,
    /// How often each action was done.
    pub actions: BTreeMap<&'static str, usize>,
    /// What came out once more and why, without what may be in the input more than once.
    pub causes: Causes,
    /// Records that came out once more because the same worker has put them again.
    pub sent_again: u64,
    /// Records and letters that are there once more, and may be in the input more than once.
    pub repeated_input: u64,
    /// The longest time from input to output.
    pub delay: Longest,
    /// The longest time between two new records of a key.
    pub silence: Longest,
    /// What became of the leases; `None` if a promise about them was broken.
    pub leases: Option<Summary>,
    /// How often a lease was taken from a worker that had not let it go.
    pub lapses: usize,
    /// Every promise that was broken.
    pub violations: Vec<Violation>,
    /// What was done and when.
    pub events: Vec<Event>,
    /// The worker processes.
    pub lives: Vec<Life>,
    /// How it went over time.
    pub curves: Curves,
}

// === impl Report ===

impl Report {
    /// Of a run of this schedule, with what was found in its output and its dead letters.
    pub(super) fn new(schedule: &Schedule, findings: Findings, account: Account, causes: Causes) -> Report {
        let count = |repeat| findings.repeated.iter().filter(|repeated| repeated.repeat == repeat).count() as u64;
        Report {
            seed: schedule.seed,
            temper: schedule.temper,
            length: schedule.length,
            took: Duration::ZERO,
            began_at: 0,
            written: 0,
            unclear: 0,
            records: findings.records,
            letters: account.records,
            actions: BTreeMap::new(),
            causes,
            sent_again: count(Repeat::SentAgain),
            repeated_input: count(Repeat::Unclear) + account.unclear,
            delay: Longest::default(),
            silence: findings.silence,
            leases: None,
            lapses: 0,
            violations: findings.violations.into_iter().chain(account.violations).collect(),
            events: Vec::new(),
            lives: Vec::new(),
            curves: Curves::default(),
        }
    }

    /// What was done, and which workers there were.
    pub(super) fn with_past(mut self, events: Vec<Event>, lives: Vec<Life>) -> Report {
        for event in &events {
            *self.actions.entry(event.what).or_default() += 1;
        }
        Report { events, lives, ..self }
    }

    /// How many records were acknowledged and are neither in the output nor in a dead letter.
    pub fn lost(&self) -> u64 {
        let lost = self.violations.iter().map(|violation| match violation {
            Violation::Lost { numbers, .. } => numbers.len() as u64,
            _ => 0,
        });
        lost.sum()
    }

    /// How many records came out once more, without those that may be in the input more than once.
    pub fn repeated(&self) -> u64 {
        self.causes.records()
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
            Ok(folder) => format!("what was done is in {}", folder.join("report.html").display()),
            Err(error) => format!("what was done cannot be kept: {error}"),
        };
        panic!(
            "{} promises are broken with seed {seed}, which `{}` repeats; {kept}:\n{}",
            violations.len(),
            Report::command(*seed, *length),
            list(violations),
        );
    }

    /// Writes the report (`report`, `report.json`, `report.html`), what was done (`events`) and each worker's log into a
    /// folder of the target folder; which one that is.
    ///
    /// # Errors
    /// What the file system says.
    pub fn keep(&self) -> io::Result<PathBuf> {
        let folder = paths::target().join("chaos").join(format!("{}-{}", self.temper.name(), self.seed));
        let events = self.events.iter().map(|event @ Event { what, from, until, note, .. }| {
            let (from, until) = (from.as_secs_f64(), until.as_secs_f64());
            format!("{from:6.2} s to {until:6.2} s: {what} {} {note}\n", event.subject())
        });
        // Of an earlier run there may be more workers.
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => std::fs::create_dir_all(&folder)?,
        }
        std::fs::write(folder.join("events"), events.collect::<String>())?;
        std::fs::write(folder.join("report"), format!("{self}:\n{}\n", list(&self.violations)))?;
        std::fs::write(folder.join("report.json"), serde_json::to_vec_pretty(&self.json())?)?;
        std::fs::write(folder.join("report.html"), self.page())?;
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

#[cfg(test)]
pub(super) mod samples {
    //! A report that has something of everything.

    use super::super::action::{Deed, Forget, Trouble};
    use super::*;

    fn life(name: &str, post: usize, [from, until]: [u64; 2]) -> Life {
        let [from, until] = [from, until].map(Duration::from_secs);
        Life { name: name.to_owned(), post, build: 1, from, until, log: String::new() }
    }

    fn event(what: &'static str, subject: Option<&str>, [from, until]: [u64; 2], note: &str) -> Event {
        let [from, until] = [from, until].map(Duration::from_secs);
        let is = |kind: &str| subject.filter(|subject| subject.starts_with(kind)).map(str::to_owned);
        Event { what, whom: is("worker"), shard: is("shard"), from, until, note: note.to_owned() }
    }

    pub(in crate::chaos) fn report() -> Report {
        let kill = Cause { what: "kill", times: 1, records: 7, at_risk: 12, letters: 1 };
        let deleted = Cause { what: Forget::NAME, times: 1, records: 3, at_risk: 40, letters: 0 };
        let causes = Causes { causes: vec![kill, deleted], ..Causes::default() };
        let schedule = Schedule::new(7, Temper::Rough, Duration::from_secs(20));
        let findings = Findings { records: 990, ..Findings::default() };
        let account = Account { records: 10, ..Account::default() };
        let events = vec![
            event(Deed::Kill { pause: Duration::ZERO }.name(), Some("worker-1.1"), [5, 6], "and <0 s> without it"),
            event(Deed::Freeze { time: Duration::ZERO }.name(), Some("worker-1.2"), [8, 12], "for 4 s"),
            event(Deed::Reload.name(), Some("worker-2.1"), [9, 10], "build 2"),
            event("split", Some("shardId-000000000001"), [7, 7], ""),
            event(Forget::NAME, Some("shardId-000000000002"), [11, 11], "held by \"worker-1.2\""),
            event(Trouble::PutAnswersLost.name(), None, [4, 8], "12 calls of PutRecords & more"),
        ];
        let lives = vec![life("worker-1.1", 1, [0, 5]), life("worker-1.2", 1, [6, 22]), life("worker-2.1", 2, [0, 22])];
        let point = |written, out, repeated, behind| Point { written, out, repeated, behind, delay: 40 };
        let points = vec![point(300, 280, 0, 20), point(300, 200, 0, 120), point(0, 120, 10, 0)];
        let report = Report {
            written: 1_000,
            took: Duration::from_secs(22),
            ..Report::new(&schedule, findings, account, causes)
        };
        let curves = Curves { every: Duration::from_secs(1), points };
        Report { curves, lapses: 2, leases: Some(Summary::default()), ..report.with_past(events, lives) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_shown_with_what_explains_them_and_what_bounds_them() {
        let report = samples::report();
        let text = report.to_string();
        for said in [
            "1000 records of 100 keys",
            "990 came out and 10 are dead letters, 0 are lost",
            "repeats: 10: 7 after kill (of 12 at risk), 3 after lease-deleted (of 40 at risk);",
            "letters written once more: 1: 1 after kill",
        ] {
            assert!(text.contains(said), "{said:?} in {text}");
        }
        assert_eq!((report.repeated(), report.count("kill"), report.count("surge")), (10, 1, 0));
    }

    #[test]
    fn a_broken_promise_is_told_with_the_way_to_repeat_it() {
        samples::report().assert_kept();
        let overtaken = Violation::Overtaken { key: "key-1".to_owned(), nth: 4, by: 5 };
        let lost = Violation::Lost { key: "key-1".to_owned(), numbers: vec![8, 9] };
        let broken = Report { violations: vec![overtaken, lost], ..samples::report() };
        assert_eq!(broken.lost(), 2);
        let panic = std::panic::catch_unwind(|| broken.assert_kept()).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.contains("`make chaos SEED=7 SECONDS=20`") && said.contains("record 4 of key-1"), "{said}");
    }
}
