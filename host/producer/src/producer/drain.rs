//! Sends what is in a spool, for as long as its producer lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use shardmill_cause::Coded;
use shardmill_record::UserRecord;
use shardmill_spool::{Answer, Batch, Drained, Next, Pacing, Sender};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::shared::Shared;
use crate::backoff::Backoff;
use crate::{BatchSender, Error, Permit, Stopped};

/// How long it waits after a failure that does not pass by itself, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The task that empties a spool. Dropped, it ends at once.
#[derive(Debug)]
pub(super) struct Drain {
    stop: Arc<Stop>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Stop {
    is_wanted: AtomicBool,
    told: Notify,
}

/// What the task works with.
struct Work {
    sender: Arc<Sender>,
    batches: BatchSender,
    /// Is told when nothing of the stream is left.
    shared: Arc<Shared>,
    stop: Arc<Stop>,
    pause: Backoff,
}

// === impl Drain ===

impl Drain {
    pub(super) fn start(sender: Arc<Sender>, batches: BatchSender, shared: Arc<Shared>, seed: u64) -> Self {
        let stop = Arc::new(Stop::default());
        let pause = Backoff::new(PAUSES.0, PAUSES.1, seed);
        let work = Work { sender, batches, shared, stop: Arc::clone(&stop), pause };
        Self { stop, task: tokio::spawn(work.run()) }
    }

    /// Lets it start no request any more.
    pub(super) fn stop(&self) {
        self.stop.is_wanted.store(true, Relaxed);
        self.stop.told.notify_one();
    }

    /// Lets it start no request any more, and waits for the one that is on its way.
    pub(super) async fn end(&mut self) {
        self.stop();
        if let Err(error) = (&mut self.task).await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Work ===

impl Work {
    async fn run(self) {
        let stream = self.sender.stream();
        let mut pacing = Pacing::new(Batch::default().records);
        let mut failures = 0;
        while !self.is_stopped() {
            tokio::select! {
                () = self.sender.spool().until_some(stream) => {}
                () = self.stop.told.notified() => return,
            }
            let batch = Batch { records: pacing.at_once(), ..Batch::default() };
            match self.sender.drain_once(batch, async |records| self.send(records).await).await {
                // The spool tells its own trouble.
                Err(_) => {
                    failures += 1;
                    self.rest(failures).await;
                }
                Ok(Drained { error: Some(Error::Stopped { .. }), .. }) => return,
                Ok(drained) => match (pacing.taken(&drained, Error::is_about_records), drained.error) {
                    (Next::SetAside(id), Some(error)) => {
                        // What fails here is told by the spool, and tried again.
                        let _again = self.sender.set_aside(id, error.to_string()).await;
                    }
                    (Next::Pause, Some(error)) => {
                        if failures == 0 {
                            tracing::error!(stream, %error, code = %error.code(), "records stay in the spool until this is mended");
                        }
                        failures += 1;
                        self.rest(failures).await;
                    }
                    // Something waits that is not given out.
                    (Next::Wait, _) => self.rest(1).await,
                    (Next::Go | Next::SetAside(_) | Next::Pause, _) => failures = 0,
                },
            }
            if !self.sender.spool().holds(stream) {
                self.shared.work.notify_one();
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_wanted.load(Relaxed)
    }

    /// Waits, unless this is to end.
    async fn rest(&self, failures: u32) {
        tokio::select! {
            () = tokio::time::sleep(self.pause.delay(failures)) => {}
            () = self.stop.told.notified() => {}
        }
    }

    async fn send(&self, records: Vec<UserRecord>) -> Answer<Error> {
        let stop = Arc::clone(&self.stop);
        let permit = Permit::new(move || if stop.is_wanted.load(Relaxed) { Err(Stopped) } else { Ok(()) });
        self.batches.send_spooled(records, &permit).await
    }
}
