//! Records that go unsent: because somebody wants it, or because the spool is full.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::params;

use super::{Database, Stream, row};
use crate::{Error, layout};

/// Which records; without anything, all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this stream only.
    pub stream: Option<String>,
    /// Stored before this time only.
    pub stored_before: Option<SystemTime>,
    /// Set aside only.
    pub set_aside: bool,
}

/// A row that goes: how large its record is.
pub(super) struct Gone {
    pub(super) id: u64,
    pub(super) bytes: u64,
}

/// A row of one of the tables.
struct Row {
    stream: i64,
    is_aside: bool,
    gone: Gone,
}

impl Database {
    /// How many records of each stream are selected, and their bytes.
    pub(crate) fn count_selected(&self, selection: &Selection) -> Result<BTreeMap<String, (u64, u64)>, Error> {
        let mut counts = BTreeMap::new();
        for (name, stream) in self.selected_streams(selection) {
            let count = || -> rusqlite::Result<(u64, u64)> {
                let (mut records, mut bytes) = (0, 0);
                for table in tables(stream.number, selection) {
                    let sql = format!("SELECT count(*), coalesce(sum(bytes), 0) FROM {table}");
                    let mut statement = self.connection.prepare(&sql)?;
                    let (more, size) = statement.query_row([before(selection)], |row| {
                        Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
                    })?;
                    (records, bytes) = (records + more, u64::saturating_add(bytes, size));
                }
                Ok((records, bytes))
            };
            let (records, bytes) = count().map_err(|error| self.failed("counting records", &error))?;
            if records > 0 {
                counts.insert(name.to_owned(), (records, bytes));
            }
        }
        Ok(counts)
    }

    /// Removes the first of the records that are selected, not more than so many and than the layout allows at once; how
    /// many of each stream.
    pub(crate) fn discard(&mut self, selection: &Selection, most: usize) -> Result<BTreeMap<Arc<str>, u64>, Error> {
        let doing = "dropping records";
        let selected = self.selected_rows(selection, most).map_err(|error| self.failed(doing, &error))?;
        self.drop_rows(doing, selected)
    }

    fn selected_rows(&self, selection: &Selection, limit: usize) -> rusqlite::Result<Vec<Row>> {
        let mut selected = Vec::new();
        for (_, stream) in self.selected_streams(selection) {
            for (index, table) in tables(stream.number, selection).iter().rev().enumerate() {
                let left = (limit - selected.len()) as i64;
                let mut statement =
                    self.connection.prepare(&format!("SELECT id, bytes FROM {table} ORDER BY id LIMIT ?2"))?;
                for gone in statement.query_map(params![before(selection), left], gone)? {
                    selected.push(Row { stream: stream.number, is_aside: index == 0, gone: gone? });
                }
            }
        }
        Ok(selected)
    }

    fn selected_streams<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = (&'a str, &'a Stream)> {
        let is_meant = |name: &str| selection.stream.as_deref().is_none_or(|stream| stream == name);
        self.streams.iter().map(|(name, stream)| (&**name, stream)).filter(move |(name, _)| is_meant(name))
    }

    /// Drops the records that were stored first, until about so many bytes are free or as many are dropped as the layout
    /// allows at once: how many of each stream.
    pub(crate) fn drop_oldest(&mut self, bytes: u64) -> Result<BTreeMap<Arc<str>, u64>, Error> {
        let doing = "dropping the oldest records";
        let oldest = self.oldest_rows(self.layout.removed_at_once(), bytes);
        let oldest = oldest.map_err(|error| self.failed(doing, &error))?;
        self.drop_rows(doing, oldest)
    }

    /// Removes the first of these rows, as many as the layout allows at once.
    fn drop_rows(&mut self, doing: &'static str, mut rows: Vec<Row>) -> Result<BTreeMap<Arc<str>, u64>, Error> {
        rows.truncate(self.layout.removed_of(rows.iter().map(|row| row.gone.bytes)));
        let frames = self.frames_to_remove(rows.iter().map(|row| row.gone.bytes));
        self.change(doing, frames, |database| {
            let mut by_stream: BTreeMap<i64, (Vec<Gone>, u64)> = BTreeMap::new();
            for Row { stream, is_aside, gone } in rows {
                let table = if is_aside { "aside".to_owned() } else { format!("records_{stream}") };
                let sql = format!("DELETE FROM {table} WHERE id = ?1");
                let delete = || database.connection.prepare_cached(&sql)?.execute([gone.id.cast_signed()]);
                delete().map_err(|error| database.failed(doing, &error))?;
                let (waiting, aside) = by_stream.entry(stream).or_default();
                if is_aside { *aside += 1 } else { waiting.push(gone) }
            }
            let mut dropped = BTreeMap::new();
            for (number, (waiting, aside)) in by_stream {
                let Some(name) = database.account(number, &waiting)? else { continue };
                if let Some(stream) = database.streams.get_mut(&name) {
                    stream.aside = stream.aside.saturating_sub(aside);
                }
                dropped.insert(name, waiting.len() as u64 + aside);
            }
            Ok(dropped)
        })
    }

    /// The rows with the lowest numbers over all tables.
    fn oldest_rows(&self, limit: usize, bytes: u64) -> rusqlite::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for stream in self.streams.values() {
            let sql = format!("SELECT id, bytes FROM records_{} ORDER BY id LIMIT ?1", stream.number);
            let mut statement = self.connection.prepare_cached(&sql)?;
            for gone in statement.query_map([limit as i64], gone)? {
                rows.push(Row { stream: stream.number, is_aside: false, gone: gone? });
            }
        }
        let mut statement =
            self.connection.prepare_cached("SELECT id, bytes, stream FROM aside ORDER BY id LIMIT ?1")?;
        for row in statement.query_map([limit as i64], |row| Ok((gone(row)?, row.get(2)?)))? {
            let (gone, stream) = row?;
            rows.push(Row { stream, is_aside: true, gone });
        }
        rows.sort_by_key(|row| row.gone.id);
        rows.truncate(limit);
        let mut freed = 0;
        let enough = rows.iter().position(|row| {
            freed = u64::saturating_add(freed, layout::freed_by(row.gone.bytes));
            freed >= bytes
        });
        rows.truncate(enough.map_or(rows.len(), |last| last + 1));
        Ok(rows)
    }
}

fn gone(row: &rusqlite::Row<'_>) -> rusqlite::Result<Gone> {
    Ok(Gone { id: row.get::<_, i64>(0)?.cast_unsigned(), bytes: row.get::<_, i64>(1)?.cast_unsigned() })
}

/// The rows of a stream that are selected: tables with their conditions, in which `?1` is [`before`].
fn tables(stream: i64, selection: &Selection) -> Vec<String> {
    let aside = format!("aside WHERE stream = {stream} AND stored_at < ?1");
    let waiting = format!("records_{stream} WHERE stored_at < ?1");
    if selection.set_aside { vec![aside] } else { vec![waiting, aside] }
}

fn before(selection: &Selection) -> i64 {
    selection.stored_before.map_or(i64::MAX, |time| i64::try_from(row::milliseconds(time)).unwrap_or(i64::MAX))
}
