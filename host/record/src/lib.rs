//! Records as Kinesis and the KPL write them: positions, hash keys, pages, batches and aggregates.
//!
//! Pure: nothing here does I/O, reads a clock or spawns a task, so all of it can be property-tested and fuzzed.
//!
//! A [`Page`] is what one read of a shard brought: spans over one buffer. An [`Unpacker`] turns pages into
//! [`Batch`]es of user records, taking KPL aggregates apart on the way: one arena and its columns, in the order in
//! which a columnar guest takes them.

pub mod aggregate;
mod batch;
mod checkpoint;
mod coded;
mod hash_key;
mod page;
mod sequence_number;
mod shard_id;
mod stream_arn;
mod unpack;
mod user_record;

pub use batch::{Batch, BatchBuilder, Record};
pub use checkpoint::{Checkpoint, InvalidCheckpoint};
pub use hash_key::{HashKey, HashKeyRange, InvalidHashKey};
pub use page::{InvalidRecord, KinesisRecord, Page, PageBuilder, Span};
pub use sequence_number::{InvalidSequenceNumber, Position, SequenceNumber, compare_digits};
pub use shard_id::{InvalidShardId, ShardId};
pub use stream_arn::{InvalidStreamArn, StreamArn};
pub use unpack::{BatchLimits, OutOfRange, Unpacked, Unpacker};
pub use user_record::UserRecord;
