//! The drawing for terminals: trees from the streams on. Each node is opened once, and named wherever else a way leads to it.

use std::collections::VecDeque;

use super::{details_of, edge_label, label};
use crate::config::Config;
use crate::config::graph::{Edge, Graph};

/// Deeper, lines become too long to read: what is there is a tree of its own further down.
const DEEPEST: usize = 8;

/// What lines are drawn with.
pub(super) struct Letters {
    branch: &'static str,
    last: &'static str,
    trunk: &'static str,
    arrow: &'static str,
    is_ascii: bool,
}

pub(super) const UNICODE: Letters =
    Letters { branch: "├─", last: "└─", trunk: "│   ", arrow: "▶ ", is_ascii: false };
pub(super) const ASCII: Letters = Letters { branch: "|-", last: "`-", trunk: "|   ", arrow: "> ", is_ascii: true };

struct Drawing<'a> {
    graph: &'a Graph<'a>,
    letters: &'a Letters,
    out: String,
    /// Whether a node has been opened.
    opened: Vec<bool>,
    /// What was named as being further down.
    later: VecDeque<usize>,
}

pub(super) fn draw(graph: &Graph<'_>, config: &Config, letters: &Letters) -> String {
    let count = graph.nodes().len();
    let opened = vec![false; count];
    let mut drawing = Drawing { graph, letters, out: String::new(), opened, later: VecDeque::new() };
    let mut leads_here = vec![false; count];
    for edge in graph.edges() {
        leads_here[edge.to] = true;
    }
    // First where records come from; what is left then is in cycles that have no beginning.
    for root in (0..count).filter(|node| !leads_here[*node]).chain(0..count) {
        drawing.tree(root);
        while let Some(later) = drawing.later.pop_front() {
            drawing.tree(later);
        }
    }
    if graph.has_cycle_in_memory() {
        let steps = config.max_hops;
        drawing
            .out
            .push_str(&format!("\n(cycle): a record takes at most {steps} steps from processor to processor.\n"));
    }
    drawing.out
}

impl Drawing<'_> {
    fn tree(&mut self, root: usize) {
        if std::mem::replace(&mut self.opened[root], true) {
            return;
        }
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.line(&[&label(self.graph.nodes()[root])]);
        self.inside("", root, 1);
    }

    /// What is to be said of a node, and where its records go.
    fn inside(&mut self, indent: &str, node: usize, depth: usize) {
        let graph = self.graph;
        let edges = graph.edges_of(node);
        let beside = if edges.is_empty() { "    " } else { self.letters.trunk };
        for detail in details_of(graph.nodes()[node]) {
            self.line(&[indent, beside, &detail]);
        }
        for (index, edge) in edges.iter().enumerate() {
            let is_last = index + 1 == edges.len();
            let (corner, below) =
                if is_last { (self.letters.last, "    ") } else { (self.letters.branch, self.letters.trunk) };
            let way = match edge_label(edge) {
                None => format!("{indent}{corner}{}", self.letters.arrow),
                Some(label) => format!("{indent}{corner} {label} {}{}", self.stroke(), self.letters.arrow),
            };
            self.end(&way, edge, &format!("{indent}{below}"), depth);
        }
    }

    /// The end of an edge, and what follows from there, if it is not said elsewhere.
    fn end(&mut self, way: &str, edge: &Edge<'_>, indent: &str, depth: usize) {
        let node = self.graph.nodes()[edge.to];
        let cycle = if edge.is_in_cycle { " (cycle)" } else { "" };
        let is_leaf = self.graph.edges_of(edge.to).is_empty() && details_of(node).is_empty();
        let elsewhere = match self.opened[edge.to] {
            _ if is_leaf => "",
            true => ", see above",
            false if depth >= DEEPEST => ", see below",
            false => "",
        };
        self.line(&[way, &label(node), cycle, elsewhere]);
        if elsewhere == ", see below" {
            self.later.push_back(edge.to);
        } else if elsewhere.is_empty() && !std::mem::replace(&mut self.opened[edge.to], true) {
            self.inside(indent, edge.to, depth + 1);
        }
    }

    fn stroke(&self) -> &'static str {
        if self.letters.is_ascii { "-" } else { "─" }
    }

    fn line(&mut self, parts: &[&str]) {
        for part in parts {
            if self.letters.is_ascii {
                for character in part.chars() {
                    match character {
                        '…' => self.out.push_str("..."),
                        letter if letter.is_ascii() => self.out.push(letter),
                        other => self.out.extend(other.escape_unicode()),
                    }
                }
            } else {
                self.out.push_str(part);
            }
        }
        self.out.push('\n');
    }
}
