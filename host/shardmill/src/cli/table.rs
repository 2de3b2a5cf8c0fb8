//! Tables for people, in one style.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// A table with columns of numbers at these places. It is as wide as what is in it: names, ids and hash keys are copied
/// from it, and a terminal that is too narrow breaks lines itself.
pub(super) fn wide<const N: usize>(header: [&str; N], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for column in numbers {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The same with cells of several lines where the terminal is too narrow: for texts that are read.
pub(super) fn fitted<const N: usize>(header: [&str; N], numbers: &[usize]) -> Table {
    let mut table = wide(header, numbers);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table
}
