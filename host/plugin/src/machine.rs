use std::fmt;

use tokio::sync::OwnedSemaphorePermit;
use wasmtime::Store;

use crate::ShardContext;
use crate::abi::Exports;
use crate::host::Host;
use crate::metrics::ProcessorMetrics;

/// How many ticks pass before a call gives way for the first time. One would be over at once for a call that begins just
/// before the clock ticks: with two, whatever takes less than a tick is done in one turn.
pub(crate) const FIRST_TURN: u64 = 2;

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
    pub(crate) fn prepare(&mut self, shard: Option<&ShardContext>) {
        let host = self.store.data_mut();
        host.cpu.begin();
        host.limiter.take_refused();
        host.log.begin(shard);
    }

    /// A call begins to run: its time is counted from now, however long it waited for a thread.
    pub(crate) fn begin(&mut self) {
        self.store.set_epoch_deadline(FIRST_TURN);
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
