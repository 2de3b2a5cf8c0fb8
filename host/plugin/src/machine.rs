use std::fmt;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use wasmtime::Store;

use crate::ShardContext;
use crate::abi::Exports;
use crate::host::Host;
use crate::metrics::ProcessorMetrics;
use crate::threads::Pace;

/// How many ticks pass before a call looks whether its turn is over.
pub(crate) const TICKS: u64 = 1;

/// What an instance is made of, and what a call takes along to where it runs. What can be called again comes back from
/// there.
pub(crate) struct Machine {
    pub(crate) store: Store<Host>,
    pub(crate) exports: Exports,
    metrics: ProcessorMetrics,
    /// Its place in its pool. Dropped last: another instance may take the place when the memory of this one is free.
    permit: Option<OwnedSemaphorePermit>,
}

// === impl Machine ===

impl Machine {
    pub(crate) fn new(
        store: Store<Host>,
        exports: Exports,
        metrics: ProcessorMetrics,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        metrics.instance_created();
        Self { store, exports, metrics, permit }
    }

    /// A call is about to be handed over.
    pub(crate) fn prepare(&mut self, shard: Option<&ShardContext>, pace: &Arc<Pace>) {
        let host = self.store.data_mut();
        host.cpu.begin();
        host.pace = Arc::clone(pace);
        host.limiter.take_refused();
        host.log.begin(shard);
    }

    /// A call begins to run.
    pub(crate) fn begin(&mut self) {
        self.store.set_epoch_deadline(TICKS);
    }

    /// Bytes of all memories and tables together.
    pub(crate) fn memory(&self) -> usize {
        self.store.data().limiter.used()
    }

    pub(crate) fn occupy(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }

    pub(crate) fn vacate(&mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.metrics.memory(self.memory());
        self.metrics.instance_dropped();
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Machine({} bytes)", self.memory())
    }
}
