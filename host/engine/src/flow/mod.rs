//! Which records go to a guest, and which of its calls they go into.

mod route;

use std::sync::Arc;
use std::time::Duration;

use shardmill_filter::Filter;

pub(crate) use route::{Route, Router};

use crate::BatchOptions;

/// How a processor's records are spread over calls of its guest. By default all of a shard go into one batch after another.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Records that the filter keeps out are done, without being handed over.
    pub filter: Option<Filter>,
    /// How many calls for one shard may be on their way at once, 1 or more. Records of one key are in the same lane, in order.
    pub lanes: u32,
    /// What decides about the lane.
    pub partition_by: PartitionBy,
    /// The processor's name: with another one, other keys share a lane. Else all that comes from one lane of a processor
    /// would be in one lane of the processor behind it.
    pub seed: Arc<str>,
    /// Kinds of batches besides the one of all other records; the first that a record matches has it.
    pub batchers: Vec<Batcher>,
}

/// What decides about a record's lane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PartitionBy {
    /// Its partition key.
    #[default]
    Key,
    /// What stands in its JSON at this place, the names and indexes of a JSON pointer; its partition key where nothing does.
    Pointer(Arc<[String]>),
}

/// A kind of batches with limits of its own.
#[derive(Debug, Clone)]
pub struct Batcher {
    /// Its name, for metrics and the log.
    pub name: Arc<str>,
    /// Which records are in it, of those that none before it has; all without.
    pub when: Option<Filter>,
    /// What goes into one.
    pub batch: BatchOptions,
}

/// Tumbling windows: records that arrived in different ones are not in one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How long each is; windows begin at multiples of it since 1970.
    pub length: Duration,
}

// === impl Flow ===

impl Default for Flow {
    fn default() -> Self {
        Self { filter: None, lanes: 1, partition_by: PartitionBy::Key, seed: "".into(), batchers: Vec::new() }
    }
}

impl Flow {
    /// Whether records of one shard may be in more than one batch at a time.
    pub(crate) fn is_spread(&self) -> bool {
        self.lanes > 1 || !self.batchers.is_empty()
    }
}

// === impl Window ===

impl Window {
    /// The window of a time, both in milliseconds since 1970: its beginning.
    pub(crate) fn of(self, time: u64) -> u64 {
        let length = self.milliseconds();
        time / length * length
    }

    /// When the window ends that begins then.
    pub(crate) fn end(self, begins: u64) -> u64 {
        begins.saturating_add(self.milliseconds())
    }

    fn milliseconds(self) -> u64 {
        u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX).max(1)
    }
}
