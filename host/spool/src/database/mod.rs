//! The database in the spool's file: changes as a whole and durable, within the bound, and damage found.

mod checks;
mod dropping;
mod identity;
mod log;
mod records;
mod reserve;
pub(crate) mod row;
mod schema;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};

use crate::folder::{Folder, Log, Witness};
use crate::layout::{self, Layout, PAGE};
use crate::{Error, Options};
pub use dropping::Selection;
pub use records::{Aside, Spooled};

/// What is kept of a stream. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    number: i64,
    /// Of the last record that was stored.
    last_id: u64,
    /// Records that wait to be sent.
    pub(crate) records: u64,
    /// Their keys and payloads.
    pub(crate) bytes: u64,
    /// Records that are set aside.
    pub(crate) aside: u64,
    /// When the first of those that wait was stored, in milliseconds since 1970.
    pub(crate) oldest: Option<u64>,
}

pub(crate) type Streams = BTreeMap<Arc<str>, Stream>;

/// An open spool's database. All of it is used by one thread.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    file: PathBuf,
    /// The same file, to give it room. Closed after the database: a file that is closed loses the locks of its process.
    end: File,
    /// How many pages it has room for.
    covered: u64,
    log: Log,
    is_log_reserved: bool,
    /// What the spool may take, and how that is divided.
    bytes: u64,
    layout: Layout,
    /// Whether the file was to shrink and could not, and nothing was stored since.
    is_stuck: bool,
    /// How much of the log is used, from above, in frames.
    log_used: u64,
    streams: Streams,
    next_id: u64,
}

// === impl Database ===

impl Database {
    /// Opens the database of a folder, or makes it, and checks all of it. Without a bound, it keeps the one that it has.
    pub(crate) fn open(folder: &Folder, bytes: Option<u64>, witness: Witness) -> Result<Self, Error> {
        let (end, log) = (folder.open_database()?, folder.log()?);
        identity::check(folder, &end, witness)?;
        let file = folder.database();
        let opening = |error: rusqlite::Error| Error::of_database(&file, "opening the database", &error);
        let flags =
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(&file, flags).map_err(opening)?;
        connection.set_prepared_statement_cache_capacity(256);
        claim(&connection).map_err(opening)?;
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(opening)?;
        let identity = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let (application, version) =
            (identity("application_id").map_err(opening)?, identity("user_version").map_err(opening)?);
        let is_new = tables == 0 && (application, version) == (0, 0);
        if !is_new && application != schema::APPLICATION {
            return Err(Error::Foreign { file, reason: schema::NOT_MARKED.to_owned() });
        } else if !is_new && version != schema::VERSION {
            return Err(Error::Foreign { file, reason: schema::other_version(version) });
        }
        configure(&connection).map_err(opening)?;
        let wanted = bytes.unwrap_or_else(|| Options::default().bytes);
        if is_new {
            schema::make(&connection, wanted).map_err(opening)?;
        }
        let mut database = Self {
            connection,
            file: file.clone(),
            end,
            covered: 0,
            log,
            is_log_reserved: false,
            bytes: wanted,
            layout: Layout::of(wanted),
            is_stuck: false,
            log_used: 0,
            streams: Streams::new(),
            next_id: 1,
        };
        database.check()?;
        database.check_witness(folder, witness)?;
        let before = database.read_bound()?;
        database.bounds(bytes.unwrap_or(before))?;
        database.settle_log(is_new)?;
        if before != database.bytes
            && let Err(error) = database.write_bound()
        {
            // For this time it holds all the same.
            tracing::warn!(file = %file.display(), %error, "what the spool may take cannot be noted");
        }
        folder.sync()?;
        Ok(database)
    }

