//! The bytes that records in flight may take, shared by all shards of a process.

use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Metrics;

/// Permits are counted in KiB, because a semaphore counts no further than 2^32 of them at a time.
const UNIT: u64 = 1024;

/// A bounded number of bytes. A page is reserved before it is read and until the last batch of it is processed, so that
/// memory stays bounded whatever arrives and however many shards there are.
#[derive(Debug, Clone)]
pub struct Budget {
    units: Arc<Semaphore>,
    total: u32,
    /// The bytes that are reserved, for the metrics.
    reserved: Gauge,
}

/// Bytes that are taken from the budget until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    permit: OwnedSemaphorePermit,
    reserved: Gauge,
}

// === impl Budget ===

impl Budget {
    /// A budget of so many bytes, rounded down to whole KiB, at least 1 KiB and at most 4 TiB.
    pub fn new(bytes: u64) -> Self {
        let total = u32::try_from((bytes / UNIT).max(1)).unwrap_or(u32::MAX);
        Self { units: Arc::new(Semaphore::new(total as usize)), total, reserved: Gauge::default() }
    }

    /// Shows in the metrics how large the budget is, and what of it is reserved.
    #[must_use]
    pub fn shown_in(self, metrics: &Metrics) -> Self {
        metrics.memory_budget.set(in_bytes(self.total as usize));
        Self { reserved: metrics.memory_reserved.clone(), ..self }
    }

    /// Waits until so many bytes are free and takes them. More than the whole budget takes the whole budget.
    /// First come, first served, so that nobody starves.
    pub async fn reserve(&self, bytes: u64) -> Reservation {
        let units = units(bytes).min(self.total);
        let permit = Arc::clone(&self.units).acquire_many_owned(units).await;
        let permit = permit.expect("this semaphore is never closed");
        self.reserved.inc_by(in_bytes(permit.num_permits()));
        Reservation { permit, reserved: self.reserved.clone() }
    }

    /// The bytes that are free.
    pub fn available(&self) -> u64 {
        self.units.available_permits() as u64 * UNIT
    }
}

// === impl Reservation ===

impl Reservation {
    /// Gives back what is over so many bytes; or, where they are more than was expected, takes what is missing as far as
    /// it is free. To wait for the rest would be to wait for others who may wait for the same.
    pub fn resize_to(&mut self, bytes: u64) {
        let (held, wanted) = (self.permit.num_permits(), units(bytes) as usize);
        if let Some(surplus) = held.checked_sub(wanted) {
            drop(self.permit.split(surplus));
        } else {
            let semaphore = Arc::clone(self.permit.semaphore());
            let missing = (wanted - held).min(semaphore.available_permits());
            let more = u32::try_from(missing).ok().and_then(|missing| semaphore.try_acquire_many_owned(missing).ok());
            if let Some(more) = more {
                self.permit.merge(more);
            }
        }
        self.reserved.inc_by(in_bytes(self.permit.num_permits()) - in_bytes(held));
    }

    /// The bytes that are held.
    pub fn bytes(&self) -> u64 {
        self.permit.num_permits() as u64 * UNIT
    }

    /// Whether so many bytes more could be reserved at once.
    pub fn leaves(&self, bytes: u64) -> bool {
        self.permit.semaphore().available_permits() >= units(bytes) as usize
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reserved.dec_by(in_bytes(self.permit.num_permits()));
    }
}

fn in_bytes(units: usize) -> i64 {
    i64::try_from(units as u64 * UNIT).unwrap_or(i64::MAX)
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
        first.resize_to(4 * UNIT);
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

    #[tokio::test]
    async fn more_than_was_expected_is_taken_as_far_as_it_is_free() {
        let budget = Budget::new(10 * UNIT);
        let other = budget.reserve(4 * UNIT).await;
        let mut reservation = budget.reserve(2 * UNIT).await;
        reservation.resize_to(5 * UNIT);
        assert_eq!((reservation.bytes(), budget.available()), (5 * UNIT, UNIT));
        reservation.resize_to(50 * UNIT);
        assert_eq!((reservation.bytes(), budget.available()), (6 * UNIT, 0));
        drop((reservation, other));
        assert_eq!(budget.available(), 10 * UNIT);
    }

    #[tokio::test]
    async fn the_metrics_show_what_is_reserved() {
        let metrics = Metrics::default();
        let budget = Budget::new(10 * UNIT).shown_in(&metrics);
        let reserved = || metrics.memory_reserved.get() as u64;
        assert_eq!(metrics.memory_budget.get() as u64, 10 * UNIT);
        let mut first = budget.reserve(8 * UNIT).await;
        assert_eq!(reserved(), 8 * UNIT);
        first.resize_to(UNIT);
        assert_eq!(reserved(), UNIT);
        first.resize_to(3 * UNIT);
        let second = budget.reserve(UNIT).await;
        assert_eq!(reserved(), 4 * UNIT);
        drop((first, second));
        assert_eq!(reserved(), 0);
    }
}
