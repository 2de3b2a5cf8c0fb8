//! Does something again when files change, with the eyes of [`watching`](crate::watching). What the kernel tells only says
//! that it is time to look: whether something has changed is what is [`seen`] of the files, so that a file that was only read,
//! or written as it was, is no change.

mod build;
mod seen;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::sleep;

use self::build::build;
use self::seen::Seen;
use crate::cli::{Failure, output, stop_at_signal, text};
use crate::watching::Events;

/// How long everything must have stayed as it is before it is taken for whole: whoever writes a file writes it in pieces.
const QUIET: Duration = Duration::from_millis(100);
/// How often files are looked at where nothing is told: file systems of other machines tell nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the least, whatever is told.
const NOT_BEFORE: Duration = Duration::from_millis(20);
/// On a terminal: what is on the screen, and what has gone over its edge.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J\x1b[3J";

/// How to watch.
#[derive(Debug)]
pub(super) struct Options<'a> {
    /// What makes files of the sources.
    pub(super) build: Option<&'a str>,
    /// Files, and folders with all that is in them.
    pub(super) sources: &'a [PathBuf],
    /// Whether a terminal is cleared before each run.
    pub(super) clears: bool,
}

/// What is watched, as it was when it was looked at.
struct Watched<'a> {
    events: Events,
    sources: &'a [PathBuf],
    /// Before they were built.
    sources_seen: Seen,
    files: Vec<PathBuf>,
    files_seen: Seen,
}

/// What is not as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Changed {
    /// Or a file as well.
    Source,
    File,
}

/// Runs, and runs again after each change, until a signal, which is the usual end. A run that fails is told. One that goes on
/// when something changes is broken off: nobody waits for what a plugin makes of records that spins and is mended already.
/// `files`: what a run depends on, beside sources.
///
/// # Errors
/// If there is nothing to watch.
pub(super) async fn watch(
    options: &Options<'_>,
    files: impl Fn() -> Vec<PathBuf>,
    mut run: impl AsyncFnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stop = stop_at_signal()?;
    if let Some(missing) = options.sources.iter().find(|source| !source.exists()) {
        let message = format!("{} is not there, and changes of it are to be built", missing.display());
        return Err(Failure::usage(message)
            .help("name where the sources are with --sources, or run this in the crate's folder"));
    }
    let mut watched = Watched::new(Events::start(), options.sources);
    // Until that has gone well.
    let mut must_build = true;
    let mut number = 0;
    loop {
        if options.clears && std::io::stdout().is_terminal() {
            output::bytes(CLEAR);
        }
        let mut ended = Ok(());
        if let Some(command) = options.build.filter(|_| must_build) {
            // Before anything is read: what changes meanwhile is seen.
            watched.look_at_sources();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                built = build(command) => {
                    must_build = built.is_err();
                    ended = built;
                }
                _changed = watched.change() => {
                    output::say("\na source has changed: the build begins again");
                    continue;
                }
            }
        }
        // What a build has made is no change of it.
        watched.look_at(files());
        if ended.is_ok() {
            number += 1;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                ran = run(number) => ended = ran,
                changed = watched.change() => {
                    output::say("\nsomething has changed: this run is broken off");
                    must_build |= changed == Changed::Source;
                    continue;
                }
            }
        }
        if let Err(failure) = ended {
            failure.report();
        }
        let count = watched.files.len() + options.sources.len();
        output::say(format_args!(
            "\nwatching {}; Ctrl-C ends",
            text::counted(count as u64, "file or folder").replace("file or folders", "files and folders")
        ));
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            changed = watched.change() => must_build |= changed == Changed::Source,
        }
    }
}

// === impl Watched ===

impl<'a> Watched<'a> {
    fn new(events: Events, sources: &'a [PathBuf]) -> Self {
        let (files, files_seen) = (Vec::new(), Seen::default());
        Self { events, sources, sources_seen: Seen::of(sources), files, files_seen }
    }

    /// Looks at the sources, and at nothing else from now on: builds make files.
    fn look_at_sources(&mut self) {
        self.sources_seen = self.sources_seen.again(self.sources);
        self.look_at(Vec::new());
    }

    /// Looks at these files besides, from now on.
    fn look_at(&mut self, files: Vec<PathBuf>) {
        self.files_seen = self.files_seen.again(&files);
        self.files = files;
    }

    /// Waits until something is not as it was, and stays as it is then. What has changed before is seen at once.
    async fn change(&self) -> Changed {
        let (mut sources, mut files) = (self.sources_seen.clone(), self.files_seen.clone());
        loop {
            self.hear_of(&sources, &files).await;
            let mut is_moving = true;
            while is_moving {
                let now = (sources.again(self.sources), files.again(&self.files));
                is_moving = now.0.differs_from(&sources) || now.1.differs_from(&files);
                (sources, files) = now;
                if is_moving {
                    sleep(QUIET).await;
                }
            }
            // It may have been put back.
            if sources.differs_from(&self.sources_seen) {
                return Changed::Source;
            }
            if files.differs_from(&self.files_seen) {
                return Changed::File;
            }
            tokio::select! {
                () = self.events.changed() => sleep(NOT_BEFORE).await,
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Hears of these from now on. Again, though they may be heard of: a folder that was made anew is another one.
    async fn hear_of(&self, sources: &Seen, files: &Seen) {
        sources.folders().chain(files.folders()).for_each(|folder| self.events.watch(folder));
        for file in self.sources.iter().map(PathBuf::as_path).chain(files.files()) {
            self.events.watch_file(file).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn what_is_another_one_is_told_as_a_source_or_as_a_file() {
        let folder = TempDir::new().unwrap();
        let [sources, file] = ["src", "plugin.wasm"].map(|name| folder.path().join(name));
        fs::create_dir(&sources).unwrap();
        let sources = [sources];
        let mut watched = Watched::new(Events::start(), &sources);
        watched.look_at(vec![file.clone()]);
        fs::write(&file, "1").unwrap();
        assert_eq!(timeout(LIMIT, watched.change()).await, Ok(Changed::File), "it is there");
        watched.look_at(vec![file.clone()]);
        fs::create_dir(sources[0].join("new")).unwrap();
        fs::write(sources[0].join("new/lib.rs"), "1").unwrap();
        fs::write(&file, "2").unwrap();
        assert_eq!(timeout(LIMIT, watched.change()).await, Ok(Changed::Source), "that is built, and makes the file");
        watched.look_at_sources();
        fs::write(&file, "3").unwrap();
        fs::write(sources[0].join("new/lib.rs"), "2").unwrap();
        assert_eq!(timeout(LIMIT, watched.change()).await, Ok(Changed::Source));
    }
}
