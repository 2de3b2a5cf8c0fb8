use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;
use shardmill_record::UserRecord;

use crate::options::InvalidOptions;

/// Why a spool cannot do something. Cheap to clone, because one cause may end many calls.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Another process has the folder.
    #[error(
        "the spool in {} is in use by {owner}; a folder is for one process at a time: wait for that one to end, or take another folder",
        folder.display()
    )]
    InUse {
        /// The spool's folder.
        folder: PathBuf,
        /// Who has it, as far as that is known: a process' id and its machine.
        owner: String,
    },
    /// Somebody in this process sends the records of this stream already.
    #[error("records of stream `{stream}` in the spool in {} are sent already by another producer of this process; take a folder for each, or share one producer", folder.display())]
    Taken {
        /// The spool's folder.
        folder: PathBuf,
        /// The stream.
        stream: String,
    },
    /// There is none in this folder.
    #[error("there is no spool in {}", .0.display())]
    NotThere(PathBuf),
    /// An option is out of its bounds.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// The spool takes as much of the disk as it may.
    #[error("the spool in {} is full: it takes the {bytes} bytes that it may; see why its streams do not take what is in it, or allow more", folder.display())]
    Full {
        /// The spool's folder.
        folder: PathBuf,
        /// What it may take.
        bytes: u64,
    },
    /// A record is too large for what the spool may take, also if nothing else is in it.
    #[error("a record of {record_bytes} bytes does not fit into the spool in {}, which may take {bytes}: allow eight times the largest record at least", folder.display())]
    TooLarge {
        /// The spool's folder.
        folder: PathBuf,
        /// The record's size.
        record_bytes: u64,
        /// What the spool may take.
        bytes: u64,
    },
    /// The disk has no room, though the spool may take more.
    #[error("{} cannot be written, because the disk is full ({reason}): make room; what the spool accepted is kept", file.display())]
    DiskFull {
        /// The file that cannot be written.
        file: PathBuf,
        /// What was said.
        reason: String,
    },
    /// A file does not hold what was written to it.
    #[error("{} is damaged: {reason}; {advice}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        advice: String,
    },
    /// A file is none of a spool, or one of a later version.
    #[error("{} is no spool that this version can read: {reason}; take another folder", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody else could read or change what is in the spool, or have it written elsewhere.
    #[error("{} is not safe for payloads: {reason}; {advice}", path.display())]
    NotPrivate {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        advice: String,
    },
    /// The operating system refuses something.
    #[error("{}: {doing} failed: {reason}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
        /// What was said.
        reason: String,
    },
    /// The spool was closed, or its thread broke down.
    #[error("the spool in {} is closed", .0.display())]
    Closed(PathBuf),
}

/// Records were not stored; the others of the call are.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} records are not in the spool: {}", refused.len(), first(refused))]
pub struct StoreError {
    /// Those that are not stored, in their order; one at least. After an error of the disk they may turn out to be there when
    /// the spool is opened again.
    pub refused: Vec<Refused>,
}

/// A record that was not stored.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Its place among the records of the call, from 0.
    pub index: usize,
    /// The record.
    pub record: UserRecord,
    /// Why it is not stored. A record that is too large costs only itself; any other reason is that of all behind it.
    pub reason: Arc<Error>,
}

fn first(refused: &[Refused]) -> String {
    refused.first().map(|refused| refused.reason.to_string()).unwrap_or_default()
}

// === impl Error ===

impl Error {
    /// A word for the metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Full { .. } | Self::TooLarge { .. } => "full",
            Self::DiskFull { .. } => "disk_full",
            Self::Damaged { .. } | Self::Foreign { .. } => "damaged",
            Self::InUse { .. }
            | Self::Taken { .. }
            | Self::NotThere(_)
            | Self::Options(_)
            | Self::NotPrivate { .. }
            | Self::Closed(_) => "unavailable",
            Self::Io { .. } => "io",
        }
    }

    /// Whether it is only that the spool may not take more.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::TooLarge { .. })
    }

    /// Whether the disk does not take what is to be written: more of it may, or less.
    pub(crate) fn is_of_disk(&self) -> bool {
        matches!(self, Self::DiskFull { .. } | Self::Io { .. })
    }

    pub(crate) fn io(path: &Path, doing: &'static str, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { file: path.to_owned(), reason: error.to_string() }
            }
            _other => Self::Io { path: path.to_owned(), doing, reason: error.to_string() },
        }
    }

    /// What the database said of its file.
    pub(crate) fn of_database(file: &Path, doing: &'static str, error: &rusqlite::Error) -> Self {
        let reason = error.to_string();
        let rusqlite::Error::SqliteFailure(cause, _) = error else {
            // A column that is not there or holds something else.
            return Self::damaged(file, reason);
        };
        match cause.code {
            ErrorCode::DiskFull => Self::DiskFull { file: file.to_owned(), reason },
            // The statements are right, so what they are about is wrong.
            ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::Unknown
            | ErrorCode::ConstraintViolation
            | ErrorCode::TypeMismatch => Self::damaged(file, reason),
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::InUse {
                folder: file.parent().unwrap_or(file).to_owned(),
                owner: "another program, which has its database open".to_owned(),
            },
            _other => Self::Io { path: file.to_owned(), doing, reason },
        }
    }

    pub(crate) fn damaged(file: &Path, reason: impl Into<String>) -> Self {
        let advice = format!(
            "keep a copy of {}; what can be read of it `sqlite3 {} .recover` shows; an empty spool begins where the folder is moved away",
            file.parent().unwrap_or(file).display(),
            file.file_name().unwrap_or(file.as_os_str()).display(),
        );
        Self::Damaged { file: file.to_owned(), reason: reason.into(), advice }
    }
}
