//! Instances of one plugin, bounded in number and used again.
//!
//! An instance that has had its number of calls, or whose memory has grown, is replaced, and nobody waits for that: its
//! successor is started beside it while it works, and it ends when its place is free already. So there may be two more for
//! a while than the pool has places, one that starts and one that ends; never more, so that a guest cannot make them pile
//! up by starting slowly or refusing to end.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::machine::End;
use crate::{Failure, Instance, Plugin};

/// A bounded number of instances of one plugin, reused call after call. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    plugin: Plugin,
    size: u32,
    /// One for each instance that is on loan, and for what is left of one that broke down.
    permits: Arc<Semaphore>,
    /// One, for an instance that is started to take another one's place.
    starting: Arc<Semaphore>,
    /// One, for an instance that ends and has no place any more.
    ending: Arc<Semaphore>,
    idle: Mutex<Idle>,
}

/// The instances that wait for a call.
#[derive(Default)]
struct Idle {
    /// The last one that was used is used first: its memory is warm, and the others' may be swapped out. So the first one
    /// has waited longest.
    instances: VecDeque<Waiting>,
    /// A successor has come, and the one whose place it is to take was on loan: the next one that comes back and should
    /// be replaced ends.
    is_owed: bool,
    /// Somebody looks after those that wait too long.
    is_watched: bool,
    /// Another pool has taken this one's places: nothing is started here to be used later.
    is_followed: bool,
}

struct Waiting {
    instance: Instance,
    since: Instant,
}

/// The right to have one instance on loan. Pools that follow one another share their places, so that a place that was
/// waited for while one of them was followed by the next is as good there.
#[derive(Debug)]
pub struct Place(OwnedSemaphorePermit);

/// An instance on loan. It goes back to its pool when this is dropped, if it is still usable.
pub struct Pooled {
    pool: Arc<Inner>,
    instance: Option<Instance>,
}

// === impl Pool ===

impl Pool {
    /// How many instances there may be beyond a pool's size, while some are replaced.
    pub const BEYOND: u32 = 2;

