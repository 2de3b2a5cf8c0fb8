//! Instances of one plugin, bounded in number and used again.
//!
//! An instance that has had its number of calls, or whose memory has grown, is replaced, and nobody waits for that: its
//! successor is started beside it while it works, and it ends when its place is free already. So there may be two more for
//! a while than the pool has places, one that starts or has just started, and one that ends; never more, so that a guest
//! cannot make them pile up by starting slowly or refusing to end: of two that end, one keeps its place meanwhile or waits
//! for its turn among those that can be called.

mod idle;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use self::idle::{Idle, Waiting, Watch, let_go};
use crate::instance::Identity;
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
    /// One, for a call that waits for what is being started already.
    waiting: Semaphore,
    /// An instance has come that waits for a call, or none comes of the one that was being started.
    came: Notify,
    idle: Mutex<Idle>,
}

/// What a successor is started for.
enum For {
    /// One that ends by itself, after its last call.
    Last,
    /// One that has grown, and is to end when the successor is there.
    Grown(Identity),
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

    /// How many instances there may be of one processor, whose pools have this size: those of a pool, as many of the version
    /// before, and one that is being tried.
    pub const fn reserve(size: usize) -> usize {
        size.saturating_add(Self::BEYOND as usize).saturating_mul(2).saturating_add(1)
    }

    /// How many places there are: instances that can be on loan at a time.
    pub fn size(&self) -> usize {
        self.0.size as usize
    }

