//! Another process with this worker's id.
//!
//! Ids are unlike each other unless an operator sets them, and then two processes may have one. No write of theirs is
//! lost on the other: each is conditional on the row's counter, and an epoch has one holder. But two are planned for as
//! one, and would leave work undone. So one of them has to stop, and an operator to be told.
//!
//! Each run of a worker writes a number of its own into the worker's row at every beat. A run that finds another number
//! where it has written its own is not alone. Which of two goes on must be clear to both from the row: the one that
//! started first, so that a worker that works is not disturbed; but where the platform promises that an id runs once, the
//! one that started last, because the platform has given up the other.

use std::fmt;
use std::time::Duration;

use crate::fleet::WorkerRow;
use crate::{Moment, WorkerId};

/// For how many expiries another process must have been seen before this one stops: a worker that is restarted under its
/// own name meets the one that is still finishing.
const PATIENCE: u32 = 3;

/// Another process that uses this worker's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twin {
    /// The id.
    pub worker: WorkerId,
    /// When the other process started, in milliseconds since 1970.
    pub joined: u64,
}

/// What there is to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No other process uses the id.
    Alone,
    /// Another one does, as was not known before: to be told.
    Found(Twin),
    /// As before.
    Known,
    /// It is gone, as was not known before.
    Gone,
    /// This process is the one that has to stop.
    Yield(Twin),
}

/// Watches the rows that are found where this run has written its own.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Since when another run has been seen without a break, and when it was seen last.
    seen: Option<(Moment, Moment)>,
}

// === impl Twin ===

impl fmt::Display for Twin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "another process uses the worker id `{}` (it started at {} ms since 1970) and goes on in its place; give each worker a `worker-id` of its own, or leave the key out",
            self.worker, self.joined
        )
    }
}

impl std::error::Error for Twin {}

// === impl Watch ===

impl Watch {
    /// Takes in a beat at `now` that found the row as this run had written it (`None`), or written by another run.
    pub(crate) fn observe(
        &mut self,
        now: Moment,
        expiry: Duration,
        me: &WorkerId,
        own: &WorkerRow,
        found: Option<&WorkerRow>,
    ) -> Verdict {
        // One that is leaving is about to go by itself.
        let Some(other) = found.filter(|found| found.run != own.run && !found.is_leaving) else {
            let is_gone = self.seen.is_some_and(|(_, last)| now.saturating_since(last) >= expiry);
            return match self.seen {
                None => Verdict::Alone,
                Some(_) if is_gone => {
                    self.seen = None;
                    Verdict::Gone
                }
                Some(_) => Verdict::Known,
            };
        };
        let twin = Twin { worker: me.clone(), joined: other.joined };
        let Some((since, last)) = &mut self.seen else {
            self.seen = Some((now, now));
            return Verdict::Found(twin);
        };
        *last = now;
        let is_older = (other.joined, &other.run) < (own.joined, &own.run);
        // Both say so, or the promise holds for neither.
        let runs_once = own.runs_once && other.runs_once;
        if is_older != runs_once && now.saturating_since(*since) >= expiry * PATIENCE {
            Verdict::Yield(twin)
        } else {
            Verdict::Known
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRY: Duration = Duration::from_secs(10);

    fn row(run: &str, joined: u64) -> WorkerRow {
        let run = run.to_owned();
        WorkerRow { run, joined, generation: 0, is_leaving: false, max: None, runs_once: false, note: None }
    }

    /// One beat a second, each finding such a row.
    fn verdicts(own: &WorkerRow, found: &[Option<WorkerRow>]) -> Vec<Verdict> {
        let (mut watch, me) = (Watch::default(), WorkerId::parse("w").unwrap());
        let observe = |(second, found): (u64, &Option<WorkerRow>)| {
            watch.observe(Moment::since_origin(Duration::from_secs(second)), EXPIRY, &me, own, found.as_ref())
        };
        (0..).zip(found).map(observe).collect()
    }

    fn is_yield(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Yield(_))
    }

    #[test]
    fn alone_nothing_is_said_and_an_own_row_is_no_other_process() {
        let own = row("a", 1);
        let found: Vec<_> = (0..40).map(|second| (second % 3 == 0).then(|| own.clone())).collect();
        assert!(verdicts(&own, &found).iter().all(|verdict| *verdict == Verdict::Alone));
    }

    #[test]
    fn of_two_exactly_one_stops_the_younger_or_where_ids_run_once_the_older() {
        for runs_once in [false, true] {
            for (older, younger) in [(row("a", 1), row("b", 2)), (row("b", 1), row("a", 2)), (row("a", 1), row("b", 1))]
            {
                let [older, younger] = [older, younger].map(|row| WorkerRow { runs_once, ..row });
                let sees = |own: &WorkerRow, other: &WorkerRow| verdicts(own, &vec![Some(other.clone()); 40]);
                let (first, second) = (sees(&older, &younger), sees(&younger, &older));
                assert_eq!(first.iter().any(is_yield), runs_once);
                assert_eq!(second.iter().any(is_yield), !runs_once);
                let stops = if runs_once { &first } else { &second };
                assert_eq!(stops.iter().position(is_yield), Some(30), "after three expiries");
                assert!(matches!(first[0], Verdict::Found(_)) && matches!(second[0], Verdict::Found(_)));
            }
        }
    }

    #[test]
    fn one_that_finishes_is_waited_for_and_one_that_is_gone_forgotten() {
        let (own, other) = (row("b", 2), row("a", 1));
        let leaving = WorkerRow { is_leaving: true, ..other.clone() };
        assert!(verdicts(&own, &vec![Some(leaving.clone()); 100]).iter().all(|verdict| *verdict == Verdict::Alone));
        let mut found = vec![Some(other); 20];
        found.extend(vec![None; 40]);
        let verdicts = verdicts(&own, &found);
        assert!(!verdicts.iter().any(is_yield));
        assert_eq!(verdicts[28..31], [Verdict::Known, Verdict::Gone, Verdict::Alone]);
    }

    #[test]
    fn what_is_said_names_the_id_and_what_to_do() {
        let text = Twin { worker: WorkerId::parse("w-7").unwrap(), joined: 7 }.to_string();
        assert!(text.contains("`w-7`") && text.contains("`worker-id`"), "{text}");
    }
}
