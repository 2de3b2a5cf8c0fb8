//! Which workers have written their rows between two looks.

use std::collections::BTreeMap;

use shardmill_lease::{Roster, WorkerId};

/// The rows as they were at the last look, if there was one.
#[derive(Debug, Default)]
pub(crate) struct Moved(Option<BTreeMap<WorkerId, u64>>);

// === impl Moved ===

impl Moved {
    /// Those that live and stay; nobody at the first look.
    pub(crate) fn since_last(&mut self, roster: &Roster) -> Vec<WorkerId> {
        let versions = roster.workers.iter().map(|worker| (worker.id.clone(), worker.version)).collect();
        let Some(before) = self.0.replace(versions) else { return Vec::new() };
        let stays = roster.workers.iter().filter(|worker| !worker.is_leaving);
        let moved = stays.filter(|worker| before.get(&worker.id).is_none_or(|version| *version != worker.version));
        moved.map(|worker| worker.id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use shardmill_lease::FleetWorker;

    use super::*;

    #[test]
    fn a_worker_lives_that_has_written_its_row_since_the_last_look_or_is_new() {
        let row = |name: &str, version, is_leaving| FleetWorker {
            id: WorkerId::parse(name).unwrap(),
            version,
            run: String::new(),
            joined: 0,
            is_leaving,
            note: None,
        };
        let roster = |workers| Roster { workers, ..Roster::default() };
        let mut moved = Moved::default();
        let first = roster(vec![row("lives", 1, false), row("dead", 1, false), row("leaves", 1, false)]);
        assert_eq!(moved.since_last(&first), []);
        let second =
            roster(vec![row("dead", 1, false), row("leaves", 2, true), row("lives", 2, false), row("new", 1, false)]);
        let names: Vec<String> = moved.since_last(&second).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["lives", "new"]);
    }
}
