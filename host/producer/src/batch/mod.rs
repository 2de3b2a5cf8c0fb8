//! Sends one batch of records after another, and comes back when the service has all of a batch: what processors'
//! outputs need, whose checkpoint waits for them.
//!
//! `plan` says what to send next and what an answer means for it, and is pure; `shard_cache` keeps the stream's map for
//! all who send; `sender` drives them.

mod error;
mod options;
mod plan;
mod sender;
mod shard_cache;

pub use error::Error;
pub use options::BatchOptions;
pub use plan::Sent;
pub use sender::BatchSender;
