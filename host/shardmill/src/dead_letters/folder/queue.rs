//! The task that writes what shards hand over: what has gathered goes to the disk together.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use shardmill_engine::{Backoff, DeadLetterError};
use shardmill_lease::Fence;
use tokio::sync::{mpsc, oneshot};

use super::file::Lines;
use super::place;
use crate::dead_letters::metrics::PlaceMetrics;

/// About as much is written at a time.
const WRITE_BYTES: usize = 8 << 20;
/// Between attempts. One worker waits for the disk, or for an operator: nobody has to be kept from coming back together.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };

/// Lines of one shard.
pub(super) struct Job {
    pub(super) lines: Vec<u8>,
    pub(super) fence: Fence,
    pub(super) done: oneshot::Sender<Result<(), DeadLetterError>>,
}

/// Writes jobs in the order in which they came.
pub(super) struct Queue {
    jobs: mpsc::UnboundedReceiver<Job>,
    waiting: VecDeque<Job>,
    folder: PathBuf,
    processor: String,
    metrics: PlaceMetrics,
    failures: u32,
    /// What the log said of the present trouble.
    told: Option<String>,
}

// === impl Queue ===

impl Queue {
    pub(super) fn new(
        jobs: mpsc::UnboundedReceiver<Job>,
        folder: PathBuf,
        processor: String,
        metrics: PlaceMetrics,
    ) -> Self {
        Self { jobs, waiting: VecDeque::new(), folder, processor, metrics, failures: 0, told: None }
    }

    /// Runs until nobody can hand anything over any more.
    pub(super) async fn run(mut self, mut lines: Lines) {
        loop {
            if self.waiting.is_empty() {
                let Some(job) = self.jobs.recv().await else { return };
                self.waiting.push_back(job);
            }
            while let Ok(job) = self.jobs.try_recv() {
                self.waiting.push_back(job);
            }
            let (batch, bytes) = self.next_batch();
            if batch.is_empty() {
                continue;
            }
            let written = tokio::task::spawn_blocking(move || {
                let result = lines.append(&bytes, SystemTime::now());
                (lines, result)
            });
            let result;
            (lines, result) = match written.await {
                Ok(written) => written,
                // Whoever waits learns of it, because what they wait for is dropped with this.
                Err(error) => {
                    tracing::error!(processor = self.processor, %error, "dead letters cannot be written any more");
                    return;
                }
            };
            match result {
                Ok(()) => self.stored(batch),
                Err(error) => self.failed(batch, &error).await,
            }
        }
    }

    /// What to write now. Shards whose lease is lost are told so; whoever does not wait any more is left out.
    fn next_batch(&mut self) -> (Vec<Job>, Vec<u8>) {
        let (mut batch, mut bytes) = (Vec::new(), Vec::new());
        while bytes.len() < WRITE_BYTES
            && let Some(job) = self.waiting.pop_front()
        {
            if job.done.is_closed() {
                continue;
            }
            if job.fence.check().is_err() {
                tell(job, Err(DeadLetterError::Fenced));
                continue;
            }
            bytes.extend_from_slice(&job.lines);
            batch.push(job);
        }
        (batch, bytes)
    }

    fn stored(&mut self, batch: Vec<Job>) {
        self.failures = 0;
        if self.told.take().is_some() {
            let folder = self.folder.display();
            tracing::info!(processor = self.processor, %folder, "dead letters are stored again");
        }
        batch.into_iter().for_each(|job| tell(job, Ok(())));
    }

    async fn failed(&mut self, batch: Vec<Job>, error: &io::Error) {
        self.metrics.failed();
        let reason = error.to_string();
        if is_final(error) {
            let reason = format!("{reason}; correct `folder` in [processors.{}.dead-letters]", self.processor);
            for job in batch {
                tell(job, Err(DeadLetterError::Refused { place: place(&self.folder), reason: reason.clone() }));
            }
            return;
        }
        if self.told.as_ref() != Some(&reason) {
            tracing::warn!(
                processor = self.processor, folder = %self.folder.display(), reason,
                "dead letters cannot be stored; trying on, and their shards wait. {}", hint(error)
            );
            self.told = Some(reason);
        }
        for job in batch.into_iter().rev() {
            self.waiting.push_front(job);
        }
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(BACKOFF.delay(self.failures, 0.0)).await;
    }
}

fn tell(job: Job, result: Result<(), DeadLetterError>) {
    // Somebody who does not wait any more needs no answer.
    let _gone = job.done.send(result);
}

/// Whether nothing that may happen outside this process mends it.
fn is_final(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory};
    matches!(error.kind(), InvalidFilename | InvalidInput | NotADirectory)
}

fn hint(error: &io::Error) -> &'static str {
    use io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => "Make room on the disk",
        PermissionDenied => "Let this process write to the folder",
        ReadOnlyFilesystem => "Mount the disk for writing",
        FileTooLarge => "Raise the limit on the size of files",
        _ => "Look after the disk",
    }
}
