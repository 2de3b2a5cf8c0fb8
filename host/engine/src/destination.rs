//! Where outputs go.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use shardmill_lease::Fence;
use shardmill_record::{Batch, UserRecord};
use tokio_util::sync::CancellationToken;

use crate::batch_work::Scene;
use crate::coded::with_code;
use crate::leave::Leave;
use crate::{Caused, Stage};

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

/// Where the outputs of one name go.
#[derive(Clone)]
pub enum Target {
    /// Out of this process.
    Away(Arc<dyn Destination>),
    /// To another processor. Whoever runs the processors has the stage itself, because stages may lead to each other.
    Stage(Weak<Stage>),
}

/// The destinations of a processor, by the name that its guest uses.
#[derive(Clone, Default)]
pub struct Destinations {
    by_name: Arc<BTreeMap<String, Target>>,
}

/// What became of outputs.
#[derive(Default)]
pub(crate) struct Sent {
    /// How many are where they belong, as far as their destinations say.
    pub(crate) count: usize,
    /// Why not all are.
    pub(crate) leave: Option<Leave>,
    /// The first record, by its place in the batch, of whose outputs not all are where they belong: those before it are done,
    /// and all of them are where there is none.
    pub(crate) first_undone: Option<usize>,
    /// The first and the last record, by their places in the batch, of each output of which nobody says what has become of
    /// it. At most once, a processor that they have come to accounts for each.
    pub(crate) unsent: Vec<[usize; 2]>,
}

// === impl Sent ===

impl Sent {
    /// Nobody says of any output what has become of it.
    pub(crate) fn none(leave: Leave, unsent: Vec<[usize; 2]>) -> Self {
        Self { count: 0, leave: Some(leave), first_undone: unsent.iter().map(|[first, _]| *first).min(), unsent }
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.count += other.count;
        self.unsent.extend(other.unsent);
        self.first_undone = self.first_undone.into_iter().chain(other.first_undone).min();
        self.leave = match (self.leave, other.leave) {
            (Some(one), Some(other)) => Some(one.or_worse(other)),
            (one, other) => one.or(other),
        };
        self
    }
}

// === impl Destinations ===

impl Destinations {
    /// From names and destinations.
    pub fn new(by_name: BTreeMap<String, Target>) -> Self {
        Self { by_name: Arc::new(by_name) }
    }

    /// Whether there is an output of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Sends what records of a batch have caused, each to its destination, the destinations at the same time, and waits for
    /// all of them.
    pub(crate) async fn send(&self, outputs: Vec<Caused>, batch: &Batch, scene: &Arc<dyn Scene>) -> Sent {
        let mut by_name: BTreeMap<Arc<str>, Vec<Caused>> = BTreeMap::new();
        for caused in outputs {
            by_name.entry(Arc::clone(&caused.output.name)).or_default().push(caused);
        }
        let fence = scene.fence();
        let leaving = CancellationToken::new();
        let sends = by_name.into_iter().map(|(name, outputs)| {
            let (fence, leaving) = (fence.clone(), leaving.clone());
            async move {
                let count = outputs.len();
                let spans = outputs.iter().map(Caused::span).collect();
                let result = match self.by_name.get(&*name) {
                    Some(Target::Away(destination)) => {
                        let records = outputs.into_iter().map(|caused| caused.output.record).collect();
                        destination.send(records, &fence).await.map_err(|error| match error {
                            SendError::Fenced => Leave::Lost,
                            refused @ SendError::Refused { .. } => Leave::stop(with_code(&refused)),
                        })
                    }
                    Some(Target::Stage(stage)) => match stage.upgrade() {
                        // It says itself how far it is.
                        Some(stage) => return stage.take(outputs, batch, scene, &leaving).await,
                        None => Err(Leave::stop(format!("the processor behind output `{name}` has ended"))),
                    },
                    None => Err(Leave::stop(format!("the configuration names no output `{name}`"))),
                };
                match result {
                    Ok(()) => Sent { count, ..Sent::default() },
                    Err(leave) => {
                        leaving.cancel();
                        Sent::none(leave, spans)
                    }
                }
            }
        });
        // All of them to their end: a failure of one must not cut another off in the middle of a request. What failed is not
        // tried again by the others, though, which may take for ever.
        futures::future::join_all(sends).await.into_iter().fold(Sent::default(), Sent::and)
    }
}
