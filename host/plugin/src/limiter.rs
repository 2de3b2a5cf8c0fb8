use wasmtime::ResourceLimiter;

use crate::engine::{CORE_INSTANCES, MEMORIES, TABLES};

/// A table's entry is a pointer on the host.
const TABLE_ENTRY_BYTES: usize = 8;

/// Keeps the sum of all memories and tables of an instance within one budget: a component can have many of both.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: usize,
    used: usize,
    /// What the latest growth added, to be taken back if it fails after all.
    latest: usize,
    /// What the guest would have had, when it was last refused.
    refused: Option<usize>,
}

// === impl Limiter ===

impl Limiter {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, used: 0, latest: 0, refused: None }
    }

    /// Bytes in use. Memories never shrink, so this is the most that ever was in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// What was refused since the last time that this was asked.
    pub(crate) fn take_refused(&mut self) -> Option<usize> {
        self.refused.take()
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let wanted = self.used.saturating_add(bytes);
        if wanted > self.limit {
            self.refused = Some(wanted);
            self.latest = 0;
            return false;
        }
        self.used = wanted;
        self.latest = bytes;
        true
    }

    fn take_back(&mut self) {
        self.used -= std::mem::take(&mut self.latest);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current)))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.take_back();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current).saturating_mul(TABLE_ENTRY_BYTES)))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.take_back();
        Ok(())
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        TABLES as usize
    }

    fn memories(&self) -> usize {
        MEMORIES as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_budget() {
        let mut limiter = Limiter::new(1000);
        assert!(limiter.memory_growing(0, 400, None).unwrap());
        assert!(limiter.memory_growing(0, 400, None).unwrap());
        assert!(limiter.table_growing(0, 25, None).unwrap());
        assert_eq!(limiter.take_refused(), None);
        assert!(!limiter.table_growing(25, 26, None).unwrap());
        assert_eq!((limiter.used(), limiter.take_refused()), (1000, Some(1008)));
    }

    #[test]
    fn growth_that_fails_is_taken_back_once_and_a_refused_one_not_at_all() {
        let mut limiter = Limiter::new(1000);
        assert!(limiter.memory_growing(0, 600, None).unwrap());
        assert!(limiter.memory_growing(600, 900, None).unwrap());
        limiter.memory_grow_failed(wasmtime::format_err!("no address space")).unwrap();
        assert_eq!(limiter.used(), 600);
        assert!(!limiter.memory_growing(600, usize::MAX, None).unwrap());
        limiter.memory_grow_failed(wasmtime::format_err!("refused")).unwrap();
        assert_eq!(limiter.used(), 600);
    }
}
