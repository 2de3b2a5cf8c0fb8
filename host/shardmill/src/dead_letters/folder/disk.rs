//! What is asked of the file system, so that tests can have one that fails.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Of files about letters, which hold what records held: for their owner to write and the group to read.
pub(in crate::dead_letters) const MODE: u32 = 0o640;

/// A file system.
pub(super) trait Disk: Send {
    /// Makes a file that is not there yet, and its name durable.
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Appended>>;

    /// Removes a file.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

/// A file that is written at its end.
pub(super) trait Appended: Send {
    /// Writes all of it; after an error, any part of it may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes it durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts it off after so many bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Whether it still has a name: what is written to a file that somebody has removed is gone.
    fn has_name(&self) -> io::Result<bool>;
}

/// That of the operating system.
#[derive(Debug, Default)]
pub(super) struct SystemDisk;

impl Disk for SystemDisk {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Appended>> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let open = || OpenOptions::new().append(true).create_new(true).mode(MODE).open(path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(folder)?;
                open()?
            }
            opened => opened?,
        };
        sync_folder(folder)?;
        Ok(Box::new(file))
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

impl Appended for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(self.metadata()?.nlink() > 0)
    }
}

/// Makes a folder with those above it, and their names durable.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|path| !path.exists()).collect();
    fs::create_dir_all(folder)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_folder)
}

/// Makes the names in a folder durable.
pub(in crate::dead_letters) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(test)]
    SYNCED.with_borrow_mut(|synced| synced.push(folder.to_owned()));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match File::open(folder)?.sync_all() {
        // Some network disks have nothing to do for a folder, and say so like this.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
thread_local! {
    static SYNCED: std::cell::RefCell<Vec<std::path::PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// What comes of some work, and the folders that it has synced on this thread.
#[cfg(test)]
pub(in crate::dead_letters) fn synced<T>(work: impl FnOnce() -> T) -> (T, Vec<std::path::PathBuf>) {
    SYNCED.take();
    (work(), SYNCED.take())
}
