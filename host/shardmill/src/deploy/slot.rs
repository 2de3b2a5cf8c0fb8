//! Where a processor's plugin is, of which one version is current.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use shardmill_plugin::{Digest, Failure, Instance, Place, Plugin, Pool, Pooled};
use tokio::sync::MutexGuard as WorkGuard;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::shown::{Refused, Shown};
use super::{CLOSE_WITHIN, Running, Setup};

/// Where a processor's plugin is. Of its versions one is current, and every call is one version's from its beginning to its
/// end.
///
/// What is on loan of all versions together is no more than the processor may have, because their pools share their places.
/// Of a version that is not current any more, idle instances end at once, and those on loan when their call is over; and the
/// next version waits for the former. So there are never more than twice as many instances as the processor may have, and
/// one that is being tried.
pub(crate) struct Slot {
    processor: String,
    current: Mutex<Arc<Version>>,
    /// Instances that are not called any more and have not ended yet.
    ending: TaskTracker,
    setup: Mutex<Arc<Setup>>,
    /// The last version of the processor's file that was taken.
    own: Mutex<Digest>,
    /// Held while another version is made: one after the other.
    work: tokio::sync::Mutex<Work>,
    told: Mutex<Told>,
}

/// What whoever makes another version has to know.
#[derive(Debug)]
pub(crate) struct Work {
    /// What was in the processor's file when it was last looked at, whether or not that was taken.
    pub(crate) file: Digest,
}

/// One version of the plugin.
pub(crate) struct Version {
    pool: Pool,
    /// As a text.
    plugin: Arc<str>,
    running: Running,
    /// Closed when it is not current any more.
    calls: TaskTracker,
}

/// A call, which is one version's.
pub(crate) struct Call<'a> {
    slot: &'a Slot,
    version: Arc<Version>,
    _counted: TaskTrackerToken,
}

#[derive(Debug, Default)]
struct Told {
    refused: Option<Refused>,
    file: Option<String>,
}

// === impl Slot ===

impl Slot {
    /// With the version that the process starts with, which came from the processor's file.
    pub(crate) fn new(pool: Pool, setup: Setup) -> Self {
        let (file, from) = (pool.plugin().module().digest(), setup.path.display().to_string());
        Self {
            processor: pool.plugin().processor().to_owned(),
            current: Mutex::new(Arc::new(Version::new(pool, from))),
            ending: TaskTracker::new(),
            setup: Mutex::new(Arc::new(setup)),
            own: Mutex::new(file),
            work: tokio::sync::Mutex::new(Work { file }),
            told: Mutex::default(),
        }
    }

    pub(crate) fn processor(&self) -> &str {
        &self.processor
    }

    /// Waits for the right to make a call.
    pub(crate) async fn place(&self) -> Result<Place, Failure> {
        // Its places are those of all versions.
        let pool = self.current().pool.clone();
        pool.place().await
    }

