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

/// Why an instance is gone: the label `reason` of `shardmill_plugin_instances_retired_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It broke down in a call, or a call was given up.
    Failed,
    /// It had its number of calls.
    Calls,
    /// Its memory had grown.
    Memory,
    /// Nothing has needed it for a while.
    Idle,
    /// Nobody has it any more: its pool is closed, or it was one of a kind.
    Closed,
}

/// What an instance is made of, and what a call takes along to where it runs. What can be called again comes back from
/// there.
pub(crate) struct Machine {
    pub(crate) store: Store<Host>,
    pub(crate) exports: Exports,
    metrics: ProcessorMetrics,
    /// What it counts as when it is dropped, unless that is in a call: then it has broken down, or the call is given up.
    end: End,
    is_in_call: bool,
    /// Its place in its pool. Dropped last: another instance may take the place when the memory of this one is free.
    permit: Option<OwnedSemaphorePermit>,
}

// === impl End ===

impl End {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Calls => "calls",
            Self::Memory => "memory",
            Self::Idle => "idle",
            Self::Closed => "closed",
        }
    }
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
        Self { store, exports, metrics, end: End::Closed, is_in_call: false, permit }
    }

    /// A call is about to be handed over.
    pub(crate) fn prepare(&mut self, shard: Option<&ShardContext>, pace: &Arc<Pace>) {
        // A call that is given up does not come back to say so.
        self.is_in_call = true;
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

    /// A call has ended well.
    pub(crate) fn end_call(&mut self) {
        self.store.data().log.end();
        self.is_in_call = false;
    }

    /// What it counts as from now on, if it is dropped.
    pub(crate) fn ends_as(&mut self, end: End) {
        self.end = end;
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
        self.metrics.instance_dropped(if self.is_in_call { End::Failed } else { self.end });
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Machine({} bytes)", self.memory())
    }
}
