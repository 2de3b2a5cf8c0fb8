//! What goes in as columns comes out as records, and columns that are at odds are refused.

use proptest::prelude::*;
use shardmill_guest::batch::{Batch, Error};
use shardmill_guest::prelude::*;
use shardmill_guest::testing::{self, TestRecord, Verdict, batch_of, record};

#[derive(Clone, Debug)]
struct Row {
    data: Vec<u8>,
    partition_key: String,
    explicit_hash_key: Option<u128>,
    sub_sequence_number: u64,
}

impl From<Row> for TestRecord {
    fn from(row: Row) -> TestRecord {
        let record = record(&row.data).partition_key(row.partition_key).sub_sequence_number(row.sub_sequence_number);
        match row.explicit_hash_key {
            Some(key) => record.explicit_hash_key(key),
            None => record,
        }
    }
}

fn row() -> impl Strategy<Value = Row> {
    (prop::collection::vec(any::<u8>(), 0..40), "\\PC{1,256}", any::<Option<u128>>(), any::<u64>()).prop_map(
        |(data, partition_key, explicit_hash_key, sub_sequence_number)| Row {
            data,
            partition_key,
            explicit_hash_key,
            sub_sequence_number,
        },
    )
}

/// Sends every record on, to one of three outputs by its place.
struct Forward;

impl RecordProcessor for Forward {
    type Config = NoConfig;

    fn new(_: NoConfig) -> Result<Self, Error_> {
        Ok(Forward)
    }

    fn process_record(
        &mut self,
        _: &ShardContext,
        record: Record<'_>,
        outcome: &mut RecordOutcome<'_, '_>,
    ) -> Result<(), RecordError> {
        outcome.emit(["a", "b", "c"][record.index() % 3]).bytes(record.data())?;
        Ok(())
    }
}

type Error_ = shardmill_guest::Error;

proptest! {
    #[test]
    fn records_come_out_as_they_went_in(rows in prop::collection::vec(row(), 0..20)) {
        let records = batch_of(rows.clone());
        let batch = records.batch();
        prop_assert_eq!(batch.len(), rows.len());
        prop_assert_eq!(batch.iter().len(), rows.len());
        for (index, (record, row)) in batch.iter().zip(&rows).enumerate() {
            prop_assert_eq!(record.index(), index);
            prop_assert_eq!(record.data(), row.data.as_slice());
            prop_assert_eq!(record.partition_key(), row.partition_key.as_str());
            prop_assert_eq!(record.sub_sequence_number(), row.sub_sequence_number);
            let explicit_hash_key = record.explicit_hash_key().map(|key| key.parse::<u128>().unwrap());
            prop_assert_eq!(explicit_hash_key, row.explicit_hash_key);
            prop_assert_eq!(batch.get(index).unwrap().sequence_number(), record.sequence_number());
        }
        prop_assert!(batch.get(rows.len()).is_none());
    }

    #[test]
    fn outputs_come_out_as_they_were_emitted(rows in prop::collection::vec(row(), 0..20)) {
        let result = testing::run(&mut Forward, rows.clone()).unwrap();
        prop_assert!(result.all_done());
        prop_assert_eq!(result.all_outputs().len(), rows.len());
        for (index, (output, row)) in result.all_outputs().iter().zip(&rows).enumerate() {
            prop_assert_eq!(output.name.as_str(), ["a", "b", "c"][index % 3]);
            prop_assert_eq!(&output.data, &row.data);
            prop_assert_eq!(&output.partition_key, &row.partition_key);
            prop_assert_eq!(&output.explicit_hash_key, &row.explicit_hash_key.map(|key| key.to_string()));
        }
    }

    /// Whatever the host says: a batch whose records lie in the arena one after another, or an error.
    #[test]
    fn columns_at_odds_never_panic(
        arena in prop_oneof![prop::collection::vec(any::<u8>(), 0..24), "\\PC{0,12}".prop_map(String::into_bytes)],
        lengths in prop::collection::vec(prop_oneof![9 => 0u32..6, 1 => any::<u32>()], 0..9),
        sub_sequence_numbers in prop::collection::vec(any::<u64>(), 0..3),
        arrivals in prop::collection::vec(any::<u64>(), 0..3),
    ) {
        if let Ok(batch) = Batch::try_new(&arena, &lengths, &sub_sequence_numbers, &arrivals) {
            let mut again = Vec::new();
            for record in &batch {
                again.extend_from_slice(record.sequence_number().as_bytes());
                again.extend_from_slice(record.partition_key().as_bytes());
                again.extend_from_slice(record.explicit_hash_key().unwrap_or_default().as_bytes());
                again.extend_from_slice(record.data());
                let _ = record.approximate_arrival();
            }
            prop_assert_eq!(again, arena);
        }
    }
}

#[test]
fn each_kind_of_odds_is_told() {
    let refused = |arena: &[u8], lengths: &[u32], numbers: &[u64], arrivals: &[u64]| {
        Batch::try_new(arena, lengths, numbers, arrivals).unwrap_err()
    };
    let columns = |lengths, sub_sequence_numbers, arrivals| Error::Columns { lengths, sub_sequence_numbers, arrivals };
    assert_eq!(refused(b"1k", &[1, 1, 0], &[0], &[0]), columns(3, 1, 1));
    assert_eq!(refused(b"1k", &[1, 1, 0, 0], &[0, 0], &[0]), columns(4, 2, 1));
    assert_eq!(refused(b"1k", &[1, 1, 0, 0], &[0], &[]), columns(4, 1, 0));
    assert_eq!(refused(b"1kd", &[1, 1, 0, 0], &[0], &[0]), Error::Lengths { arena: 3 });
    assert_eq!(refused(b"1k", &[1, 1, 0, 1], &[0], &[0]), Error::Lengths { arena: 2 });
    assert_eq!(refused(b"1k", &[u32::MAX, u32::MAX, u32::MAX, u32::MAX], &[0], &[0]), Error::Lengths { arena: 2 });
    assert_eq!(refused(b"1\xff", &[1, 1, 0, 0], &[0], &[0]), Error::Text { index: 0 });
    // The border between sequence number and key cuts the ä in two.
    assert_eq!(refused("1ä".as_bytes(), &[2, 1, 0, 0], &[0], &[0]), Error::Text { index: 0 });
    // Data need not be text.
    assert!(Batch::try_new(b"1k\xff", &[1, 1, 0, 1], &[0], &[0]).is_ok());
}

#[test]
fn an_empty_batch_is_done() {
    let result = testing::run(&mut Forward, Vec::<TestRecord>::new()).unwrap();
    assert_eq!(result.verdicts(), &[] as &[Verdict]);
    assert!(result.all_outputs().is_empty());
}
