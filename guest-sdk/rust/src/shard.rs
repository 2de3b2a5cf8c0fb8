//! What a call is about: the shard, and places in it.

/// The shard that a call is about, the same in every call of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardContext {
    /// The application of the configuration; with the processor's name it is one consumer of the stream.
    pub application: String,
    /// The processor's name in the configuration.
    pub processor: String,
    /// The stream's name.
    pub stream: String,
    /// The shard's id, for example `shardId-000000000003`.
    pub shard_id: String,
    /// The id of the worker that holds the shard's lease.
    pub worker: String,
    /// Grows by at least one whenever the shard's lease changes hands, and never on renewal. Hand it to outside
    /// systems as a fencing token: they refuse writes that carry a lower one than the highest they have seen.
    pub lease_epoch: u64,
    /// How often the records of this batch have been handed over, counting this call: 1 at first.
    pub attempt: u32,
    /// How far the newest record of the shard is ahead, in milliseconds, where the service tells.
    pub millis_behind_latest: Option<u64>,
    /// Whether this is the shard's last batch: the shard is closed and nothing comes after it.
    pub last_batch: bool,
}

/// Where a record stands in its shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Decimal text. Longer than 128 bits can hold: compare as numbers, never as text.
    pub sequence_number: String,
    /// The place in a KPL aggregate, counted from 0; 0 for a record that came alone.
    pub sub_sequence_number: u64,
}
