//! Where outputs go.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use shardmill_lease::Fence;
use shardmill_plugin::Output;
use shardmill_record::UserRecord;

/// Why outputs could not be sent. Whatever was sent before stays sent; the records that caused the outputs will be
/// processed again, so it is sent once more then.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The lease was lost, so this worker may not send for the shard any more.
    #[error("the lease was lost before every output was acknowledged")]
    Fenced,
    /// Trying again cannot help until somebody has mended something.
    #[error("output `{output}` cannot be sent: {reason}")]
    Refused {
        /// The output's name.
        output: String,
        /// What is wrong and what to do.
        reason: String,
    },
}

/// One place where outputs go. Returns only when all records are acknowledged by it, in order per key as far as it
/// promises that; asks the fence before each request.
#[async_trait]
pub trait Destination: Send + Sync {
    /// Sends records.
    async fn send(&self, records: Vec<UserRecord>, fence: &Fence) -> Result<(), SendError>;
}

/// The destinations of a processor, by the name that its guest uses.
#[derive(Clone, Default)]
pub struct Destinations {
    by_name: Arc<BTreeMap<String, Arc<dyn Destination>>>,
}

// === impl Destinations ===

impl Destinations {
    /// From names and destinations.
    pub fn new(by_name: BTreeMap<String, Arc<dyn Destination>>) -> Self {
        Self { by_name: Arc::new(by_name) }
    }

    /// Whether there is an output of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Sends outputs, each to its destination, the destinations at the same time, and waits for all of them. Returns
    /// how many there were.
    pub async fn send(&self, outputs: Vec<Output>, fence: &Fence) -> Result<usize, SendError> {
        let count = outputs.len();
        let mut by_destination: BTreeMap<&str, Vec<UserRecord>> = BTreeMap::new();
        for output in &outputs {
            by_destination.entry(&output.name).or_default().push(output.record.clone());
        }
        let sends = by_destination.into_iter().map(|(name, records)| async move {
            let unknown = || SendError::Refused {
                output: name.to_owned(),
                reason: "the configuration names no such output".to_owned(),
            };
            self.by_name.get(name).ok_or_else(unknown)?.send(records, fence).await
        });
        // All of them to their end: a failure of one must not cut another off in the middle of a request.
        for result in futures::future::join_all(sends).await {
            result?;
        }
        Ok(count)
    }
}
