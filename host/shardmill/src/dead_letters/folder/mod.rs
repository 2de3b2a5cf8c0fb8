//! Dead letters in a folder: files of JSON lines, each written by one processor of one run of a worker.
//!
//! Shards hand their letters to one task for each processor, which writes and syncs what has gathered: a thousand shards that
//! give up at a time do not wait for a thousand syncs. What fails is tried again for as long as leases are held, because
//! somebody may make room or mend permissions.

mod disk;
mod file;
mod queue;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use shardmill_engine::{DeadLetter, DeadLetterError, DeadLetters};
use shardmill_lease::Fence;
use tokio::sync::{mpsc, oneshot};

use super::letter::to_json;
use super::metrics::PlaceMetrics;
#[cfg(test)]
pub(super) use disk::synced;
use disk::{Disk, SystemDisk};
pub(super) use disk::{MODE, sync_folder};
use file::{Lines, Writer};
use queue::{Job, Queue};

/// Files of one processor's dead letters.
pub(crate) struct Folder {
    path: PathBuf,
    jobs: mpsc::UnboundedSender<Job>,
    metrics: PlaceMetrics,
}

// === impl Folder ===

impl Folder {
    /// Makes the folder if it is not there, and sees whether files can be made in it, and the folder be read, as it is for
    /// the names in it to be synced; `run` is a random number.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn open(
        path: &Path,
        file_bytes: u64,
        processor: &str,
        worker: &str,
        run: u64,
        metrics: PlaceMetrics,
    ) -> io::Result<Self> {
        disk::make(path)?;
        let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(path, access)?;
        let writer = Writer { processor: processor.to_owned(), worker: worker.to_owned(), run };
        Ok(Self::on(Box::new(SystemDisk), path, file_bytes, writer, metrics))
    }

    fn on(disk: Box<dyn Disk>, path: &Path, file_bytes: u64, writer: Writer, metrics: PlaceMetrics) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        let processor = writer.processor.clone();
        let lines = Lines::new(disk, path.to_owned(), writer, file_bytes);
        tokio::spawn(Queue::new(queue, path.to_owned(), processor, metrics.clone()).run(lines));
        Self { path: path.to_owned(), jobs, metrics }
    }

    fn broken(&self) -> DeadLetterError {
        DeadLetterError::Refused {
            place: place(&self.path),
            reason: "the task that writes them broke down; restart the worker, and report it".to_owned(),
        }
    }
}

#[async_trait]
impl DeadLetters for Folder {
    async fn store(&self, letters: Vec<DeadLetter>, fence: &Fence) -> Result<(), DeadLetterError> {
        if letters.is_empty() {
            return Ok(());
        }
        let count = letters.len();
        let _waiting = self.metrics.waiting(count);
        let mut lines = String::new();
        for letter in letters {
            lines.push_str(&to_json(&letter));
            lines.push('\n');
        }
        let (done, stored) = oneshot::channel();
        let job = Job { lines: lines.into_bytes(), fence: fence.clone(), done };
        self.jobs.send(job).map_err(|_| self.broken())?;
        let result = tokio::select! {
            biased;
            result = stored => result.unwrap_or_else(|_| Err(self.broken())),
            // What is being written at this moment may be stored. The successor gives it up again.
            _ = fence.lost() => Err(DeadLetterError::Fenced),
        };
        result?;
        self.metrics.stored(count);
        Ok(())
    }
}

/// As messages name it.
fn place(folder: &Path) -> String {
    format!("the folder {}", folder.display())
}
