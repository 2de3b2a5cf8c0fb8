//! What may be meant, and may be a mistake: it is told, and not refused.

use std::collections::BTreeSet;

use shardmill_engine::{Then, Tolerance};

use super::file::{DeadLetters, File};
use super::{Config, Output, Processor};

/// Something to look at, and the key that it is about.
#[derive(Debug)]
pub(super) struct Warning {
    pub(super) path: Vec<String>,
    pub(super) message: String,
}

fn warning(path: &[&str], message: String) -> Warning {
    Warning { path: path.iter().map(|key| (*key).to_owned()).collect(), message }
}

/// Definitions that nobody uses: most often a name was misspelt where it should have been used, and a processor then
/// reads the stream of that name.
pub(super) fn unused_streams(file: &File) -> Vec<Warning> {
    let processors = file.processors.values();
    let used: BTreeSet<&str> = processors
        .flat_map(|processor| {
            let outputs = processor.outputs.values().filter_map(|output| output.stream.as_deref());
            outputs.chain(processor.inputs()).chain(dead_letter_stream(processor.dead_letters.as_ref()))
        })
        .chain(dead_letter_stream(file.defaults.processor.dead_letters.as_ref()))
        .collect();
    let is_unused = |name: &&String| !used.contains(name.as_str());
    let undefined: Vec<&str> = used.iter().copied().filter(|name| !file.streams.contains_key(*name)).collect();
    let elsewhere = match undefined.as_slice() {
        [] => String::new(),
        names => format!(" (streams that are used and not defined here: `{}`)", names.join("`, `")),
    };
    let unused = file.streams.keys().filter(is_unused);
    let each = unused.map(|name| {
        let message = format!("no processor reads it, and no output and no dead letter goes to it{elsewhere}");
        warning(&["streams", name], message)
    });
    each.collect()
}

fn dead_letter_stream(table: Option<&DeadLetters>) -> Option<&str> {
    table?.stream.as_deref()
}

/// A tolerance that nothing is measured by.
pub(super) fn idle_tolerances(config: &Config) -> Vec<Warning> {
    let is_idle = |processor: &&Processor| {
        let failure = &processor.failure;
        matches!(failure.then, Then::Skip | Then::DeadLetter) && failure.tolerance != Tolerance::default()
    };
    let idle = config.processors.values().filter(is_idle).map(|processor| {
        let message = format!(
            "it says how many records are passed over where `then` stops, and `then = \"{}\"` passes over all of them",
            processor.failure.then.as_str()
        );
        warning(&["processors", &processor.name, "failure", "tolerance"], message)
    });
    idle.collect()
}

/// Lanes that are asked for and do not come about.
pub(super) fn idle_lanes(config: &Config) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (name, Processor { flow, limits, .. }) in &config.processors {
        if flow.partition_by.is_some() && flow.parallelism == 1 {
            let message = "it says in which lane a record goes, and there is one: set `parallelism`".to_owned();
            warnings.push(warning(&["processors", name, "partition-by"], message));
        }
        if flow.parallelism as usize > limits.instances {
            let message = format!(
                "{} lanes of each shard share the {} instances of `limits.instances`: no more run at a time",
                flow.parallelism, limits.instances
            );
            warnings.push(warning(&["processors", name, "parallelism"], message));
        }
    }
    warnings
}

/// Outputs that come back to the processor that sent them, by itself or by way of others. A guest may end such a loop, by
/// counting or by a mark in its records; one that does not multiplies its records for ever. What goes round in memory alone
/// ends by itself, after `max-hops`.
pub(super) fn loops(config: &Config) -> Vec<Warning> {
    let mut told: BTreeSet<BTreeSet<&str>> = BTreeSet::new();
    let mut warnings = Vec::new();
    for (name, processor) in &config.processors {
        for (output, stream) in streams_of(processor) {
            let Some(way) = way_back(config, stream, processor) else { continue };
            let members = way.iter().copied().chain([name.as_str()]).collect();
            // A loop of three is found three times.
            if way.is_empty() || told.insert(members) {
                let message = match way.as_slice() {
                    [] => "it goes to a stream that the processor reads".to_owned(),
                    way => format!("it goes to `{stream}`, and comes back by way of `{}`", way.join("`, `")),
                };
                let message = format!("{message}: records go round for ever unless the plugin ends it");
                warnings.push(warning(&["processors", name, "outputs", output, "stream"], message));
            }
        }
    }
    warnings
}

/// The outputs that lead to streams.
fn streams_of(processor: &Processor) -> impl Iterator<Item = (&str, &str)> {
    processor.outputs.iter().filter_map(|(name, output)| Some((name.as_str(), output.stream()?)))
}

/// The processors through which what is in a stream comes to a processor, by streams and by outputs that lead to others;
/// empty if it reads the stream.
fn way_back<'a>(config: &'a Config, from: &'a str, to: &'a Processor) -> Option<Vec<&'a str>> {
    let mut seen_streams = BTreeSet::from([from]);
    let mut seen_processors: BTreeSet<&str> = BTreeSet::new();
    let mut streams = vec![(from, Vec::new())];
    let mut processors: Vec<(&Processor, Vec<&str>)> = Vec::new();
    loop {
        if let Some((stream, way)) = streams.pop() {
            if to.reads(stream) {
                return Some(way);
            }
            let readers = config.processors.values().filter(|processor| processor.reads(stream));
            processors.extend(
                readers.filter(|reader| seen_processors.insert(&reader.name)).map(|reader| (reader, way.clone())),
            );
        } else if let Some((processor, mut way)) = processors.pop() {
            if processor.name == to.name {
                return Some(way);
            }
            way.push(&processor.name);
            for output in processor.outputs.values() {
                match output {
                    Output::Stream(output) if seen_streams.insert(&output.stream) => {
                        streams.push((&output.stream, way.clone()));
                    }
                    Output::Processor(name) if seen_processors.insert(name) => {
                        processors.push((&config.processors[name], way.clone()));
                    }
                    _ => {}
                }
            }
        } else {
            return None;
        }
    }
}
