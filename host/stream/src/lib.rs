//! Streams as Kinesis offers them: what shards there are, where reading starts, and readers that bring pages.
//!
//! [`Kinesis`] asks the service about a stream and its shards. [`lineage`] decides which shards need a lease and when a
//! child may be read, [`start`] where a shard's reading begins. A [`Reader`] brings one shard's pages in order;
//! [`PollingReader`] does it by GetRecords. [`retention`] tells whether a checkpoint can still be read. Everything that
//! decides is a pure function over plain data; the service is asked in `service` and `polling` only.

mod coded;
mod error;
pub mod lineage;
mod metrics;
pub mod polling;
mod reader;
pub mod retention;
mod service;
mod shard;
pub mod start;

pub use error::{Call, Error, Kind};
pub use metrics::Metrics;
pub use polling::PollingReader;
pub use reader::{Demand, ReadPage, Reader, WHOLE_PAGE};
pub use service::Kinesis;
pub use shard::{ChildShard, Shard, StreamInfo, StreamStatus};
pub use start::{ReadFrom, StartPosition};
