//! What wasmtime has read of a guest's memory, turned into what the host carries out, for the fuzz targets and for nobody
//! else.

pub use super::bindings::exports::shardmill::processor::{batch, columnar, hooks};
pub use super::bindings::shardmill::processor::types;
use super::{columns, convert};
use crate::{HookOutcome, InvalidOutcome, Mask, Outcome, ProcessError};

/// An outcome in rows.
///
/// # Errors
/// It has what no outcome can have.
pub fn rows(outcome: batch::Outcome) -> Result<Outcome, InvalidOutcome> {
    convert::rows_outcome(outcome, &Mask::default())
}

/// An outcome in columns.
///
/// # Errors
/// It has what no outcome can have.
pub fn columns(outcome: columnar::Outcome) -> Result<Outcome, InvalidOutcome> {
    columns::outcome(outcome, &Mask::default())
}

/// A hook's outcome.
///
/// # Errors
/// It has what no outcome can have.
pub fn hook(outcome: hooks::HookOutcome) -> Result<HookOutcome, InvalidOutcome> {
    convert::hook_outcome(outcome, &Mask::default())
}

/// What a guest says in place of an outcome.
pub fn error(error: types::ProcessError) -> ProcessError {
    convert::process_error(error, &Mask::default())
}
