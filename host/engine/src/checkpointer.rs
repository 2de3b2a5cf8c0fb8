//! Writes checkpoints beside the processing, not in its way.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use shardmill_cause::{Coded, Tell, Trouble, with_causes};
use shardmill_lease::{HeldLease, LeaseKey};
use shardmill_record::{Checkpoint, Position};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::invariant::Invariant;
use crate::metrics::ConsumerLabels;
use crate::{Backoff, Metrics};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };

/// The same while somebody waits for the checkpoint. A store that throttles is not to be asked by all shards all the time
/// then either.
const HURRIED: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };

/// When checkpoints are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cadence {
    /// After so long,
    pub(crate) interval: Duration,
    /// or after so many records, whichever comes first.
    pub(crate) count: Option<u64>,
}

/// What there is to write.
#[derive(Debug, Clone, Default)]
struct Newest {
    position: Option<Position>,
    /// Records up to now.
    records: u64,
}

/// Remembers the newest position and writes it now and then. Ends when dropped.
pub(crate) struct Checkpointer {
    newest: watch::Sender<Newest>,
    written: watch::Receiver<Option<Position>>,
    /// Set while somebody waits for the newest position to be written.
    hurry: watch::Sender<bool>,
    task: JoinHandle<()>,
}

struct Writer {
    lease: Arc<HeldLease>,
    cadence: Cadence,
    newest: watch::Receiver<Newest>,
    written: watch::Sender<Option<Position>>,
    hurry: watch::Receiver<bool>,
    trouble: OwnTrouble,
    metrics: Metrics,
    labels: ConsumerLabels,
}

/// The shard's part in the trouble of all: it ends with the writer, whose last attempt may still fail when nobody waits
/// for it any more.
struct OwnTrouble {
    of_all: Arc<Trouble<LeaseKey>>,
    key: LeaseKey,
}

impl Drop for OwnTrouble {
    fn drop(&mut self) {
        self.of_all.works(&self.key);
    }
}

// === impl Checkpointer ===

impl Checkpointer {
    /// `trouble`: that of all shards of the consumer.
    pub(crate) fn start(
        lease: Arc<HeldLease>,
        cadence: Cadence,
        trouble: Arc<Trouble<LeaseKey>>,
        metrics: Metrics,
        labels: ConsumerLabels,
    ) -> Self {
        let trouble = OwnTrouble { of_all: trouble, key: lease.lease().key.clone() };
        let (newest, newest_receiver) = watch::channel(Newest::default());
        let (written_sender, written) = watch::channel(None);
        let (hurry, hurry_receiver) = watch::channel(false);
        let writer = Writer {
            lease,
            cadence,
            newest: newest_receiver,
            written: written_sender,
            hurry: hurry_receiver,
            trouble,
            metrics,
            labels,
        };
        Self { newest, written, hurry, task: tokio::spawn(writer.run()) }
    }

    /// Takes a position to checkpoint, if it has moved, and counts the records that are done since.
    pub(crate) fn advance(&self, position: Option<Position>, records: u64) {
        self.newest.send_modify(|newest| {
            newest.records += records;
            let Some(position) = position else { return };
            let forward = newest.position.as_ref().is_none_or(|newest| *newest <= position);
            Invariant::Monotonic.check(forward, || format!("{position} after {newest:?}"));
            if forward {
                newest.position = Some(position);
            }
        });
    }

    /// Returns when the newest position is written, or when it cannot be any more because the lease is lost.
    pub(crate) async fn flush(&self) {
        let newest = self.newest.borrow().position.clone();
        self.hurry.send_replace(true);
        // An error means that the writer has ended: the lease is lost.
        let mut written = self.written.clone();
        let _ended = written.wait_for(|written| *written >= newest).await.map(|_| ());
        self.hurry.send_replace(false);
    }
}

impl Checkpointer {
    /// Ends it, with whatever it has not written. Nothing of it comes after this.
    pub(crate) async fn end(&self) {
        self.task.abort();
        let mut written = self.written.clone();
        while written.changed().await.is_ok() {}
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Writer ===

impl Writer {
    async fn run(mut self) {
        let mut failures = 0u32;
        let mut failing: Option<Instant> = None;
        let mut refuses = false;
        let key = self.lease.lease().key.clone();
        loop {
            let Some((position, records)) = self.next_position().await else { return };
            match self.lease.checkpoint(Checkpoint::Position(position.clone())).await {
                Ok(()) => {
                    failures = 0;
                    refuses = false;
                    self.show_works(&mut failing);
                    self.metrics.checkpoints.get_or_create(&self.labels).inc();
                    self.written.send_replace(Some(position));
                    self.until_due(records).await;
                }
                Err(shardmill_lease::Error::Lost(_)) => return,
                Err(shardmill_lease::Error::Refused(refused)) => {
                    failures = 0;
                    self.show_works(&mut failing);
                    // Somebody has moved the row by hand: what it says is kept.
                    if !std::mem::replace(&mut refuses, true) {
                        tracing::warn!(
                            processor = self.labels.processor, shard = %key, %position, %refused, code = %refused.code(),
                            "the lease table does not take the shard's checkpoints, and keeps its own, until they are beyond it"
                        );
                    }
                    self.written.send_replace(Some(position));
                    self.until_due(records).await;
                }
                Err(error) => {
                    failures += 1;
                    let lasted = failing.get_or_insert_with(Instant::now).elapsed();
                    if let Tell::Lasts { failing } =
                        self.trouble.of_all.fails_because(&key, lasted, with_causes(&error))
                    {
                        tracing::warn!(
                            processor = self.labels.processor, shard = %key, shards = failing, %position, error = with_causes(&error), code = %error.code(),
                            "checkpoints cannot be written; trying on, records after the last ones would be repeated by a successor"
                        );
                    }
                    let random = rand::rng().random();
                    let hurried = HURRIED.delay(failures, random);
                    tokio::time::sleep(hurried).await;
                    self.pause(BACKOFF.delay(failures, random).saturating_sub(hurried)).await;
                }
            }
        }
    }

    /// Waits for a position that is newer than the last one written; with the count of records at that time. `None` when
    /// nobody is there to send one.
    async fn next_position(&mut self) -> Option<(Position, u64)> {
        let written = self.written.borrow().clone();
        let newest = self.newest.wait_for(|newest| newest.position > written).await.ok()?;
        Some((newest.position.clone()?, newest.records))
    }

    /// Waits until the next checkpoint is due, `records` being the count at the last one; not if somebody is in a hurry.
    async fn until_due(&mut self, records: u64) {
        let due = self.cadence.count.map(|count| records.saturating_add(count));
        let (newest, hurry) = (&mut self.newest, &mut self.hurry);
        let many = newest.wait_for(|newest| due.is_some_and(|due| newest.records >= due));
        let early = async {
            tokio::select! {
                _ = hurry.wait_for(|hurry| *hurry) => {}
                _ = many => {}
            }
        };
        let _elapsed_or_early = tokio::time::timeout(self.cadence.interval, early).await;
    }

    fn show_works(&self, failing: &mut Option<Instant>) {
        let OwnTrouble { of_all, key } = &self.trouble;
        if failing.take().is_some() && of_all.works(key) == Tell::Over {
            tracing::info!(processor = self.labels.processor, "checkpoints are written again");
        }
    }

    /// Waits, unless somebody is in a hurry.
    async fn pause(&mut self, time: Duration) {
        let _elapsed_or_hurry = tokio::time::timeout(time, self.hurry.wait_for(|hurry| *hurry)).await;
    }
}
