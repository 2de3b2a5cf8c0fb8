//! Writes checkpoints beside the processing, not in its way.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use shardmill_cause::{Tell, Trouble, with_causes};
use shardmill_lease::{HeldLease, LeaseKey};
use shardmill_record::{Checkpoint, Position};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::metrics::ConsumerLabels;
use crate::{Backoff, Invariant, Metrics};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };

const HURRIED: Duration = Duration::from_millis(300);

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
    key: LeaseKey,
    trouble: Arc<Trouble<LeaseKey>>,
}

struct Writer {
    lease: Arc<HeldLease>,
    cadence: Cadence,
    newest: watch::Receiver<Newest>,
    written: watch::Sender<Option<Position>>,
    hurry: watch::Receiver<bool>,
    trouble: Arc<Trouble<LeaseKey>>,
    metrics: Metrics,
    labels: ConsumerLabels,
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
        let key = lease.lease().key.clone();
        let (newest, newest_receiver) = watch::channel(Newest::default());
        let (written_sender, written) = watch::channel(None);
        let (hurry, hurry_receiver) = watch::channel(false);
        let writer = Writer {
            lease,
            cadence,
            newest: newest_receiver,
            written: written_sender,
            hurry: hurry_receiver,
            trouble: Arc::clone(&trouble),
            metrics,
            labels,
        };
        Self { newest, written, hurry, task: tokio::spawn(writer.run()), key, trouble }
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
    pub(crate) async fn flush(&mut self) {
        let newest = self.newest.borrow().position.clone();
        self.hurry.send_replace(true);
        // An error means that the writer has ended: the lease is lost.
        let _ended = self.written.wait_for(|written| *written >= newest).await;
        self.hurry.send_replace(false);
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.task.abort();
        self.trouble.works(&self.key);
    }
}

// === impl Writer ===

impl Writer {
    async fn run(mut self) {
        let mut failures = 0u32;
        let mut failing: Option<Instant> = None;
        let key = self.lease.lease().key.clone();
        loop {
            let Some((position, records)) = self.next_position().await else { return };
            match self.lease.checkpoint(Checkpoint::Position(position.clone())).await {
                Ok(()) => {
                    failures = 0;
                    if failing.take().is_some() && self.trouble.works(&key) == Tell::Over {
                        tracing::info!(processor = self.labels.processor, "checkpoints are written again");
                    }
                    self.metrics.checkpoints.get_or_create(&self.labels).inc();
                    self.written.send_replace(Some(position));
                    self.until_due(records).await;
                }
                Err(shardmill_lease::Error::Lost(_)) => return,
                Err(shardmill_lease::Error::Refused(refused)) => {
                    // Somebody has moved the row by hand: what it says is kept.
                    tracing::warn!(
                        shard = %self.lease.lease().key, %position, %refused,
                        "the lease table does not take a checkpoint, and keeps its own"
                    );
                    self.written.send_replace(Some(position));
                }
                Err(error) => {
                    failures += 1;
                    let lasted = failing.get_or_insert_with(Instant::now).elapsed();
                    if let Tell::Lasts { failing } = self.trouble.fails_because(&key, lasted, with_causes(&error)) {
                        tracing::warn!(
                            processor = self.labels.processor, shard = %key, shards = failing, %position, error = with_causes(&error),
                            "checkpoints cannot be written; trying on, records after the last ones would be repeated by a successor"
                        );
                    }
                    let delay = BACKOFF.delay(failures, rand::rng().random());
                    // Who is in a hurry waits as well, but not for long.
                    tokio::time::sleep(delay.min(HURRIED)).await;
                    self.pause(delay.saturating_sub(HURRIED)).await;
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

    /// Waits, unless somebody is in a hurry.
    async fn pause(&mut self, time: Duration) {
        let _elapsed_or_hurry = tokio::time::timeout(time, self.hurry.wait_for(|hurry| *hurry)).await;
    }
}
