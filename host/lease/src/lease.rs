use std::fmt;
use std::sync::Arc;

use shardmill_record::{Checkpoint, HashKeyRange, InvalidShardId, ShardId, StreamArn};

/// The longest hash key that DynamoDB takes, in bytes.
const MAX_KEY_BYTES: usize = 2048;

/// What names a lease in its table: the shard id, or in the KCL's multi-stream form
/// `account:stream:creationEpoch:shardId`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey(Arc<str>);

/// The stream's part of a key in the KCL's multi-stream form: `account:stream:creationEpoch`, the creation time in whole
/// seconds since 1970. It does not name the region. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(Arc<str>);

/// Who holds a lease: one run of a worker, unless the platform promises that an id never runs twice at a time.
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Arc<str>);

/// How often a lease has been taken: the fencing token. It grows with every take and never with a renewal, so a
/// system outside can refuse whoever comes with a lower one than it has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct LeaseEpoch(pub u64);

/// Why a text does not name a lease or a worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}: 1 to {MAX_KEY_BYTES} bytes are expected")]
pub struct InvalidName {
    text: String,
    what: &'static str,
}

/// One row of the lease table, as far as this project reads it. Attributes that it does not know stay in the table
/// through every write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The row's key.
    pub key: LeaseKey,
    /// Who holds the lease, or is about to while `checkpoint_owner` is set. `None`: nobody.
    pub owner: Option<WorkerId>,
    /// Grows with every write that proves life. Whoever sees it stand still for the expiry may take the lease.
    pub counter: u64,
    /// Grows with every take. 0 in rows that only a KCL has written.
    pub epoch: LeaseEpoch,
    /// How far the shard is processed.
    pub checkpoint: Checkpoint,
    /// Where to start while the checkpoint is `LATEST` or `AT_TIMESTAMP`, in milliseconds since 1970. It makes the
    /// first start's "latest" a fixed time, so that a restart before the first checkpoint skips nothing.
    pub start_at: Option<u64>,
    /// Set during a graceful hand-off: the old holder, who alone may still write.
    pub checkpoint_owner: Option<WorkerId>,
    /// How many other workers took the lease since the last checkpoint: a shard that nobody gets on with.
    pub owner_switches_since_checkpoint: u64,
    /// How much the shard carries, in bytes a second, as its holder measured it.
    pub throughput: Option<u64>,
    /// The shards that must be done before this one starts: one after a split, two after a merge.
    pub parents: Vec<ShardId>,
    /// The shards that follow this one, once known.
    pub children: Vec<ShardId>,
    /// The hash keys that the shard takes, if the row tells.
    pub range: Option<HashKeyRange>,
}

/// A lease that is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLease {
    /// The row's key.
    pub key: LeaseKey,
    /// Where to start; for a child shard `TRIM_HORIZON`, so that nothing between parent and child is skipped.
    pub checkpoint: Checkpoint,
    /// See [`Lease::start_at`].
    pub start_at: Option<u64>,
    /// The shards that must be done first.
    pub parents: Vec<ShardId>,
    /// The hash keys that the shard takes.
    pub range: Option<HashKeyRange>,
}

// === impl LeaseKey ===

impl LeaseKey {
    /// Takes any text of 1 to 2048 bytes, DynamoDB's bound for a key.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        parse_name(text, "a lease key").map(Self)
    }

    /// The key of a shard's lease where the table belongs to one stream.
    pub fn of_shard(shard: &ShardId) -> Self {
        Self(shard.as_str().into())
    }

    /// The key of a shard's lease where the table belongs to many streams.
    pub fn of_stream(stream: &StreamKey, shard: &ShardId) -> Self {
        Self(format!("{stream}:{shard}").into())
    }

    /// The stream, if the key has the multi-stream form.
    pub fn stream(&self) -> Option<StreamKey> {
        self.split().0.strip_suffix(':').and_then(StreamKey::parse)
    }

    /// The shard: what follows the last colon, or all of the key.
    pub fn shard_id(&self) -> Result<ShardId, InvalidShardId> {
        ShardId::parse(self.split().1)
    }

    /// What the keys of one stream's shards begin with: nothing where the table belongs to one stream.
    pub fn prefix(&self) -> &str {
        self.split().0
    }

    /// The key of another shard of the same stream.
    pub fn sibling(&self, shard: &ShardId) -> Self {
        Self(format!("{}{shard}", self.split().0).into())
    }

    /// The key as the table holds it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn split(&self) -> (&str, &str) {
        self.0.split_at(self.0.rfind(':').map_or(0, |colon| colon + 1))
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for LeaseKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "LeaseKey({})", self.0)
    }
}

