//! Records to hand to a processor.

use std::time::{Duration, SystemTime};

use crate::Batch;

/// A record in the making; made by [`record`], or from data alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRecord {
    data: Vec<u8>,
    partition_key: String,
    explicit_hash_key: Option<u128>,
    /// One of its own, by its place in the batch, if there is none.
    sequence_number: Option<String>,
    sub_sequence_number: u64,
    approximate_arrival: u64,
}

/// A batch's records, in columns.
#[derive(Clone, Debug, Default)]
pub struct Records {
    arena: Vec<u8>,
    lengths: Vec<u32>,
    sub_sequence_numbers: Vec<u64>,
    approximate_arrivals: Vec<u64>,
}

/// A record with this data and the partition key `key`.
pub fn record(data: impl AsRef<[u8]>) -> TestRecord {
    TestRecord {
        data: data.as_ref().to_owned(),
        partition_key: "key".to_owned(),
        explicit_hash_key: None,
        sequence_number: None,
        sub_sequence_number: 0,
        approximate_arrival: 0,
    }
}

/// A batch of these records.
///
/// # Panics
/// If they are more than 4 GiB.
#[track_caller]
pub fn batch_of<I>(records: I) -> Records
where
    I: IntoIterator<Item: Into<TestRecord>>,
{
    let mut columns = Records::default();
    for record in records {
        columns.push(&record.into());
    }
    columns
}

// === impl TestRecord ===

impl TestRecord {
    /// 1 to 256 Unicode characters.
    #[must_use]
    pub fn partition_key(mut self, key: impl Into<String>) -> TestRecord {
        self.partition_key = key.into();
        self
    }

    /// As if the record had been put with an explicit hash key.
    #[must_use]
    pub fn explicit_hash_key(mut self, key: u128) -> TestRecord {
        self.explicit_hash_key = Some(key);
        self
    }

    /// Decimal text.
    #[must_use]
    pub fn sequence_number(mut self, number: impl Into<String>) -> TestRecord {
        self.sequence_number = Some(number.into());
        self
    }

    /// The place in a KPL aggregate.
    #[must_use]
    pub fn sub_sequence_number(mut self, number: u64) -> TestRecord {
        self.sub_sequence_number = number;
        self
    }

    /// To the millisecond; a time before 1970 counts as 1970.
    #[must_use]
    pub fn approximate_arrival(mut self, time: SystemTime) -> TestRecord {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.approximate_arrival = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self
    }
}

impl From<&str> for TestRecord {
    fn from(data: &str) -> TestRecord {
        record(data)
    }
}

impl From<String> for TestRecord {
    fn from(data: String) -> TestRecord {
        record(data)
    }
}

impl From<&[u8]> for TestRecord {
    fn from(data: &[u8]) -> TestRecord {
        record(data)
    }
}

impl From<Vec<u8>> for TestRecord {
    fn from(data: Vec<u8>) -> TestRecord {
        record(data)
    }
}

impl From<serde_json::Value> for TestRecord {
    fn from(data: serde_json::Value) -> TestRecord {
        record(data.to_string())
    }
}

// === impl Records ===

impl Records {
    /// The batch as a processor sees it.
    ///
    /// # Panics
    /// Never, for records made by [`batch_of`].
    #[track_caller]
    pub fn batch(&self) -> Batch<'_> {
        Batch::try_new(&self.arena, &self.lengths, &self.sub_sequence_numbers, &self.approximate_arrivals)
            .expect("columns written by batch_of agree with each other")
    }

    fn push(&mut self, record: &TestRecord) {
        let index = self.sub_sequence_numbers.len();
        // As long as the numbers that Kinesis gives: 56 digits.
        let sequence_number = record.sequence_number.clone().unwrap_or_else(|| format!("496{:053}", index + 1));
        let explicit_hash_key = record.explicit_hash_key.map(|key| key.to_string()).unwrap_or_default();
        for part in
            [sequence_number.as_bytes(), record.partition_key.as_bytes(), explicit_hash_key.as_bytes(), &record.data]
        {
            self.arena.extend_from_slice(part);
            self.lengths.push(u32::try_from(part.len()).expect("a test batch is below 4 GiB"));
        }
        self.sub_sequence_numbers.push(record.sub_sequence_number);
        self.approximate_arrivals.push(record.approximate_arrival);
    }
}
