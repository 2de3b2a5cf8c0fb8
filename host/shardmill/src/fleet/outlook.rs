//! How far a fleet is with what is wanted of it, as who looks from outside sees it.

use shardmill_lease::{Roster, WorkerId};
use shardmill_plugin::Digest;
use tokio::time::Instant;

use super::deployment::Deployment;
use super::life::{Life, Lives};
use super::note::{Note, PluginNote};

/// A worker of one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: WorkerId,
    pub(crate) life: Life,
    /// When it started, in milliseconds since 1970.
    pub(crate) joined: u64,
    pub(crate) is_leaving: bool,
    pub(crate) leads: bool,
    pub(crate) note: Note,
}

/// How a worker stands to what is wanted of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stand {
    /// What it runs, if it says so.
    pub(crate) running: Option<Digest>,
    /// What it should run, if it says which file it has.
    pub(crate) aim: Option<Digest>,
    pub(crate) state: State,
}

/// Whether a worker runs what it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    AsWanted,
    /// It has not got round to it.
    Pending,
    /// It cannot, and says why.
    Trouble(String),
    /// It was told by itself to run something else.
    Local,
    /// It says nothing of the processor: it is of an earlier version, or has just started, or has another configuration.
    Untold,
}

/// How far all workers are that live and stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Those that run what is wanted.
    pub(crate) have: usize,
    /// Those that should.
    pub(crate) should: usize,
    pub(crate) pending: usize,
    /// Of those that should run it or what was before, why they cannot, by worker.
    pub(crate) troubles: Vec<(String, String)>,
}

/// All workers of a roster.
pub(crate) fn members(roster: &Roster, lives: &Lives, now: Instant) -> Vec<Member> {
    let member = |worker: &shardmill_lease::FleetWorker| Member {
        id: worker.id.clone(),
        life: lives.life(&worker.id, now),
        joined: worker.joined,
        is_leaving: worker.is_leaving,
        leads: roster.leader.as_ref() == Some(&worker.id),
        note: worker.note.as_ref().map(Note::read).unwrap_or_default(),
    };
    roster.workers.iter().map(member).collect()
}

/// The ids of those that live and stay.
pub(crate) fn living(members: &[Member]) -> Vec<&str> {
    members.iter().filter(|member| member.stays()).map(|member| member.id.as_str()).collect()
}

// === impl Member ===

impl Member {
    pub(crate) fn stays(&self) -> bool {
        self.life == Life::Alive && !self.is_leaving
    }

    /// How it stands to what is wanted of a processor.
    pub(crate) fn stand(&self, processor: &str, deployment: &Deployment) -> Stand {
        let Some(plugin) = self.note.plugins.get(processor) else {
            return Stand { running: None, aim: None, state: State::Untold };
        };
        let PluginNote { running, file, aim: looked_at, revision, trouble, is_local, .. } = plugin;
        let decided = deployment.aim(self.id.as_str(), file);
        let aim = decided.digest;
        let state = match trouble {
            // What it says is about what was wanted before, or about the same that was asked for once before. What it ran
            // then it may not run any more, even where that is what is wanted now.
            _ if (*looked_at, *revision) != (aim, decided.revision) => State::Pending,
            _ if *running == aim => State::AsWanted,
            Some(reason) => State::Trouble(reason.clone()),
            None if *is_local => State::Local,
            None => State::Pending,
        };
        Stand { running: Some(*running), aim: Some(aim), state }
    }
}

// === impl Progress ===

impl Progress {
    pub(crate) fn of(processor: &str, deployment: &Deployment, members: &[Member]) -> Self {
        let mut progress = Self::default();
        let wanted = deployment.wanted().map(|wanted| wanted.digest);
        for member in members.iter().filter(|member| member.stays()) {
            let Stand { running, aim, state } = member.stand(processor, deployment);
            let should = aim.map_or_else(|| deployment.includes(member.id.as_str()), |aim| Some(aim) == wanted);
            progress.should += usize::from(should);
            progress.have += usize::from(should && running == wanted && state == State::AsWanted);
            let trouble = match state {
                State::AsWanted => continue,
                State::Pending => {
                    progress.pending += 1;
                    continue;
                }
                State::Trouble(reason) => reason,
                State::Local => "it was told by itself to run something else".to_owned(),
                State::Untold if should => "it does not say what it runs".to_owned(),
                State::Untold => continue,
            };
            progress.troubles.push((member.id.to_string(), trouble));
        }
        progress
    }

