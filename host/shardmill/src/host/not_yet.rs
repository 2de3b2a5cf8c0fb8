//! What a configuration may say and no host does yet. Whoever teaches it to the host takes it out here.

use super::Error;
use crate::config::{Config, Output, Processor};

pub(super) fn refuse(config: &Config) -> Result<(), Error> {
    for processor in config.processors.values() {
        if let Some(what) = missing(processor) {
            return Err(Error::NotYet { processor: processor.name.clone(), what });
        }
    }
    Ok(())
}

fn missing(processor: &Processor) -> Option<&'static str> {
    let flow = &processor.flow;
    let asked = [
        ("a processor without a `stream`", processor.is_stage()),
        (
            "an output that leads to a processor",
            processor.outputs.values().any(|output| matches!(output, Output::Processor(_))),
        ),
        ("`parallelism` of more than 1", flow.parallelism > 1),
        ("`filter`", flow.filter.is_some()),
        ("`batchers`", !flow.batchers.is_empty()),
        ("`batch.window`", processor.batch.window.is_some()),
        ("`batch.empty`", processor.batch.empty),
    ];
    asked.into_iter().find(|(_, is_asked)| *is_asked).map(|(what, _)| what)
}
