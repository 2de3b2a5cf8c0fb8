//! The codes of this room's errors.

use shardmill_cause::code::record;
use shardmill_cause::{Code, Coded};

use crate::aggregate::NotAnAggregate;
use crate::{
    InvalidCheckpoint, InvalidHashKey, InvalidRecord, InvalidSequenceNumber, InvalidShardId, InvalidStreamArn,
};

impl Coded for InvalidStreamArn {
    fn code(&self) -> Code {
        match self {
            Self::Form(_) | Self::Consumer(..) => record::STREAM_ARN,
        }
    }
}

impl Coded for InvalidHashKey {
    fn code(&self) -> Code {
        record::HASH_KEY
    }
}

impl Coded for InvalidSequenceNumber {
    fn code(&self) -> Code {
        record::SEQUENCE_NUMBER
    }
}

impl Coded for InvalidCheckpoint {
    fn code(&self) -> Code {
        record::SEQUENCE_NUMBER
    }
}

impl Coded for InvalidShardId {
    fn code(&self) -> Code {
        record::SHARD_ID
    }
}

impl Coded for NotAnAggregate {
    fn code(&self) -> Code {
        match self {
            Self::NoMagic | Self::Checksum | Self::Malformed(_) => record::NOT_AN_AGGREGATE,
        }
    }
}

impl Coded for InvalidRecord {
    fn code(&self) -> Code {
        match self {
            Self::SequenceNumber(_) | Self::PartitionKey { .. } => record::PAGE_RECORD,
        }
    }
}
