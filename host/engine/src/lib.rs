//! The shard task: read → batch → call the guest → send its outputs → checkpoint; and the consumer, which runs one
//! such task for each lease that it holds.
//!
//! Decisions are in plain functions ([`FailurePolicy`], [`BatchProgress`], [`Backoff`]); the task around them owns its
//! shard's state, and nobody else touches it. Guests, readers and destinations are traits, so that the whole engine
//! runs in tests without WebAssembly and without a network.

mod allowance;
mod batch_work;
mod budget;
mod checkpointer;
mod claim;
mod coded;
mod consumer;
mod control;
mod dead_letter;
mod destination;
mod feed;
mod flow;
mod guest;
mod idle;
mod input;
mod input_reader;
mod invariant;
mod leave;
mod live;
mod meter;
mod metrics;
mod obey;
mod options;
mod policy;
mod prefetch;
mod retry;
mod shard_entry;
mod shard_run;
mod shard_source;
mod shard_task;
mod stage;
mod status;
mod stop;
mod uncovered;
mod undone;
mod wall_clock;
pub mod watchdog;

pub use allowance::Allowance;
pub use budget::Budget;
pub use consumer::{Consumer, Error, Parts};
pub use dead_letter::{DeadLetter, DeadLetterError, DeadLetters};
pub use destination::{Destination, Destinations, SendError, Target};
pub use flow::{Batcher, Flow, PartitionBy, Window};
pub use guest::{Answer, Guest, Hook};
pub use input::Input;
pub use metrics::Metrics;
pub use options::{BatchOptions, Delivery, Options};
pub use policy::{
    Applied, BatchProgress, Caused, CheckpointBy, Decision, FailurePolicy, Front, GivenUp, InvalidTolerance, Passed,
    Scope, Then, Tolerance, Why,
};
pub use prefetch::Prefetch;
pub use retry::Backoff;
pub use stage::{Stage, StageParts};
pub use status::{ConsumerStatus, LeaseTable, ShardState, ShardStatus, Stalled, Status};
pub use uncovered::Uncovered;
