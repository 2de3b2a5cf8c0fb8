//! How many records may still be processed, where a run is to end after so many.
//!
//! A shard takes what its next batch may hold before it fills it, so that all shards together never hand over more; what
//! a batch does not use, or does not get done, goes back to the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shardmill_record::BatchLimits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The records that all shards of a process may process. Cheap to clone; all clones are one. By default there is no limit.
#[derive(Debug, Clone, Default)]
pub struct Allowance {
    limited: Option<Arc<Limited>>,
}

#[derive(Debug)]
struct Limited {
    free: Arc<Semaphore>,
    total: u64,
    spent: AtomicU64,
    used_up: CancellationToken,
}

/// One shard's part of it.
#[derive(Debug)]
pub(crate) struct Share {
    allowance: Allowance,
    /// For the batch that is being filled or processed.
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

// === impl Allowance ===

impl Allowance {
    /// So many records, and no more. More than 2^61 count as that.
    pub fn of(records: u64) -> Self {
        let total = records.min(Semaphore::MAX_PERMITS as u64);
        let limited = Limited {
            free: Arc::new(Semaphore::new(usize::try_from(total).unwrap_or(Semaphore::MAX_PERMITS))),
            total,
            spent: AtomicU64::new(0),
            used_up: CancellationToken::new(),
        };
        if total == 0 {
            limited.used_up.cancel();
        }
        Self { limited: Some(Arc::new(limited)) }
    }

    /// Returns when so many records are processed. Never if there is no limit.
    pub async fn used_up(&self) {
        match &self.limited {
            Some(limited) => limited.used_up.cancelled().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn share(&self) -> Share {
        Share { allowance: self.clone(), held: Mutex::new(None) }
    }
}

// === impl Share ===

impl Share {
    /// Returns when a record may be handed over. Cancel-safe.
    pub(crate) async fn available(&self) {
        let Some(limited) = &self.allowance.limited else { return };
        if self.held() == 0 {
            let permit = Arc::clone(&limited.free).acquire_owned().await;
            self.add(permit.expect("this semaphore is never closed"));
        }
    }

    /// Whether nothing may be handed over now, because others have what is left.
    pub(crate) fn must_wait(&self) -> bool {
        self.allowance.limited.as_ref().is_some_and(|limited| self.held() == 0 && limited.free.available_permits() == 0)
    }

    /// What a batch may hold: no more than the limits say, nor than is left.
    pub(crate) fn limits(&self, limits: &BatchLimits) -> BatchLimits {
        let Some(limited) = &self.allowance.limited else { return *limits };
        let wanted = limits.records.saturating_sub(self.held()).min(limited.free.available_permits());
        let more = u32::try_from(wanted).unwrap_or(u32::MAX);
        // What others took at the same moment is not there any more.
        if more > 0
            && let Ok(permit) = Arc::clone(&limited.free).try_acquire_many_owned(more)
        {
            self.add(permit);
        }
        BatchLimits { records: limits.records.min(self.held()), ..*limits }
    }

    /// Gives back what is over so many records.
    pub(crate) fn keep(&self, records: usize) {
        if let Some(permit) = &mut *self.lock()
            && let Some(surplus) = permit.num_permits().checked_sub(records)
        {
            drop(permit.split(surplus));
        }
    }

    /// So many records are processed. What is left is for the rest of the batch, until [`keep`](Self::keep) gives it back.
    pub(crate) fn spend(&self, records: usize) {
        let Some(limited) = self.allowance.limited.clone() else { return };
        if let Some(permit) = &mut *self.lock()
            && let Some(spent) = permit.split(records.min(permit.num_permits()))
        {
            spent.forget();
        }
        let before = limited.spent.fetch_add(records as u64, Ordering::SeqCst);
        if before + records as u64 >= limited.total {
            limited.used_up.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> usize {
        self.lock().as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    fn add(&self, permit: OwnedSemaphorePermit) {
        let mut held = self.lock();
        match &mut *held {
            Some(held) => held.merge(permit),
            None => *held = Some(permit),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const WIDE: BatchLimits = BatchLimits { records: 500, bytes: 1 << 20 };

    #[test]
    fn shards_never_hand_over_more_together_than_is_left() {
        let allowance = Allowance::of(700);
        let (one, other) = (allowance.share(), allowance.share());
        assert_eq!((one.limits(&WIDE).records, other.limits(&WIDE).records), (500, 200));
        // A batch that was not filled leaves the rest to the others.
        one.keep(20);
        assert_eq!(other.limits(&WIDE).records, 500);
        one.spend(5);
        one.spend(15);
        one.keep(0);
        other.spend(500);
        other.keep(0);
        assert_eq!(one.limits(&WIDE).records, 180);
        assert!(allowance.used_up().now_or_never().is_none());
        // What failed is to be processed, by whoever can.
        one.spend(100);
        one.keep(0);
        assert_eq!(other.limits(&WIDE).records, 80);
        assert!(one.available().now_or_never().is_none(), "nothing is left for this one");
        assert!(one.must_wait() && !other.must_wait());
        other.spend(80);
        assert!(allowance.used_up().now_or_never().is_some());
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let share = Allowance::default().share();
        assert_eq!(share.limits(&WIDE), WIDE);
        assert!(share.available().now_or_never().is_some() && !share.must_wait());
        share.keep(0);
        share.spend(1_000_000);
        assert_eq!(share.limits(&WIDE), WIDE);
    }

    #[tokio::test]
    async fn what_goes_back_wakes_who_waits_for_it() {
        let allowance = Allowance::of(1);
        let (one, other) = (allowance.share(), allowance.share());
        one.available().await;
        let waiting = tokio::spawn(async move {
            other.available().await;
            other.limits(&WIDE).records
        });
        tokio::task::yield_now().await;
        one.keep(0);
        assert_eq!(waiting.await.unwrap(), 1);
    }
}
