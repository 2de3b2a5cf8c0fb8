use crate::limits::MAX_PARTITION_KEY_CHARACTERS;

/// The permit to send was withdrawn, because the lease on whose behalf it was given is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the permit to send was withdrawn")]
pub struct Stopped;

/// Which rule of PutRecords a user record breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    /// A partition key has 1 to 256 characters.
    #[error("its partition key has {0} characters; 1 to {MAX_PARTITION_KEY_CHARACTERS} are allowed")]
    PartitionKey(usize),
    /// A Kinesis record has at most 1 MiB, or what its stream is configured for.
    #[error("its partition key and its data have {bytes} bytes together; {allowed} are allowed")]
    TooLarge {
        /// How large it is, in bytes.
        bytes: usize,
        /// How large a record may be, in bytes.
        allowed: usize,
    },
    /// Where records are put together in aggregates, readers take everything apart that looks like one: data that do are
    /// put into an aggregate of their own, which is larger.
    #[error(
        "its data begin like an aggregate, and have {bytes} bytes in an aggregate of their own; {allowed} are allowed"
    )]
    AggregateTooLarge {
        /// How large the aggregate with its partition key is, in bytes.
        bytes: usize,
        /// How large a record may be, in bytes.
        allowed: usize,
    },
}
