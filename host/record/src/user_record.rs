use bytes::Bytes;

use crate::HashKey;

/// A record to be produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRecord {
    /// 1 to 256 Unicode characters.
    pub partition_key: String,
    /// Takes the place of the partition key's MD5 as the hash key.
    pub explicit_hash_key: Option<HashKey>,
    /// The payload.
    pub data: Bytes,
}

// === impl UserRecord ===

impl UserRecord {
    /// The hash key that decides to which shard the record goes.
    pub fn hash_key(&self) -> HashKey {
        self.explicit_hash_key.unwrap_or_else(|| HashKey::of_partition_key(&self.partition_key))
    }
}
