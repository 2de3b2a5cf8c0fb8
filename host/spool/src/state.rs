//! What a spool holds, for whoever asks: kept in memory beside the database.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::Notify;

use crate::database::{Streams, row};

/// What is in a spool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Depth {
    /// What its files take on the disk.
    pub disk_bytes: u64,
    /// By stream, as it was named when records were stored. A stream stays here when nothing of it is left.
    pub streams: BTreeMap<String, StreamDepth>,
}

/// What is in a spool of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamDepth {
    /// Records that wait to be sent.
    pub records: u64,
    /// Their partition keys and payloads.
    pub bytes: u64,
    /// Records that are set aside, because they cannot be sent.
    pub set_aside: u64,
    /// When the first of those that wait was stored.
    pub oldest: Option<SystemTime>,
}

/// Shared by the handles and the thread.
#[derive(Debug, Default)]
pub(crate) struct State {
    inner: Mutex<Inner>,
    /// Something was stored or removed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    depth: Depth,
    /// Records that are on their way into the spool.
    storing: HashMap<Arc<str>, u64>,
    /// Streams whose records somebody sends.
    senders: HashSet<Arc<str>>,
    /// Whether nobody answers any more.
    is_closed: bool,
}

/// Records that are on their way into the spool: for as long as this lives, wherever it ends.
#[derive(Debug)]
pub(crate) struct Storing {
    state: Arc<State>,
    stream: Arc<str>,
    records: u64,
}

// === impl State ===

impl State {
    pub(crate) fn depth(&self) -> Depth {
        self.lock().depth.clone()
    }

    pub(crate) fn depth_of(&self, stream: &str) -> StreamDepth {
        self.lock().depth.streams.get(stream).copied().unwrap_or_default()
    }

    /// The streams of which records wait.
    pub(crate) fn streams(&self) -> Vec<String> {
        let inner = self.lock();
        let waiting = inner.depth.streams.iter().filter(|(_, depth)| depth.records > 0);
        waiting.map(|(stream, _)| stream.clone()).collect()
    }

    /// Whether records of a stream wait, or are on their way. A spool that is closed holds nobody up.
    pub(crate) fn holds(&self, stream: &str) -> bool {
        let inner = self.lock();
        let waits = || inner.depth.streams.get(stream).is_some_and(|found| found.records > 0);
        !inner.is_closed && (inner.storing.contains_key(stream) || waits())
    }

    pub(crate) fn storing(self: &Arc<Self>, stream: &Arc<str>, records: u64) -> Storing {
        *self.lock().storing.entry(Arc::clone(stream)).or_default() += records;
        Storing { state: Arc::clone(self), stream: Arc::clone(stream), records }
    }

    fn ends(&self, stream: &str, records: u64) {
        let mut inner = self.lock();
        if let Some(storing) = inner.storing.get_mut(stream) {
            *storing = storing.saturating_sub(records);
            if *storing == 0 {
                inner.storing.remove(stream);
                drop(inner);
                self.changed.notify_waiters();
            }
        }
    }

    /// From now on nobody answers; whether somebody did before.
    pub(crate) fn closes(&self) -> bool {
        let was_open = !std::mem::replace(&mut self.lock().is_closed, true);
        self.changed.notify_waiters();
        was_open
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Whether nobody else sends the records of a stream: then it is the caller's until [`gives_back`](Self::gives_back).
    pub(crate) fn takes(&self, stream: &Arc<str>) -> bool {
        self.lock().senders.insert(Arc::clone(stream))
    }

    pub(crate) fn gives_back(&self, stream: &str) {
        self.lock().senders.remove(stream);
    }

    /// How it is now. The streams of which that is something else than before.
    pub(crate) fn set(&self, streams: &Streams, disk_bytes: u64) -> Vec<(Arc<str>, StreamDepth)> {
        let mut changed = Vec::new();
        let mut inner = self.lock();
        for (name, stream) in streams {
            let depth = StreamDepth {
                records: stream.records,
                bytes: stream.bytes,
                set_aside: stream.aside,
                oldest: stream.oldest.map(row::time),
            };
            match inner.depth.streams.get_mut(&**name) {
                Some(found) if *found == depth => continue,
                Some(found) => *found = depth,
                None => {
                    inner.depth.streams.insert(name.to_string(), depth);
                }
            }
            changed.push((Arc::clone(name), depth));
        }
        inner.depth.disk_bytes = disk_bytes;
        drop(inner);
        if !changed.is_empty() {
            self.changed.notify_waiters();
        }
        changed
    }

    /// Waits until records of a stream wait, or nobody answers any more.
    pub(crate) async fn until_some(&self, stream: &str) {
        self.until(|state| state.is_closed() || state.depth_of(stream).records > 0).await;
    }

    /// Waits until no records of a stream wait or are on their way, or nobody answers any more.
    pub(crate) async fn until_none(&self, stream: &str) {
        self.until(|state| !state.holds(stream)).await;
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before the look, so that nothing is missed in between.
            changed.as_mut().enable();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Storing ===

impl Drop for Storing {
    fn drop(&mut self) {
        self.state.ends(&self.stream, self.records);
    }
}
