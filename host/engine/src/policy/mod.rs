//! What becomes of records that fail: decisions without any I/O, which the shard's task carries out.
//!
//! [`Parts`] says which records of a batch are handed over together, [`BatchProgress`] what each attempt makes of them,
//! [`Outputs`] which of their outputs may go,
//! [`FailurePolicy`] what happens when some of them are given up, and [`Watermark`] how far the checkpoint may go.

mod outputs;
mod parts;
mod progress;
mod rules;
#[cfg(test)]
mod tests;
mod watermark;

pub use outputs::Caused;
pub(crate) use outputs::Outputs;
pub(crate) use parts::Parts;
pub use progress::{Applied, BatchProgress, Front, GivenUp, Passed, Why};
pub use rules::{Decision, FailurePolicy, InvalidTolerance, Scope, Then, Tolerance};
pub use watermark::CheckpointBy;
pub(crate) use watermark::Watermark;
