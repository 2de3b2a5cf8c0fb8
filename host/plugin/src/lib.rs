//! The room that runs guests: WebAssembly components that process batches of records.
//!
//! [`Runtime`] holds what all guests share: the compiler, its cache of compiled code, and the clock that interrupts
//! them. It loads a [`Module`], which a [`Plugin`] ties to one processor's configuration, limits and grants. A plugin
//! makes [`Instance`]s, kept in a [`Pool`], and an instance turns a batch and its [`ShardContext`] into an [`Outcome`],
//! which [`Outcome::settle`] checks as a whole before anything of it is carried out.
//!
//! Whatever a guest computes, it computes on threads of the runtime's own (`threads.rs`), so that it cannot keep the rest
//! of the process waiting.
//!
//! A guest is contained: its memory, its time, what it hands the host, what it logs and what it measures are all
//! bounded by [`Limits`], what compiling it takes by [`LoadLimits`], and it reaches only what its [`Grants`] name: nothing
//! by default. After a trap, a timeout or a cancelled call its instance is gone.

mod abi;
mod backtrace;
mod cache;
mod coded;
mod compiler;
mod digest;
mod engine;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod guest_log;
mod guest_metrics;
mod host;
mod http;
mod instance;
mod interface;
mod limiter;
mod limits;
mod machine;
mod mask;
pub mod metrics;
pub mod module;
mod nesting;
mod outcome;
pub mod plugin;
mod pool;
pub mod runtime;
mod settle;
mod shape;
mod stdio;
mod text;
mod threads;
mod told;
mod wasi;

pub use self::http::{HostPattern, HttpGrant, InvalidHost};
pub use compiler::{Compiler, compile_guest};
pub use digest::Digest;
pub use failure::{Failure, Timeout, Trap};
pub use grants::{Grants, Need, Secret};
pub use instance::Instance;
pub use limits::{Limits, LoadLimits, OutcomeLimits};
pub use mask::Mask;
pub use metrics::Metrics;
pub use module::{Abi, Form, Module};
pub use outcome::{
    Cause, Done, FailedRecord, GivenUpRecord, HookOutcome, Outcome, Output, ProcessError, ShardContext, SkippedRecord,
};
pub use plugin::{Plugin, Settings};
pub use pool::{Place, Pool, Pooled};
pub use runtime::{Runtime, RuntimeOptions};
pub use settle::{InvalidOutcome, Settled, SettledHook, Verdict};
