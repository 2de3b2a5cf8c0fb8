use std::collections::HashMap;

use bytes::Bytes;
use md5::{Digest, Md5};

use super::{FRAME_LENGTH, MAGIC, tag};
use crate::{HashKey, UserRecord};

/// The partition key that an aggregate carries: its explicit hash key decides where it goes.
pub const AGGREGATE_PARTITION_KEY: &str = "a";

/// Puts user records together into one payload, and knows its size at every step.
#[derive(Debug, Default)]
pub struct Aggregator {
    partition_key_indexes: HashMap<String, u64>,
    explicit_hash_key_indexes: HashMap<HashKey, u64>,
    partition_keys: Vec<u8>,
    explicit_hash_keys: Vec<u8>,
    records: Vec<u8>,
    count: usize,
    first_hash_key: Option<HashKey>,
}

// === impl Aggregator ===

impl Aggregator {
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
        FRAME_LENGTH + self.partition_keys.len() + self.explicit_hash_keys.len() + self.records.len()
    }

    /// What [`size`](Self::size) would be with this record inside as well.
    pub fn size_with(&self, record: &UserRecord) -> usize {
        let (key_index, new_key) = match self.partition_key_indexes.get(&record.partition_key) {
            Some(index) => (*index, 0),
            None => (self.partition_key_indexes.len() as u64, bytes_field_size(record.partition_key.len())),
        };
        let (hash_index, new_hash) = match record.explicit_hash_key {
            None => (None, 0),
            Some(hash_key) => match self.explicit_hash_key_indexes.get(&hash_key) {
                Some(index) => (Some(*index), 0),
                None => {
                    let digits = hash_key.to_string().len();
                    (Some(self.explicit_hash_key_indexes.len() as u64), bytes_field_size(digits))
                }
            },
        };
        let inner = record_size(key_index, hash_index, record.data.len());
        self.size() + new_key + new_hash + bytes_field_size(inner)
    }

    /// Adds one record at the end.
    pub fn push(&mut self, record: &UserRecord) {
        let key_index = match self.partition_key_indexes.get(&record.partition_key) {
            Some(index) => *index,
            None => {
                let index = self.partition_key_indexes.len() as u64;
                write_bytes(&mut self.partition_keys, tag::PARTITION_KEY, record.partition_key.as_bytes());
                self.partition_key_indexes.insert(record.partition_key.clone(), index);
                index
            }
        };
        let hash_index = record.explicit_hash_key.map(|hash_key| {
            let next = self.explicit_hash_key_indexes.len() as u64;
            *self.explicit_hash_key_indexes.entry(hash_key).or_insert_with(|| {
                write_bytes(&mut self.explicit_hash_keys, tag::EXPLICIT_HASH_KEY, hash_key.to_string().as_bytes());
                next
            })
        });
        write_varint(&mut self.records, tag::RECORD);
        write_varint(&mut self.records, record_size(key_index, hash_index, record.data.len()) as u64);
        write_varint(&mut self.records, tag::PARTITION_KEY_INDEX);
        write_varint(&mut self.records, key_index);
        if let Some(index) = hash_index {
            write_varint(&mut self.records, tag::EXPLICIT_HASH_KEY_INDEX);
            write_varint(&mut self.records, index);
        }
        write_bytes(&mut self.records, tag::DATA, &record.data);
        self.count += 1;
        self.first_hash_key.get_or_insert_with(|| record.hash_key());
    }

    /// The payload, and the hash key of the first record, which the aggregate is to carry as its explicit hash key.
    /// `None` if nothing is inside.
    pub fn finish(self) -> Option<(Bytes, HashKey)> {
        let first_hash_key = self.first_hash_key?;
        let mut payload = Vec::with_capacity(self.size());
        payload.extend_from_slice(&MAGIC);
        payload.extend_from_slice(&self.partition_keys);
        payload.extend_from_slice(&self.explicit_hash_keys);
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
fn bytes_field_size(length: usize) -> usize {
    1 + varint_size(length as u64) + length
}

fn varint_size(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn write_varint(target: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        target.push(number as u8 | 0x80);
        number >>= 7;
    }
    target.push(number as u8);
}

fn write_bytes(target: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    write_varint(target, tag);
    write_varint(target, bytes.len() as u64);
    target.extend_from_slice(bytes);
}
