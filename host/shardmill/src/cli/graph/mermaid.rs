//! The drawing as a flowchart of Mermaid.

use std::fmt::Write as _;

use super::{details_of, edge_label, label};
use crate::config::graph::{Graph, Kind, Node};

pub(super) fn draw(graph: &Graph<'_>) -> String {
    let mut out = "flowchart LR\n".to_owned();
    for (index, node) in graph.nodes().iter().enumerate() {
        let (open, close) = match node {
            Node::Stream(_) => ("[(", ")]"),
            Node::Processor(_) => ("[", "]"),
            Node::Folder(_) => ("[[", "]]"),
        };
        let lines = [label(*node)].into_iter().chain(details_of(*node));
        let text = lines.map(|line| escaped(&line)).collect::<Vec<_>>().join("<br/>");
        // A text takes all that is written to it.
        let _ = writeln!(out, "    n{index}{open}\"{text}\"{close}");
    }
    for edge in graph.edges() {
        // What goes round is thick, and what is given up is dotted.
        let arrow = match edge.kind {
            Kind::DeadLetters(_) => "-.->",
            _ if edge.is_in_cycle => "==>",
            _ => "-->",
        };
        let cycle = edge.is_in_cycle.then(|| "(cycle)".to_owned());
        let words: Vec<String> = edge_label(edge).into_iter().chain(cycle).collect();
        let label = if words.is_empty() { String::new() } else { format!("|\"{}\"|", escaped(&words.join(" "))) };
        let _ = writeln!(out, "    n{} {arrow}{label} n{}", edge.from, edge.to);
    }
    out
}

/// A text within quotes. What Mermaid would read as HTML, as Markdown or as a sign of its own is written by its number, with
/// `#` in place of HTML's `&#`. An underscore within a word is none of these.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_in_word = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let goes_on = characters.peek().is_some_and(|next| next.is_alphanumeric());
        let is_sign = match character {
            '"' | '#' | '&' | '<' | '>' | '`' | '*' | '~' | '\\' | '%' | ';' | '$' | '|' => true,
            '_' => !(is_in_word && goes_on),
            _ => false,
        };
        if is_sign {
            let _ = write!(escaped, "#{};", u32::from(character));
        } else {
            escaped.push(character);
        }
        is_in_word = character.is_alphanumeric();
    }
    escaped
}
