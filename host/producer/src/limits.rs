//! What PutRecords takes.

use shardmill_record::UserRecord;

use crate::InvalidRecord;

/// Kinesis records in one request.
pub(crate) const MAX_ENTRIES: usize = 500;
/// One request, partition keys included: what every region and stand-in for Kinesis takes. AWS has taken 10 MiB since
/// 2025.
pub(crate) const MAX_REQUEST_BYTES: usize = 5 << 20;
/// The same, where the service is AWS' own of today.
pub(crate) const HIGHEST_REQUEST_BYTES: usize = 10 << 20;
/// A Kinesis record's size, partition key included: what every stream takes unless it was configured for more.
pub(crate) const MAX_RECORD_BYTES: usize = 1 << 20;
/// The most that a stream can be configured for, as its `MaxRecordSize`.
pub(crate) const HIGHEST_RECORD_BYTES: usize = 10 << 20;
/// In Unicode characters.
pub(crate) const MAX_PARTITION_KEY_CHARACTERS: usize = 256;
/// Kinesis records that a shard takes in a second.
pub(crate) const SHARD_RECORDS_PER_SECOND: f64 = 1_000.0;
/// Bytes that a shard takes in a second, partition keys included.
pub(crate) const SHARD_BYTES_PER_SECOND: f64 = 1_048_576.0;

/// Whether a user record can be sent at all, where a Kinesis record may have so many bytes.
pub(crate) fn validate(record: &UserRecord, allowed: usize) -> Result<(), InvalidRecord> {
    let length = record.partition_key.len();
    // Most keys are short, and need not be counted.
    let characters = if (1..=MAX_PARTITION_KEY_CHARACTERS).contains(&length) {
        length
    } else {
        record.partition_key.chars().count()
    };
    if !(1..=MAX_PARTITION_KEY_CHARACTERS).contains(&characters) {
        return Err(InvalidRecord::PartitionKey(characters));
    }
    let bytes = size(record);
    if bytes > allowed {
        return Err(InvalidRecord::TooLarge { bytes, allowed });
    }
    Ok(())
}

/// What a user record takes of a request if it goes alone.
pub(crate) fn size(record: &UserRecord) -> usize {
    record.partition_key.len() + record.data.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, length: usize) -> UserRecord {
        UserRecord { partition_key: key.to_owned(), explicit_hash_key: None, data: vec![7; length].into() }
    }

    #[test]
    fn records_that_the_service_would_refuse_are_told_apart() {
        use InvalidRecord::{PartitionKey, TooLarge};
        let validate = |record| validate(&record, MAX_RECORD_BYTES);
        assert_eq!(validate(record("", 1)), Err(PartitionKey(0)));
        assert_eq!(validate(record(&"ü".repeat(256), 1)), Ok(()));
        assert_eq!(validate(record(&"ü".repeat(257), 1)), Err(PartitionKey(257)));
        let too_large = TooLarge { bytes: MAX_RECORD_BYTES + 1, allowed: MAX_RECORD_BYTES };
        assert_eq!(validate(record("kk", MAX_RECORD_BYTES - 1)), Err(too_large));
        assert_eq!(validate(record("k", MAX_RECORD_BYTES - 1)), Ok(()));
        assert_eq!(validate(record("k", 0)), Ok(()));
    }
}
