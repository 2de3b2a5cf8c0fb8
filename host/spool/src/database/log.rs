//! The log, to which changes go first, and how much of the disk both files keep.

use super::Database;
use crate::Error;
use crate::layout::{self, PAGE};

impl Database {
    /// Gives the disk back what a spool does not need that is empty, or has little left.
    pub(crate) fn shrink(&mut self) -> Result<(), Error> {
        /// Up to this, files are not worth the work.
        const WORTH: u64 = 1 << 20;
        /// Of the pages, one in so many.
        const LITTLE: u64 = 10;

        let (pages, used, is_empty) = (self.pages()?, self.pages_in_use()?, self.is_empty());
        // All that is left goes through the log.
        let has_little = used * LITTLE <= pages && used + layout::Need::default().pages() <= self.layout.log_frames;
        if pages * PAGE > WORTH && (is_empty || has_little) {
            // Not at each record that is removed.
            if self.is_stuck {
                return Ok(());
            }
            self.is_stuck = true;
            self.copy_log()?;
            self.run("shrinking the file", "VACUUM")?;
            self.empty_log()?;
            self.is_stuck = false;
        } else if is_empty && self.log_used * PAGE > WORTH {
            self.empty_log()?;
        }
        Ok(())
    }

    /// Closes the file, which takes in what is in the log.
    pub(crate) fn close(mut self) -> Result<(), Error> {
        let copied = self.copy_log();
        let reserved = if self.is_empty() { 0 } else { self.layout.reserved_log_bytes() };
        let Self { connection, file, end, log, .. } = self;
        let closed = connection.close().map_err(|(_, error)| Error::of_database(&file, "closing the database", &error));
        drop(end);
        closed?;
        if copied? {
            log.clear(reserved)?;
        }
        Ok(())
    }

    /// Brings what a process left in the log to the database. On a disk that is full, that may have to wait.
    pub(super) fn settle_log(&mut self, is_new: bool) -> Result<(), Error> {
        let length = self.log.length();
        let settled = if is_new || length > self.layout.log_bytes() || self.is_empty() {
            self.empty_log()
        } else {
            self.copy_log().map(drop)
        };
        self.look_at_end();
        match settled {
            Err(error) if error.is_of_disk() => {
                self.log_used = layout::frames_in(length);
                // They cannot be had now, and were taken for granted before.
                self.covered = self.covered.max(self.pages()?);
                tracing::warn!(file = %self.file.display(), %error, "what is in the log stays there for now");
            }
            settled => settled?,
        }
        if !self.is_empty()
            && let Err(error) = self.reserve_log()
        {
            tracing::warn!(file = %self.file.display(), %error, "there may be no room to remove records when they are sent");
        }
        Ok(())
    }

    /// Brings what is in the log to the database; whether that is all. The log keeps its room on the disk, so that
    /// records can be removed also when the disk is full.
    pub(crate) fn copy_log(&mut self) -> Result<bool, Error> {
        let (log, copied): (i64, i64) = self
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get(1)?, row.get(2)?)))
            .map_err(|error| self.failed("copying the log", &error))?;
        self.look_at_end();
        if log == copied {
            self.log_used = 0;
        }
        Ok(log == copied)
    }

    /// The same, and the log gives its room back, but for what removing takes.
    pub(super) fn empty_log(&mut self) -> Result<(), Error> {
        let emptied = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_row| Ok(()));
        emptied.map_err(|error| self.failed("emptying the log", &error))?;
        self.look_at_end();
        self.log_used = 0;
        self.is_log_reserved = false;
        if self.is_empty() { Ok(()) } else { self.reserve_log() }
    }
}
