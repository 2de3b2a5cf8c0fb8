//! The attributes of a lease row. All but the last two are the KCL's (3.5), with its names and types.

pub(super) const LEASE_KEY: &str = "leaseKey";
pub(super) const LEASE_OWNER: &str = "leaseOwner";
pub(super) const LEASE_COUNTER: &str = "leaseCounter";
pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const CHECKPOINT_SUB_SEQUENCE_NUMBER: &str = "checkpointSubSequenceNumber";
/// KB a second.
pub(super) const THROUGHPUT: &str = "throughputKBps";
pub(super) const OWNER_SWITCHES: &str = "ownerSwitchesSinceCheckpoint";
pub(super) const CHECKPOINT_OWNER: &str = "checkpointOwner";
/// A checkpoint in two phases: its first one, with what the application keeps beside it. A checkpoint ends it.
pub(super) const PENDING: [&str; 3] =
    ["pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState"];
/// Singular, and a set.
pub(super) const PARENTS: &str = "parentShardId";
pub(super) const CHILDREN: &str = "childShardIds";
pub(super) const STARTING_HASH_KEY: &str = "startingHashKey";
pub(super) const ENDING_HASH_KEY: &str = "endingHashKey";
/// `account:stream:creationEpoch`, and the shard beside it: where the table belongs to many streams.
pub(super) const STREAM_NAME: &str = "streamName";
pub(super) const SHARD_ID: &str = "shardId";
/// What kind of row this is; missing means a lease.
pub(super) const ENTITY_TYPE: &str = "entityType";
pub(super) const ENTITY_TYPE_LEASE: &str = "LEASE";
/// The fencing token (N), ours.
pub(super) const LEASE_EPOCH: &str = "leaseEpoch";
/// Milliseconds since 1970 (N), ours. The KCL reads a checkpoint `LATEST` and leaves this alone.
pub(super) const START_AT: &str = "startAt";

/// The index from owner to leases that the KCL 3 looks for.
pub(super) const OWNER_INDEX: &str = "LeaseOwnerToLeaseKeyIndex";
