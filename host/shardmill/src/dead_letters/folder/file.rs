//! The file that lines are appended to, whole or not at all, and when another one follows it.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::disk::{Appended, Disk};

const SECONDS_OF_A_DAY: u64 = 86_400;
/// The most letters of a worker's id in a file's name; file systems take 255 bytes in all.
const MAX_WORKER: usize = 60;

/// Who writes into a folder: no two have the same.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    /// 1 to 100 letters, digits, `_`, `.` or `-`.
    pub(super) processor: String,
    /// Any text.
    pub(super) worker: String,
    /// Different in each run.
    pub(super) run: u64,
}

/// Appends lines to files of its own in a folder.
pub(super) struct Lines {
    disk: Box<dyn Disk>,
    folder: PathBuf,
    writer: Writer,
    file_bytes: u64,
    /// How many files there have been.
    files: u32,
    open: Option<Open>,
}

struct Open {
    file: Box<dyn Appended>,
    path: PathBuf,
    /// How much of it is durable: whole lines.
    good: u64,
    /// The day on which it was made.
    day: u64,
}

// === impl Writer ===

impl Writer {
    /// The name of its file with this number, counted from 1. Names sort by processor and time.
    fn file_name(&self, number: u32, now: SystemTime) -> String {
        let time = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
        let worker: String = self
            .worker
            .chars()
            .take(MAX_WORKER)
            .map(|character| if character.is_ascii_alphanumeric() || character == '.' { character } else { '_' })
            .collect();
        format!("{}-{time}-{worker}-{:016x}-{number:04}.jsonl", self.processor, self.run)
    }
}

// === impl Lines ===

impl Lines {
    pub(super) fn new(disk: Box<dyn Disk>, folder: PathBuf, writer: Writer, file_bytes: u64) -> Self {
        Self { disk, folder, writer, file_bytes, files: 0, open: None }
    }

    /// Appends whole lines and makes them durable. After an error none of them is there, or they are in a file that ends
    /// with them: no later line follows half a one.
    pub(super) fn append(&mut self, lines: &[u8], now: SystemTime) -> io::Result<()> {
        let mut open = self.file_for(lines.len() as u64, now)?;
        match write(&mut open, lines) {
            Ok(()) => {
                open.good += lines.len() as u64;
                self.open = Some(open);
                Ok(())
            }
            Err(Failed { error, usable }) => {
                if usable {
                    self.open = Some(open);
                } else if open.good == 0 {
                    // An empty file says nothing. It stays where it cannot be removed, and does no harm.
                    let _left = self.disk.remove(&open.path);
                }
                Err(error)
            }
        }
    }

    /// The file that is open if it may have so many bytes more, else a new one.
    fn file_for(&mut self, bytes: u64, now: SystemTime) -> io::Result<Open> {
        let day = day(now);
        if let Some(open) = self.open.take()
            && open.day == day
            && (open.good == 0 || open.good + bytes <= self.file_bytes)
            && open.file.has_name()?
        {
            return Ok(open);
        }
        loop {
            self.files += 1;
            let path = self.folder.join(self.writer.file_name(self.files, now));
            match self.disk.create(&path) {
                Ok(file) => return Ok(Open { file, path, good: 0, day }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    // The name may be there, and not be durable.
                    let _left = self.disk.remove(&path);
                    return Err(error);
                }
            }
        }
    }
}

/// Lines were not written.
struct Failed {
    error: io::Error,
    /// Whether the file may be written on.
    usable: bool,
}

fn write(open: &mut Open, lines: &[u8]) -> Result<(), Failed> {
    if let Err(error) = open.file.append(lines) {
        let is_cut = open.file.truncate(open.good).is_ok();
        // A file that may not grow is followed by another one.
        return Err(Failed { usable: is_cut && error.kind() != io::ErrorKind::FileTooLarge, error });
    }
    if let Err(error) = open.file.sync() {
        // What a failed sync has left on the disk nobody knows, and the next one does not tell either.
        let _cut = open.file.truncate(open.good);
        return Err(Failed { error, usable: false });
    }
    match open.file.has_name() {
        Ok(true) => Ok(()),
        Ok(false) => {
            let error = io::Error::new(io::ErrorKind::NotFound, "the file was removed while it was written");
            Err(Failed { error, usable: false })
        }
        Err(error) => Err(Failed { error, usable: false }),
    }
}

fn day(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / SECONDS_OF_A_DAY)
}
