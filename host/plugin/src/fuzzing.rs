//! What comes from guests and is not to be trusted, for the fuzz targets and for nobody else.

use crate::Module;
pub use crate::abi::fuzzing as outcome;
use crate::module::Error;

/// All that is found out about a component before it is compiled.
///
/// # Errors
/// What is wrong with it, as [`crate::Runtime::load`] says it.
pub fn before_compiling(name: &str, bytes: &[u8]) -> Result<(), Error> {
    Module::before_compiling(name, bytes).map(drop)
}
