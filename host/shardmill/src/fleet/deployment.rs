//! What is wanted of one processor's plugin, as the fleet keeps it, and the rules by which that changes. All of it is pure.
//!
//! Two parties decide which version a worker runs: an operator with a command, and whoever starts a worker with a file. The
//! later decision counts. Each has a number, which grows: a version that a command has named has that of the command, and a
//! file that of when a worker was first started with it. So a new image is not overridden by a command of last year, and a
//! worker that is started again with the file that it has always had runs what was deployed since.

use serde::{Deserialize, Serialize};
use shardmill_plugin::Digest;

use super::history::{Entry, History, Why};
use super::share::{Cut, Place, Share};

/// The form of the documents that this build writes.
pub(crate) const FORMAT: u32 = 1;
/// Files that are remembered; the one with which no worker was started for longest is forgotten first.
const FILES: usize = 50;
/// How often a file is noted again that is still in use, in milliseconds.
const REMIND_AFTER: u64 = 24 * 60 * 60 * 1000;
/// The most characters of a name that stands in a document.
const NAME: usize = 128;
/// The most characters of a path or an address.
pub(crate) const SOURCE: usize = 2048;

/// The document of one processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deployment {
    format: u32,
    /// The number of the last decision.
    revision: u64,
    /// What an operator has asked for; without it each worker runs its file.
    wanted: Option<Version>,
    /// How many of the workers that is for.
    #[serde(default)]
    share: Share,
    /// Which ones.
    #[serde(default)]
    cut: Cut,
    /// What was wanted before, for the others; without it they run their files.
    base: Option<Version>,
    /// The files with which workers were started, the one that was noted last at the end.
    files: Vec<KnownFile>,
    history: History,
}

/// A version that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    #[serde(with = "super::hex")]
    pub(crate) digest: Digest,
    /// A path that workers can read, or a URL.
    pub(crate) source: String,
    /// The number of the decision for it.
    revision: u64,
}

/// A file with which workers were started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KnownFile {
    #[serde(with = "super::hex")]
    digest: Digest,
    /// The number of the decision for it: when it was first seen. 0 if nothing was decided before.
    revision: u64,
    /// When it was noted last, in milliseconds since 1970.
    seen: u64,
}

/// Who asks for something, and when: milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) by: String,
    pub(crate) at: u64,
}

/// What a worker should run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aim<'a> {
    pub(crate) digest: Digest,
    /// The number of the command for it: another one is a new decision, also for the same version. 0 where there was no
    /// command, and the worker runs its file.
    pub(crate) revision: u64,
    /// Where it is; `None` for the worker's own file.
    pub(crate) source: Option<&'a str>,
}

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) digest: Digest,
    pub(crate) source: String,
    pub(crate) share: Share,
    pub(crate) is_rollback: bool,
}

// === impl Deployment ===

impl Deployment {
    pub(crate) fn new() -> Self {
        Self { format: FORMAT, ..Self::default() }
    }

    /// Whether this build knows all that a document of its form may say.
    pub(crate) fn is_known_form(&self) -> bool {
        self.format == FORMAT
    }

    /// What an operator has asked for, if anything.
    pub(crate) fn wanted(&self) -> Option<&Version> {
        self.wanted.as_ref()
    }

    pub(crate) fn share(&self) -> Share {
        self.share
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Whether a worker at its start has a file that was deployed after all that was asked for.
    pub(crate) fn is_newer(&self, file: &Digest) -> bool {
        let wanted = self.wanted.as_ref().map_or(0, |wanted| wanted.revision);
        self.file(file).is_none_or(|file| file.revision > wanted)
    }

    /// What a worker should run whose configuration names this file.
    pub(crate) fn aim(&self, worker: &str, file: &Digest) -> Aim<'_> {
        let own = Aim { digest: *file, revision: 0, source: None };
        // One that is not known yet is newer than all that was decided.
        let known = self.file(file).map_or(u64::MAX, |file| file.revision);
        let is_in = |version: &&Version| self.cut.takes(Place::of(&version.digest, worker));
        let later = |version: &&Version| version.revision > known;
        let version = self.wanted.as_ref().filter(is_in).filter(later).or(self.base.as_ref().filter(later));
        match version {
            None => own,
            // It has it at hand.
            Some(version) if version.digest == *file => Aim { revision: version.revision, ..own },
            Some(Version { digest, source, revision }) => {
                Aim { digest: *digest, revision: *revision, source: Some(source) }
            }
        }
    }

