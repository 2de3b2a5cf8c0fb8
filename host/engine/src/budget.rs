//! The bytes that records in flight may take, shared by all shards of a process.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits are counted in KiB, because a semaphore counts no further than 2^32 of them at a time.
const UNIT: u64 = 1024;

/// A bounded number of bytes. A page is reserved before it is read, so that memory stays bounded whatever arrives.
#[derive(Debug, Clone)]
pub struct Budget {
    units: Arc<Semaphore>,
    total: u32,
}

/// Bytes that are taken from the budget until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    permit: OwnedSemaphorePermit,
}

// === impl Budget ===

impl Budget {
    /// A budget of so many bytes, rounded down to whole KiB, at least 1 KiB and at most 4 TiB.
    pub fn new(bytes: u64) -> Self {
        let total = u32::try_from((bytes / UNIT).max(1)).unwrap_or(u32::MAX);
        Self { units: Arc::new(Semaphore::new(total as usize)), total }
    }

    /// Waits until so many bytes are free and takes them. More than the whole budget takes the whole budget.
    /// First come, first served, so that nobody starves.
    pub async fn reserve(&self, bytes: u64) -> Reservation {
        let units = units(bytes).min(self.total);
        let permit = Arc::clone(&self.units).acquire_many_owned(units).await;
        Reservation { permit: permit.expect("this semaphore is never closed") }
    }

    /// The bytes that are free.
    pub fn available(&self) -> u64 {
        self.units.available_permits() as u64 * UNIT
    }
}

// === impl Reservation ===

impl Reservation {
    /// Gives back what is over so many bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.permit.num_permits().saturating_sub(units(bytes) as usize);
        drop(self.permit.split(surplus));
    }

    /// The bytes that are held.
    pub fn bytes(&self) -> u64 {
        self.permit.num_permits() as u64 * UNIT
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_reserved_is_not_there_for_others_until_it_is_given_back() {
        let budget = Budget::new(10 * UNIT);
        let mut first = budget.reserve(8 * UNIT).await;
        assert_eq!(budget.available(), 2 * UNIT);
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(20), budget.reserve(3 * UNIT));
        assert!(waiting.await.is_err());
        first.shrink_to(4 * UNIT);
        assert_eq!(first.bytes(), 4 * UNIT);
        let second = budget.reserve(6 * UNIT).await;
        assert_eq!(budget.available(), 0);
        drop((first, second));
        assert_eq!(budget.available(), 10 * UNIT);
    }

    #[tokio::test]
    async fn more_than_all_takes_all() {
        let budget = Budget::new(10 * UNIT);
        assert_eq!(budget.reserve(1 << 40).await.bytes(), 10 * UNIT);
    }
}