    /// Begins a call of the version that is current now.
    pub(crate) fn enter(&self) -> Call<'_> {
        let current = self.current();
        // Under the lock: nobody may switch between the two, and take this version for one that has no calls.
        Call { slot: self, version: Arc::clone(&current), _counted: current.calls.token() }
    }

    /// The digest of the version that is current now.
    pub(crate) fn plugin(&self) -> Arc<str> {
        Arc::clone(&self.current().plugin)
    }

    pub(crate) fn has_hooks(&self) -> bool {
        self.current().pool.plugin().module().hooks()
    }

    pub(crate) fn running(&self) -> Running {
        self.current().running.clone()
    }

    /// The pool of the version that is current now.
    pub(crate) fn pool(&self) -> Pool {
        self.current().pool.clone()
    }

    /// What the configuration says of the plugin.
    pub(crate) fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.setup.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says what it says now; for who has the right to make another version.
    pub(crate) fn set_setup(&self, setup: Setup) {
        *self.setup.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(setup);
    }

    /// The processor's file, and the last version of it that was taken: it may be another one that runs, because somebody
    /// has deployed that in other ways.
    pub(crate) fn own(&self) -> (PathBuf, Digest) {
        (self.setup().path.clone(), *self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says that what is in the processor's file was taken; for who has the right to make another version.
    pub(crate) fn set_own(&self, file: Digest) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// The right to make another version, and what that takes.
    pub(crate) async fn work(&self) -> WorkGuard<'_, Work> {
        self.work.lock().await
    }

    /// Puts another version in the place of the current one, which is returned. Calls of that one go on to their end, and its
    /// instances end with them.
    pub(crate) fn switch(self: &Arc<Self>, plugin: Plugin, warm: Vec<Instance>, from: String) -> Running {
        self.set_refused(None);
        let before = {
            let mut current = self.current();
            let next = Version::new(current.pool.followed_by(plugin, warm), from);
            std::mem::replace(&mut *current, Arc::new(next))
        };
        before.calls.close();
        let running = before.running.clone();
        // Counted from now on: the next version waits for it.
        tokio::spawn(retire(Arc::clone(self), before, self.ending.token()));
        running
    }

    /// Waits until instances that are not called any more have ended; not for calls.
    pub(crate) async fn until_ended(&self) {
        self.ending.close();
        // Each of them has had its time then.
        let _elapsed = timeout(2 * CLOSE_WITHIN, self.ending.wait()).await;
        self.ending.reopen();
    }

    /// Waits for all calls, and ends all instances. No call comes any more, and no version.
    pub(crate) async fn close(&self) {
        // The places of all versions, so all calls.
        self.pool().close().await;
        self.ending.close();
        self.ending.wait().await;
    }

    /// What is told of it where this runs.
    pub(crate) fn shown(&self, Running { digest, from, since }: Running) -> Shown {
        let told = self.told();
        Shown {
            digest: digest.to_string(),
            from,
            since: time(since),
            refused: told.refused.clone(),
            file: told.file.clone(),
        }
    }

    /// Says what was not taken: its digest, where it came from, and why. Whether that is news.
    pub(crate) fn set_refused(&self, refused: Option<(Digest, String, String)>) -> bool {
        let mut told = self.told();
        let Some((digest, from, reason)) = refused else {
            told.refused = None;
            return false;
        };
        let digest = digest.to_string();
        let is_known = told.refused.as_ref().is_some_and(|told| told.digest == digest && told.reason == reason);
        if !is_known {
            told.refused = Some(Refused { digest, from, reason, since: time(SystemTime::now()) });
        }
        !is_known
    }

    /// Tells no more that this was not taken.
    pub(crate) fn forget_refused(&self, digest: &Digest) {
        let digest = digest.to_string();
        let mut told = self.told();
        told.refused = told.refused.take().filter(|refused| refused.digest != digest);
    }

    /// Says what is wrong with the processor's file. Whether that is news.
    pub(crate) fn set_file_trouble(&self, trouble: Option<String>) -> bool {
        let mut told = self.told();
        let is_news = told.file != trouble;
        told.file = trouble;
        is_news
    }

    fn current(&self) -> MutexGuard<'_, Arc<Version>> {
        // It is replaced whole.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what is left of a version that is not current any more: instances that are idle now, and after the last call those
/// that were given back in the moment in which it was switched. The others end with their calls.
async fn retire(slot: Arc<Slot>, version: Arc<Version>, ending: TaskTrackerToken) {
    end_idle(&slot, &version).await;
    drop(ending);
    version.calls.wait().await;
    let _ending = slot.ending.token();
    end_idle(&slot, &version).await;
    tracing::debug!(processor = slot.processor, plugin = %version.plugin, "nothing is left of the version before");
}

async fn end_idle(slot: &Slot, version: &Version) {
    if timeout(CLOSE_WITHIN, version.pool.end_idle()).await.is_err() {
        tracing::warn!(
            processor = slot.processor, plugin = %version.plugin,
            "the shutdown of the version before took too long and was ended"
        );
    }
}

fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

// === impl Version ===

impl Version {
    fn new(pool: Pool, from: String) -> Self {
        let digest = pool.plugin().module().digest();
        Self {
            plugin: digest.to_string().into(),
            running: Running { digest, from, since: SystemTime::now() },
            calls: TaskTracker::new(),
            pool,
        }
    }
}

// === impl Call ===

impl Call<'_> {
    /// The digest of the plugin whose call this is.
    pub(crate) fn plugin(&self) -> Arc<str> {
        Arc::clone(&self.version.plugin)
    }

    /// An instance.
    pub(crate) async fn lend(&self, place: Place) -> Result<Pooled, Failure> {
        self.version.pool.lend(place).await
    }

    /// Gives the instance back; one of a version that is not current any more ends.
    pub(crate) fn give_back(&self, instance: Pooled) {
        if !self.version.calls.is_closed() {
            return drop(instance);
        }
        let ending = self.slot.ending.token();
        tokio::spawn(async move {
            let _ending = ending;
            // One that hangs is not waited for.
            let _ended = timeout(CLOSE_WITHIN, instance.end()).await;
        });
    }
}
