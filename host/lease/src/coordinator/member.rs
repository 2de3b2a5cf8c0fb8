use serde_json::json;
use tokio::time::timeout;

use super::post::Identity;
use crate::Moment;
use crate::fleet::{Plan, WorkerRow, plan_key, read, worker_key};
use crate::store::Error;
use crate::writer::Surroundings;

/// This worker's row, and what it is told to do.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// The version of the row as last written or read.
    version: Option<u64>,
    /// When the row was last written, and whether it said that the worker leaves.
    written: Option<(Moment, bool)>,
}

/// What was found where the row was to be written.
#[derive(Debug)]
pub(super) enum Beat {
    /// The row as this run had written it, or none.
    Own,
    /// A row that another run of the worker has written since.
    Foreign(WorkerRow),
    /// The row of an earlier run, at the first beat.
    Earlier,
}

// === impl Membership ===

impl Membership {
    /// Whether the row should be written: it says something else, or is as old as this.
    pub(super) fn is_due(&self, now: Moment, interval: std::time::Duration, is_leaving: bool) -> bool {
        self.written.is_none_or(|(at, left)| left != is_leaving || now.saturating_since(at) >= interval)
    }

    /// Writes the row: proof of life.
    pub(super) async fn beat(
        &mut self,
        surroundings: &Surroundings,
        me: &Identity,
        row: &WorkerRow,
    ) -> Result<Beat, Error> {
        let key = worker_key(&me.worker);
        let body = json!(row);
        let mut beat = Beat::Own;
        // Once more after a row was found that is not as known.
        for _ in 0..2 {
            let sent = surroundings.clock.now();
            let put = surroundings.store.put_document(&key, &body, self.version);
            if timeout(surroundings.write_timeout, put).await.map_err(|_| surroundings.no_answer())?? {
                self.version = Some(self.version.unwrap_or(0) + 1);
                self.written = Some((sent, row.is_leaving));
                return Ok(beat);
            }
            let get = surroundings.store.document(&key);
            let found = timeout(surroundings.write_timeout, get).await.map_err(|_| surroundings.no_answer())??;
            let foreign = found.as_ref().and_then(read::<WorkerRow>).filter(|found| found.run != row.run);
            beat = match foreign {
                Some(_) if self.written.is_none() => Beat::Earlier,
                Some(foreign) => Beat::Foreign(foreign),
                None => beat,
            };
            self.version = found.map(|found| found.version);
        }
        // Somebody writes it again and again. It is written at the next beat.
        Ok(beat)
    }

    /// What the leader has written for this worker.
    pub(super) async fn plan(surroundings: &Surroundings, me: &Identity) -> Result<Plan, Error> {
        let key = plan_key(&me.worker);
        let get = surroundings.store.document(&key);
        let document = timeout(surroundings.write_timeout, get).await.map_err(|_| surroundings.no_answer())??;
        Ok(document.as_ref().and_then(read).unwrap_or_default())
    }

    /// Takes the row away: nothing is planned for this worker any more.
    pub(super) async fn leave(&mut self, surroundings: &Surroundings, me: &Identity) {
        let Some(version) = self.version.take() else { return };
        let key = worker_key(&me.worker);
        // A row that stays is cleared away by the leader.
        let _ = timeout(surroundings.write_timeout, surroundings.store.delete_document(&key, version)).await;
    }
}
