//! How much of the disk things take: what a spool may hold within its bound. Pure.
//!
//! A change is first written to the log, and when the log is full enough, from there to the database. The bound is divided
//! among the two once and for all, so that neither can grow into the other's share. What a change takes is estimated
//! from above: each page that it can touch, at the half-full pages that a tree can have.

/// Of the database, in bytes.
pub(crate) const PAGE: u64 = 4096;
/// A page in the log, with its head.
const FRAME: u64 = PAGE + 24;
const LOG_HEAD: u64 = 32;
/// Beyond this, a longer log is of no use: it takes the largest record of Kinesis, or some ten thousand small ones.
const MAX_LOG: u64 = 12 << 20;
/// Of the files beside the database.
const BESIDE: u64 = 2 * PAGE;

/// What a row holds besides its key and its payload, and what its place in a page takes.
const ROW: u64 = 80;
const CELL: u64 = 16;
/// A row that is larger has pages of its own (`SQLite`'s file format, "B-tree Cell Format").
const MAX_IN_LEAF: u64 = PAGE - 35;
const MIN_IN_LEAF: u64 = (PAGE - 12) * 32 / 255 - 23;
const PAGE_OF_ITS_OWN: u64 = PAGE - 4;

/// What any change can touch: the first page, the list of streams, lists of free pages.
const ANY_CHANGE: u64 = 16;
/// What a change of one stream's records can touch besides: the path down its tree, and splits along it.
const EACH_STREAM: u64 = 8;
/// What one removed row can touch: its page, and two beside it that are evened out.
const EACH_REMOVED: u64 = 3;
/// Pages of the database that only housekeeping may take.
const HOUSEKEEPING: u64 = 16;

/// The shares of the log and the database, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) log_frames: u64,
    pub(crate) database_pages: u64,
}

// === impl Layout ===

impl Layout {
    /// Within so many bytes, at least 1 MiB.
    pub(crate) fn of(bytes: u64) -> Self {
        let log = (bytes / 4).min(MAX_LOG);
        Self { log_frames: (log - LOG_HEAD) / FRAME, database_pages: (bytes - log - BESIDE) / PAGE }
    }

    /// What the log may take, in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        LOG_HEAD + self.log_frames * FRAME
    }

    /// What the log has of the disk for as long as there are records, in bytes: removing a dozen of any size takes less.
    pub(crate) fn reserved_log_bytes(&self) -> u64 {
        /// In frames.
        const RESERVED: u64 = 64;

        LOG_HEAD + self.log_frames.min(RESERVED) * FRAME
    }

    /// What stored records may take of the database, in pages.
    pub(crate) fn room(&self) -> u64 {
        self.database_pages - HOUSEKEEPING
    }

    /// Whether a record fits at all.
    pub(crate) fn takes(&self, record_bytes: u64, stream: &str) -> bool {
        let mut need = Need::default();
        need.add_stream(stream);
        need.add(record_bytes);
        self.takes_at_once(&need)
    }

    /// Whether all of this fits into one change.
    pub(crate) fn takes_at_once(&self, need: &Need) -> bool {
        need.pages() <= self.log_frames.min(self.room())
    }

    /// How many rows one change may remove at most.
    pub(crate) fn removed_at_once(&self) -> usize {
        let rows = self.log_frames.saturating_sub(ANY_CHANGE + EACH_STREAM) / EACH_REMOVED;
        rows.clamp(1, 1000) as usize
    }

    /// How many of these rows, in bytes, one change may remove: one at least.
    pub(crate) fn removed_of(&self, rows: impl IntoIterator<Item = u64>) -> usize {
        let mut sum = 0;
        let fit = rows.into_iter().take(self.removed_at_once()).enumerate().take_while(|(index, bytes)| {
            sum = u64::saturating_add(sum, *bytes);
            *index == 0 || frames_to_remove(index + 1, sum) <= self.log_frames
        });
        fit.count()
    }
}

