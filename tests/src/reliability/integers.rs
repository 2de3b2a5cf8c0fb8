//! The record that an integer is: its partition key, its payload, its shard; pure.

use shardmill_record::{HashKey, HashKeyRange, UserRecord};

/// How many partition keys there are: an integer's is that of its remainder, so that the integers of a key ascend.
pub const KEYS: u64 = 1_000;

/// The records of a run, and where they go in a stream whose shards nobody splits or merges.
#[derive(Debug, Clone)]
pub struct Integers {
    /// By remainder.
    keys: Vec<String>,
    /// The ids of the shards.
    shards: Vec<String>,
    /// By remainder: which of the shards it is.
    of_key: Vec<usize>,
}

// === impl Integers ===

impl Integers {
    /// The seed is part of each key, and so says which shard it goes to. The shards cover all hash keys.
    ///
    /// # Panics
    /// If they do not.
    pub fn new(seed: u64, shards: &[(String, HashKeyRange)]) -> Integers {
        let keys: Vec<String> = (0..KEYS).map(|remainder| format!("{seed}-{remainder}")).collect();
        let shard = |key: &String| {
            let hash_key = HashKey::of_partition_key(key);
            shards.iter().position(|(_, range)| range.contains(hash_key)).expect("the shards cover all hash keys")
        };
        let of_key = keys.iter().map(shard).collect();
        Integers { keys, shards: shards.iter().map(|(id, _)| id.clone()).collect(), of_key }
    }

    /// The record of an integer: its payload is the integer as text.
    pub fn record(&self, integer: u64) -> UserRecord {
        let partition_key = self.key(integer).to_owned();
        UserRecord { partition_key, explicit_hash_key: None, data: integer.to_string().into_bytes().into() }
    }

    /// The integer whose payload this is; `None` if no integer's is.
    pub fn parse(payload: &[u8]) -> Option<u64> {
        let is_written_so =
            payload == b"0" || (payload.first() != Some(&b'0') && payload.iter().all(u8::is_ascii_digit));
        std::str::from_utf8(payload).ok().filter(|_| is_written_so)?.parse().ok()
    }

    /// The partition key of an integer.
    pub fn key(&self, integer: u64) -> &str {
        &self.keys[(integer % KEYS) as usize]
    }

    /// The id of the shard that an integer's key goes to.
    pub fn shard(&self, integer: u64) -> &str {
        &self.shards[self.of_key[(integer % KEYS) as usize]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_read_back_as_it_was_written_and_nothing_else_is_one() {
        let integers = Integers::new(7, &[("shardId-000000000000".to_owned(), HashKeyRange::ALL)]);
        for integer in [0, 7, 10, 4_999_999, u64::MAX] {
            assert_eq!(Integers::parse(&integers.record(integer).data), Some(integer));
        }
        for other in ["", "+7", "-7", "07", "00", "7 ", "7.0", "18446744073709551616", "\u{661}"] {
            assert_eq!(Integers::parse(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn the_integers_of_a_key_are_one_in_a_thousand_and_in_the_shard_of_its_hash_key() {
        let middle = HashKey::new(1 << 127);
        let halves = [
            ("low".to_owned(), HashKeyRange { start: HashKey::MIN, end: HashKey::new(middle.get() - 1) }),
            ("high".to_owned(), HashKeyRange { start: middle, end: HashKey::MAX }),
        ];
        let integers = Integers::new(7, &halves);
        for integer in 0..KEYS {
            assert_eq!(integers.key(integer), integers.key(integer + 3 * KEYS));
            let is_high = HashKey::of_partition_key(integers.key(integer)) >= middle;
            assert_eq!(integers.shard(integer), if is_high { "high" } else { "low" });
        }
        let high = (0..KEYS).filter(|integer| integers.shard(*integer) == "high").count() as u64;
        assert!((KEYS / 3..2 * KEYS / 3).contains(&high), "{high} of {KEYS} keys are in one half");
        assert_ne!(integers.key(1), Integers::new(8, &halves).key(1), "another seed has other keys");
    }
}
