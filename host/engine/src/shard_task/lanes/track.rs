//! What waits for one lane of one batcher: a batch that is being filled, and those that are full. Pure; time is handed in.

use std::collections::VecDeque;
use std::time::Duration;

use shardmill_record::{Batch, BatchBuilder, Record};
use tokio::time::Instant;

use super::window::Id;
use crate::BatchOptions;

/// One after another goes out of it.
#[derive(Debug)]
pub(crate) struct Track {
    options: BatchOptions,
    /// Whether the guest is called where nothing comes.
    calls_empty: bool,
    open: Option<Open>,
    full: VecDeque<Ready>,
    /// Whether one of its batches is on its way.
    pub(crate) is_busy: bool,
    /// When something was handed over last.
    last: Instant,
}

/// A batch that is being filled.
#[derive(Debug, Default)]
struct Open {
    builder: BatchBuilder,
    ids: Vec<Id>,
    refused: Vec<(usize, String)>,
    bytes: usize,
    due: Option<Instant>,
    /// The beginning of the window that its records arrived in.
    window: Option<u64>,
}

/// A batch that may be handed over.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) batch: Batch,
    /// Of its records.
    pub(crate) ids: Vec<Id>,
    /// Records that have failed before anybody saw them, by their place, and why.
    pub(crate) refused: Vec<(usize, String)>,
}

/// The time, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    /// Milliseconds since 1970.
    pub(crate) wall: u64,
}

// === impl Track ===

impl Track {
    /// `calls_empty`: whether this one of the batcher's lanes says that nothing has come.
    pub(crate) fn new(options: BatchOptions, calls_empty: bool, now: Now) -> Self {
        let calls_empty = calls_empty && options.empty;
        Self { options, calls_empty, open: None, full: VecDeque::new(), is_busy: false, last: now.instant }
    }

    /// Takes a record in. `refused`: why it has failed already.
    pub(crate) fn push(&mut self, record: Record<'_>, id: Id, refused: Option<String>, now: Now) {
        let limits = self.options.limits;
        let window = self.options.window.map(|window| window.of(record.approximate_arrival));
        let bytes = record.partition_key.len() + record.data.len();
        let closes = |open: &Open| open.window != window || open.bytes + bytes > limits.bytes;
        if self.open.as_ref().is_some_and(closes) {
            self.close();
        }
        let options = &self.options;
        let open = self.open.get_or_insert_with(|| Open { due: due(options, window, now), window, ..Open::default() });
        if let Some(reason) = refused {
            open.refused.push((open.ids.len(), reason));
        }
        open.builder.push(record);
        open.ids.push(id);
        open.bytes += bytes;
        if open.ids.len() >= limits.records || open.bytes >= limits.bytes {
            self.close();
        }
    }

    /// What is being filled is full.
    pub(crate) fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.full.push_back(Ready { batch: open.builder.build(), ids: open.ids, refused: open.refused });
        }
    }

    /// The next batch, if one may be handed over now.
    pub(crate) fn take(&mut self, now: Now) -> Option<Ready> {
        if self.is_busy {
            return None;
        }
        if self.full.is_empty() && self.open.as_ref().is_some_and(|open| open.due.is_none_or(|due| due <= now.instant))
        {
            self.close();
        }
        let ready = self.full.pop_front().or_else(|| self.nothing(now))?;
        self.last = now.instant;
        Some(ready)
    }

    /// A batch without records, where that is to be told.
    fn nothing(&self, now: Now) -> Option<Ready> {
        let is_due = self.open.is_none() && self.empty_at().is_some_and(|at| at <= now.instant);
        is_due.then(|| Ready { batch: BatchBuilder::default().build(), ids: Vec::new(), refused: Vec::new() })
    }

    fn empty_at(&self) -> Option<Instant> {
        let every = self.options.window.map_or(self.options.wait, |window| window.length);
        (self.calls_empty && !every.is_zero()).then(|| self.last + every)
    }

    /// When something is to be done, unless something happens.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        if self.is_busy {
            return None;
        }
        match &self.open {
            Some(open) => open.due,
            None => self.empty_at(),
        }
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_busy && self.open.is_none() && self.full.is_empty()
    }

    /// Whether a batch waits for more records.
    pub(crate) fn is_filling(&self) -> bool {
        self.open.is_some()
    }
}

/// Until when a batch that begins now waits for more records, at most until its window is over; `None` for no longer than it
/// has to.
fn due(options: &BatchOptions, window: Option<u64>, now: Now) -> Option<Instant> {
    if options.wait.is_zero() {
        return None;
    }
    let left = match (options.window, window) {
        (Some(length), Some(window)) => Duration::from_millis(length.end(window).saturating_sub(now.wall)),
        _ => options.wait,
    };
    Some(now.instant + left.min(options.wait))
}

#[cfg(test)]
mod tests {
    use shardmill_record::BatchLimits;

    use super::*;
    use crate::Window;

