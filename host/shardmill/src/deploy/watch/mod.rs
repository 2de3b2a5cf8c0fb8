//! Files that are watched: the configuration's and the plugins'.
//!
//! Each is looked at once a second, and at once when the kernel says that something in its folder has changed ([`Events`]).
//! `look` says when it is to be read: when it has stood still, and is whole. Looking follows links, so that a file that is
//! replaced by way of them, as Kubernetes does with a ConfigMap, has changed as well. What comes of a file is delivered beside
//! the looking: a plugin that is slow to start does not keep others waiting.

mod look;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::look::{FileLook, Next, Seen};
use super::MAX_PLUGIN;
use super::reloader::{self, Reloader, Why};
use crate::config;
use crate::watching::{Events, Identity};

/// From one look to the next, where nothing is told.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the least, whatever is told.
const NOT_BEFORE: Duration = Duration::from_millis(20);
/// What the machine could not do is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// What became of a file that has changed.
struct Delivered {
    path: PathBuf,
    /// Whether it is to be dealt with again later.
    again: bool,
}

/// Watches until told to stop.
pub(crate) async fn run(reloader: Reloader, stop: CancellationToken) {
    let mut is_watching = reloader.is_watching();
    let events = Events::start();
    let mut files: BTreeMap<PathBuf, FileLook> = BTreeMap::new();
    let mut at_work: BTreeSet<PathBuf> = BTreeSet::new();
    let mut deliveries: JoinSet<Delivered> = JoinSet::new();
    loop {
        let mut wait = LOOK_EVERY;
        if *is_watching.borrow_and_update() {
            let paths = paths(&reloader);
            files.retain(|path, _| paths.contains(path));
            for path in paths {
                events.watch_file(&path).await;
                if at_work.contains(&path) {
                    continue;
                }
                let file = files.entry(path.clone()).or_default();
                match look_at(file, &path, &reloader).await {
                    Found::Nothing => {}
                    Found::LookAgain(after) => wait = wait.min(after),
                    Found::Missing(reason) => missing(&reloader, &path, &reason),
                    Found::Changed(bytes) => {
                        at_work.insert(path.clone());
                        deliveries.spawn(deliver(reloader.clone(), path, bytes));
                    }
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(wait) => {}
            () = events.changed() => sleep(NOT_BEFORE).await,
            changed = is_watching.changed() => if changed.is_err() { return },
            Some(delivered) = deliveries.join_next() => {
                let Ok(Delivered { path, again }) = delivered else {
                    // Whatever broke down, others are watched on; nobody knows which it was.
                    at_work.clear();
                    continue;
                };
                at_work.remove(&path);
                if let Some(file) = files.get_mut(&path).filter(|_| again) {
                    file.again(Instant::now() + AGAIN_AFTER);
                }
            }
        }
    }
}

/// What a look at a file came to.
enum Found {
    Nothing,
    LookAgain(Duration),
    Missing(String),
    /// It is another one, and this is in it.
    Changed(Vec<u8>),
}

async fn look_at(file: &mut FileLook, path: &Path, reloader: &Reloader) -> Found {
    let seen = see(path).await;
    let is_last = match file.look(Instant::now(), &seen) {
        Next::Nothing => return Found::Nothing,
        Next::LookAgain(after) => return Found::LookAgain(after),
        Next::Missing(reason) => return Found::Missing(reason),
        Next::Read { is_last } => is_last,
    };
    let Ok(bytes) = reloader::read(path).await else { return Found::LookAgain(look::SETTLE) };
    if see(path).await != seen {
        return Found::LookAgain(look::SETTLE);
    }
    if is_last {
        file.dealt_with(seen);
        return Found::Changed(bytes);
    }
    match whole(path, bytes, reloader).await {
        Some(bytes) => {
            file.dealt_with(seen);
            Found::Changed(bytes)
        }
        None => {
            file.is_incomplete();
            Found::LookAgain(look::SETTLE)
        }
    }
}

async fn see(path: &Path) -> Seen {
    match tokio::fs::metadata(path).await {
        Ok(metadata) if metadata.is_file() => Seen::There(Identity::of(&metadata)),
        Ok(_other) => Seen::Gone("it is no file".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Seen::Gone("there is no such file any more".to_owned())
        }
        Err(error) => Seen::Gone(error.to_string()),
    }
}

/// What is in a file, if it looks as if nobody were writing it.
async fn whole(path: &Path, bytes: Vec<u8>, reloader: &Reloader) -> Option<Vec<u8>> {
    let is_configuration = reloader.path() == Some(path);
    // One that is larger than it may be is told of as it is, and not looked through for that.
    let most = most(path, reloader);
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let looking = move || {
        let is_whole = if is_configuration {
            std::str::from_utf8(&bytes).is_ok_and(|text| config::parse("", text, &folder).is_ok())
        } else {
            bytes.len() > most || shardmill_plugin::module::check("", &bytes).is_ok()
        };
        is_whole.then_some(bytes)
    };
    // On a thread for such: a large file takes a while, and this one has others to look at.
    tokio::task::spawn_blocking(looking).await.ok().flatten()
}

/// Bytes that a plugin's file may have, for one of those that have it.
fn most(path: &Path, reloader: &Reloader) -> usize {
    let setups = reloader.deployer().0.slots.values().map(|slot| slot.setup());
    setups.filter(|setup| setup.path == path).map(|setup| setup.load.file_bytes).max().unwrap_or(MAX_PLUGIN)
}

/// All files that are to be watched.
fn paths(reloader: &Reloader) -> BTreeSet<PathBuf> {
    let slots = reloader.deployer().0.slots.values();
    let current = slots.map(|slot| slot.setup().path.clone());
    current.chain(reloader.path().map(Path::to_owned)).chain(reloader.waiting_for()).collect()
}

async fn deliver(reloader: Reloader, path: PathBuf, bytes: Vec<u8>) -> Delivered {
    if reloader.path() == Some(&path) {
        if reloader.is_applied(&bytes).await {
            return Delivered { path, again: false };
        }
        let report = reloader.reload(Why::File).await;
        // It may name a plugin that is still to come.
        return Delivered { path, again: report.refused.is_some() && report.is_passing };
    }
    let mut again = false;
    let slots = reloader.deployer().0.slots.values().filter(|slot| slot.setup().path == path);
    for processor in slots.map(|slot| slot.processor()) {
        let deployed = reloader.deployer().deploy_file(processor, bytes.clone()).await;
        again |= deployed.is_err_and(|refusal| refusal.is_passing());
    }
    // A configuration that was refused may have waited for this file.
    if reloader.is_refused() {
        reloader.reload(Why::File).await;
    }
    Delivered { path, again }
}

/// Tells that a file is gone. What runs does not need it.
fn missing(reloader: &Reloader, path: &Path, reason: &str) {
    let file = path.display();
    if reloader.path() == Some(path) {
        tracing::warn!(%file, reason, "the configuration's file cannot be read: it stays as it is, and the next start needs it");
        return;
    }
    for slot in reloader.deployer().0.slots.values().filter(|slot| slot.setup().path == path) {
        let trouble = format!(
            "the plugin's file {file} cannot be read ({reason}): what runs goes on, and the next start needs it"
        );
        if slot.set_file_trouble(Some(trouble)) {
            tracing::warn!(
                processor = slot.processor(), %file, reason,
                "the plugin's file cannot be read: what runs goes on, and the next start needs it"
            );
        }
    }
}
