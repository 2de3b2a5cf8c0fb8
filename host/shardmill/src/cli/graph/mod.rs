//! `shardmill check --graph`: the configuration drawn.

mod mermaid;
mod terminal;
#[cfg(test)]
mod tests;

use clap::ValueEnum;

use super::text;
use crate::config::graph::{Edge, Graph, Kind, Node};
use crate::config::{Config, Processor};

/// What a drawing is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For a terminal. Without letters beyond ASCII where the environment variable `NO_UTF8` is set.
    Text,
    /// For a terminal that knows ASCII alone.
    Ascii,
    /// A flowchart for Mermaid, as Markdown of many sites takes it.
    Mermaid,
}

/// The drawing, with a line's end at its end.
pub(super) fn draw(config: &Config, form: Form) -> String {
    let graph = Graph::of(config);
    match form {
        Form::Text => terminal::draw(&graph, config, &terminal::UNICODE),
        Form::Ascii => terminal::draw(&graph, config, &terminal::ASCII),
        Form::Mermaid => mermaid::draw(&graph),
    }
}

/// What a node is, and its name.
fn label(node: Node<'_>) -> String {
    match node {
        Node::Stream(id) => format!("stream {}", text::line(id)),
        Node::Processor(processor) => format!("processor {}", text::line(&processor.name)),
        Node::Folder(path) => format!("folder {}", text::line(&path.display().to_string())),
    }
}

/// What is to be said of a node besides, a line each.
fn details_of(node: Node<'_>) -> Vec<String> {
    match node {
        Node::Processor(processor) => {
            details(processor).into_iter().map(|(what, how)| format!("{what} {how}")).collect()
        }
        Node::Stream(_) | Node::Folder(_) => Vec::new(),
    }
}

/// What a processor does with records before it hands them over, where that was configured: what it is, and how.
pub(super) fn details(processor: &Processor) -> Vec<(&'static str, String)> {
    let (flow, batch) = (&processor.flow, &processor.batch);
    let mut details = Vec::new();
    if flow.parallelism > 1 {
        let by = flow.partition_by.as_ref().map_or("the partition key", |pointer| pointer.as_str());
        details.push(("lanes", format!("{} a shard, by {}", flow.parallelism, text::line(by))));
    }
    if let Some(filter) = &flow.filter {
        details.push(("filter", text::line(&filter.to_string())));
    }
    for batcher in &flow.batchers {
        let when = batcher.when.as_ref().map_or_else(|| "all that is left".to_owned(), ToString::to_string);
        details.push(("batcher", text::line(&format!("{}: {when}; {}", batcher.name, batcher.batch))));
    }
    let is_all_taken = flow.batchers.last().is_some_and(|batcher| batcher.when.is_none());
    if flow.batchers.is_empty() && (batch.window.is_some() || batch.empty) {
        details.push(("batches", batch.to_string()));
    } else if !flow.batchers.is_empty() && !is_all_taken {
        details.push(("batcher", format!("default: all that is left; {batch}")));
    }
    details
}

/// What is said of an edge; nothing of a read.
fn edge_label(edge: &Edge<'_>) -> Option<String> {
    match edge.kind {
        Kind::Read => None,
        Kind::Output(name) => Some(format!("output {}", text::line(name))),
        Kind::DeadLetters(None) => Some("given up".to_owned()),
        Kind::DeadLetters(Some(output)) => Some(format!("given up, by output {}", text::line(output))),
    }
}