    /// Whether a worker should run what is wanted, as far as the share goes.
    pub(crate) fn includes(&self, worker: &str) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| self.cut.takes(Place::of(&wanted.digest, worker)))
    }

    /// Does what an operator asks for. `living`: the workers among which the share is counted.
    pub(crate) fn order(&mut self, order: Order, living: &[&str], asked: &Asked) {
        let Order { digest, source, share, is_rollback } = order;
        let source = bounded(&source, SOURCE);
        let is_same = self.wanted.as_ref().is_some_and(|wanted| wanted.digest == digest);
        let cut = share.cut(&digest, living);
        let before = std::mem::replace(&mut self.share, share);
        self.cut = match (is_same, share < before) {
            (false, _) => cut,
            (true, true) => cut.min(self.cut),
            // Whoever runs it goes on with it.
            (true, false) => cut.max(self.cut),
        };
        if !is_same && before.is_all() {
            // A version that only some have had is nothing to go back to.
            self.base = self.wanted.take();
        }
        self.revision += 1;
        let why = match (is_rollback, is_same && share != before) {
            (true, _) => Why::Rollback,
            (false, true) => Why::Share,
            (false, false) => Why::Deploy,
        };
        self.wanted = Some(Version { digest, source: source.clone(), revision: self.revision });
        self.history.push(Entry { at: asked.at, by: bounded(&asked.by, NAME), why, digest, source, share });
    }

    /// Takes note of a file with which a worker was started. Whether there was anything to note.
    pub(crate) fn learn(&mut self, file: &Digest, path: &str, asked: &Asked) -> bool {
        let is_first = self.files.is_empty();
        let known = self.files.iter().position(|known| known.digest == *file);
        if known.is_some_and(|place| asked.at.saturating_sub(self.files[place].seen) < REMIND_AFTER) {
            return false;
        }
        let is_new = known.is_none();
        let revision = match known {
            Some(place) => self.files.remove(place).revision,
            // With nothing to compare it with, it may be what ran before all that was asked for.
            None if is_first => 0,
            None => {
                self.revision += 1;
                self.revision
            }
        };
        self.files.push(KnownFile { digest: *file, revision, seen: asked.at });
        self.files.drain(..self.files.len().saturating_sub(FILES));
        if is_new {
            let (by, source) = (bounded(&asked.by, NAME), bounded(path, SOURCE));
            let entry = Entry { at: asked.at, by, why: Why::File, digest: *file, source, share: Share::ALL };
            if is_first { self.history.push_oldest(entry) } else { self.history.push(entry) }
        }
        true
    }

    /// Lets the first of the workers that live have what is wanted, if none of them is in: those that were have gone.
    /// Whether that was so.
    pub(crate) fn refill(&mut self, living: &[&str]) -> bool {
        let Some(wanted) = &self.wanted else { return false };
        let places = living.iter().map(|worker| Place::of(&wanted.digest, worker));
        let Some(first) = places.min() else { return false };
        if self.cut.takes(first) {
            return false;
        }
        self.cut = Cut::at(first);
        true
    }

    /// Whether an operator, or a new file, has decided anything between the two.
    pub(crate) fn is_decided_since(&self, earlier: &Self) -> bool {
        self.revision != earlier.revision
    }

    /// Whether an operator has asked for anything since.
    pub(crate) fn is_another_wanted(&self, earlier: &Self) -> bool {
        let command = |deployment: &Self| deployment.wanted.as_ref().map(|wanted| wanted.revision);
        command(self) != command(earlier)
    }

    fn file(&self, digest: &Digest) -> Option<&KnownFile> {
        self.files.iter().find(|known| known.digest == *digest)
    }
}

fn bounded(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

#[cfg(test)]
mod tests;
