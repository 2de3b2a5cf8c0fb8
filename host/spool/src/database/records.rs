//! What is done with records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::params;
use rusqlite::types::{Value, ValueRef};
use shardmill_record::UserRecord;

use super::dropping::Gone;
use super::{Database, Stream, row, schema};
use crate::job::TakenBack;
use crate::layout::{Need, frames_to_remove};
use crate::{Error, Id};

/// A record in a spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    /// By what it is removed.
    pub id: Id,
    /// The record.
    pub record: UserRecord,
    /// When it was stored, by this machine's clock, to the millisecond.
    pub stored_at: SystemTime,
}

/// A record that is set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// Its number; later ones are larger.
    pub number: u64,
    /// The stream that it is for.
    pub stream: String,
    /// Its partition key, as far as it can be read.
    pub partition_key: String,
    /// The size of its partition key and its payload.
    pub bytes: u64,
    /// When it was stored.
    pub stored_at: SystemTime,
    /// Why it is set aside.
    pub reason: String,
}

impl Database {
    /// Stores a record behind all others. Within a change.
    pub(crate) fn insert(&mut self, name: &Arc<str>, record: &UserRecord, now: u64) -> Result<(), Error> {
        let doing = "storing records";
        if !self.streams.contains_key(name) {
            self.add_stream(name).map_err(|error| self.failed(doing, &error))?;
        }
        let id = self.next_id;
        let number = self.streams[name].number;
        let checksum = row::checksum(name, id, now, record);
        let bytes = row::size(record);
        let hash_key = record.explicit_hash_key.map(|key| key.get().to_be_bytes());
        let insert = || {
            let sql = format!("INSERT INTO records_{number} ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", row::COLUMNS);
            let mut statement = self.connection.prepare_cached(&sql)?;
            let (id, now, bytes) = (id.cast_signed(), now.cast_signed(), bytes.cast_signed());
            statement.execute(params![
                id,
                now,
                bytes,
                checksum,
                record.partition_key,
                hash_key.as_ref().map(<[u8; 16]>::as_slice),
                &record.data[..]
            ])
        };
        insert().map_err(|error| self.failed(doing, &error))?;
        self.next_id += 1;
        if let Some(stream) = self.streams.get_mut(name) {
            stream.last_id = id;
            stream.records += 1;
            stream.bytes += bytes;
            stream.oldest.get_or_insert(now);
        }
        Ok(())
    }

    fn add_stream(&mut self, name: &Arc<str>) -> rusqlite::Result<()> {
        let number = self.streams.values().map(|stream| stream.number).max().unwrap_or(0) + 1;
        self.connection.execute_batch(&schema::records(number))?;
        let sql = "INSERT INTO streams (number, name, last_id, records, checksum) VALUES (?1, ?2, 0, 0, ?3)";
        self.connection.execute(sql, params![number, &**name, row::stream_checksum(number, name, 0, 0)])?;
        self.streams
            .insert(Arc::clone(name), Stream { number, last_id: 0, records: 0, bytes: 0, aside: 0, oldest: None });
        Ok(())
    }

    /// The first records of a stream that wait, in their order: at most so many and so many bytes, but one at least. Ids of
    /// rows among them that are not what was written come second.
    pub(crate) fn front(&self, name: &str, records: usize, bytes: u64) -> Result<(Vec<Spooled>, Vec<Id>), Error> {
        let Some(stream) = self.streams.get(name) else { return Ok((Vec::new(), Vec::new())) };
        let read = || {
            let number = stream.number;
            let sql = format!("SELECT {} FROM records_{number} ORDER BY id LIMIT ?1", row::COLUMNS);
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query([i64::try_from(records).unwrap_or(i64::MAX)])?;
            let (mut front, mut damaged, mut taken) = (Vec::new(), Vec::new(), 0);
            while let Some(found) = rows.next()? {
                // Before the payload is read.
                let size = found.get::<_, i64>(2)?.cast_unsigned();
                taken = u64::saturating_add(taken, size);
                if taken > bytes && !front.is_empty() {
                    break;
                }
                match row::read(name, found)? {
                    Some(row::Stored { id, stored_at, record }) => front.push(Spooled {
                        id: Id { stream: number, number: id, bytes: size },
                        record,
                        stored_at: row::time(stored_at),
                    }),
                    None => {
                        let id = found.get::<_, i64>(0)?.cast_unsigned();
                        damaged.push(Id { stream: number, number: id, bytes: size });
                    }
                }
            }
            Ok((front, damaged))
        };
        read().map_err(|error| self.failed("reading records", &error))
    }

