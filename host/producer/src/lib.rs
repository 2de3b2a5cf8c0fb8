//! Puts user records into a stream with PutRecords, and says when the service has them.
//!
//! PutRecords keeps no order: entries of one request fail one by one, and one that is sent again lands behind later
//! ones of its key. So the order of keys is the producer's business: with [`Ordering::Key`] a request holds at most one
//! Kinesis record for each shard, a KPL aggregate of what is waiting for that shard, and the shard's next one is sent
//! when the last one is acknowledged.
//!
//! The rooms: `shard_map` says to which shard a hash key goes and `plan` what to send next and what an answer means
//! for it, both pure; `answer` sorts what the service says; `shard_cache` keeps the stream's map; `trouble` tells the
//! log; [`Producer`] drives them.

mod answer;
mod backoff;
mod error;
mod metrics;
mod options;
mod permit;
mod plan;
mod producer;
mod shard_cache;
mod shard_map;
mod trouble;

pub use error::{Error, InvalidRecord, Stopped};
pub use metrics::Metrics;
pub use options::{Options, Ordering};
pub use permit::Permit;
pub use plan::Sent;
pub use producer::Producer;
