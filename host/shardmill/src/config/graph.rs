//! The configuration as a graph: streams, processors and folders, and the ways of records between them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Config, DeadLetters, Output, Processor};

/// Nodes, and edges in the order of the nodes that they begin at.
#[derive(Debug)]
pub(crate) struct Graph<'a> {
    nodes: Vec<Node<'a>>,
    edges: Vec<Edge<'a>>,
}

/// Where records are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node<'a> {
    /// By its name or ARN.
    Stream(&'a str),
    Processor(&'a Processor),
    /// With dead letters.
    Folder(&'a Path),
}

/// A way of records, from one node to another, by their indices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge<'a> {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: Kind<'a>,
    /// Whether a way leads back from its end to its beginning.
    pub(crate) is_in_cycle: bool,
}

/// What kind of way it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A processor reads a stream.
    Read,
    /// An output of this name.
    Output(&'a str),
    /// Dead letters, by themselves or among the records of an output.
    DeadLetters(Option<&'a str>),
}

/// While the graph is made: the places of nodes by what they are.
struct Places<'a> {
    streams: BTreeMap<&'a str, usize>,
    processors: BTreeMap<&'a str, usize>,
    folders: BTreeMap<&'a Path, usize>,
}

// === impl Graph ===

impl<'a> Graph<'a> {
    pub(crate) fn of(config: &'a Config) -> Self {
        let streams: BTreeSet<&str> = config.stream_ids().collect();
        let folders: BTreeSet<&Path> = config.processors.values().filter_map(folder).collect();
        let nodes: Vec<Node<'a>> = (streams.iter().copied().map(Node::Stream))
            .chain(config.processors.values().map(Node::Processor))
            .chain(folders.iter().copied().map(Node::Folder))
            .collect();
        let places = Places::of(&nodes);
        let mut edges: Vec<Edge<'a>> =
            config.processors.values().flat_map(|processor| places.edges(processor)).collect();
        // Stable: what begins at a node keeps its order.
        edges.sort_by_key(|edge| edge.from);
        let component = components(&ways(config, &nodes, &edges, &places));
        for edge in &mut edges {
            edge.is_in_cycle = component[edge.from] == component[edge.to];
        }
        Self { nodes, edges }
    }

    pub(crate) fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    pub(crate) fn edges(&self) -> &[Edge<'a>] {
        &self.edges
    }

    /// The edges that begin at a node.
    pub(crate) fn edges_of(&self, node: usize) -> &[Edge<'a>] {
        let start = self.edges.partition_point(|edge| edge.from < node);
        let end = self.edges.partition_point(|edge| edge.from <= node);
        &self.edges[start..end]
    }

    /// Whether records go round in memory. A way round over a stream is none: there a record begins anew.
    pub(crate) fn has_cycle_in_memory(&self) -> bool {
        let is_processor = |node: usize| matches!(self.nodes[node], Node::Processor(_));
        let in_memory = || self.edges.iter().filter(|edge| is_processor(edge.from) && is_processor(edge.to));
        let mut ways: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for edge in in_memory() {
            ways[edge.from].push(edge.to);
        }
        let component = components(&ways);
        in_memory().any(|edge| component[edge.from] == component[edge.to])
    }
}

fn folder(processor: &Processor) -> Option<&Path> {
    match processor.dead_letters.as_ref()? {
        DeadLetters::Folder { path, .. } => Some(path),
        DeadLetters::Stream { .. } | DeadLetters::Output { .. } => None,
    }
}

// === impl Places ===

impl<'a> Places<'a> {
    fn of(nodes: &[Node<'a>]) -> Self {
        let mut places = Self { streams: BTreeMap::new(), processors: BTreeMap::new(), folders: BTreeMap::new() };
        for (index, node) in nodes.iter().enumerate() {
            match node {
                Node::Stream(id) => places.streams.insert(id, index),
                Node::Processor(processor) => places.processors.insert(&processor.name, index),
                Node::Folder(path) => places.folders.insert(path, index),
            };
        }
        places
    }

    /// What begins or ends at a processor because of what its own section says.
    fn edges(&self, processor: &'a Processor) -> Vec<Edge<'a>> {
        let here = self.processors[processor.name.as_str()];
        let edge = |from, to, kind| Edge { from, to, kind, is_in_cycle: false };
        let reads = processor.stream_ids().map(|stream| edge(self.streams[stream], here, Kind::Read));
        let outputs = processor.outputs.iter().map(|(name, output)| {
            let to = match output {
                Output::Stream(output) => self.streams[output.stream.as_str()],
                Output::Processor(name) => self.processors[name.as_str()],
            };
            edge(here, to, Kind::Output(name))
        });
        let output = match &processor.dead_letters {
            Some(DeadLetters::Output { output }) => Some(output.as_str()),
            _ => None,
        };
        let stream = processor.dead_letter_stream().map(|stream| self.streams[stream]);
        let place = stream.or_else(|| folder(processor).map(|folder| self.folders[folder]));
        let letters = place.map(|place| edge(here, place, Kind::DeadLetters(output)));
        reads.chain(outputs).chain(letters).collect()
    }
}

/// Where each node leads to. What goes to a stream may also come to processors that name it otherwise, by its ARN say.
fn ways(config: &Config, nodes: &[Node<'_>], edges: &[Edge<'_>], places: &Places<'_>) -> Vec<Vec<usize>> {
    let mut ways: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for edge in edges {
        ways[edge.from].push(edge.to);
    }
    for (stream, index) in &places.streams {
        let readers = config.processors.values().filter(|processor| processor.reads(stream));
        ways[*index].extend(readers.map(|reader| places.processors[reader.name.as_str()]));
    }
    ways
}

/// One number for all nodes between which ways lead there and back (Kosaraju's algorithm).
fn components(ways: &[Vec<usize>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut finished = Vec::with_capacity(ways.len());
    let mut seen = vec![false; ways.len()];
    for start in 0..ways.len() {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let mut stack = vec![(start, 0)];
        while let Some((node, next)) = stack.pop() {
            let Some(to) = ways[node].get(next) else {
                finished.push(node);
                continue;
            };
            stack.push((node, next + 1));
            if !std::mem::replace(&mut seen[*to], true) {
                stack.push((*to, 0));
            }
        }
    }
    let mut back = vec![Vec::new(); ways.len()];
    for (node, targets) in ways.iter().enumerate() {
        for target in targets {
            back[*target].push(node);
        }
    }
    let mut component = vec![NONE; ways.len()];
    for root in finished.into_iter().rev() {
        let mut stack = vec![root];
        while let Some(node) = stack.pop() {
            if component[node] == NONE {
                component[node] = root;
                stack.extend(back[node].iter().filter(|from| component[**from] == NONE));
            }
        }
    }
    component
}