    /// A pool of at most so many instances (1 or more); none is made before it is needed.
    pub(crate) fn new(plugin: Plugin, instances: usize) -> Self {
        let size = u32::try_from(instances.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self::with(plugin, size, Arc::new(Semaphore::new(size as usize)))
    }

    fn with(plugin: Plugin, size: u32, permits: Arc<Semaphore>) -> Self {
        let one = || Arc::new(Semaphore::new(1));
        let (starting, ending, waiting) = (one(), one(), Semaphore::new(1));
        let (came, idle) = (Notify::new(), Mutex::default());
        Self(Arc::new(Inner { plugin, size, permits, starting, ending, waiting, came, idle }))
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
        let mut idle = self.0.pop();
        if idle.is_none() {
            self.0.wait_for_one().await;
            idle = self.0.pop();
        }
        let instance = match idle {
            Some(mut instance) => {
                instance.occupy(permit);
                instance
            }
            None => self.0.plugin.start(Some(permit)).await?,
        };
        if instance.is_at_last_call() && self.0.idle().instances.is_empty() {
            // The next call finds it started, or nearly so.
            self.0.start_successor(For::Last);
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

    /// The instance that a call is made on next.
    fn pop(&self) -> Option<Instance> {
        Some(self.idle().instances.pop_back()?.instance)
    }

    /// While an instance is being started, waits for that to end, or for any instance to come back: two that start take
    /// longer than one. One call waits; of several, others start theirs, or they would all have waited in vain but one.
    async fn wait_for_one(&self) {
        let Ok(_only) = self.waiting.try_acquire() else { return };
        let mut came = pin!(self.came.notified());
        // Asked after that, or what comes between the two would not be noticed.
        came.as_mut().enable();
        if self.starting.available_permits() == 0 && self.idle().instances.is_empty() {
            came.await;
        }
    }

    /// An instance comes back from a call.
    fn take_back(self: &Arc<Self>, mut instance: Instance) {
        let permit = instance.vacate();
        match instance.spent() {
            Some(End::Memory) => {
                let mut idle = self.idle();
                if idle.owing.take_if(|owing| owing.is_of(&instance)).is_some() {
                    drop(idle);
                    return self.end(instance, End::Memory, permit);
                }
                // It works on until its successor is there.
                let grown = instance.identity();
                self.push(&mut idle, instance);
                drop(idle);
                self.start_successor(For::Grown(grown));
            }
            Some(end) => return self.end(instance, end, permit),
            None => self.push(&mut self.idle(), instance),
        }
        // Whoever waits for it finds the instance.
        drop(permit);
    }

    fn push(self: &Arc<Self>, idle: &mut Idle, instance: Instance) {
        idle.instances.push_back(Waiting { instance, since: Instant::now() });
        if idle.instances.len() > 1 && idle.watch.is_none() {
            let pool = Arc::downgrade(self);
            idle.watch = spawn(let_go(pool)).as_ref().map(Watch::new);
        }
        self.came.notify_waiters();
    }

    /// Starts an instance beside the others, unless that is being done already, or one that was started before has not taken
    /// its place yet.
    fn start_successor(self: &Arc<Self>, of: For) {
        let Ok(permit) = Arc::clone(&self.starting).try_acquire_owned() else { return };
        {
            let mut idle = self.idle();
            if idle.is_followed || (matches!(of, For::Grown(_)) && idle.is_owing()) {
                return;
            }
        }
        let pool = Arc::clone(self);
        spawn(async move {
            match pool.plugin.start(None).await {
                Ok(instance) => pool.take_in(instance, of).await,
                // What it was to replace works on, or the next call says so.
                Err(failure) => {
                    let (processor, guest) = (pool.plugin.processor(), pool.plugin.module().name());
                    tracing::debug!(processor, guest, %failure, "no instance starts to take another one's place");
                }
            }
            drop(permit);
            pool.came.notify_waiters();
        });
    }

    /// A successor has started.
    async fn take_in(self: &Arc<Self>, mut instance: Instance, of: For) {
        {
            let mut idle = self.idle();
            if !idle.is_followed {
                self.push(&mut idle, instance);
                if let For::Grown(grown) = of {
                    idle.owing = Some(grown);
                }
                drop(idle);
                return self.settle();
            }
        }
        // Nobody needs it. As long as there is no room for its end, it counts as one that starts.
        let Ok(room) = Arc::clone(&self.ending).acquire_owned().await else { return };
        instance.ends_as(End::Closed);
        self.finish(instance, room, None);
    }

    /// Ends the instance whose successor is there, if it waits for a call and there is room for its end.
    fn settle(self: &Arc<Self>) {
        let (mut instance, room) = {
            let mut idle = self.idle();
            let Some(owing) = idle.owing.take_if(|owing| !owing.is_gone()) else {
                idle.owing = None;
                return;
            };
            let place = idle.instances.iter().position(|waiting| owing.is_of(&waiting.instance));
            let room = Arc::clone(&self.ending).try_acquire_owned();
            let (Some(place), Ok(room)) = (place, room) else {
                idle.owing = Some(owing);
                return;
            };
            let Some(Waiting { instance, .. }) = idle.instances.remove(place) else { return };
            (instance, room)
        };
        instance.ends_as(End::Memory);
        self.finish(instance, room, None);
    }

    /// Ends an instance that will not be called again. Its place is free at once, unless another one is ending still: then
    /// it is when this one has ended.
    fn end(self: &Arc<Self>, mut instance: Instance, end: End, permit: Option<OwnedSemaphorePermit>) {
        instance.ends_as(end);
        match Arc::clone(&self.ending).try_acquire_owned() {
            Ok(room) => self.finish(instance, room, None),
            Err(_) => self.finish(instance, None, permit),
        }
    }

    fn finish(
        self: &Arc<Self>,
        instance: Instance,
        room: impl Into<Option<OwnedSemaphorePermit>>,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let (plugin, pool, room) = (self.plugin.clone(), Arc::downgrade(self), room.into());
        spawn(async move {
            plugin.end(instance).await;
            drop((room, place));
            if let Some(pool) = pool.upgrade() {
                pool.settle();
            }
        });
    }
}

/// Starts a task; outside of a runtime it is dropped, and what it holds with it.
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Option<JoinHandle<()>> {
    Handle::try_current().map(|runtime| runtime.spawn(task)).ok()
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
