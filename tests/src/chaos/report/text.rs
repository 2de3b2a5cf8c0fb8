//! A report as text.

use std::fmt;

use super::super::action::{Deed, Trouble};
use super::super::checker::Longest;
use super::super::writer::KEYS;
use super::Report;
use super::causes::Cause;
use crate::Held;
use crate::history::Summary;

// === impl Report ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, temper, length, took, written, unclear, records, letters, .. } = self;
        let seconds = |milliseconds: u64| milliseconds as f64 / 1_000.0;
        let longest = |Longest { time, key, until }: &Longest| {
            format!("{:.1} s ({key}, until {:.1} s)", seconds(*time), seconds(until.saturating_sub(self.began_at)))
        };
        writeln!(
            f,
            "chaos: seed {seed}, {}, {} s: {written} records of {KEYS} keys, {unclear} sent again by their writer, \
             {records} came out and {letters} are dead letters, {} are lost, after {:.1} s in all",
            temper.name(),
            length.as_secs(),
            self.lost(),
            took.as_secs_f64(),
        )?;
        let actions: Vec<String> = self.actions.iter().map(|(action, count)| format!("{action} {count}")).collect();
        writeln!(f, "  actions: {}", actions.join(", "))?;
        let cost = |count: fn(&Cause) -> u64| {
            let causes = self.causes.causes.iter().filter(|cause| count(cause) > 0);
            causes.map(|cause| (cause.what, count(cause), cause.at_risk)).collect::<Vec<_>>()
        };
        let mut repeats: Vec<String> = cost(|cause| cause.records)
            .into_iter()
            .map(|(what, count, at_risk)| format!("{count} after {what} (of {at_risk} at risk)"))
            .collect();
        let mut letters: Vec<String> =
            cost(|cause| cause.letters).into_iter().map(|(what, count, _)| format!("{count} after {what}")).collect();
        for (list, count) in [(&mut repeats, self.causes.unexplained), (&mut letters, self.causes.unexplained_letters)]
        {
            if count > 0 {
                list.push(format!("{count} without a reason"));
            }
        }
        let after_colon =
            |list: &[String]| if list.is_empty() { String::new() } else { format!(": {}", list.join(", ")) };
        writeln!(
            f,
            "  repeats: {}{}; {} of them sent again by the same worker; besides, {} that may be twice in the input",
            self.repeated(),
            after_colon(&repeats),
            self.sent_again,
            self.repeated_input,
        )?;
        writeln!(f, "  letters written once more: {}{}", self.causes.letters(), after_colon(&letters))?;
        writeln!(
            f,
            "  longest: from input to output {}, between two new records of a key {}",
            longest(&self.delay),
            longest(&self.silence),
        )?;
        match &self.leases {
            Some(Summary { takes, late, .. }) => writeln!(
                f,
                "  leases: taken {takes} times, {} of them from who had not let go; {late} late requests",
                self.lapses,
            )?,
            None => writeln!(f, "  leases: a promise is broken")?,
        }
        write!(f, "  promises broken: {}", self.violations.len())
    }
}

/// What becomes of a worker or of the services, for a log.
pub(in crate::chaos) fn describe_deed(deed: Deed) -> String {
    match deed {
        Deed::Kill { pause } => format!("and {pause:.1?} without it"),
        Deed::Roll | Deed::Surge | Deed::Reload | Deed::ReloadBad => String::new(),
        Deed::Freeze { time } | Deed::FillDisk { time } => format!("for {time:.1?}"),
        Deed::CutOff { time, held: Held::Lost } => format!("for {time:.1?}, what was sent is lost"),
        Deed::CutOff { time, held: Held::Delivered } => format!("for {time:.1?}, what was sent arrives then"),
        Deed::SkewClock { seconds, time } => format!("by {seconds:+} s, for {time:.1?}"),
    }
}

pub(in crate::chaos) fn describe_trouble(trouble: Trouble, chance: f64, befallen: u64) -> String {
    let calls = match trouble {
        Trouble::ReadsThrottled => "GetRecords",
        Trouble::PutsThrottled | Trouble::PutsSlow | Trouble::PutAnswersLost => "PutRecords",
        Trouble::LeaseWritesThrottled | Trouble::LeaseAnswersLost => "UpdateItem",
        Trouble::CallsFail => "GetRecords and PutRecords",
        Trouble::ConnectionsReset | Trouble::AnswersLate => "GetRecords, PutRecords and UpdateItem",
    };
    format!("{befallen} calls of {calls}, a chance of {chance:.2}")
}