    /// What the spool may take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bounds(&mut self, bytes: u64) -> Result<(), Error> {
        (self.bytes, self.layout) = (bytes, Layout::of(bytes));
        let pages = self.layout.database_pages.min(u64::from(u32::MAX - 1)).cast_signed();
        let limited = self.connection.pragma_update(None, "max_page_count", pages);
        limited.map_err(|error| self.failed("limiting the database", &error))
    }

    fn write_bound(&mut self) -> Result<(), Error> {
        let doing = "noting the bound";
        let (bytes, checksum) = (self.bytes.cast_signed(), schema::bound_checksum(self.bytes));
        self.change(doing, layout::Need::default().pages(), |database| {
            let written = database.connection.execute("UPDATE bound SET bytes = ?1, checksum = ?2", [bytes, checksum]);
            written.map(drop).map_err(|error| database.failed(doing, &error))
        })
    }

    /// Whether there is nothing in it, not even set aside.
    fn is_empty(&self) -> bool {
        self.streams.values().all(|stream| stream.records + stream.aside == 0)
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// The number of the last record that was stored; 0 if there was none.
    pub(crate) fn last_id(&self) -> u64 {
        self.next_id - 1
    }

    /// How many pages records take, as it is now.
    pub(crate) fn pages_in_use(&self) -> Result<u64, Error> {
        Ok(self.pages()?.saturating_sub(self.value("freelist_count")?.cast_unsigned()))
    }

    fn pages(&self) -> Result<u64, Error> {
        self.value("page_count").map(i64::cast_unsigned)
    }

    /// Carries out a change, which can take so many frames of the log: all of it and durable, or nothing. `doing` says what
    /// it is for.
    pub(crate) fn change<T>(
        &mut self,
        doing: &'static str,
        frames: u64,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.log_used + frames > self.layout.log_frames {
            self.copy_log()?;
        }
        let before = (self.streams.clone(), self.next_id);
        let covered = self.covered;
        self.run(doing, "BEGIN IMMEDIATE")?;
        self.log_used += frames;
        let result = work(self).and_then(|value| {
            self.write_streams(&before.0, doing)?;
            self.cover(self.pages()?)?;
            if self.next_id > before.1 {
                self.reserve_log()?;
                self.is_stuck = false;
            }
            self.run(doing, "COMMIT")?;
            Ok(value)
        });
        if result.is_err() {
            (self.streams, self.next_id) = before;
            if !self.connection.is_autocommit() {
                // The first error says what is wrong.
                let _second = self.run(doing, "ROLLBACK");
            }
            self.uncover(covered);
        }
        result
    }

    fn value(&self, pragma: &str) -> Result<i64, Error> {
        let value = self.connection.pragma_query_value(None, pragma, |row| row.get(0));
        value.map_err(|error| self.failed("asking the database", &error))
    }

    fn run(&self, doing: &'static str, sql: &str) -> Result<(), Error> {
        self.connection.execute_batch(sql).map_err(|error| self.failed(doing, &error))
    }

    fn failed(&self, doing: &'static str, error: &rusqlite::Error) -> Error {
        Error::of_database(&self.file, doing, error)
    }

    fn oldest(&self, stream: i64) -> rusqlite::Result<Option<u64>> {
        let sql = format!("SELECT stored_at FROM records_{stream} ORDER BY id LIMIT 1");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([])?;
        rows.next()?.map(|row| row.get::<_, i64>(0).map(i64::cast_unsigned)).transpose()
    }

    /// The streams' rows, where a change has changed them.
    fn write_streams(&self, before: &Streams, doing: &'static str) -> Result<(), Error> {
        let write = |name: &str, stream: &Stream| {
            let Stream { number, last_id, records, .. } = *stream;
            let checksum = row::stream_checksum(number, name, last_id, records);
            let sql = "UPDATE streams SET last_id = ?2, records = ?3, checksum = ?4 WHERE number = ?1";
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.execute(params![number, last_id.cast_signed(), records.cast_signed(), checksum])
        };
        for (name, stream) in &self.streams {
            if before.get(name).is_none_or(|old| (old.last_id, old.records) != (stream.last_id, stream.records)) {
                write(name, stream).map_err(|error| self.failed(doing, &error))?;
            }
        }
        Ok(())
    }
}

/// For a file that may be somebody else's: nothing of it is changed, also when it is closed.
fn claim(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::ZERO)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Nobody else has the file; the log then needs no memory that is shared through another file.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "trusted_schema", false)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    let settings: [(&str, &dyn rusqlite::ToSql); 8] = [
        ("page_size", &PAGE.cast_signed()),
        ("journal_mode", &"WAL"),
        // Every commit is synced.
        ("synchronous", &"FULL"),
        ("fullfsync", &true),
        ("wal_autocheckpoint", &0),
        ("temp_store", &"MEMORY"),
        ("cache_size", &-8192),
        ("cell_size_check", &true),
    ];
    for (name, value) in settings {
        connection.pragma_update(None, name, value)?;
    }
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    // The file system knows no logs, or the library was built without syncs.
    if (mode.as_str(), synchronous) != ("wal", 2) {
        let reason = format!("the file system allows no durable log (journal mode {mode}, synchronous {synchronous})");
        let cause = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        return Err(rusqlite::Error::SqliteFailure(cause, Some(reason)));
    }
    Ok(())
}
