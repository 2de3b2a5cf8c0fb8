use bytes::Bytes;
use md5::{Digest, Md5};

use super::keys::{Found, KeyTable};
use super::{FRAME_LENGTH, MAGIC, tag};
use crate::batch::HashKeyText;
use crate::{HashKey, UserRecord};

/// The partition key that an aggregate carries: its explicit hash key decides where it goes.
pub const AGGREGATE_PARTITION_KEY: &str = "a";

/// Puts user records together into one payload, and knows its size at every step.
#[derive(Debug, Default)]
pub struct Aggregator {
    partition_keys: KeyTable,
    explicit_hash_keys: KeyTable,
    records: Vec<u8>,
    count: usize,
    first_hash_key: Option<HashKey>,
}

/// What a record adds to an aggregate.
struct Fit {
    partition_key: Found,
    explicit_hash_key: Option<(Found, HashKeyText)>,
    /// The size of the record's own message.
    inner: usize,
    /// The aggregate's size with it.
    size: usize,
}

// === impl Aggregator ===

impl Aggregator {
    /// Nothing is inside, and there is memory for records that take so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { records: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// How many user records are inside.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The finished payload's size in bytes.
    pub fn size(&self) -> usize {
        FRAME_LENGTH + self.partition_keys.bytes().len() + self.explicit_hash_keys.bytes().len() + self.records.len()
    }

    /// What [`size`](Self::size) would be with this record inside as well.
    pub fn size_with(&self, record: &UserRecord) -> usize {
        self.fit(record).size
    }

    /// Adds one record at the end.
    pub fn push(&mut self, record: &UserRecord) {
        let fit = self.fit(record);
        self.add(record, &fit);
    }

    /// Adds one record at the end if [`size`](Self::size) stays within so many bytes. Whether it did.
    pub fn push_within(&mut self, record: &UserRecord, max_bytes: usize) -> bool {
        let fit = self.fit(record);
        if fit.size > max_bytes {
            return false;
        }
        self.add(record, &fit);
        true
    }

    /// Where a record finds its keys, and what it makes of the payload.
    #[inline]
    fn fit(&self, record: &UserRecord) -> Fit {
        let partition_key = self.partition_keys.find(record.partition_key.as_bytes());
        let mut size = self.size();
        if partition_key.is_new {
            size += bytes_field_size(record.partition_key.len());
        }
        let explicit_hash_key = record.explicit_hash_key.map(|hash_key| {
            let text = HashKeyText::new(hash_key);
            let found = self.explicit_hash_keys.find(text.as_bytes());
            if found.is_new {
                size += bytes_field_size(text.as_bytes().len());
            }
            (found, text)
        });
        let hash_index = explicit_hash_key.as_ref().map(|(found, _)| found.index);
        let inner = record_size(partition_key.index, hash_index, record.data.len());
        Fit { partition_key, explicit_hash_key, inner, size: size + bytes_field_size(inner) }
    }

    #[inline]
    fn add(&mut self, record: &UserRecord, fit: &Fit) {
        if fit.partition_key.is_new {
            let key = record.partition_key.as_bytes();
            self.partition_keys.add(key, &fit.partition_key, tag::PARTITION_KEY);
        }
        write_varint(&mut self.records, tag::RECORD);
        write_varint(&mut self.records, fit.inner as u64);
        write_varint(&mut self.records, tag::PARTITION_KEY_INDEX);
        write_varint(&mut self.records, fit.partition_key.index);
        if let Some((found, text)) = &fit.explicit_hash_key {
            if found.is_new {
                self.explicit_hash_keys.add(text.as_bytes(), found, tag::EXPLICIT_HASH_KEY);
            }
            write_varint(&mut self.records, tag::EXPLICIT_HASH_KEY_INDEX);
            write_varint(&mut self.records, found.index);
        }
        write_bytes(&mut self.records, tag::DATA, &record.data);
        self.count += 1;
        if self.first_hash_key.is_none() {
            self.first_hash_key = Some(record.hash_key());
        }
    }

    /// The payload, and the hash key of the first record, which the aggregate is to carry as its explicit hash key.
    /// `None` if nothing is inside.
    pub fn finish(self) -> Option<(Bytes, HashKey)> {
        let first_hash_key = self.first_hash_key?;
        let mut payload = Vec::with_capacity(self.size());
        payload.extend_from_slice(&MAGIC);
        payload.extend_from_slice(self.partition_keys.bytes());
        payload.extend_from_slice(self.explicit_hash_keys.bytes());
        payload.extend_from_slice(&self.records);
        let checksum = Md5::digest(&payload[MAGIC.len()..]);
        payload.extend_from_slice(&checksum);
        Some((payload.into(), first_hash_key))
    }
}

fn record_size(key_index: u64, hash_index: Option<u64>, data_length: usize) -> usize {
    let hash = hash_index.map_or(0, |index| 1 + varint_size(index));
    1 + varint_size(key_index) + hash + bytes_field_size(data_length)
}

/// The size of a field with a one-byte tag.
#[inline]
fn bytes_field_size(length: usize) -> usize {
    1 + varint_size(length as u64) + length
}

#[inline]
fn varint_size(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn write_varint(target: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        target.push(number as u8 | 0x80);
        number >>= 7;
    }
    target.push(number as u8);
}

#[inline]
pub(super) fn write_bytes(target: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    write_varint(target, tag);
    write_varint(target, bytes.len() as u64);
    target.extend_from_slice(bytes);
}