    fn options() -> BatchOptions {
        BatchOptions { limits: BatchLimits { records: 3, bytes: 100 }, ..BatchOptions::default() }
    }

    fn record(arrived: u64, data: &[u8]) -> Record<'_> {
        Record {
            sequence_number: "1",
            sub_sequence_number: 0,
            partition_key: "key",
            explicit_hash_key: None,
            approximate_arrival: arrived,
            data,
        }
    }

    fn later(now: Now, milliseconds: u64) -> Now {
        Now { instant: now.instant + Duration::from_millis(milliseconds), wall: now.wall + milliseconds }
    }

    fn ids(ready: Option<Ready>) -> Option<Vec<Id>> {
        ready.map(|ready| ready.ids)
    }

    #[test]
    fn batches_go_one_after_another_and_none_is_larger_than_it_may_be() {
        let now = Now { instant: Instant::now(), wall: 0 };
        let mut track = Track::new(options(), false, now);
        assert_eq!(ids(track.take(now)), None);
        (0..4).for_each(|id| track.push(record(0, b"x"), id, (id == 1).then(|| "no".to_owned()), now));
        let ready = track.take(now).unwrap();
        assert_eq!((ready.ids, ready.refused, ready.batch.len()), (vec![0, 1, 2], vec![(1, "no".to_owned())], 3));
        track.is_busy = true;
        assert_eq!(ids(track.take(now)), None, "the one before is on its way");
        track.is_busy = false;
        track.push(record(0, &[7; 95]), 4, None, now);
        assert_eq!(ids(track.take(now)), Some(vec![3]), "both are too much");
        assert_eq!(ids(track.take(now)), Some(vec![4]));
        assert!(track.is_empty());
    }

    #[test]
    fn a_batch_waits_for_more_records_as_long_as_it_may() {
        let now = Now { instant: Instant::now(), wall: 0 };
        let mut track = Track::new(BatchOptions { wait: Duration::from_millis(50), ..options() }, false, now);
        track.push(record(0, b"x"), 0, None, now);
        assert_eq!(track.wakes_at(), Some(later(now, 50).instant));
        assert_eq!(ids(track.take(later(now, 49))), None);
        track.push(record(0, b"x"), 1, None, later(now, 49));
        assert_eq!(ids(track.take(later(now, 50))), Some(vec![0, 1]));
        (2..6).for_each(|id| track.push(record(0, b"x"), id, None, later(now, 60)));
        assert_eq!(ids(track.take(later(now, 60))), Some(vec![2, 3, 4]), "a full one waits for nothing");
        track.close();
        assert_eq!(ids(track.take(later(now, 60))), Some(vec![5]));
    }

    #[test]
    fn records_of_two_windows_are_not_in_one_batch() {
        let now = Now { instant: Instant::now(), wall: 10_500 };
        let window = Some(Window { length: Duration::from_secs(1) });
        let wait = Duration::from_secs(1);
        let limits = BatchLimits { records: 100, bytes: 10_000 };
        let mut track = Track::new(BatchOptions { window, wait, limits, ..options() }, false, now);
        track.push(record(10_400, b"x"), 0, None, now);
        assert_eq!(track.wakes_at(), Some(later(now, 500).instant), "when the window is over");
        track.push(record(10_999, b"x"), 1, None, now);
        track.push(record(11_000, b"x"), 2, None, now);
        assert_eq!(ids(track.take(now)), Some(vec![0, 1]), "a later window has begun");
        assert_eq!(ids(track.take(later(now, 999))), None);
        assert_eq!(
            ids(track.take(later(now, 1_000))),
            Some(vec![2]),
            "the clocks differ, and it waits no longer than it may"
        );
        // What is old has no window to wait for.
        track.push(record(5_000, b"x"), 3, None, later(now, 2_000));
        assert_eq!(ids(track.take(later(now, 2_000))), Some(vec![3]));
    }

    #[test]
    fn a_batch_without_records_is_told_when_nothing_comes() {
        let now = Now { instant: Instant::now(), wall: 0 };
        let options = BatchOptions { wait: Duration::from_millis(50), empty: true, ..options() };
        let mut track = Track::new(options, true, now);
        assert_eq!(track.wakes_at(), Some(later(now, 50).instant));
        assert_eq!(ids(track.take(later(now, 50))), Some(Vec::new()));
        track.push(record(0, b"x"), 0, None, later(now, 90));
        assert_eq!(ids(track.take(later(now, 110))), None, "something has come");
        assert_eq!(ids(track.take(later(now, 140))), Some(vec![0]));
        assert_eq!(ids(track.take(later(now, 189))), None);
        assert_eq!(ids(track.take(later(now, 190))), Some(Vec::new()));
        let mut other = Track::new(options, false, now);
        assert_eq!((ids(other.take(later(now, 500))), other.wakes_at()), (None, None), "one of the lanes is enough");
    }
}
