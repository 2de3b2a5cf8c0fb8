//! Which workers live, as it is seen from outside: a row says so by being written, and its note by when that was.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_lease::store::{self, Sidecar};
use shardmill_lease::{Roster, WorkerId};
use tokio::time::{Instant, sleep};

use super::note::Note;
use crate::config::Leases;
use crate::unix_ms;

/// What is known of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    /// It has not been looked at for long enough.
    Unproven,
    Silent,
}

/// What was seen of all workers.
#[derive(Debug)]
pub(crate) struct Lives {
    /// How long a row may stand still of a worker that lives.
    expiry: Duration,
    /// How long it takes to see that a row moves.
    patience: Duration,
    seen: BTreeMap<WorkerId, Seen>,
    has_looked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    version: u64,
    since: Instant,
    /// Whether it was seen to be written, or says that it was written just now.
    is_proven: bool,
}

// === impl Lives ===

impl Lives {
    pub(crate) fn new(leases: &Leases) -> Self {
        Self { expiry: leases.expiry, patience: leases.renew * 2, seen: BTreeMap::new(), has_looked: false }
    }

    /// Takes in all rows. `wall`: now, in milliseconds since 1970.
    pub(crate) fn observe(&mut self, roster: &Roster, now: Instant, wall: u64) {
        let before = std::mem::take(&mut self.seen);
        for worker in &roster.workers {
            let seen = match before.get(&worker.id) {
                Some(seen) if seen.version == worker.version => *seen,
                Some(_) => Seen { version: worker.version, since: now, is_proven: true },
                None => {
                    let at = worker.note.as_ref().map(|note| Note::read(note).at);
                    // Another clock may be ahead of this one as well as behind it.
                    let is_recent = at.is_some_and(|at| u128::from(at.abs_diff(wall)) < self.expiry.as_millis());
                    let is_proven = self.has_looked || is_recent;
                    Seen { version: worker.version, since: now, is_proven }
                }
            };
            self.seen.insert(worker.id.clone(), seen);
        }
        self.has_looked = true;
    }

    pub(crate) fn life(&self, worker: &WorkerId, now: Instant) -> Life {
        let Some(seen) = self.seen.get(worker) else { return Life::Silent };
        let still = now.saturating_duration_since(seen.since);
        match seen.is_proven {
            true if still < self.expiry => Life::Alive,
            false if still < self.patience.min(self.expiry) => Life::Unproven,
            _ => Life::Silent,
        }
    }
}

/// Looks at the rows for as long as it takes to tell of each worker whether it lives: once where all say so, at most a
/// little longer than the time between two beats.
pub(crate) async fn survey(sidecar: &dyn Sidecar, leases: &Leases) -> Result<(Roster, Lives), store::Error> {
    let mut lives = Lives::new(leases);
    loop {
        let roster = Roster::read(sidecar).await?;
        let now = Instant::now();
        lives.observe(&roster, now, unix_ms::now());
        if roster.workers.iter().all(|worker| lives.life(&worker.id, now) != Life::Unproven) {
            return Ok((roster, lives));
        }
        sleep((leases.renew / 4).clamp(Duration::from_millis(50), Duration::from_secs(1))).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shardmill_lease::FleetWorker;

    use super::*;

    const EXPIRY: Duration = Duration::from_secs(10);
    const PATIENCE: Duration = Duration::from_secs(6);
    const NOW: u64 = 1_790_000_000_000;

    fn lives() -> Lives {
        Lives { expiry: EXPIRY, patience: PATIENCE, seen: BTreeMap::new(), has_looked: false }
    }

    fn id(name: &str) -> WorkerId {
        WorkerId::parse(name).unwrap()
    }

    /// `at`: when the row says that it was written.
    fn row(name: &str, version: u64, at: Option<u64>) -> FleetWorker {
        let note = at.map(|at| json!({ "at": at }));
        FleetWorker { id: id(name), version, run: String::new(), joined: 0, is_leaving: false, note }
    }

    fn roster(workers: Vec<FleetWorker>) -> Roster {
        Roster { workers, ..Roster::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_lives_whose_row_was_written_just_now_or_moves() {
        let (mut lives, start) = (lives(), Instant::now());
        let rows = [
            row("now", 7, Some(NOW - 3_000)),
            row("ahead", 7, Some(NOW + 3_000)),
            row("long-ago", 7, Some(NOW - 60_000)),
            row("untold", 7, None),
        ];
        lives.observe(&roster(rows.to_vec()), start, NOW);
        let all = |lives: &Lives, now| ["now", "ahead", "long-ago", "untold"].map(|name| lives.life(&id(name), now));
        assert_eq!(all(&lives, start), [Life::Alive, Life::Alive, Life::Unproven, Life::Unproven]);
        let later = start + Duration::from_secs(4);
        let moved = rows.map(|row| FleetWorker { version: if row.id == id("untold") { 8 } else { 7 }, ..row });
        lives.observe(&roster(moved.to_vec()), later, NOW + 4_000);
        assert_eq!(all(&lives, later), [Life::Alive, Life::Alive, Life::Unproven, Life::Alive]);
        let end = start + PATIENCE;
        assert_eq!(all(&lives, end), [Life::Alive, Life::Alive, Life::Silent, Life::Alive]);
        // One that has come while it was looked, and those that stand still.
        lives.observe(&roster([moved.as_slice(), &[row("new", 1, None)]].concat()), end, NOW + 6_000);
        assert_eq!(lives.life(&id("new"), end), Life::Alive);
        assert_eq!(all(&lives, start + EXPIRY), [Life::Silent, Life::Silent, Life::Silent, Life::Alive]);
        lives.observe(&roster(Vec::new()), end, NOW + 6_000);
        assert_eq!(lives.life(&id("new"), end), Life::Silent);
    }
}
