//! What waits for one lane of one batcher: a batch that is being filled, and those that are full. Pure; time is handed in.

use std::collections::VecDeque;
use std::time::Duration;

use shardmill_record::{Batch, BatchBuilder, Position, Record, SequenceNumber};
use tokio::time::Instant;

use super::window::Id;
use crate::BatchOptions;

/// One after another goes out of it.
#[derive(Debug)]
pub(crate) struct Track {
    options: BatchOptions,
    /// Whether a batch says how far everything is in it or in an earlier one.
    says_through: bool,
    open: Option<Open>,
    full: VecDeque<Ready>,
    /// Texts and payloads of what waits.
    waiting: usize,
    /// Those of the batch that is on its way, if one is.
    running: Option<usize>,
}

/// A batch that is being filled.
#[derive(Debug, Default)]
struct Open {
    builder: BatchBuilder,
    ids: Vec<Id>,
    refused: Vec<(usize, String)>,
    /// Until when it waits for more records; `None` for no longer than it has to.
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
    /// `says_through`: whether a batch says how far it goes, which it can where all that the guest gets of the shard is here.
    pub(crate) fn new(options: BatchOptions, says_through: bool) -> Self {
        Self { options, says_through, open: None, full: VecDeque::new(), waiting: 0, running: None }
    }

    /// Takes a record in. `refused`: why it has failed already.
    pub(crate) fn push(&mut self, record: Record<'_>, id: Id, refused: Option<String>, now: Now) {
        let limits = self.options.limits;
        let window = self.options.window.map(|window| window.of(record.approximate_arrival));
        let bytes = size(&record);
        let closes = |open: &Open| open.window != window || open.builder.bytes() + bytes > limits.bytes;
        if self.open.as_ref().is_some_and(closes) {
            self.close();
        }
        let options = &self.options;
        let open = self.open.get_or_insert_with(|| Open { due: due(options, window, now), window, ..Open::default() });
        if let Some(reason) = refused {
            open.refused.push((open.ids.len(), reason));
        }
        open.builder.push(record);
        if self.says_through
            && let Ok(sequence_number) = SequenceNumber::parse(record.sequence_number)
        {
            open.builder.set_through(Position::new(sequence_number, record.sub_sequence_number));
        }
        open.ids.push(id);
        self.waiting += bytes;
        if open.ids.len() >= limits.records || open.builder.bytes() >= limits.bytes {
            self.close();
        }
    }

    /// What is being filled waits for no more records than come until it can be handed over.
    pub(crate) fn hurry(&mut self) {
        if let Some(open) = &mut self.open {
            open.due = None;
        }
    }

    /// What is being filled is full.
    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.full.push_back(Ready { batch: open.builder.build(), ids: open.ids, refused: open.refused });
        }
    }

    /// The next batch, if one may be handed over now. It is on its way then, until [`done`](Self::done) says that it is not.
    pub(crate) fn take(&mut self, now: Now) -> Option<Ready> {
        if self.is_busy() {
            return None;
        }
        if self.full.is_empty() && self.open.as_ref().is_some_and(|open| open.due.is_none_or(|due| due <= now.instant))
        {
            self.close();
        }
        let ready = self.full.pop_front()?;
        let bytes = ready.batch.arena().len();
        self.waiting -= bytes;
        self.running = Some(bytes);
        Some(ready)
    }

    /// A batch without records is on its way.
    pub(crate) fn take_nothing(&mut self) {
        self.running = Some(0);
    }

    /// What was on its way is not any more.
    pub(crate) fn done(&mut self) {
        self.running = None;
    }

    /// When something is to be done, unless something happens.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.open.as_ref().filter(|_| !self.is_busy())?.due
    }

    /// Texts and payloads of what waits and of what is on its way.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting + self.running.unwrap_or(0)
    }

    /// Whether a batch is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Whether nothing waits.
    pub(crate) fn has_nothing(&self) -> bool {
        self.open.is_none() && self.full.is_empty()
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.has_nothing() && !self.is_busy()
    }

    /// Whether a batch waits for more records.
    pub(crate) fn is_filling(&self) -> bool {
        self.open.is_some()
    }
}

