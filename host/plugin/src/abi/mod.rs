//! How the host speaks to guests: one module for each version of the contract, behind one type.

mod v0_1;

pub use self::v0_1::fuzzing;

use shardmill_record::Batch;
use wasmtime::component::{Instance, InstancePre, Linker};
use wasmtime::{Result, Store};

use crate::host::Host;
use crate::interface::Contract;
use crate::{Abi, GivenUpRecord, HookOutcome, InvalidOutcome, Need, Outcome, ProcessError, ShardContext};

/// What a guest returned, if it returned: its outcome may be one that cannot be read.
pub(crate) type Returned<T> = std::result::Result<std::result::Result<T, InvalidOutcome>, ProcessError>;

/// Where a component's exports are.
#[derive(Clone)]
pub(crate) enum Indices {
    V0_1(v0_1::Indices),
}

/// One instance's exports.
pub(crate) enum Exports {
    V0_1(v0_1::Exports),
}

/// An event of a shard's life, of which a guest with hooks is told.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Assigned,
    Revoked { time_left_ms: u64 },
    ShardEnded,
    Idle,
    GivenUp(Vec<GivenUpRecord>),
}

/// Links the contract's imports, of every version, as far as they are granted.
pub(crate) fn link(linker: &mut Linker<Host>, has: impl Fn(Need) -> bool) -> Result<()> {
    v0_1::link(linker, has)
}

// === impl Indices ===

impl Indices {
    /// Finds the exports, and checks their types.
    pub(crate) fn find(pre: &InstancePre<Host>, contract: Contract) -> Result<Self> {
        match contract.abi {
            Abi::V0_1 => v0_1::Indices::find(pre, contract).map(Self::V0_1),
        }
    }

    pub(crate) fn load(&self, store: &mut Store<Host>, instance: &Instance) -> Result<Exports> {
        match self {
            Self::V0_1(indices) => indices.load(store, instance).map(Exports::V0_1),
        }
    }
}

// === impl Exports ===

impl Exports {
    pub(crate) async fn init(&self, store: &mut Store<Host>, config: &str) -> Result<std::result::Result<(), String>> {
        match self {
            Self::V0_1(exports) => exports.init(store, config).await,
        }
    }

    pub(crate) async fn process_batch(
        &self,
        store: &mut Store<Host>,
        shard: &ShardContext,
        records: &Batch,
    ) -> Result<Returned<Outcome>> {
        match self {
            Self::V0_1(exports) => exports.process_batch(store, shard, records).await,
        }
    }

    /// Tells the guest of an event; nothing happens if it has no hooks.
    pub(crate) async fn hook(
        &self,
        store: &mut Store<Host>,
        id: u64,
        shard: &ShardContext,
        event: Event,
    ) -> Result<Returned<HookOutcome>> {
        match self {
            Self::V0_1(exports) => exports.hook(store, id, shard, event).await,
        }
    }

    /// Tells the guest that its instance ends; nothing happens if it has no hooks.
    pub(crate) async fn shutdown(&self, store: &mut Store<Host>) -> Result<std::result::Result<(), String>> {
        match self {
            Self::V0_1(exports) => exports.shutdown(store).await,
        }
    }
}

// === impl Event ===

impl Event {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Revoked { .. } => "revoked",
            Self::ShardEnded => "shard-ended",
            Self::Idle => "idle",
            Self::GivenUp(_) => "given-up",
        }
    }
}
