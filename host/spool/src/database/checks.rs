//! Whether the file holds what was written to it.

use super::{Database, Stream, Streams, row, schema};
use crate::folder::{Folder, Witness};
use crate::{Error, Options};

impl Database {
    /// Whether the file holds what was written to it, as far as that shows without reading all payloads; these are looked
    /// at when they are read.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        let doing = "checking the database";
        let verdict: String = self
            .connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(|error| self.failed(doing, &error))?;
        if verdict != "ok" {
            return Err(Error::damaged(&self.file, verdict.replace('\n', " ")));
        }
        let rows = self.read_streams().map_err(|error| self.failed(doing, &error))?;
        let file = self.file.clone();
        let damaged = |reason: String| Error::damaged(&file, reason);
        let numbers: Vec<i64> = rows.iter().map(|row| row.number).collect();
        schema::check(&self.connection, &numbers).map_err(|error| self.failed(doing, &error))?.map_err(damaged)?;
        let mut streams = Streams::new();
        for row in rows {
            let StreamRow { number, name, last_id, records, checksum } = row;
            if row::stream_checksum(number, &name, last_id, records) != checksum {
                return Err(damaged(format!(
                    "what it says of stream `{}` is not what was written",
                    name.escape_debug()
                )));
            }
            let found = self.count(number).map_err(|error| self.failed(doing, &error))?;
            if found.records != records || found.last_id.is_some_and(|id| id > last_id) {
                return Err(damaged(format!(
                    "it holds {} records of stream `{}`, and {records} were written",
                    found.records,
                    name.escape_debug(),
                )));
            }
            let Found { bytes, oldest, .. } = found;
            self.next_id = self.next_id.max(last_id + 1);
            streams.insert(name.into(), Stream { number, last_id, records, bytes, aside: 0, oldest });
        }
        self.streams = streams;
        let unknown = "SELECT EXISTS (SELECT 1 FROM aside WHERE stream NOT IN (SELECT number FROM streams))";
        let unknown: bool =
            self.connection.query_row(unknown, [], |row| row.get(0)).map_err(|error| self.failed(doing, &error))?;
        if unknown {
            return Err(damaged("a record that is set aside is of no stream that was written".to_owned()));
        }
        self.count_aside().map_err(|error| self.failed(doing, &error))
    }

    pub(super) fn check_witness(&self, folder: &Folder, witness: Witness) -> Result<(), Error> {
        let Witness::Number(accepted) = witness else { return Ok(()) };
        let last = self.last_id();
        if last >= accepted {
            return Ok(());
        }
        let witness = folder.accepted()?;
        Err(Error::Damaged {
            file: self.file.clone(),
            reason: format!(
                "it ends with record {last}, and record {accepted} was accepted: the file or its log {} is damaged, or is an older one",
                self.log.path().display()
            ),
            advice: format!(
                "keep a copy of {}; to go on with the records that are left, remove {}",
                folder.path().display(),
                witness.path().display()
            ),
        })
    }

    pub(super) fn read_bound(&self) -> Result<u64, Error> {
        let read = || -> rusqlite::Result<Vec<(i64, i64)>> {
            let mut statement = self.connection.prepare("SELECT bytes, checksum FROM bound")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        let rows = read().map_err(|error| self.failed("checking the database", &error))?;
        let bound = rows.first().filter(|_| rows.len() == 1).and_then(|(bytes, checksum)| {
            let options = Options { bytes: bytes.cast_unsigned(), ..Options::default() };
            let is_good = schema::bound_checksum(options.bytes) == *checksum && options.check().is_ok();
            is_good.then_some(options.bytes)
        });
        bound.ok_or_else(|| Error::damaged(&self.file, "what it says of its bound is not what was written"))
    }

    fn read_streams(&self) -> rusqlite::Result<Vec<StreamRow>> {
        let mut statement =
            self.connection.prepare("SELECT number, name, last_id, records, checksum FROM streams ORDER BY number")?;
        let rows = statement.query_map([], |row| {
            Ok(StreamRow {
                number: row.get(0)?,
                name: row.get(1)?,
                last_id: row.get::<_, i64>(2)?.cast_unsigned(),
                records: row.get::<_, i64>(3)?.cast_unsigned(),
                checksum: row.get(4)?,
            })
        })?;
        rows.collect()
    }

    fn count(&self, stream: i64) -> rusqlite::Result<Found> {
        let sql = format!("SELECT count(*), coalesce(sum(bytes), 0), max(id) FROM records_{stream}");
        let (records, bytes, last_id) = self.connection.query_row(&sql, [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<i64>>(2)?))
        })?;
        Ok(Found {
            records: records.cast_unsigned(),
            bytes: bytes.cast_unsigned(),
            last_id: last_id.map(i64::cast_unsigned),
            oldest: self.oldest(stream)?,
        })
    }

    fn count_aside(&mut self) -> rusqlite::Result<()> {
        for stream in self.streams.values_mut() {
            let mut statement = self.connection.prepare_cached("SELECT count(*) FROM aside WHERE stream = ?1")?;
            stream.aside = statement.query_row([stream.number], |row| row.get::<_, i64>(0))?.cast_unsigned();
        }
        Ok(())
    }
}

struct StreamRow {
    number: i64,
    name: String,
    last_id: u64,
    records: u64,
    checksum: i64,
}

/// What a table holds.
struct Found {
    records: u64,
    bytes: u64,
    last_id: Option<u64>,
    oldest: Option<u64>,
}