    /// Removes records that wait, at once, not more than the layout allows; how many there were of each stream.
    pub(crate) fn remove(&mut self, ids: &[Id]) -> Result<BTreeMap<Arc<str>, u64>, Error> {
        let doing = "removing records";
        let frames = self.frames_to_remove(ids.iter().map(|id| id.bytes));
        self.change(doing, frames, |database| {
            let mut touched: BTreeMap<i64, Vec<Gone>> = BTreeMap::new();
            for id in ids {
                let gone = database.delete(*id).map_err(|error| database.failed(doing, &error))?;
                touched.entry(id.stream).or_default().extend(gone);
            }
            let mut removed = BTreeMap::new();
            for (number, gone) in touched {
                if let Some(name) = database.account(number, &gone)? {
                    removed.insert(name, gone.len() as u64);
                }
            }
            Ok(removed)
        })
    }

    pub(super) fn frames_to_remove(&self, rows: impl ExactSizeIterator<Item = u64>) -> u64 {
        let (count, streams) = (rows.len(), 2 * self.streams.len() as u64);
        frames_to_remove(count, rows.fold(0, u64::saturating_add)) + streams
    }

    fn delete(&self, id: Id) -> rusqlite::Result<Option<Gone>> {
        // A number that none of ours has, of another spool.
        if !self.streams.values().any(|stream| stream.number == id.stream) {
            return Ok(None);
        }
        let sql = format!("DELETE FROM records_{} WHERE id = ?1 RETURNING bytes", id.stream);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([id.number.cast_signed()])?;
        let gone = match rows.next()? {
            Some(row) => Some(Gone { id: id.number, bytes: row.get::<_, i64>(0)?.cast_unsigned() }),
            None => None,
        };
        // A statement that is not run to its end has not done its work.
        while rows.next()?.is_some() {}
        Ok(gone)
    }

    /// Notes that records of a stream wait no more; its name.
    pub(super) fn account(&mut self, number: i64, gone: &[Gone]) -> Result<Option<Arc<str>>, Error> {
        let oldest = self.oldest(number).map_err(|error| self.failed("looking for the oldest record", &error))?;
        let Some((name, stream)) = self.streams.iter_mut().find(|(_, stream)| stream.number == number) else {
            return Ok(None);
        };
        stream.records = stream.records.saturating_sub(gone.len() as u64);
        let bytes = gone.iter().fold(0, |sum, gone| u64::saturating_add(sum, gone.bytes));
        stream.bytes = stream.bytes.saturating_sub(bytes);
        stream.oldest = oldest;
        Ok(Some(Arc::clone(name)))
    }

    /// Sets a record aside; whether it was there.
    pub(crate) fn set_aside(&mut self, id: Id, reason: &str) -> Result<bool, Error> {
        let doing = "setting a record aside";
        let sql = format!("SELECT {} FROM records_{} WHERE id = ?1", row::COLUMNS, id.stream);
        let read = || -> rusqlite::Result<Option<[Value; 7]>> {
            if !self.streams.values().any(|stream| stream.number == id.stream) {
                return Ok(None);
            }
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query([id.number.cast_signed()])?;
            rows.next()?.map(whole).transpose()
        };
        let Some(values) = read().map_err(|error| self.failed(doing, &error))? else { return Ok(false) };
        let frames = frames_of(&values, reason);
        self.change(doing, frames, |database| {
            let failed = |database: &Self, error: rusqlite::Error| database.failed(doing, &error);
            // First, so that it finds room in a spool that is full.
            let gone = database.delete(id).map_err(|error| failed(database, error))?;
            let insert = || {
                let sql = format!(
                    "INSERT INTO aside ({}, stream, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                    row::COLUMNS
                );
                let [id_, stored_at, bytes, checksum, key, hash_key, data] = &values;
                let mut statement = database.connection.prepare_cached(&sql)?;
                statement.execute(params![id_, stored_at, bytes, checksum, key, hash_key, data, id.stream, reason])
            };
            insert().map_err(|error| failed(database, error))?;
            database.account(id.stream, gone.as_slice())?;
            if let Some(stream) = database.streams.values_mut().find(|stream| stream.number == id.stream) {
                stream.aside += 1;
            }
            Ok(true)
        })
    }

