use serde_json::Value;

use crate::WorkerId;
use crate::fleet::{DEPUTY, FLEET, LEADER, PostRow, WorkerRow, read, worker_of};
use crate::store::{Document, Error, Sidecar};

/// The workers of one consumer as its tables have them, for whoever looks from outside: also when none lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roster {
    /// Those that have a row, by their ids. One that was killed keeps its row until a leader has forgotten it, three
    /// expiries later; rows that a later version wrote otherwise are left out.
    pub workers: Vec<FleetWorker>,
    /// Who leads, or did last.
    pub leader: Option<WorkerId>,
    /// Who is ready to lead, or was last.
    pub deputy: Option<WorkerId>,
}

/// A worker's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetWorker {
    /// Its id.
    pub id: WorkerId,
    /// How often the row was written: moves at every beat, and so says that the worker lives.
    pub version: u64,
    /// Which run of the worker writes it: no two have the same.
    pub run: String,
    /// When it started, in milliseconds since 1970, by its own clock.
    pub joined: u64,
    /// Whether it is about to stop.
    pub is_leaving: bool,
    /// What it says of itself ([`crate::Note`]); nothing in rows of earlier versions.
    pub note: Option<Value>,
}

// === impl Roster ===

impl Roster {
    /// Reads all rows: one scan of the table.
    pub async fn read(sidecar: &dyn Sidecar) -> Result<Self, Error> {
        let documents = sidecar.documents(FLEET).await?;
        let worker = |(key, document): (&String, &Document)| {
            let WorkerRow { run, joined, is_leaving, note, .. } = read(document)?;
            Some(FleetWorker { id: worker_of(key)?, version: document.version, run, joined, is_leaving, note })
        };
        let has = |post: &str| {
            let PostRow { worker, .. } = documents.get(post).and_then(read)?;
            WorkerId::parse(&worker).ok()
        };
        Ok(Self { leader: has(LEADER), deputy: has(DEPUTY), workers: documents.iter().filter_map(worker).collect() })
    }
}
