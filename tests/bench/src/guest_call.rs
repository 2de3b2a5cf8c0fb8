//! A guest's call against the same code called natively.

use crate::Options;
use crate::report::Section;

/// Measures both forms of the contract.
pub(crate) fn run(_options: &Options) -> Vec<Section> {
    Vec::new()
}
