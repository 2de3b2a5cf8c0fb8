//! The tables, and whether they are what they were made as.
//!
//! Each stream has a table of its own: what comes first is then the table's beginning, with no index beside it, which would
//! be written for each record and could disagree with the table.

use rusqlite::Connection;

/// `SMsp`: says whose file it is.
pub(super) const APPLICATION: i64 = 0x534d_7370;
/// Of the tables. A file with another one is of a later version.
pub(super) const VERSION: i64 = 1;

pub(super) const NOT_MARKED: &str = "it is not marked as one";

pub(super) fn other_version(version: i64) -> String {
    format!("its format is {version}")
}

/// What the spool may take, in one row: whoever opens it to empty it keeps to that.
pub(super) const BOUND: &str = "CREATE TABLE bound (bytes INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT";

/// `checksum` covers the other columns. `records` counts those that wait to be sent, `last_id` is the last one that was
/// stored, whether it is still there or not.
pub(super) const STREAMS: &str = "CREATE TABLE streams (number INTEGER PRIMARY KEY, name TEXT NOT NULL, last_id INTEGER NOT NULL, \
     records INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT";

/// Records that no stream takes, with the reason, out of the way of the others.
pub(super) const ASIDE: &str = "CREATE TABLE aside (id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, stored_at INTEGER NOT NULL, bytes INTEGER NOT NULL, \
     checksum INTEGER NOT NULL, partition_key TEXT NOT NULL, hash_key BLOB, reason TEXT NOT NULL, data BLOB NOT NULL) STRICT";

/// Ids are one after another over all streams. `stored_at` is in milliseconds since 1970, `bytes` is the size of key and
/// payload, `checksum` is [`super::row::checksum`], `hash_key` has 16 bytes, the highest first.
pub(super) fn records(stream: i64) -> String {
    format!(
        "CREATE TABLE records_{stream} (id INTEGER PRIMARY KEY, stored_at INTEGER NOT NULL, bytes INTEGER NOT NULL, \
         checksum INTEGER NOT NULL, partition_key TEXT NOT NULL, hash_key BLOB, data BLOB NOT NULL) STRICT"
    )
}

/// Makes the tables in a file that has none.
pub(super) fn make(connection: &Connection, bytes: u64) -> rusqlite::Result<()> {
    let checksum = bound_checksum(bytes);
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {STREAMS}; {ASIDE}; {BOUND}; INSERT INTO bound (bytes, checksum) VALUES ({bytes}, {checksum}); \
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT"
    ))
}

pub(super) fn bound_checksum(bytes: u64) -> i64 {
    i64::from(crc32fast::hash(&bytes.to_le_bytes()))
}

/// Whether the tables are those of these streams; what is wrong otherwise.
pub(super) fn check(connection: &Connection, streams: &[i64]) -> rusqlite::Result<Result<(), String>> {
    let mut expected: Vec<String> = streams.iter().map(|stream| records(*stream)).collect();
    expected.extend([STREAMS, ASIDE, BOUND].map(str::to_owned));
    expected.sort();
    let mut statement = connection.prepare("SELECT sql FROM sqlite_schema")?;
    let mut found: Vec<Option<String>> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    found.sort();
    let is_same = found.iter().map(Option::as_deref).eq(expected.iter().map(|sql| Some(sql.as_str())));
    Ok(if is_same { Ok(()) } else { Err(format!("its tables are not those of {} streams", streams.len())) })
}
