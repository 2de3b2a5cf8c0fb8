//! The kit for processors in Rust: implement [`RecordProcessor`] (a record at a time) or [`Processor`] (a batch at
//! a time), name the type in [`processor!`], and build for `wasm32-wasip2`.
//!
//! Records arrive as columns over one buffer and outputs leave the same way, which costs the host some 10 ns a
//! record; [`Batch`] and [`Outcome`] are views over those columns, so no record costs an allocation.
//!
//! Everything but the export itself is ordinary Rust without `unsafe`, so a processor is tested on the
//! developer's machine, without WebAssembly: see [`testing`].
//!
#![doc = include_str!("../README.md")]
// The README shows a whole crate, and a reader's crate has tests.
#![allow(clippy::test_attr_in_doctest)]

pub mod batch;
pub mod error;
pub mod hooks;
pub mod log;
pub mod metrics;
pub mod outcome;
pub mod output;
pub mod processor;
pub mod shard;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

#[cfg(target_arch = "wasm32")]
mod bindings;
#[cfg(target_arch = "wasm32")]
mod component;
mod export;

pub use batch::{Batch, Record};
pub use error::{Error, RecordError};
pub use hooks::{GivenUpRecord, HookOutcome, Hooks};
pub use outcome::Outcome;
pub use output::Emit;
pub use processor::{NoConfig, Processor, RecordOutcome, RecordProcessor};
pub use shard::{Position, ShardContext};

/// What nearly every processor needs.
pub mod prelude {
    pub use crate::{
        Batch, Error, GivenUpRecord, HookOutcome, Hooks, NoConfig, Outcome, Position, Processor, Record, RecordError,
        RecordOutcome, RecordProcessor, ShardContext, debug, error, info, metrics, trace, warn,
    };
    pub use serde::{Deserialize, Serialize};
}

/// What the expansion of [`processor!`] refers to; not for use by hand.
#[doc(hidden)]
pub mod __private {
    #[cfg(target_arch = "wasm32")]
    pub use crate::bindings::{columnar, hooks};
    #[cfg(target_arch = "wasm32")]
    pub use crate::component::{Component, Slot};

    /// Lets a native build of a processor fail where its component would.
    pub const fn must_be_a_processor<P: crate::Processor>() {}
    /// As [`must_be_a_processor`].
    pub const fn must_have_hooks<P: crate::Hooks>() {}
}