    /// Lets the first records that are set aside wait in their old places again, not more than so many and than the layout
    /// allows at once; `None` if there is none. `after` is the number behind which they are looked for.
    pub(crate) fn take_back(
        &mut self,
        stream: Option<&str>,
        after: u64,
        most: usize,
    ) -> Result<Option<TakenBack>, Error> {
        let doing = "taking records back";
        let number = match stream.map(|name| self.streams.get(name)) {
            Some(None) => return Ok(None),
            Some(Some(stream)) => Some(stream.number),
            None => None,
        };
        let (rows, frames) = self.first_aside(number, after, most).map_err(|error| self.failed(doing, &error))?;
        let Some(last) = rows.last().map(|row| row.id) else { return Ok(None) };
        self.change(doing, frames, |database| {
            for AsideRow { id, bytes, stream: number, values } in &rows {
                let move_ = || {
                    // First, so that it finds room in a spool that is full.
                    database.connection.prepare_cached("DELETE FROM aside WHERE id = ?1")?.execute([id])?;
                    let sql =
                        format!("INSERT INTO records_{number} ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", row::COLUMNS);
                    database.connection.prepare_cached(&sql)?.execute(rusqlite::params_from_iter(values))
                };
                move_().map_err(|error| database.failed(doing, &error))?;
                if let Some(stream) = database.streams.values_mut().find(|stream| stream.number == *number) {
                    stream.aside = stream.aside.saturating_sub(1);
                    stream.records += 1;
                    stream.bytes = stream.bytes.saturating_add(bytes.cast_unsigned());
                }
            }
            let numbers: BTreeSet<i64> = rows.iter().map(|row| row.stream).collect();
            for number in numbers {
                database.account(number, &[])?;
            }
            Ok(Some(TakenBack { records: rows.len() as u64, last: last.cast_unsigned() }))
        })
    }

    /// Rows of records that are set aside, and what moving them takes of the log.
    fn first_aside(&self, number: Option<i64>, after: u64, most: usize) -> rusqlite::Result<(Vec<AsideRow>, u64)> {
        let sql = format!(
            "SELECT {}, stream, reason FROM aside WHERE id > ?1 AND (?2 IS NULL OR stream = ?2) ORDER BY id LIMIT ?3",
            row::COLUMNS
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut found = statement.query(params![after.cast_signed(), number, most])?;
        let (mut rows, mut frames) = (Vec::new(), 0);
        while let Some(row) = found.next()? {
            let (values, reason) = (whole(row)?, row.get::<_, String>(8)?);
            let with = frames + frames_of(&values, &reason);
            if with > self.layout.log_frames && !rows.is_empty() {
                break;
            }
            frames = with;
            rows.push(AsideRow { id: row.get(0)?, bytes: row.get(2)?, stream: row.get(7)?, values });
        }
        Ok((rows, frames))
    }

    /// Records that are set aside, the first so many behind this number.
    pub(crate) fn aside(&self, after: u64, limit: usize) -> Result<Vec<Aside>, Error> {
        let names: BTreeMap<i64, &str> = self.streams.iter().map(|(name, stream)| (stream.number, &**name)).collect();
        let read = || -> rusqlite::Result<Vec<Aside>> {
            let sql = "SELECT id, stream, stored_at, bytes, partition_key, reason FROM aside WHERE id > ?1 ORDER BY id LIMIT ?2";
            let mut statement = self.connection.prepare_cached(sql)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![after.cast_signed(), limit], |row| {
                let text = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_bytes().unwrap_or_default());
                Ok(Aside {
                    number: row.get::<_, i64>(0)?.cast_unsigned(),
                    stream: names.get(&row.get(1)?).copied().unwrap_or_default().to_owned(),
                    stored_at: row::time(row.get::<_, i64>(2)?.cast_unsigned()),
                    bytes: row.get::<_, i64>(3)?.cast_unsigned(),
                    partition_key: String::from_utf8_lossy(text(4)?).into_owned(),
                    reason: String::from_utf8_lossy(text(5)?).into_owned(),
                })
            })?;
            rows.collect()
        };
        read().map_err(|error| self.failed("reading records", &error))
    }
}

/// A record that is set aside, as it is.
struct AsideRow {
    id: i64,
    bytes: i64,
    stream: i64,
    values: [Value; 7],
}

/// What is in the first columns of a row, as it is, whatever that is.
fn whole(row: &rusqlite::Row<'_>) -> rusqlite::Result<[Value; 7]> {
    let mut values = [const { Value::Null }; 7];
    for (column, value) in values.iter_mut().enumerate() {
        *value = match row.get_ref(column)? {
            // The library's own conversion takes it for granted that a text is one.
            ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
            other => other.into(),
        };
    }
    Ok(values)
}

/// What moving a row takes.
fn frames_of(values: &[Value; 7], reason: &str) -> u64 {
    let size = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        _other => 0,
    };
    let bytes = (values.iter().map(size).sum::<usize>() + reason.len()) as u64;
    let mut need = Need::default();
    need.add(bytes);
    need.pages() + frames_to_remove(1, bytes)
}
