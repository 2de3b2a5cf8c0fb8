//! What leaves the spool, also on a disk that is full.

use super::Writer;
use crate::database::Database;
use crate::job::Front;
use crate::{Error, Id};

impl Writer {
    pub(super) fn front(&mut self, stream: &str, records: usize, bytes: u64) -> Result<Front, Error> {
        if !self.unremoved.is_empty() {
            self.remove(Vec::new())?;
        }
        let mut set_aside = 0;
        loop {
            let (front, damaged) = self.database.front(stream, records, bytes)?;
            let is_last = damaged.is_empty() || !front.is_empty();
            for id in damaged {
                let file = self.folder.database();
                let reason = "its row in the database is not what was written";
                self.lightly(1, |database, _| database.set_aside(id, reason))?;
                set_aside += 1;
                self.metrics.failed("damaged");
                tracing::error!(
                    file = %file.display(), stream, record = id.number,
                    "a record in the spool is damaged and cannot be sent; it is set aside. Check the disk"
                );
            }
            if is_last {
                return Ok(Front { records: front, damaged: set_aside });
            }
        }
    }

    /// Works on so many rows at once, or on as many as a full disk lets the log take: that has some room of its own, which
    /// is used over and over.
    pub(super) fn lightly<T>(
        &mut self,
        most: usize,
        work: impl Fn(&mut Database, usize) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut count, mut is_log_empty) = (most, false);
        loop {
            let error = match work(&mut self.database, count) {
                Err(error) if error.is_of_disk() => error,
                done => return done,
            };
            if is_log_empty && count <= 1 {
                return Err(error);
            }
            if is_log_empty {
                count /= 2;
            }
            if self.database.copy_log().is_err() {
                return Err(error);
            }
            is_log_empty = true;
        }
    }

    /// Removes these, and those that could not be removed before.
    pub(super) fn remove(&mut self, ids: Vec<Id>) -> Result<u64, Error> {
        self.is_lighter = true;
        self.unremoved.extend(ids);
        let mut removed = 0;
        while !self.unremoved.is_empty() {
            let count = self.database.layout().removed_of(self.unremoved.iter().map(|id| id.bytes));
            let chunk: Vec<Id> = self.unremoved.iter().take(count).copied().collect();
            let (by_stream, count) =
                self.lightly(count, |database, count| Ok((database.remove(&chunk[..count])?, count)))?;
            for (stream, records) in by_stream {
                self.metrics.sent(&stream, records);
                removed += records;
            }
            for id in &chunk[..count] {
                self.unremoved.remove(id);
            }
        }
        Ok(removed)
    }
}
