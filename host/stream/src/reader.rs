use std::time::Duration;

use async_trait::async_trait;
use shardmill_record::Page;

use crate::{ChildShard, Error, ReadFrom};

/// How much the caller can take in: a reader asks for no more than this, as far as it can tell beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Kinesis records, at least 1.
    pub records: u32,
    /// Bytes of memory. One record is asked for even if it may be larger.
    pub bytes: u64,
}

/// What one read of a shard brought.
#[derive(Debug, Clone)]
pub struct ReadPage {
    /// The records, in order; often none.
    pub page: Page,
    /// Where another reader goes on if this one is lost.
    pub continuation: ReadFrom,
    /// How far the page is behind the shard's tip, in milliseconds; `None` if the service does not say.
    pub millis_behind: Option<u64>,
    /// The shards that take over, when this is the end and the service names them. `None` does not mean that there
    /// are none: list the stream's shards then.
    pub children: Option<Vec<ChildShard>>,
    /// Whether this was the closed shard's last page.
    pub end: bool,
    /// How long the reader will wait by itself before it asks the service again: longer than zero at the shard's tip,
    /// and where a limit of the service is used up.
    pub wait: Duration,
}

/// Brings one shard's pages in order.
#[async_trait]
pub trait Reader: Send {
    /// Returns when the service's limits, or the pause at the shard's tip, let the next page be asked for: memory for
    /// the page need not be set aside before. [`next`](Self::next) waits in the same way if this was not called.
    async fn ready(&mut self);

    /// The next page, as soon as the service's limits let it be asked for.
    ///
    /// Errors that may pass are waited out inside; what comes out needs an operator or a decision. After an error the
    /// call can be made again and goes on at the same place. After the end it brings an empty last page again.
    ///
    /// Safe to cancel: until a page is returned nothing has moved, and the next call brings the same records.
    async fn next(&mut self, demand: Demand) -> Result<ReadPage, Error>;
}