/// What a record takes of a batch's limit.
fn size(record: &Record<'_>) -> usize {
    let explicit_hash_key = record.explicit_hash_key.map_or(0, str::len);
    record.sequence_number.len() + record.partition_key.len() + explicit_hash_key + record.data.len()
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
        let mut track = Track::new(options(), false);
        assert_eq!(ids(track.take(now)), None);
        (0..4).for_each(|id| track.push(record(0, b"x"), id, (id == 1).then(|| "no".to_owned()), now));
        let ready = track.take(now).unwrap();
        assert_eq!((ready.ids, ready.refused, ready.batch.len()), (vec![0, 1, 2], vec![(1, "no".to_owned())], 3));
        assert_eq!(ids(track.take(now)), None, "the one before is on its way");
        track.done();
        track.push(record(0, &[7; 95]), 4, None, now);
        assert_eq!(track.bytes(), 5 + 99);
        assert_eq!(ids(track.take(now)), Some(vec![3]), "both are too much");
        assert_eq!(track.bytes(), 5 + 99, "what is on its way is held as well");
        track.done();
        assert_eq!(ids(track.take(now)), Some(vec![4]));
        assert_eq!(track.bytes(), 99);
        track.done();
        assert!(track.is_empty());
    }

    #[test]
    fn a_batch_waits_for_more_records_as_long_as_it_may() {
        let now = Now { instant: Instant::now(), wall: 0 };
        let mut track = Track::new(BatchOptions { wait: Duration::from_millis(50), ..options() }, false);
        track.push(record(0, b"x"), 0, None, now);
        assert_eq!(track.wakes_at(), Some(later(now, 50).instant));
        assert_eq!(ids(track.take(later(now, 49))), None);
        track.push(record(0, b"x"), 1, None, later(now, 49));
        assert_eq!(ids(track.take(later(now, 50))), Some(vec![0, 1]));
        track.done();
        (2..6).for_each(|id| track.push(record(0, b"x"), id, None, later(now, 60)));
        assert_eq!(ids(track.take(later(now, 60))), Some(vec![2, 3, 4]), "a full one waits for nothing");
        track.hurry();
        track.push(record(0, b"x"), 6, None, later(now, 60));
        track.done();
        assert_eq!(ids(track.take(later(now, 60))), Some(vec![5, 6]), "what comes until it goes is in it");
    }

    #[test]
    fn records_of_two_windows_are_not_in_one_batch() {
        let now = Now { instant: Instant::now(), wall: 10_500 };
        let window = Some(Window { length: Duration::from_secs(1) });
        let wait = Duration::from_secs(1);
        let limits = BatchLimits { records: 100, bytes: 10_000 };
        let mut track = Track::new(BatchOptions { window, wait, limits, ..options() }, false);
        track.push(record(10_400, b"x"), 0, None, now);
        assert_eq!(track.wakes_at(), Some(later(now, 500).instant), "when the window is over");
        track.push(record(10_999, b"x"), 1, None, now);
        track.push(record(11_000, b"x"), 2, None, now);
        assert_eq!(ids(track.take(now)), Some(vec![0, 1]), "a later window has begun");
        track.done();
        assert_eq!(ids(track.take(later(now, 999))), None);
        assert_eq!(
            ids(track.take(later(now, 1_000))),
            Some(vec![2]),
            "the clocks differ, and it waits no longer than it may"
        );
        track.done();
        // What is old has no window to wait for.
        track.push(record(5_000, b"x"), 3, None, later(now, 2_000));
        assert_eq!(ids(track.take(later(now, 2_000))), Some(vec![3]));
    }

    #[test]
    fn a_batch_says_how_far_it_goes_where_it_can() {
        let now = Now { instant: Instant::now(), wall: 0 };
        for says_through in [true, false] {
            let mut track = Track::new(options(), says_through);
            for number in ["7", "8"] {
                track.push(Record { sequence_number: number, ..record(0, b"x") }, 0, None, now);
            }
            let through = track.take(now).and_then(|ready| ready.batch.through().map(ToString::to_string));
            assert_eq!(through.as_deref(), says_through.then_some("8/0"));
        }
    }
}
