use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::encode::write_bytes;

/// A table of keys as it stands in the message, and where each key is in it: a key is kept once, and looked for by one
/// hash.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    /// Field after field.
    bytes: Vec<u8>,
    /// Where each key begins and ends in `bytes`.
    places: Vec<(u32, u32)>,
    /// Indexes of keys plus one by their hashes, or 0; the next free one if one is taken. At most half of them are.
    slots: Vec<u32>,
    hasher: RandomState,
}

/// Where a key is, or would be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Its index in the table.
    pub(super) index: u64,
    /// Whether it is not in the table yet.
    pub(super) is_new: bool,
    hash: u64,
}

// === impl KeyTable ===

impl KeyTable {
    /// The table's part of the message.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Found {
        let hash = self.hasher.hash_one(key);
        let mut slot = hash as usize;
        while !self.slots.is_empty() {
            slot &= self.slots.len() - 1;
            let Some(index) = self.slots[slot].checked_sub(1) else { break };
            let (start, end) = self.places[index as usize];
            if &self.bytes[start as usize..end as usize] == key {
                return Found { index: index.into(), is_new: false, hash };
            }
            slot += 1;
        }
        Found { index: self.places.len() as u64, is_new: true, hash }
    }

    /// Adds a key that was looked for and is not there.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8], found: &Found, tag: u64) {
        write_bytes(&mut self.bytes, tag, key);
        let end = self.bytes.len();
        // No message is larger than 1 MiB.
        self.places.push(((end - key.len()) as u32, end as u32));
        if self.places.len() * 2 > self.slots.len() {
            self.grow();
        } else {
            self.occupy(found.hash, self.places.len() as u32);
        }
    }

    fn occupy(&mut self, hash: u64, number: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = number;
    }

    fn grow(&mut self) {
        self.slots = vec![0; (self.slots.len() * 4).max(64)];
        for number in 0..self.places.len() {
            let (start, end) = self.places[number];
            let hash = self.hasher.hash_one(&self.bytes[start as usize..end as usize]);
            self.occupy(hash, number as u32 + 1);
        }
    }
}
