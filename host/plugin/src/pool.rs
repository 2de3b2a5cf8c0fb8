use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
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

    /// An instance; waits while all are on loan.
    ///
    /// # Errors
    /// If none is idle and a new one does not start, or if the pool is closed.
    pub async fn get(&self) -> Result<Pooled, Failure> {
        let permit = Arc::clone(&self.0.permits).acquire_owned().await;
        let permit = permit.map_err(|_| Failure::Host("the pool of instances is closed".to_owned()))?;
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
                let (processor, guest) = (self.0.plugin.processor(), self.0.plugin.module().name());
                tracing::warn!(processor, guest, %failure, "a guest failed when it was shut down");
            }
        }
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
}

// === impl Pooled ===

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
