//! Shows a trial while it goes on.

use std::path::Path;
use std::time::Duration;

use shardmill_plugin::Module;

use super::expect::Difference;
use super::lines;
use super::people::{self, People};
use super::report::{BatchReport, HookReport, Summary};
use crate::cli::plugin::heard::Line;
use crate::cli::plugin::records::{NoRecord, Records};
use crate::cli::{output, text};

/// For whom.
#[derive(Debug, Clone, Copy)]
pub(super) enum Show {
    People(People),
    Programs,
}

/// What is known before the first record.
pub(super) struct Start<'a> {
    pub(super) file: &'a Path,
    pub(super) module: &'a Module,
    pub(super) load: Duration,
    pub(super) start: Duration,
    /// What was said meanwhile.
    pub(super) logs: Vec<Line>,
    /// Which run this is, of several.
    pub(super) run: Option<u64>,
}

// === impl Show ===

impl Show {
    pub(super) fn start(self, start: &Start<'_>) {
        match self {
            Self::People(people) => output::line(people.start(start)),
            Self::Programs => output::line(text::json(&lines::start(start))),
        }
    }

    pub(super) fn no_record(self, bad: &NoRecord, records: &Records) {
        match self {
            Self::People(_) => output::line(people::no_record(bad.place, &bad.reason, records)),
            Self::Programs => output::line(text::json(&lines::no_record(bad.place, &bad.reason, records))),
        }
    }

    pub(super) fn batch(self, report: &BatchReport, records: &Records) {
        match self {
            Self::People(people) => output::line(people.batch(report, records)),
            Self::Programs => output::line(text::json(&lines::batch(report, records))),
        }
    }

    pub(super) fn hook(self, report: &HookReport, records: &Records) {
        match self {
            Self::People(people) => output::line(people.hook(report, records)),
            Self::Programs => output::line(text::json(&lines::hook(report, records))),
        }
    }

    /// `wrong`: what is not as it should be, a sentence for each; `difference`: of what was expected in this file.
    pub(super) fn end(
        self,
        summary: &Summary,
        limit: usize,
        metrics: &[(String, f64)],
        difference: Option<(&Path, Option<&Difference>)>,
        wrong: &[String],
    ) {
        match self {
            Self::People(people) => {
                output::line(people.end(summary, limit, metrics));
                let Some((path, difference)) = difference else { return };
                let name = text::line(&path.display().to_string());
                match difference {
                    None => output::line(format_args!("outputs as {name} says")),
                    Some(difference) => output::line(people.difference(&name, difference)),
                }
            }
            Self::Programs => {
                let difference = difference.map(|(_, difference)| difference);
                output::line(text::json(&lines::end(summary, limit, metrics, difference, wrong)));
            }
        }
    }
}
