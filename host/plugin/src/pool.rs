use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::{Failure, Instance, Plugin};

/// A bounded number of instances of one plugin, reused call after call. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    plugin: Plugin,
    size: u32,
    /// One for each instance that is on loan, and for what is left of one that broke down.
    permits: Arc<Semaphore>,
    /// The last one that was used is used first: its memory is warm, and the others' may be swapped out.
    idle: Mutex<Vec<Instance>>,
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
    /// A pool of at most so many instances (1 or more); none is made before it is needed.
    pub(crate) fn new(plugin: Plugin, instances: usize) -> Self {
        let size = u32::try_from(instances.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let permits = Arc::new(Semaphore::new(size as usize));
        Self(Arc::new(Inner { plugin, size, permits, idle: Mutex::default() }))
    }

    /// The plugin whose instances these are.
    pub fn plugin(&self) -> &Plugin {
        &self.0.plugin
    }

    /// A pool of another version of the plugin. The two share their places: what is on loan of both together is no more
    /// than one of them lends. `warm` are instances of that version, which wait for their first call.
    pub fn followed_by(&self, plugin: Plugin, warm: Vec<Instance>) -> Pool {
        let (size, permits) = (self.0.size, Arc::clone(&self.0.permits));
        Pool(Arc::new(Inner { plugin, size, permits, idle: Mutex::new(warm) }))
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
        let idle = self.0.idle().pop();
        let instance = match idle {
            Some(mut instance) => {
                instance.occupy(permit);
                instance
            }
            None => self.0.plugin.start(Some(permit)).await?,
        };
        Ok(Pooled { pool: Arc::clone(&self.0), instance: Some(instance) })
    }

    /// Waits for the instances that are on loan, tells all of them that they will not be called again, frees their
    /// memory, and lends no more. A guest's failure to end is logged.
    pub async fn close(&self) {
        let Ok(_all) = self.0.permits.acquire_many(self.0.size).await else { return };
        self.0.permits.close();
        self.end_idle().await;
    }

    /// Tells the instances that wait for a call that none comes, and drops them. A guest's failure to end is logged. For a
    /// pool that is followed by another one, whose places stay open.
    pub async fn end_idle(&self) {
        let idle = std::mem::take(&mut *self.0.idle());
        // At once: whoever waits for them waits a while only, and one that hangs must not keep the others from hearing it.
        let end = |mut instance: Instance| async move {
            let told = instance.shutdown().await;
            instance.dismantle().await;
            told
        };
        let mut ending: JoinSet<_> = idle.into_iter().map(end).collect();
        while let Some(ended) = ending.join_next().await {
            if let Ok(Err(failure)) = ended {
                self.0.warn(&failure);
            }
        }
    }

    /// How many instances there are, on loan or waiting for a call. What is on loan of pools that share its places counts
    /// as well.
    pub fn instances(&self) -> usize {
        let lent = (self.0.size as usize).saturating_sub(self.0.permits.available_permits());
        (lent + self.idle()).min(self.0.size as usize)
    }

    /// How many instances wait for a call.
    pub fn idle(&self) -> usize {
        self.0.idle().len()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pool({:?}, {} idle)", self.0.plugin, self.idle())
    }
}

// === impl Inner ===

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Vec<Instance>> {
        // Pushing and popping leaves the list whole, whatever panics elsewhere.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn(&self, failure: &Failure) {
        let (processor, guest) = (self.plugin.processor(), self.plugin.module().name());
        tracing::warn!(processor, guest, %failure, "a guest failed when it was shut down");
    }
}

// === impl Pooled ===

impl Pooled {
    /// Tells the instance that no call comes any more, and drops it in place of giving it back. Its place is free at once.
    /// A guest's failure to end is logged.
    pub async fn end(mut self) {
        let Some(mut instance) = self.instance.take().filter(Instance::is_usable) else { return };
        drop(instance.vacate());
        if let Err(failure) = instance.shutdown().await {
            self.pool.warn(&failure);
        }
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
        if let Some(mut instance) = self.instance.take().filter(Instance::is_usable) {
            let permit = instance.vacate();
            self.pool.idle().push(instance);
            // Whoever waits for it finds the instance.
            drop(permit);
        }
    }
}