    /// Whether all that live do what is wanted of them, and there is one that should run the version.
    pub(crate) fn is_done(&self) -> bool {
        self.pending == 0 && self.troubles.is_empty() && self.should > 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fleet::deployment::{Asked, Order};
    use crate::fleet::share::Share;

    fn digest(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    fn deployment() -> Deployment {
        let asked = Asked { by: "me".to_owned(), at: 1 };
        let mut deployment = Deployment::new();
        deployment.learn(&digest("one"), "/one.wasm", &asked);
        let order =
            Order { digest: digest("two"), source: "/two.wasm".to_owned(), share: Share::ALL, is_rollback: false };
        // Twice, because it was not there at first.
        deployment.order(order.clone(), &[], &asked);
        deployment.order(order, &[], &asked);
        deployment
    }

    fn member(name: &str, running: &str, aim: &str, trouble: Option<&str>) -> Member {
        let plugin = PluginNote {
            running: digest(running),
            since: 0,
            file: digest("one"),
            aim: digest(aim),
            // That of the last decision.
            revision: 2,
            trouble: trouble.map(str::to_owned),
            is_local: running == "local",
        };
        let note = Note { plugins: BTreeMap::from([("copy".to_owned(), plugin)]), ..Note::default() };
        let id = WorkerId::parse(name).unwrap();
        Member { id, life: Life::Alive, joined: 0, is_leaving: false, leads: false, note }
    }

    #[test]
    fn each_worker_is_held_against_what_it_should_run() {
        let deployment = deployment();
        let state = |member: &Member| member.stand("copy", &deployment).state;
        assert_eq!(state(&member("w", "two", "two", None)), State::AsWanted);
        assert_eq!(state(&member("w", "one", "one", None)), State::Pending);
        assert_eq!(state(&member("w", "one", "one", Some("of before"))), State::Pending);
        assert_eq!(state(&member("w", "one", "two", Some("gone"))), State::Trouble("gone".to_owned()));
        let mut before = member("w", "one", "two", Some("gone"));
        before.note.plugins.values_mut().for_each(|plugin| plugin.revision = 1);
        assert_eq!(state(&before), State::Pending);
        // It may have gone on to something else since then.
        let mut early = member("w", "two", "two", None);
        early.note.plugins.values_mut().for_each(|plugin| plugin.revision = 1);
        assert_eq!(state(&early), State::Pending);
        assert_eq!(
            Progress::of("copy", &deployment, &[early]),
            Progress { should: 1, pending: 1, ..Progress::default() }
        );
        assert_eq!(state(&member("w", "local", "two", None)), State::Local);
        assert_eq!(state(&Member { note: Note::default(), ..member("w", "two", "two", None) }), State::Untold);
    }

    #[test]
    fn a_deploy_is_done_when_all_that_live_and_stay_run_it() {
        let deployment = deployment();
        let progress = |members: &[Member]| Progress::of("copy", &deployment, members);
        assert!(!progress(&[]).is_done(), "there is nobody");
        let good = member("a", "two", "two", None);
        let silent = Member { life: Life::Silent, ..member("b", "one", "one", None) };
        let leaving = Member { is_leaving: true, ..member("c", "one", "one", None) };
        assert!(progress(&[good.clone(), silent, leaving]).is_done());
        let pending = member("d", "one", "one", None);
        let bad = member("e", "one", "two", Some("gone"));
        let mixed = progress(&[good.clone(), pending, bad]);
        assert_eq!((mixed.have, mixed.should, mixed.pending, mixed.is_done()), (1, 3, 1, false));
        assert_eq!(mixed.troubles, [("e".to_owned(), "gone".to_owned())]);
        let untold = Member { note: Note::default(), ..member("f", "one", "one", None) };
        assert!(!progress(&[good, untold]).is_done());
    }
}
