//! Processors whose outputs lead to others of the same file: what must hold of all of them together.

use std::collections::{BTreeMap, VecDeque};

use shardmill_cause::code::config as code;
use shardmill_engine::{CheckpointBy, Delivery};

use super::check::{Checked, helped, wrong};
use super::{DeadLetters, Output, Processor};

type Processors = BTreeMap<String, Processor>;
/// The processors whose outputs lead to one, by its name.
type Feeders<'a> = BTreeMap<&'a str, Vec<&'a Processor>>;

pub(super) fn check(processors: &Processors, max_hops: u32) -> Checked<()> {
    let mut feeders = Feeders::new();
    for processor in processors.values() {
        for target in processor.outputs.values().filter_map(Output::processor) {
            feeders.entry(target).or_default().push(processor);
        }
    }
    let hops = hops(processors);
    for (name, processor) in processors {
        match hops.get(name.as_str()) {
            None => return unfed(name, &before(&feeders, name)),
            Some(hops) if *hops > max_hops as usize => {
                let message =
                    format!("{hops} steps from processor to processor lead here, and a record takes {max_hops}");
                let help = format!("set `max-hops` to {hops} or more, or let one processor do what several do here");
                return helped(wrong(code::PIPELINE, &["processors", name], message), help);
            }
            Some(_) => {}
        }
        delivery(processor, &feeders)?;
        checkpoint(processor, &feeders)?;
        dead_letters(processor, &feeders)?;
    }
    Ok(())
}

/// How many steps lead from a stream to each processor at least, from one that reads it (0) on. Those that nothing comes to
/// are not there.
fn hops(processors: &Processors) -> BTreeMap<&str, usize> {
    let sources = processors.values().filter(|processor| !processor.is_stage());
    let mut hops: BTreeMap<&str, usize> = sources.map(|processor| (processor.name.as_str(), 0)).collect();
    let mut next: VecDeque<&str> = hops.keys().copied().collect();
    while let Some(name) = next.pop_front() {
        let after = hops[name] + 1;
        for target in processors[name].outputs.values().filter_map(Output::processor) {
            if !hops.contains_key(target) {
                hops.insert(target, after);
                next.push_back(target);
            }
        }
    }
    hops
}

/// The processors from which records come to one by outputs, over any number of steps; itself among them, if it is in a
/// cycle.
fn before<'a>(feeders: &Feeders<'a>, name: &str) -> BTreeMap<&'a str, &'a Processor> {
    let mut found = BTreeMap::new();
    let mut next = vec![name];
    while let Some(target) = next.pop() {
        for feeder in feeders.get(target).into_iter().flatten() {
            if found.insert(feeder.name.as_str(), *feeder).is_none() {
                next.push(&feeder.name);
            }
        }
    }
    found
}

fn unfed(name: &str, before: &BTreeMap<&str, &Processor>) -> Checked<()> {
    let feeders: Vec<&str> = before.keys().copied().collect();
    let message =
        format!("no record comes here: outputs of `{}` lead to it, and no stream to them", feeders.join("`, `"));
    let help = "let an output of a processor that reads a stream lead to one of them, or set `stream`";
    helped(wrong(code::PIPELINE, &["processors", name], message), help)
}

/// A checkpoint that waits for a processor brings its records again after a crash, whatever that processor is promised.
fn delivery(processor: &Processor, feeders: &Feeders<'_>) -> Checked<()> {
    if processor.delivery != Delivery::AtMostOnce {
        return Ok(());
    }
    let comes_again = |other: &&Processor| !other.is_stage() && other.delivery == Delivery::AtLeastOnce;
    let Some(source) = before(feeders, &processor.name).into_values().find(comes_again) else { return Ok(()) };
    let message = format!(
        "records come here from `{}`, and again after a crash: its checkpoint waits for what becomes of them here",
        source.name
    );
    let help = "leave it out, or set `delivery = \"at-most-once\"` for all that read a stream before this one";
    helped(wrong(code::PIPELINE, &["processors", &processor.name, "delivery"], message), help)
}

/// A guest that gets records of others cannot say whose checkpoint it means.
fn checkpoint(processor: &Processor, feeders: &Feeders<'_>) -> Checked<()> {
    if processor.checkpoint != CheckpointBy::Guest {
        return Ok(());
    }
    let Some(feeder) = feeders.get(processor.name.as_str()).and_then(|feeders| feeders.first()) else { return Ok(()) };
    let message = format!(
        "an output of `{}` leads here, and the plugin cannot say how far the checkpoint of another goes",
        feeder.name
    );
    let help = "leave it out, or let the output lead to a processor without a `stream`";
    helped(wrong(code::PIPELINE, &["processors", &processor.name, "checkpoint"], message), help)
}

/// Letters about letters, without end, where they go to a stream that is read by a processor before this one.
fn dead_letters(processor: &Processor, feeders: &Feeders<'_>) -> Checked<()> {
    let Some(stream) = processor.dead_letter_stream() else { return Ok(()) };
    let reader = before(feeders, &processor.name).into_values().find(|other| other.reads(stream));
    let Some(reader) = reader else { return Ok(()) };
    let key = if matches!(processor.dead_letters, Some(DeadLetters::Output { .. })) { "output" } else { "stream" };
    let message = format!(
        "`{}`, from which records come here, reads `{stream}`: the dead letters would come back as records",
        reader.name
    );
    let help = "name a stream that is for dead letters alone, or a folder";
    helped(wrong(code::PIPELINE, &["processors", &processor.name, "dead-letters", key], message), help)
}
