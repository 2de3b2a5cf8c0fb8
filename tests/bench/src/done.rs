//! How far the processor `copy` of a worker is, and how fast it went.

use std::time::Duration;

use shardmill_tests::Worker;
use tokio::time::Instant;

/// No run takes as long.
const LIMIT: Duration = Duration::from_secs(900);

/// How many records were done at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    at: Instant,
    records: f64,
}

/// Waits until so many records are done.
pub(crate) async fn until_done(worker: &mut Worker, records: u64) -> Done {
    worker
        .until_within(LIMIT, "records", async |worker| {
            let done = worker.metric("shardmill_records_done_total", "processor=\"copy\"").await;
            (done as u64 >= records).then(|| Done { at: Instant::now(), records: done })
        })
        .await
}

// === impl Done ===

impl Done {
    /// Records a second from an earlier moment on.
    pub(crate) fn speed_since(self, first: Self) -> f64 {
        (self.records - first.records) / (self.at - first.at).as_secs_f64()
    }
}
