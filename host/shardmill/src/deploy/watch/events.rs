//! A hint that it is time to look at files: what the kernel tells of their folders.
//!
//! It is a hint and no more, because it does not tell everything: nothing of network file systems, nothing of a link in the
//! middle of a path, nothing where a user's watches are used up. All of that is seen at the next look.

use std::path::Path;

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
pub(super) struct Events(Option<AsyncFd<OwnedFd>>);

// === impl Events ===

impl Events {
    /// Within a runtime.
    pub(super) fn start() -> Self {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        #[expect(deprecated, reason = "what takes its place is `unsafe`, and asks for what an `OwnedFd` keeps anyway")]
        let events = events.map_err(std::io::Error::from).and_then(AsyncFd::new);
        if let Err(error) = &events {
            tracing::debug!(%error, "files are looked at once a second, because the kernel does not tell of changes");
        }
        Self(events.ok())
    }

    /// Hears of a folder from now on; one that is heard of stays so, and one that was made anew is heard of again.
    pub(super) fn watch(&self, folder: &Path) {
        if let Some(events) = &self.0 {
            // What cannot be watched is looked at.
            let _watch = inotify::add_watch(events, folder, TOLD);
        }
    }

    /// Returns when something has changed in one of the folders.
    pub(super) async fn changed(&self) {
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
