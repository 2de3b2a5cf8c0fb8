//! A hint that it is time to look at files: what the kernel tells of their folders.
//!
//! It is a hint and no more, because it does not tell everything: nothing of network file systems, nothing of a link in the
//! middle of a path, nothing where a user's watches are used up. All of that is seen at the next look.

use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// Of a file that is written in place it is the end of writing that counts, and not each piece.
const TOLD: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);

/// What the kernel tells; nothing where it tells nothing.
#[derive(Debug)]
pub(crate) struct Events(Option<AsyncFd<OwnedFd>>);

// === impl Events ===

impl Events {
    /// Within a runtime.
    pub(crate) fn start() -> Self {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        #[expect(deprecated, reason = "what takes its place is `unsafe`, and asks for what an `OwnedFd` keeps anyway")]
        let events = events.map_err(std::io::Error::from).and_then(AsyncFd::new);
        if let Err(error) = &events {
            tracing::debug!(%error, "files are looked at now and then, because the kernel does not tell of changes");
        }
        Self(events.ok())
    }

    /// Hears of a folder from now on; one that is heard of stays so, and one that was made anew is heard of again.
    pub(crate) fn watch(&self, folder: &Path) {
        if let Some(events) = &self.0 {
            // What cannot be watched is looked at.
            let _watch = inotify::add_watch(events, folder, TOLD);
        }
    }

    /// Hears of the folder that a file is in, and of the one that it really is in.
    pub(crate) async fn watch_file(&self, path: &Path) {
        let folder = |path: &Path| match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _here => PathBuf::from("."),
        };
        self.watch(&folder(path));
        if let Ok(real) = tokio::fs::canonicalize(path).await {
            self.watch(&folder(&real));
        }
    }

    /// Returns when something has changed in one of the folders.
    pub(crate) async fn changed(&self) {
        let Some(events) = &self.0 else { return std::future::pending().await };
        loop {
            let Ok(mut ready) = events.readable().await else { return std::future::pending().await };
            // What it was is seen by looking.
            let mut buffer = [0; 4096];
            let read = ready.try_io(|events| Ok(rustix::io::read(events, &mut buffer)?));
            match read {
                Ok(Ok(_bytes)) => return,
                Ok(Err(_broken)) => return std::future::pending().await,
                Err(_nothing_yet) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_file_that_is_written_is_told_of_also_by_way_of_a_link() {
        let folder = TempDir::new().unwrap();
        let (real, links) = (folder.path().join("real"), folder.path().join("links"));
        fs::create_dir(&real).unwrap();
        fs::create_dir(&links).unwrap();
        fs::write(real.join("a"), "1").unwrap();
        symlink(real.join("a"), links.join("a")).unwrap();
        let events = Events::start();
        events.watch_file(&links.join("a")).await;
        fs::write(real.join("a"), "2").unwrap();
        timeout(Duration::from_secs(20), events.changed()).await.expect("it is told of");
    }
}
