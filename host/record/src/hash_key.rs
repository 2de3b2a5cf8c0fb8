use std::fmt;
use std::str::FromStr;

use md5::block_api::compress;
use md5::{Digest, Md5};

/// What one block of MD5 holds beside the padding and the length.
const ONE_BLOCK: usize = 55;

/// A place on the ring that a stream's shards divide among them: 0 to 2^128 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashKey(u128);

/// Why a text is not a hash key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a hash key: a decimal number from 0 to 2^128 - 1 is expected")]
pub struct InvalidHashKey(String);

/// The hash keys that a shard takes, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashKeyRange {
    /// The lowest hash key of the range.
    pub start: HashKey,
    /// The highest hash key of the range.
    pub end: HashKey,
}

// === impl HashKey ===

impl HashKey {
    /// The lowest hash key.
    pub const MIN: Self = Self(0);
    /// The highest hash key.
    pub const MAX: Self = Self(u128::MAX);

    /// A hash key by its number.
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u128 {
        self.0
    }

    /// Where a record without an explicit hash key goes: the MD5 of its partition key as a big-endian number.
    pub fn of_partition_key(partition_key: &str) -> Self {
        let key = partition_key.as_bytes();
        let digest = if key.len() <= ONE_BLOCK { md5_of_short(key) } else { Md5::digest(key).into() };
        Self(u128::from_be_bytes(digest))
    }
}

/// The MD5 of what fits into one block with its padding: without the buffer of a digest that is fed piece by piece, which
/// costs a third of it. This is done for every record that is put.
fn md5_of_short(text: &[u8]) -> [u8; 16] {
    let mut block = [0; 64];
    block[..text.len()].copy_from_slice(text);
    block[text.len()] = 0x80;
    block[56..].copy_from_slice(&(text.len() as u64 * 8).to_le_bytes());
    // As RFC 1321 has it.
    let mut state = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    compress(&mut state, &[block]);
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

impl FromStr for HashKey {
    type Err = InvalidHashKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => Ok(Self(number)),
            _ => Err(InvalidHashKey(text.chars().take(64).collect())),
        }
    }
}

impl fmt::Display for HashKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

// === impl HashKeyRange ===

impl HashKeyRange {
    /// The whole ring.
    pub const ALL: Self = Self { start: HashKey::MIN, end: HashKey::MAX };

    /// Whether the range holds this hash key.
    pub fn contains(&self, key: HashKey) -> bool {
        self.start <= key && key <= self.end
    }

    /// Whether this is the whole ring, so that no key needs to be looked at.
    pub fn is_all(&self) -> bool {
        *self == Self::ALL
    }
}

impl fmt::Display for HashKeyRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}..={}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_key_hashes_to_its_md5() {
        // MD5("abc"), from RFC 1321.
        assert_eq!(HashKey::of_partition_key("abc").get(), 0x9001_5098_3cd2_4fb0_d696_3f7d_28e1_7f72);
    }

    #[test]
    fn keys_of_all_lengths_hash_to_their_md5() {
        for length in 0..=256 {
            let key: String = ('a'..='z').cycle().take(length).collect();
            let digest: [u8; 16] = Md5::digest(key.as_bytes()).into();
            assert_eq!(HashKey::of_partition_key(&key).get(), u128::from_be_bytes(digest), "{length}");
        }
    }

    #[test]
    fn decimal_text_is_read_up_to_the_highest_key_and_nothing_else() {
        assert_eq!(u128::MAX.to_string().parse::<HashKey>().unwrap(), HashKey::MAX);
        for text in ["", "-1", "+1", "340282366920938463463374607431768211456", "1e3", "0x10"] {
            assert!(text.parse::<HashKey>().is_err(), "{text}");
        }
    }
}