    /// A pool of at most so many instances (1 or more); none is made before it is needed.
    pub(crate) fn new(plugin: Plugin, instances: usize) -> Self {
        let size = u32::try_from(instances.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self::with(plugin, size, Arc::new(Semaphore::new(size as usize)))
    }

    fn with(plugin: Plugin, size: u32, permits: Arc<Semaphore>) -> Self {
        let one = || Arc::new(Semaphore::new(1));
        let (starting, ending, idle) = (one(), one(), Mutex::default());
        Self(Arc::new(Inner { plugin, size, permits, starting, ending, idle }))
    }

    /// The plugin whose instances these are.
    pub fn plugin(&self) -> &Plugin {
        &self.0.plugin
    }

    /// A pool of another version of the plugin. The two share their places: what is on loan of both together is no more
    /// than one of them lends. `warm` are instances of that version, which wait for their first call.
    /// Instances of this one have no successors any more.
    pub fn followed_by(&self, plugin: Plugin, warm: Vec<Instance>) -> Pool {
        self.0.idle().is_followed = true;
        let next = Self::with(plugin, self.0.size, Arc::clone(&self.0.permits));
        {
            let mut idle = next.0.idle();
            warm.into_iter().for_each(|instance| next.0.push(&mut idle, instance));
        }
        next
    }

    /// An instance; waits while all are on loan.
    ///
    /// # Errors
    /// If none is idle and a new one does not start, or if the pool is closed.
    pub async fn get(&self) -> Result<Pooled, Failure> {
        self.lend(self.place().await?).await
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// If the pool is closed.
    pub async fn place(&self) -> Result<Place, Failure> {
        let permit = Arc::clone(&self.0.permits).acquire_owned().await;
        permit.map(Place).map_err(|_| Failure::Host("the pool of instances is closed".to_owned()))
    }

    /// An instance, for somebody who has a place of this pool or of one before or after it.
    ///
    /// # Errors
    /// If none is idle and a new one does not start.
    pub async fn lend(&self, Place(permit): Place) -> Result<Pooled, Failure> {
        let idle = self.0.idle().instances.pop_back();
        let instance = match idle {
            Some(Waiting { mut instance, .. }) => {
                instance.occupy(permit);
                instance
            }
            None => self.0.plugin.start(Some(permit)).await?,
        };
        if instance.is_at_last_call() && self.0.idle().instances.is_empty() {
            // The next call finds it started, or nearly so.
            self.0.start_successor(End::Calls);
        }
        Ok(Pooled { pool: Arc::clone(&self.0), instance: Some(instance) })
    }

    /// Waits for the instances that are on loan, tells all of them that they will not be called again, frees their
    /// memory, and lends no more. A guest's failure to end is logged.
    pub async fn close(&self) {
        let Ok(_all) = self.0.permits.acquire_many(self.0.size).await else { return };
        self.0.permits.close();
        // One that is being started is not needed, and ends with the others.
        let _started = self.0.starting.acquire().await;
        self.0.starting.close();
        self.end_idle().await;
        let _ended = self.0.ending.acquire().await;
        self.0.ending.close();
    }

    /// Tells the instances that wait for a call that none comes, and drops them. A guest's failure to end is logged. For a
    /// pool that is followed by another one, whose places stay open.
    pub async fn end_idle(&self) {
        let idle = std::mem::take(&mut self.0.idle().instances);
        // At once: whoever waits for them waits a while only, and one that hangs must not keep the others from hearing it.
        let mut ending = JoinSet::new();
        for Waiting { instance, .. } in idle {
            let plugin = self.0.plugin.clone();
            ending.spawn(async move { plugin.end(instance).await });
        }
        while ending.join_next().await.is_some() {}
    }

    /// How many instances there are, on loan or waiting for a call. What is on loan of pools that share its places counts
    /// as well.
    pub fn instances(&self) -> usize {
        let lent = (self.0.size as usize).saturating_sub(self.0.permits.available_permits());
        (lent + self.idle()).min(self.0.size as usize)
    }

    /// How many instances wait for a call.
    pub fn idle(&self) -> usize {
        self.0.idle().instances.len()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pool({:?}, {} idle)", self.0.plugin, self.idle())
    }
}

// === impl Inner ===

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        // Pushing and popping leaves the list whole, whatever panics elsewhere.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An instance comes back from a call.
    fn take_back(self: &Arc<Self>, mut instance: Instance) {
        let permit = instance.vacate();
        match instance.spent() {
            Some(End::Memory) => {
                let mut idle = self.idle();
                if std::mem::take(&mut idle.is_owed) {
                    drop(idle);
                    return self.end(instance, End::Memory, permit);
                }
                // It works on until its successor is there.
                self.push(&mut idle, instance);
                drop(idle);
                self.start_successor(End::Memory);
            }
            Some(end) => return self.end(instance, end, permit),
            None => self.push(&mut self.idle(), instance),
        }
        // Whoever waits for it finds the instance.
        drop(permit);
    }

    fn push(self: &Arc<Self>, idle: &mut Idle, instance: Instance) {
        idle.instances.push_back(Waiting { instance, since: Instant::now() });
        if idle.instances.len() > 1 && !idle.is_watched {
            let pool = Arc::downgrade(self);
            idle.is_watched = spawn(let_go(pool));
        }
    }

    /// Starts an instance beside the others, unless that is being done already. What it is for says what becomes of it: an
    /// instance that has had its calls ends by itself, and one that has grown when its successor is there.
    fn start_successor(self: &Arc<Self>, of: End) {
        let Ok(permit) = Arc::clone(&self.starting).try_acquire_owned() else { return };
        {
            let idle = self.idle();
            if idle.is_followed || (of == End::Memory && idle.is_owed) {
                return;
            }
        }
        let pool = Arc::clone(self);
        spawn(async move {
            match pool.plugin.start(None).await {
                Ok(instance) => pool.take_in(instance, of),
                // What it was to replace works on, or the next call says so.
                Err(failure) => {
                    let (processor, guest) = (pool.plugin.processor(), pool.plugin.module().name());
                    tracing::debug!(processor, guest, %failure, "no instance starts to take another one's place");
                }
            }
            drop(permit);
        });
    }

    /// A successor has started.
    fn take_in(self: &Arc<Self>, instance: Instance, of: End) {
        let mut idle = self.idle();
        if idle.is_followed {
            drop(idle);
            return self.end(instance, End::Closed, None);
        }
        self.push(&mut idle, instance);
        if of != End::Memory {
            return;
        }
        let grown = idle.instances.iter().position(|waiting| waiting.instance.spent() == Some(End::Memory));
        match grown.and_then(|place| idle.instances.remove(place)) {
            Some(Waiting { instance, .. }) => {
                drop(idle);
                self.end(instance, End::Memory, None);
            }
            None => idle.is_owed = true,
        }
    }

    /// Ends an instance that will not be called again. Its place is free at once, unless another one is ending still: then
    /// it is when this one has ended.
    fn end(self: &Arc<Self>, mut instance: Instance, end: End, permit: Option<OwnedSemaphorePermit>) {
        instance.ends_as(end);
        let room = Arc::clone(&self.ending).try_acquire_owned().ok();
        let place = if room.is_some() { None } else { permit };
        let plugin = self.plugin.clone();
        spawn(async move {
            plugin.end(instance).await;
            drop((room, place));
        });
    }
}

/// Lets go of instances that have waited too long, until there is one.
async fn let_go(pool: Weak<Inner>) {
    loop {
        let Some(due) = next_due(&pool) else { return };
        sleep_until(due).await;
        let Some(pool) = pool.upgrade() else { return };
        // One after another, so that they do not count beside those that take their places.
        let Ok(room) = Arc::clone(&pool.ending).acquire_owned().await else { return };
        let instance = {
            let mut idle = pool.idle();
            let keep = pool.plugin.limits().keep_idle;
            let is_due = |waiting: &mut Waiting| waiting.since.elapsed() >= keep;
            if idle.instances.len() > 1 { idle.instances.pop_front_if(is_due) } else { None }
        };
        if let Some(Waiting { mut instance, .. }) = instance {
            instance.ends_as(End::Idle);
            pool.plugin.end(instance).await;
        }
        drop(room);
    }
}

/// When the next instance has waited too long; `None` ends the watch.
fn next_due(pool: &Weak<Inner>) -> Option<Instant> {
    let pool = pool.upgrade()?;
    let mut idle = pool.idle();
    if idle.instances.len() < 2 {
        idle.is_watched = false;
        return None;
    }
    let since = idle.instances.front()?.since;
    // A time that never comes is not waited for.
    let due = since.checked_add(pool.plugin.limits().keep_idle);
    idle.is_watched = due.is_some();
    due
}

/// Starts a task; outside of a runtime it is dropped, and what it holds with it.
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> bool {
    Handle::try_current().map(|runtime| drop(runtime.spawn(task))).is_ok()
}

// === impl Pooled ===

impl Pooled {
    /// Tells the instance that no call comes any more, and drops it in place of giving it back. Its place is free at once.
    /// A guest's failure to end is logged.
    pub async fn end(mut self) {
        let Some(mut instance) = self.instance.take().filter(Instance::is_usable) else { return };
        drop(instance.vacate());
        self.pool.plugin.end(instance).await;
    }
}

impl Deref for Pooled {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        self.instance.as_ref().expect("it is taken out in drop only")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Instance {
        self.instance.as_mut().expect("it is taken out in drop only")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take().filter(Instance::is_usable) {
            self.pool.take_back(instance);
        }
    }
}