// === impl StreamKey ===

impl StreamKey {
    /// The key of a stream that was created at this time, in milliseconds since 1970.
    pub fn new(arn: &StreamArn, created_at: u64) -> Self {
        Self(format!("{}:{}:{}", arn.account(), arn.name(), created_at / 1000).into())
    }

    /// Takes what the KCL does: digits, a name without colons, digits.
    pub fn parse(text: &str) -> Option<Self> {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = text.split(':');
        let (account, name, epoch) = (parts.next()?, parts.next()?, parts.next()?);
        let is_key = is_number(account) && !name.is_empty() && is_number(epoch) && parts.next().is_none();
        is_key.then(|| Self(text.into()))
    }

    /// The key as rows hold it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "StreamKey({})", self.0)
    }
}

// === impl WorkerId ===

impl WorkerId {
    /// Takes any text of 1 to 2048 bytes.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        parse_name(text, "a worker id").map(Self)
    }

    /// The id as the table holds it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for WorkerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WorkerId({})", self.0)
    }
}

// === impl LeaseEpoch ===

impl LeaseEpoch {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch after the next take.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for LeaseEpoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

// === impl Lease ===

impl Lease {
    /// Who alone may write to the lease: during a hand-off the old holder, else the holder.
    pub fn writer(&self) -> Option<&WorkerId> {
        self.checkpoint_owner.as_ref().or(self.owner.as_ref())
    }

    /// Whether the shard is done for good.
    pub fn is_complete(&self) -> bool {
        self.checkpoint.is_shard_end()
    }

    /// The keys of the parents' leases.
    pub fn parent_keys(&self) -> impl Iterator<Item = LeaseKey> {
        self.parents.iter().map(|parent| self.key.sibling(parent))
    }
}

// === impl NewLease ===

impl NewLease {
    /// The row that is created.
    pub(crate) fn into_lease(self) -> Lease {
        Lease {
            key: self.key,
            owner: None,
            counter: 0,
            epoch: LeaseEpoch::default(),
            checkpoint: self.checkpoint,
            start_at: self.start_at,
            checkpoint_owner: None,
            owner_switches_since_checkpoint: 0,
            throughput: None,
            parents: sorted(self.parents),
            children: Vec::new(),
            range: self.range,
        }
    }
}

fn parse_name(text: &str, what: &'static str) -> Result<Arc<str>, InvalidName> {
    if (1..=MAX_KEY_BYTES).contains(&text.len()) {
        Ok(text.into())
    } else {
        Err(InvalidName { text: text.chars().take(128).collect(), what })
    }
}

/// Stores keep shard ids as sets: one order and no repeats make equal sets equal values.
pub(crate) fn sorted(mut shards: Vec<ShardId>) -> Vec<ShardId> {
    shards.sort();
    shards.dedup();
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_shard_and_its_siblings_in_both_forms() {
        let parent = ShardId::parse("shardId-000000000000").unwrap();
        for (child, expected) in [
            ("shardId-000000000001", "shardId-000000000000"),
            (
                "123456789012:orders:1700000000:shardId-000000000001",
                "123456789012:orders:1700000000:shardId-000000000000",
            ),
        ] {
            let key = LeaseKey::parse(child).unwrap();
            assert_eq!(key.shard_id().unwrap().as_str(), "shardId-000000000001");
            assert_eq!(key.sibling(&parent).as_str(), expected);
        }
        assert!(LeaseKey::parse("").is_err());
        assert!(WorkerId::parse(&"w".repeat(MAX_KEY_BYTES + 1)).is_err());
    }

    #[test]
    fn a_key_in_the_multi_stream_form_is_the_kcls() {
        let arn = StreamArn::parse("arn:aws:kinesis:eu-west-1:123456789012:stream/orders").unwrap();
        let stream = StreamKey::new(&arn, 1_700_000_000_999);
        let shard = ShardId::parse("shardId-000000000001").unwrap();
        let key = LeaseKey::of_stream(&stream, &shard);
        assert_eq!(key.as_str(), "123456789012:orders:1700000000:shardId-000000000001");
        assert_eq!((key.stream(), key.shard_id().unwrap()), (Some(stream), shard.clone()));
        assert_eq!(LeaseKey::of_shard(&shard).stream(), None);
        for other in ["orders:shardId-1", "a:orders:1:s", "1:orders:x:s", "1::1:s", "1:a:b:1:s", ":::s"] {
            assert_eq!(LeaseKey::parse(other).unwrap().stream(), None, "{other}");
        }
    }
}
