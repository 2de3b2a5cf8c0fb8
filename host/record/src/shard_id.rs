use std::fmt;
use std::sync::Arc;

/// The id of a shard, for example `shardId-000000000003`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(Arc<str>);

/// Why a text is not a shard id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a shard id: 1 to 128 letters, digits, `_`, `.` or `-` are expected")]
pub struct InvalidShardId(String);

// === impl ShardId ===

impl ShardId {
    /// Takes what the Kinesis API allows: 1 to 128 of `[a-zA-Z0-9_.-]`.
    pub fn parse(text: &str) -> Result<Self, InvalidShardId> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if (1..=128).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidShardId(text.chars().take(128).collect()))
        }
    }

    /// The id as the API writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ShardId({})", self.0)
    }
}
