use std::time::Duration;

use async_trait::async_trait;
use shardmill_record::Page;

use crate::polling::Condition;
use crate::{ChildShard, Error, ReadFrom};

/// The most that a page takes while it is received and taken apart: the 10 MiB of keys and payloads that one GetRecords
/// brings at most are 13.4 MiB in base64, and for 10,000 records there are 2 MiB of what stands around them, and of columns.
pub const WHOLE_PAGE: u64 = 16 << 20;

/// How much the caller can take in: a reader asks for no more than this, as far as it can tell beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Kinesis records, at least 1.
    pub records: u32,
    /// Bytes of memory. One record is asked for even if it may be larger. What comes may take more, unless the reader
    /// says otherwise.
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
    /// Where it says what it is about, if it does.
    fn condition(&self) -> Option<&Condition> {
        None
    }

    /// How many bytes the next page is expected to take at most, by what the last ones have taken: what it is worth to
    /// set aside for it.
    fn expects(&self) -> u64 {
        WHOLE_PAGE
    }

    /// Whether the last [`read`](Self::read) brought nothing only because another reader of this process has had the turn
    /// meanwhile. The next one comes within seconds, and what was set aside for the page is worth keeping until then.
    fn lost_its_turn(&self) -> bool {
        false
    }

    /// Returns when a page can be asked for at once: the service's limits or the pause at the shard's tip let it, and
    /// everything that must be known for it is. No memory need be set aside before.
    ///
    /// Errors that may pass are waited out inside; what comes out needs an operator or a decision.
    async fn ready(&mut self) -> Result<(), Error>;

    /// Asks for the next page once. `None` if it cannot be had now: go back to [`ready`](Self::ready).
    ///
    /// Errors that may pass are `None`; what comes out as an error needs an operator or a decision. After an error the
    /// call can be made again and goes on at the same place. After the end it brings an empty last page again.
    ///
    /// Safe to cancel, as all of these: until a page is returned nothing has moved, and the next call brings the same
    /// records.
    async fn read(&mut self, demand: Demand) -> Result<Option<ReadPage>, Error>;

    /// The next page, as soon as it can be had.
    async fn next(&mut self, demand: Demand) -> Result<ReadPage, Error> {
        loop {
            self.ready().await?;
            if let Some(page) = self.read(demand).await? {
                return Ok(page);
            }
        }
    }
}
