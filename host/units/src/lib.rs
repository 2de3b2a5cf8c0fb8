//! Durations, sizes and counts as configurations write them, and as they are shown to people. Pure.
//!
//! [`Time`], [`Size`] and [`Count`] are for structs that keep what was written; [`time`] and [`size`] are for fields that hold
//! a `Duration` or a number of bytes, as `#[serde(with = "…")]`.

mod count;
pub mod size;
pub mod time;

pub use count::Count;
pub use size::Size;
pub use time::Time;
