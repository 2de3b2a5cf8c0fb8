//! Rows, and whether they are what they were written as.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use shardmill_record::{HashKey, UserRecord};

/// The columns that [`read`] takes, in its order.
pub(super) const COLUMNS: &str = "id, stored_at, bytes, checksum, partition_key, hash_key, data";

/// A row of records.
pub(super) struct Stored {
    pub(super) id: u64,
    pub(super) stored_at: u64,
    pub(super) record: UserRecord,
}

/// Key and payload, in bytes.
pub(crate) fn size(record: &UserRecord) -> u64 {
    (record.partition_key.len() + record.data.len()) as u64
}

/// Of a stream's row.
pub(super) fn stream_checksum(number: i64, name: &str, last_id: u64, records: u64) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&last_id.to_le_bytes());
    hasher.update(&records.to_le_bytes());
    hasher.update(name.as_bytes());
    i64::from(hasher.finalize())
}

/// Of a record's row.
pub(super) fn checksum(stream: &str, id: u64, stored_at: u64, record: &UserRecord) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(&stored_at.to_le_bytes());
    // With their lengths, so that no two rows have one text.
    hasher.update(&(stream.len() as u64).to_le_bytes());
    hasher.update(&(record.partition_key.len() as u64).to_le_bytes());
    hasher.update(stream.as_bytes());
    hasher.update(record.partition_key.as_bytes());
    if let Some(hash_key) = record.explicit_hash_key {
        hasher.update(&hash_key.get().to_be_bytes());
    }
    hasher.update(&record.data);
    i64::from(hasher.finalize())
}

/// Reads a row of [`COLUMNS`]; `None` if it is not what was written.
pub(super) fn read(stream: &str, row: &Row<'_>) -> rusqlite::Result<Option<Stored>> {
    let number = |column| match row.get_ref(column)? {
        ValueRef::Integer(number) => Ok::<_, rusqlite::Error>(u64::try_from(number).ok()),
        _other => Ok(None),
    };
    let (Some(id), Some(stored_at), Some(bytes), Some(sum)) = (number(0)?, number(1)?, number(2)?, number(3)?) else {
        return Ok(None);
    };
    let ValueRef::Text(partition_key) = row.get_ref(4)? else { return Ok(None) };
    let Ok(partition_key) = std::str::from_utf8(partition_key) else { return Ok(None) };
    let explicit_hash_key = match row.get_ref(5)? {
        ValueRef::Null => None,
        ValueRef::Blob(key) => match key.try_into() {
            Ok(key) => Some(HashKey::new(u128::from_be_bytes(key))),
            Err(_) => return Ok(None),
        },
        _other => return Ok(None),
    };
    let ValueRef::Blob(data) = row.get_ref(6)? else { return Ok(None) };
    let record =
        UserRecord { partition_key: partition_key.to_owned(), explicit_hash_key, data: Bytes::copy_from_slice(data) };
    let is_whole = bytes == size(&record) && i64::try_from(sum) == Ok(checksum(stream, id, stored_at, &record));
    Ok(is_whole.then_some(Stored { id, stored_at, record }))
}

pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Of any number that a file may hold.
pub(crate) fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_row_is_in_its_checksum() {
        let record = |key: &str, hash: Option<u128>, data: &'static str| UserRecord {
            partition_key: key.to_owned(),
            explicit_hash_key: hash.map(HashKey::new),
            data: data.into(),
        };
        let plain = record("key", None, "data");
        let sums = [
            checksum("s", 1, 2, &plain),
            checksum("s", 2, 2, &plain),
            checksum("s", 1, 3, &plain),
            checksum("t", 1, 2, &plain),
            checksum("sk", 1, 2, &record("ey", None, "data")),
            checksum("s", 1, 2, &record("keyd", None, "ata")),
            checksum("s", 1, 2, &record("key", Some(0), "data")),
            checksum("s", 1, 2, &record("key", Some(1), "data")),
            checksum("s", 1, 2, &record("key", None, "date")),
        ];
        let different: std::collections::BTreeSet<i64> = sums.into_iter().collect();
        assert_eq!(different.len(), sums.len());
        let streams = [stream_checksum(1, "s", 2, 3), stream_checksum(2, "s", 2, 3), stream_checksum(1, "s", 3, 3)];
        assert!(streams[0] != streams[1] && streams[0] != streams[2]);
        assert_ne!(streams[0], stream_checksum(1, "s", 2, 4));
        assert_ne!(streams[0], stream_checksum(1, "t", 2, 3));
    }
}
