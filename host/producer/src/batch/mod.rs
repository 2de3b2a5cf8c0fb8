//! Sends one batch of records after another, and comes back when the service has all of a batch: what processors'
//! outputs need, whose checkpoint waits for them.
//!
//! Each batch has a [`Plan`](crate::plan::Plan) of its own, because each has a permit of its own; what batches have in common
//! is the shard map, the rates of shards and the back-off. `sending` is one batch on its way, and pure; `sender` drives it.

mod error;
mod sender;
mod sending;
mod spooled;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use sender::BatchSender;
pub use sending::Sent;
