//! The record that a dead letter is about, as it is sent again.

use shardmill_engine::DeadLetter;
use shardmill_record::UserRecord;
use shardmill_record::aggregate::{AGGREGATE_PARTITION_KEY, Aggregator, decode};

const MAX_KEY_CHARACTERS: usize = 256;

/// Key, hash key and payload as they were. A consumer that takes aggregates apart is handed the same record again.
///
/// What only an aggregate can carry goes as an aggregate of one, which is how it came: an explicit hash key, which
/// GetRecords does not tell; a partition key that PutRecords does not take; a payload that would be taken for an aggregate.
pub(crate) fn record(letter: &DeadLetter) -> UserRecord {
    let record = UserRecord {
        partition_key: letter.partition_key.clone(),
        explicit_hash_key: letter.explicit_hash_key,
        data: letter.data.clone(),
    };
    let is_key = (1..=MAX_KEY_CHARACTERS).contains(&record.partition_key.chars().count());
    if is_key && record.explicit_hash_key.is_none() && decode(&record.data).is_err() {
        return record;
    }
    let mut aggregator = Aggregator::default();
    aggregator.push(&record);
    match aggregator.finish() {
        Some((data, first)) => {
            UserRecord { partition_key: AGGREGATE_PARTITION_KEY.to_owned(), explicit_hash_key: Some(first), data }
        }
        None => record,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_record::{BatchBuilder, BatchLimits, HashKey, HashKeyRange, OutOfRange, PageBuilder, Unpacker};

    use super::super::letter::tests::{letter, letters};
    use super::*;

    /// What a consumer is handed when a record has been put.
    fn consumed(record: &UserRecord) -> Vec<(String, Option<String>, Vec<u8>)> {
        let mut page = PageBuilder::default();
        page.push("1", &record.partition_key, &record.data, 0).unwrap();
        let mut unpacker = Unpacker::new(None, HashKeyRange::ALL, OutOfRange::Deliver);
        unpacker.push(page.build());
        let mut batch = BatchBuilder::default();
        unpacker.fill(&mut batch, &BatchLimits { records: 10, bytes: 1 << 30 });
        let batch = batch.build();
        let record = |record: shardmill_record::Record<'_>| {
            let hash_key = record.explicit_hash_key.map(str::to_owned);
            (record.partition_key.to_owned(), hash_key, record.data.to_vec())
        };
        batch.iter().map(record).collect()
    }

    fn assert_same(letter: &DeadLetter) {
        let record = record(letter);
        let hash_key = letter.explicit_hash_key.map(|key| key.to_string());
        assert_eq!(consumed(&record), [(letter.partition_key.clone(), hash_key, letter.data.to_vec())]);
        assert!((1..=MAX_KEY_CHARACTERS).contains(&record.partition_key.chars().count()));
        // It goes to the shard that it came from.
        let own = letter.explicit_hash_key.unwrap_or_else(|| HashKey::of_partition_key(&letter.partition_key));
        assert_eq!(record.hash_key(), own);
    }

    #[test]
    fn an_ordinary_record_is_put_as_it_is() {
        let letter = letter(1);
        let record = record(&letter);
        assert_eq!((record.partition_key, record.data), (letter.partition_key, letter.data));
    }

    #[test]
    fn what_only_an_aggregate_can_carry_is_handed_over_as_it_was() {
        let mut aggregator = Aggregator::default();
        aggregator.push(&record(&letter(2)));
        aggregator.push(&record(&letter(3)));
        let mut nested = letter(1);
        nested.data = aggregator.finish().unwrap().0;
        let mut hashed = letter(1);
        hashed.explicit_hash_key = Some(HashKey::MAX);
        let mut nameless = letter(1);
        nameless.partition_key = String::new();
        let mut long = letter(1);
        long.partition_key = "é".repeat(257);
        // It begins like an aggregate, and is none.
        let mut broken = nested.clone();
        broken.data = broken.data.slice(..broken.data.len() - 1);
        for letter in [nested, hashed, nameless, long, broken] {
            assert_same(&letter);
        }
    }

    proptest! {
        #[test]
        fn a_consumer_is_handed_the_same_record_again(letter in letters()) {
            assert_same(&letter);
        }
    }
}
