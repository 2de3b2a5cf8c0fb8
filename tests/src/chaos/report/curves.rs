//! How a run went over time, from what is in its streams.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::super::fate::Fate;
use crate::Found;

/// The most points, so that a run of hours can be looked at.
const MOST_POINTS: u32 = 600;

/// What has happened within equal times, one after the other from the start of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Curves {
    /// How long each of them is.
    pub every: Duration,
    /// Each of them.
    pub points: Vec<Point>,
}

/// What has happened within a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Records that came into the input, poison included.
    pub written: u64,
    /// Records that came out for the first time.
    pub out: u64,
    /// Records that came out once more.
    pub repeated: u64,
    /// Records that were to come out and had not at the end of the time.
    pub behind: u64,
    /// The longest time from input to output, of those that came out, in milliseconds.
    pub delay: u64,
}

// === impl Curves ===

impl Curves {
    /// For a run that began then (in milliseconds since 1970) and lasted so long.
    pub(in crate::chaos) fn of(input: &[Found], output: &[Found], began_at: u64, took: Duration) -> Curves {
        let every = Duration::from_secs(took.as_secs().div_ceil(u64::from(MOST_POINTS)).max(1));
        let count = took.as_millis().div_ceil(every.as_millis()).max(1);
        let mut points = vec![Point::default(); usize::try_from(count).expect("few points")];
        let last = points.len() - 1;
        let place = |arrival: u64| {
            let since = u128::from(arrival.saturating_sub(began_at)) / every.as_millis();
            usize::try_from(since).map_or(last, |at| at.min(last))
        };
        // What is twice in the input came when it came first.
        let mut arrivals: BTreeMap<u64, u64> = BTreeMap::new();
        for record in input {
            points[place(record.arrival)].written += 1;
            arrivals.entry(record.number).and_modify(|at| *at = record.arrival.min(*at)).or_insert(record.arrival);
        }
        let mut due = vec![0_u64; points.len()];
        for (_, arrival) in arrivals.iter().filter(|(number, _)| Fate::of(**number) == Fate::Out) {
            due[place(*arrival)] += 1;
        }
        let mut in_time: Vec<&Found> = output.iter().collect();
        in_time.sort_by_key(|record| record.arrival);
        let mut seen = BTreeSet::new();
        for record in in_time {
            let point = &mut points[place(record.arrival)];
            if !seen.insert(record.number) {
                point.repeated += 1;
                continue;
            }
            point.out += 1;
            let arrived = arrivals.get(&record.number).copied().unwrap_or(record.arrival);
            point.delay = point.delay.max(record.arrival.saturating_sub(arrived));
        }
        let mut behind = 0_u64;
        for (point, due) in points.iter_mut().zip(due) {
            behind = (behind + due).saturating_sub(point.out);
            point.behind = behind;
        }
        Curves { every, points }
    }
}

#[cfg(test)]
mod tests {
    use shardmill_record::{Position, SequenceNumber};

    use super::*;

    #[test]
    fn what_came_and_went_is_counted_where_it_did_and_what_is_left_is_behind() {
        let found = |number: u64, arrival: u64| Found {
            number,
            key: "key-1".to_owned(),
            shard: "shardId-000000000000".to_owned(),
            position: Position::new(SequenceNumber::parse("1").unwrap(), 0),
            arrival: 10_000 + arrival,
        };
        // The last one is poison.
        let input = [found(1, 100), found(2, 200), found(3, 1_100), found(50, 1_200)];
        let output = [found(1, 600), found(2, 2_300), found(1, 2_400), found(3, 2_500)];
        let curves = Curves::of(&input, &output, 10_000, Duration::from_millis(2_900));
        let point = |written, out, repeated, behind, delay| Point { written, out, repeated, behind, delay };
        assert_eq!(curves.every, Duration::from_secs(1));
        assert_eq!(curves.points, [point(2, 1, 0, 1, 500), point(2, 0, 0, 2, 0), point(0, 2, 1, 0, 2_100)]);
        let long = Curves::of(&input, &output, 10_000, Duration::from_secs(7_200));
        assert_eq!((long.every, long.points.len()), (Duration::from_secs(12), 600));
    }
}
