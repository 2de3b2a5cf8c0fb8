//! The targets, one a module.

pub mod configuration;
pub mod deaggregate;
pub mod filter;
pub mod get_records;
pub mod lease_row;
pub mod module;
mod outcome;
pub mod outcome_columnar;
pub mod outcome_rows;
pub mod service_answer;
mod table;

/// Something that takes any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, as its folders and its program have it.
    pub name: &'static str,
    /// Panics if something is not as it must be.
    pub run: fn(&[u8]),
}

/// All targets.
pub const ALL: [Target; 9] = [
    Target { name: "configuration", run: configuration::run },
    Target { name: "deaggregate", run: deaggregate::run },
    Target { name: "filter", run: filter::run },
    Target { name: "get-records", run: get_records::run },
    Target { name: "lease-row", run: lease_row::run },
    Target { name: "module", run: module::run },
    Target { name: "outcome-columnar", run: outcome_columnar::run },
    Target { name: "outcome-rows", run: outcome_rows::run },
    Target { name: "service-answer", run: service_answer::run },
];

/// Whether a letter in what people are told could pass for another line, or steer a terminal.
fn steers(letter: char) -> bool {
    letter.is_control() && letter != '\t'
}