/// What storing records takes, from above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Need {
    bytes: u64,
    pages: u64,
}

// === impl Need ===

impl Need {
    /// With a record of so many bytes, key and payload.
    pub(crate) fn add(&mut self, record_bytes: u64) {
        let row = record_bytes.saturating_add(ROW);
        let overflow = if row > MAX_IN_LEAF { (row - MIN_IN_LEAF).div_ceil(PAGE_OF_ITS_OWN) } else { 0 };
        self.pages += overflow;
        self.bytes += 2 * (row.min(MAX_IN_LEAF) + CELL);
    }

    /// With one stream more that records are of.
    pub(crate) fn add_stream(&mut self, name: &str) {
        self.pages += EACH_STREAM;
        self.bytes += 2 * name.len() as u64;
    }

    /// In all, in pages of the database or frames of the log.
    pub(crate) fn pages(&self) -> u64 {
        let pages = self.pages + self.bytes.div_ceil(PAGE);
        ANY_CHANGE + pages + pages / 500
    }
}

/// What removing rows of so many bytes takes of the log, in frames.
pub(crate) fn frames_to_remove(rows: usize, bytes: u64) -> u64 {
    let freed = bytes / PAGE_OF_ITS_OWN;
    ANY_CHANGE + EACH_STREAM + EACH_REMOVED * rows as u64 + freed / 500
}

/// About what a row takes in pages that are free when it is gone, in bytes.
pub(crate) fn freed_by(record_bytes: u64) -> u64 {
    record_bytes.saturating_add(ROW)
}

/// How many frames are in a log of so many bytes at most.
pub(crate) fn frames_in(log_bytes: u64) -> u64 {
    log_bytes / FRAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_stay_within_the_bound_and_leave_nothing_unused() {
        for bytes in [1 << 20, (1 << 20) + 12_345, 5 << 20, 1 << 26, 1 << 30, 1 << 40] {
            let layout = Layout::of(bytes);
            let taken = layout.log_frames * FRAME + LOG_HEAD + layout.database_pages * PAGE + BESIDE;
            assert!(taken <= bytes && bytes - taken < FRAME + PAGE, "{bytes}: {taken}");
            assert!(layout.removed_at_once() >= 10, "{layout:?}");
            assert!(layout.reserved_log_bytes() <= layout.log_bytes());
            assert!(frames_to_remove(1, 11 << 20) <= frames_in(layout.reserved_log_bytes()));
        }
    }

    #[test]
    fn records_fit_as_the_options_say() {
        for bytes in [1 << 20, 1 << 24, 48 << 20] {
            assert!(Layout::of(bytes).takes(bytes / 8, "s"), "{bytes}");
            assert!(!Layout::of(bytes).takes(bytes / 4, "s"), "{bytes}");
        }
        assert!(Layout::of(64 << 20).takes((10 << 20) + 1024, "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"));
    }

    #[test]
    fn as_many_rows_go_at_once_as_the_log_takes() {
        let layout = Layout::of(64 << 20);
        assert_eq!(layout.removed_of([100; 2000]), layout.removed_at_once());
        let large = layout.removed_of([10 << 20; 2000]);
        assert!((300..500).contains(&large), "{large}");
        // Also of sizes that are none.
        assert_eq!(Layout::of(1 << 20).removed_of([u64::MAX; 3]), 1);
        assert_eq!(layout.removed_of([]), 0);
    }

    #[test]
    fn needs_add_up() {
        let mut need = Need::default();
        let empty = need.pages();
        need.add_stream("orders");
        for _record in 0..1000 {
            need.add(100);
        }
        // 180 bytes a row, and pages that are half full.
        let pages = need.pages() - empty;
        assert!((90..=110).contains(&pages), "{pages}");
        let mut large = Need::default();
        large.add(1 << 20);
        assert!((256..=265).contains(&(large.pages() - empty)), "{large:?}");
    }
}
