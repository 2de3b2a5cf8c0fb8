//! The KPL's aggregated records: several user records in one Kinesis record.
//!
//! Frame: 4 magic bytes, a proto2 message, the 16-byte MD5 of that message. The message holds a table of partition
//! keys (field 1), a table of explicit hash keys (field 2) and records (field 3) that point into both. Read and
//! written by hand, because reading borrows from the payload and writing knows its exact size in advance.

mod decode;
mod encode;
mod keys;

pub use decode::{Aggregate, NotAnAggregate, SubRecord, decode, is_framed};
pub use encode::{AGGREGATE_PARTITION_KEY, Aggregator};

const MAGIC: [u8; 4] = [0xF3, 0x89, 0x9A, 0xC2];
const CHECKSUM_LENGTH: usize = 16;
const FRAME_LENGTH: usize = MAGIC.len() + CHECKSUM_LENGTH;

/// Field tags: field number × 8 + 2 for bytes, + 0 for a varint.
mod tag {
    pub(super) const PARTITION_KEY: u64 = 0x0A;
    pub(super) const EXPLICIT_HASH_KEY: u64 = 0x12;
    pub(super) const RECORD: u64 = 0x1A;
    pub(super) const PARTITION_KEY_INDEX: u64 = 0x08;
    pub(super) const EXPLICIT_HASH_KEY_INDEX: u64 = 0x10;
    pub(super) const DATA: u64 = 0x1A;
}
