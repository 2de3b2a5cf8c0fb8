//! What the workers of one consumer tell each other, as documents of the sidecar table.
//!
//! Each worker has a row that it writes at every beat. One of them, the leader, looks at all rows and all leases, and
//! writes for each worker which leases it should take. A deputy watches the table too, so that nothing that it has
//! seen stand still has to be waited for again when the leader is gone. None of these documents is what keeps leases
//! safe: that are the conditional writes to the leases themselves.

use std::collections::HashMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::balance::Why;
use crate::store::Document;
use crate::{LeaseEpoch, Moment, WorkerId};

/// All documents of a fleet.
pub(crate) const FLEET: &str = "fleet/";
const WORKERS: &str = "fleet/worker/";
const PLANS: &str = "fleet/plan/";
/// The post of whoever says who should have what.
pub(crate) const LEADER: &str = "fleet/leader";
/// The post of whoever looks on, to be the next leader.
pub(crate) const DEPUTY: &str = "fleet/deputy";

/// A worker's row. Its version moves at every beat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerRow {
    /// Which run of the worker writes this: no two have the same.
    pub(crate) run: String,
    /// When it started, in milliseconds since 1970: orders workers, nothing more.
    pub(crate) joined: u64,
    /// What it runs.
    #[serde(default)]
    pub(crate) generation: u64,
    /// It is about to stop.
    pub(crate) is_leaving: bool,
    /// The most leases that it takes.
    pub(crate) max: Option<usize>,
    /// The platform promises that no two processes with its id run at a time.
    #[serde(default)]
    pub(crate) runs_once: bool,
    /// What it says of itself besides; nothing here depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<Value>,
}

/// What a worker should do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The leases that it should take.
    pub(crate) take: Vec<Planned>,
    /// Nobody stays: there is no point in waiting for others to take over.
    #[serde(default)]
    pub(crate) is_last: bool,
}

/// A lease that a worker should take, as the leader saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Planned {
    pub(crate) key: String,
    pub(crate) counter: u64,
    pub(crate) epoch: LeaseEpoch,
    /// Its owner.
    pub(crate) from: Option<String>,
    pub(crate) why: Why,
}

/// Who has a post.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PostRow {
    pub(crate) worker: String,
    pub(crate) run: String,
}

/// Since when documents have stood still, as one observer sees it.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    seen: HashMap<String, Seen>,
    has_looked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    version: u64,
    since: Moment,
    /// Whether it was written while this observer was looking.
    is_proven: bool,
}

pub(crate) fn worker_key(worker: &WorkerId) -> String {
    format!("{WORKERS}{worker}")
}

pub(crate) fn plan_key(worker: &WorkerId) -> String {
    format!("{PLANS}{worker}")
}

/// Whose row this is.
pub(crate) fn worker_of(key: &str) -> Option<WorkerId> {
    WorkerId::parse(key.strip_prefix(WORKERS)?).ok()
}

/// Whose plan this is.
pub(crate) fn planned_for(key: &str) -> Option<WorkerId> {
    WorkerId::parse(key.strip_prefix(PLANS)?).ok()
}

/// `None` for what a later version wrote otherwise.
pub(crate) fn read<T: DeserializeOwned>(document: &Document) -> Option<T> {
    T::deserialize(&document.body).ok()
}

// === impl Pulse ===

impl Pulse {
    /// Takes in all documents of a kind; those that are gone are forgotten.
    pub(crate) fn observe<'a>(&mut self, now: Moment, documents: impl Iterator<Item = (&'a str, u64)>) {
        let before = std::mem::take(&mut self.seen);
        for (key, version) in documents {
            let seen = match before.get(key) {
                Some(seen) if seen.version == version => *seen,
                before => Seen { version, since: now, is_proven: before.is_some() || self.has_looked },
            };
            self.seen.insert(key.to_owned(), seen);
        }
        self.has_looked = true;
    }

    /// For how long the document has stood still.
    pub(crate) fn still(&self, key: &str, now: Moment) -> Option<Duration> {
        self.seen.get(key).map(|seen| now.saturating_since(seen.since))
    }

    /// Whether who writes the document every `interval` lives. One that has not been written since the first look has
    /// less time than the expiry: a fleet that has crashed leaves rows, and nothing must be planned for them for long.
    pub(crate) fn is_alive(&self, key: &str, now: Moment, expiry: Duration, interval: Duration) -> bool {
        self.seen.get(key).is_some_and(|seen| {
            let patience = if seen.is_proven { expiry } else { expiry.min(interval + interval / 2) };
            now.saturating_since(seen.since) < patience
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_document_stands_still_from_when_it_was_first_seen_so() {
        let mut pulse = Pulse::default();
        pulse.observe(at(1), [("a", 7)].into_iter());
        pulse.observe(at(4), [("a", 7), ("b", 1)].into_iter());
        assert_eq!(pulse.still("a", at(5)), Some(Duration::from_secs(4)));
        assert_eq!(pulse.still("b", at(5)), Some(Duration::from_secs(1)));
        pulse.observe(at(6), [("a", 8)].into_iter());
        assert_eq!(pulse.still("a", at(7)), Some(Duration::from_secs(1)));
        assert_eq!(pulse.still("b", at(7)), None);
    }

    #[test]
    fn a_row_that_was_there_before_the_first_look_has_less_time_to_prove_that_its_worker_lives() {
        let mut pulse = Pulse::default();
        let is_alive =
            |pulse: &Pulse, key, now| pulse.is_alive(key, at(now), Duration::from_secs(10), Duration::from_secs(4));
        pulse.observe(at(0), [("old", 7)].into_iter());
        pulse.observe(at(2), [("old", 7), ("new", 1)].into_iter());
        assert!(is_alive(&pulse, "old", 5) && !is_alive(&pulse, "old", 6));
        assert!(is_alive(&pulse, "new", 11) && !is_alive(&pulse, "new", 12));
        pulse.observe(at(7), [("old", 8)].into_iter());
        assert!(is_alive(&pulse, "old", 16) && !is_alive(&pulse, "old", 17));
    }

    #[test]
    fn a_row_of_an_earlier_version_has_no_note_and_one_without_a_note_is_what_that_version_writes() {
        let earlier = serde_json::json!({ "run": "r", "joined": 7, "is_leaving": false, "max": null });
        let row: WorkerRow = read(&Document { version: 1, body: earlier }).unwrap();
        assert_eq!((row.joined, &row.note), (7, &None));
        assert!(serde_json::json!(row).get("note").is_none());
        let noted = WorkerRow { note: Some(serde_json::json!({ "build": "1" })), ..row };
        assert_eq!(read::<WorkerRow>(&Document { version: 2, body: serde_json::json!(noted) }), Some(noted));
    }

    #[test]
    fn keys_name_their_worker() {
        let worker = WorkerId::parse("host/7-a").unwrap();
        assert_eq!(worker_of(&worker_key(&worker)), Some(worker.clone()));
        assert_eq!(planned_for(&plan_key(&worker)), Some(worker.clone()));
        assert_eq!(worker_of(&plan_key(&worker)), None);
    }
}
