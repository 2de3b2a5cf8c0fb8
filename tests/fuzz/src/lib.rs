//! What comes from outside and is not to be trusted (records, guests' outcomes, plugins, rows, answers, what an operator writes),
//! held to what must be true of it whatever it is.
//!
//! A target is a function of bytes that panics if something is not as it must be. libFuzzer looks for such bytes
//! (`make fuzz`, the feature `engine`), and `tests/corpora.rs` holds each target to all bytes that were of interest once. What goes
//! into a target and what must hold is in `docs/fuzzing.md`.

#[path = "../../../host/stream/tests/support/differential.rs"]
mod differential;
#[cfg(feature = "engine")]
pub mod engine;
#[path = "../../../host/filter/tests/filter/slow.rs"]
mod slow;
pub mod targets;
