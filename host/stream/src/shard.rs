use std::fmt;
use std::sync::Arc;

use shardmill_record::{HashKeyRange, SequenceNumber, ShardId};

/// A stream, as DescribeStreamSummary tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its ARN.
    pub arn: String,
    /// When it was created, in milliseconds since 1970. A stream that was deleted and created again has the same
    /// name, ARN and shard ids: only this tells it apart.
    pub creation_time_ms: u64,
    /// Whether it can be read.
    pub status: StreamStatus,
    /// How long records are kept, in hours (24 to 8,760).
    pub retention_hours: u32,
    /// How many open shards it has.
    pub open_shards: u32,
}

/// Whether a stream can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamStatus {
    /// Not yet.
    Creating,
    /// Not any more.
    Deleting,
    /// It can.
    Active,
    /// It can; its shards or settings are being changed.
    Updating,
    /// A status that this version does not know.
    Other(String),
}

/// A shard, as ListShards tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its id.
    pub id: ShardId,
    /// None, one (it came from a split or was the stream's first) or two (it came from a merge). A parent that
    /// expired is still named, and is not listed.
    pub parents: Vec<ShardId>,
    /// The hash keys that it takes.
    pub range: HashKeyRange,
    /// Where it begins.
    pub starting_sequence: SequenceNumber,
    /// Where it ended, if it is closed.
    pub ending_sequence: Option<SequenceNumber>,
}

/// A shard that takes over from one that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildShard {
    /// Its id.
    pub id: ShardId,
    /// The shard that ended, and after a merge the other one.
    pub parents: Vec<ShardId>,
    /// The hash keys that it takes.
    pub range: HashKeyRange,
}

// === impl StreamStatus ===

impl StreamStatus {
    /// Whether records can be read.
    pub fn is_readable(&self) -> bool {
        matches!(self, Self::Active | Self::Updating)
    }
}

impl fmt::Display for StreamStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Creating => "CREATING",
            Self::Deleting => "DELETING",
            Self::Active => "ACTIVE",
            Self::Updating => "UPDATING",
            Self::Other(status) => status,
        })
    }
}

// === impl Shard ===

impl Shard {
    /// Whether it still takes records.
    pub fn is_open(&self) -> bool {
        self.ending_sequence.is_none()
    }

    /// What a parent's reader would say of it.
    pub fn as_child(&self) -> ChildShard {
        ChildShard { id: self.id.clone(), parents: self.parents.clone(), range: self.range }
    }
}
