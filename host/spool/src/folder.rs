//! A spool's folder: its files, and that one process has them.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::{Error, private};

const DATABASE: &str = "spool.db";
const LOG: &str = "spool.db-wal";
const LOCK: &str = "spool.lock";
const ACCEPTED: &str = "spool.accepted";

/// A folder that this process has, until this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Locked. The lock goes with the process, however that ends.
    _lock: File,
}

// === impl Folder ===

impl Folder {
    /// Makes the folder if it is not there and may be made, and takes it.
    pub(crate) fn take(path: &Path, make_it: bool) -> Result<Self, Error> {
        // The database would take a relative path that begins with `file:` for a URI.
        let path = std::path::absolute(path).map_err(|error| Error::io(path, "finding the folder", &error))?;
        if make_it {
            private::make_folder(&path)?;
        } else if fs::symlink_metadata(path.join(DATABASE)).is_err() {
            return Err(Error::NotThere(path));
        }
        let path = private::check_folder(&path)?;
        let lock = lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// The log of the database. If it is there, nobody else can read it from now on.
    pub(crate) fn log(&self) -> Result<Log, Error> {
        let log = Log(self.path.join(LOG));
        if fs::symlink_metadata(log.path()).is_ok() {
            private::open(log.path(), false)?;
        }
        Ok(log)
    }

    pub(crate) fn log_length(&self) -> u64 {
        Log(self.path.join(LOG)).length()
    }

    /// What the files take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let length = |name: &str| fs::metadata(self.path.join(name)).map_or(0, |file| file.len());
        [DATABASE, LOG, LOCK, ACCEPTED].into_iter().map(length).sum()
    }

    /// Opens the file of the database, or makes it.
    pub(crate) fn open_database(&self) -> Result<File, Error> {
        private::open(&self.database(), true)
    }

    /// Makes the names of its files durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        private::sync(&self.path).map_err(|error| Error::io(&self.path, "syncing the folder", &error))
    }

    pub(crate) fn accepted(&self) -> Result<Accepted, Error> {
        let path = self.path.join(ACCEPTED);
        let file = private::open(&path, true)?;
        Ok(Accepted { path, file })
    }
}

/// The file of the database's log. It is not always there.
#[derive(Debug)]
pub(crate) struct Log(PathBuf);

// === impl Log ===

impl Log {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// In bytes; 0 if it is not there.
    pub(crate) fn length(&self) -> u64 {
        fs::metadata(&self.0).map_or(0, |file| file.len())
    }

    /// Opens it, or makes it.
    pub(crate) fn open(&self) -> Result<File, Error> {
        private::open(&self.0, true)
    }

    /// Empties it when all that is in it is in the database, and the database is closed. It keeps at most so many bytes
    /// of the disk; without any, it goes.
    pub(crate) fn clear(&self, keeps: u64) -> Result<(), Error> {
        /// Without it, what follows says nothing.
        const HEAD: [u8; 32] = [0; 32];

        if self.length() == 0 && keeps > 0 {
            return Ok(());
        }
        let clear = || {
            if keeps == 0 {
                return fs::remove_file(&self.0);
            }
            let file = fs::OpenOptions::new().write(true).open(&self.0)?;
            file.write_all_at(&HEAD, 0)?;
            // Before it is cut: with its head, what is left would be taken for the newest.
            file.sync_data()?;
            if file.metadata()?.len() > keeps { file.set_len(keeps) } else { Ok(()) }
        };
        match clear() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(|error| Error::io(&self.0, "emptying the log", &error)),
        }
    }
}

/// The number of the last record that was accepted, in a file of its own: it tells whether the database has lost records.
///
/// The database takes a log whose end is damaged for one that was not written to its end, which is what it is after a
/// crash. The number is written after the records are durable, so it never speaks of more than was stored; and it is not
/// synced, so it costs nothing. When a process is killed it is right; when the power fails it may be old, and says less.
#[derive(Debug)]
pub(crate) struct Accepted {
    path: PathBuf,
    file: File,
}

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Witness {
    /// Nothing: it is new.
    None,
    /// This record was accepted.
    Number(u64),
    /// It cannot be read.
    Unreadable,
}

// === impl Accepted ===

impl Accepted {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn read(&mut self) -> Result<Witness, Error> {
        let mut text = Vec::new();
        let read = self.file.rewind().and_then(|()| (&mut self.file).take(PAGE_AT_MOST).read_to_end(&mut text));
        read.map_err(|error| Error::io(&self.path, "reading the file", &error))?;
        Ok(parse(&text))
    }

    /// Lets it say nothing.
    pub(crate) fn clear(&self) {
        // What cannot be cut is written over, and cut the next time.
        let _uncut = self.file.set_len(0);
    }

    /// In its place, so that it needs no room on the disk.
    pub(crate) fn write(&self, number: u64) -> io::Result<()> {
        self.file.write_all_at(line(number).as_bytes(), 0)
    }
}

const PAGE_AT_MOST: u64 = 4096;

fn line(number: u64) -> String {
    let digits = format!("{number:020}");
    format!("{digits} {:08x}\n", crc32fast::hash(digits.as_bytes()))
}

fn parse(text: &[u8]) -> Witness {
    if text.is_empty() {
        return Witness::None;
    }
    let number = text.get(..20).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    match number {
        Some(number) if line(number).as_bytes() == text => Witness::Number(number),
        _other => Witness::Unreadable,
    }
}

fn lock(folder: &Path) -> Result<File, Error> {
    let path = folder.join(LOCK);
    let mut file = private::open(&path, true)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // Whoever has just taken it may not have written its name yet.
            let _unread = file.take(PAGE_AT_MOST).read_to_string(&mut owner);
            let owner = owner.trim();
            let owner = if owner.is_empty() { "another process".to_owned() } else { owner.to_owned() };
            return Err(Error::InUse { folder: folder.to_owned(), owner });
        }
        Err(TryLockError::Error(error)) => return Err(Error::io(&path, "locking the file", &error)),
    }
    let machine = rustix::system::uname();
    let name = format!("process {} on {}\n", std::process::id(), machine.nodename().to_string_lossy());
    // For people only: without it, the lock is as good.
    let _unnamed = file.set_len(0).and_then(|()| file.write_all(name.as_bytes()));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_for_one_at_a_time_and_the_other_one_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("below").join("spool");
        assert!(matches!(Folder::take(&path, false), Err(Error::NotThere(_))));
        let folder = Folder::take(&path, true).unwrap();
        let Err(Error::InUse { owner, .. }) = Folder::take(&path, true) else { panic!("taken twice") };
        assert!(owner.starts_with(&format!("process {} on ", std::process::id())), "{owner}");
        drop(folder);
        drop(Folder::take(&path, true).unwrap());
    }

    #[test]
    fn the_last_number_reads_back_and_nothing_else_is_taken_for_one() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::take(home.path(), true).unwrap();
        let mut accepted = folder.accepted().unwrap();
        assert_eq!(accepted.read().unwrap(), Witness::None);
        for number in [7, u64::MAX, 0] {
            accepted.write(number).unwrap();
            assert_eq!(folder.accepted().unwrap().read().unwrap(), Witness::Number(number));
        }
        let good = line(123);
        for wrong in ["\n", &good[1..], &good.replace('3', "4"), &good.replace('\n', " "), &format!("{good}{good}")] {
            assert_eq!(parse(wrong.as_bytes()), Witness::Unreadable, "{wrong:?}");
        }
    }
}
