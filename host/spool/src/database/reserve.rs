//! Room on the disk that is taken before it is needed: on a disk that is full, what was accepted can be read, sent and
//! removed.
//!
//! The database's file always reaches as far as its pages do that are in the log still, so that these can be brought there
//! without more room. And the log has some room of its own for as long as there are records: removing goes through it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::Database;
use crate::Error;
use crate::layout::PAGE;

/// How many pages the file grows by at a time, at most.
const STEP: u64 = 64;

impl Database {
    /// Lets the file have so many pages.
    pub(super) fn cover(&mut self, pages: u64) -> Result<(), Error> {
        if pages <= self.covered {
            return Ok(());
        }
        let step = STEP.min(self.layout.database_pages / 16);
        let some_more = (pages + step).min(self.layout.database_pages).max(pages);
        let mut covered = some_more;
        let mut done = allocate(&self.end, covered * PAGE);
        if done.is_err() {
            covered = pages;
            done = allocate(&self.end, covered * PAGE);
        }
        done.map_err(|error| Error::io(&self.file, "making room in the file", &error))?;
        self.covered = covered;
        Ok(())
    }

    /// Gives back what was taken for pages that there will not be: others may need it on a disk that is full.
    pub(super) fn uncover(&mut self, pages: u64) {
        // What cannot be given back is taken all the same.
        if pages < self.covered && self.end.set_len(pages * PAGE).is_ok() {
            self.covered = pages;
        }
    }

    /// Looks how far the file reaches: whoever empties the log cuts it.
    pub(super) fn look_at_end(&mut self) {
        self.covered = self.end.metadata().map_or(0, |file| file.len() / PAGE);
    }

    /// Lets the log have the room that removing takes.
    pub(super) fn reserve_log(&mut self) -> Result<(), Error> {
        if !self.is_log_reserved {
            self.allocate_log(self.layout.reserved_log_bytes())?;
            self.is_log_reserved = true;
        }
        Ok(())
    }

    /// Takes all room that dropping records and then storing others can take, in so many pages.
    pub(crate) fn reserve(&mut self, pages: u64) -> Result<(), Error> {
        self.allocate_log(self.layout.log_bytes())?;
        let pages = self.pages()? + pages;
        self.cover(pages.min(self.layout.database_pages))
    }

    fn allocate_log(&self, bytes: u64) -> Result<(), Error> {
        let file = self.log.open()?;
        allocate(&file, bytes).map_err(|error| Error::io(self.log.path(), "making room in the file", &error))
    }
}

/// Lets a file have so many bytes, for which there is room on the disk.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let length = file.metadata()?.len();
    if length >= bytes {
        return Ok(());
    }
    match rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), length, bytes - length)) {
        // Some file systems know of no such thing.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(file, length, bytes),
        done => done.map_err(Into::into),
    }
}

fn fill(file: &File, mut at: u64, upto: u64) -> io::Result<()> {
    let zeros = [0; 64 << 10];
    while at < upto {
        let some = zeros.len().min(usize::try_from(upto - at).unwrap_or(usize::MAX));
        file.write_all_at(&zeros[..some], at)?;
        at += some as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_room_and_keeps_what_it_holds() {
        let ways: [fn(&File, u64) -> io::Result<()>; 2] = [|file, bytes| fill(file, 3, bytes), allocate];
        for how in ways {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(b"abc", 0).unwrap();
            how(&file, 200_000).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 200_000);
            let mut head = [9; 5];
            file.read_exact_at(&mut head, 0).unwrap();
            assert_eq!(&head, b"abc\0\0");
            allocate(&file, 100).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 200_000);
        }
    }
}
