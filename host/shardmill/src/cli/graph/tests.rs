use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::config::{DeadLetters, Output};

fn config(text: &str) -> Config {
    crate::config::parse("test.toml", text, Path::new("")).unwrap_or_else(|error| panic!("{error:?}\n{text}"))
}

#[test]
fn the_drawings_are_these() {
    let shop = config(include_str!("tests/shop.toml"));
    for (form, expected) in [
        (Form::Text, include_str!("tests/shop.txt")),
        (Form::Ascii, include_str!("tests/shop.ascii.txt")),
        (Form::Mermaid, include_str!("tests/shop.mmd")),
    ] {
        let drawn = draw(&shop, form);
        assert_eq!(drawn, expected, "{form:?}:\n{drawn}");
    }
}

/// The first example behind a text of a document.
fn example<'a>(document: &'a str, behind: &str, language: &str) -> &'a str {
    let (_, rest) = document.split_once(behind).unwrap_or_else(|| panic!("{behind:?} is not there"));
    let (_, rest) = rest.split_once(&format!("```{language}\n")).expect("an example");
    rest.split_once("```").expect("its end").0
}

#[test]
fn the_documents_show_what_is_drawn() {
    let guide = include_str!("../../../../../docs/configuration.md");
    let pipeline = config(&format!("application = \"app\"\n{}", example(guide, "## Pipelines", "toml")));
    assert_eq!(example(guide, "## A drawing", "text"), draw(&pipeline, Form::Text));
    assert_eq!(example(guide, "## A drawing", "mermaid"), draw(&pipeline, Form::Mermaid));
    let readme = example(include_str!("../../../../../README.md"), "can be put\nin a row", "toml");
    assert_eq!(config(&format!("application = \"app\"\n{readme}")).warnings, [""; 0]);
    for (behind, name) in [("### `[[processors.NAME.batchers]]`", "billing"), ("### Lanes", "billing")] {
        let head = format!("application = \"app\"\n[processors.{name}]\nstream = \"in\"\nplugin = \"p\"\n");
        let text = example(guide, behind, "toml").replace("[processors.billing]\n", "");
        config(&format!("{head}{text}"));
    }
}

/// A way of records: from where, what is said of it, where to, and whether it is in a cycle.
type Way = (String, String, String, bool);

/// The ways that a configuration means, by its own words.
fn ways(config: &Config) -> Vec<Way> {
    let stream = |id: &str| format!("stream {id}");
    let mut ways: Vec<(String, String, String)> = Vec::new();
    for (name, processor) in &config.processors {
        let here = format!("processor {name}");
        ways.extend(processor.stream_ids().map(|id| (stream(id), String::new(), here.clone())));
        for (output, leads) in &processor.outputs {
            let to = match leads {
                Output::Stream(output) => stream(&output.stream),
                Output::Processor(other) => format!("processor {other}"),
            };
            ways.push((here.clone(), format!("output {output}"), to));
        }
        match &processor.dead_letters {
            None => {}
            Some(DeadLetters::Folder { path, .. }) => {
                ways.push((here, "given up".to_owned(), format!("folder {}", path.display())));
            }
            Some(DeadLetters::Stream { stream: id, .. }) => ways.push((here, "given up".to_owned(), stream(id))),
            Some(DeadLetters::Output { output }) => {
                let id = processor.outputs[output].stream().unwrap_or_default();
                ways.push((here, format!("given up, by output {output}"), stream(id)));
            }
        }
    }
    // Whether ways lead from one to another, any number of them.
    let leads = |from: &str, to: &str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(here) = next.pop() {
            if here == to {
                return true;
            }
            if seen.insert(here) {
                next.extend(ways.iter().filter(|(start, _, _)| start.as_str() == here).map(|(_, _, end)| end.as_str()));
            }
        }
        false
    };
    let each = ways.iter().map(|(from, what, to)| (from.clone(), what.clone(), to.clone(), leads(to, from)));
    let mut ways: Vec<Way> = each.collect();
    ways.sort();
    ways
}

/// The ways that a drawing for terminals shows, read back from it.
fn read_text(drawn: &str) -> Vec<Way> {
    let mut ways = Vec::new();
    // The nodes on the way to where the text is, by their indentation.
    let mut open: Vec<String> = Vec::new();
    for line in drawn.lines().take_while(|line| !line.starts_with("(cycle)")) {
        let corner = line.find("├─").or_else(|| line.find("└─"));
        let Some(corner) = corner else {
            if line.starts_with("stream ") || line.starts_with("processor ") {
                open = vec![line.to_owned()];
            }
            continue;
        };
        let depth = line[..corner].chars().count() / 4;
        let (what, to) = line[corner + "├─".len()..].split_once("▶ ").expect("an arrow");
        let to = to.strip_suffix(", see above").or_else(|| to.strip_suffix(", see below")).unwrap_or(to);
        let (to, is_in_cycle) = to.strip_suffix(" (cycle)").map_or((to, false), |to| (to, true));
        let what = what.trim_start().trim_end_matches('─').trim_end();
        ways.push((open[depth].clone(), what.to_owned(), to.to_owned(), is_in_cycle));
        open.truncate(depth + 1);
        open.push(to.to_owned());
    }
    ways.sort();
    ways
}

fn plain(escaped: &str) -> String {
    let mut parts = escaped.split('#');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once(';').expect("the end of a number");
        text.push(char::from_u32(number.parse().expect("a number")).expect("a character"));
        text += rest;
    }
    text
}

/// The ways that a flowchart shows, read back from it. Panics at what is no line of one.
fn read_mermaid(drawn: &str) -> Vec<Way> {
    let mut lines = drawn.lines();
    assert_eq!(lines.next(), Some("flowchart LR"));
    let mut labels: BTreeMap<&str, String> = BTreeMap::new();
    let mut ways = Vec::new();
    for line in lines {
        let line = line.strip_prefix("    ").expect("an indentation");
        let arrow =
            ["-.->", "-->", "==>"].into_iter().find_map(|arrow| Some((line.split_once(&format!(" {arrow}"))?, arrow)));
        if let Some(((from, rest), arrow)) = arrow {
            let (words, to) = match rest.strip_prefix("|\"") {
                Some(rest) => rest.split_once("\"| ").expect("the end of a label"),
                None => ("", rest.strip_prefix(' ').expect("a node")),
            };
            let words = plain(words);
            let (what, is_in_cycle) =
                words.strip_suffix("(cycle)").map_or((&*words, false), |what| (what.trim_end(), true));
            assert_eq!(what.starts_with("given up"), arrow == "-.->", "{line}");
            assert!(arrow == "-.->" || is_in_cycle == (arrow == "==>"), "{line}");
            ways.push((labels[from].clone(), what.to_owned(), labels[to].clone(), is_in_cycle));
        } else {
            let (id, rest) = line.split_once('[').expect("a shape");
            assert!(id.strip_prefix('n').is_some_and(|number| number.parse::<usize>().is_ok()), "{line}");
            let (_, text) = rest.split_once('"').expect("a quote");
            let (text, shape) = text.split_once('"').expect("its end");
            assert!(["]", ")]", "]]"].contains(&shape), "{line}");
            let name = text.split("<br/>").next().unwrap_or_default();
            labels.insert(id, plain(name));
        }
    }
    ways.sort();
    ways
}

fn assert_whole(config: &Config) {
    let expected = ways(config);
    let text = draw(config, Form::Text);
    assert_eq!(read_text(&text), expected, "{text}");
    let mermaid = draw(config, Form::Mermaid);
    assert_eq!(read_mermaid(&mermaid), expected, "{mermaid}");
    let letters = [("├─", "|-"), ("└─", "`-"), ("│", "|"), ("─▶", "->"), ("▶", ">"), ("…", "...")];
    let ascii = letters.iter().fold(text, |text, (letter, ascii)| text.replace(letter, ascii));
    assert_eq!(draw(config, Form::Ascii), ascii);
    assert!(ascii.is_ascii());
}

#[test]
fn a_long_pipeline_is_drawn_in_lines_that_can_be_read() {
    let mut text = "application = \"a\"\nmax-hops = 100\n[processors.p0]\nstream = \"in\"\nplugin = \"p\"\n".to_owned();
    for index in 1..100 {
        let before = index - 1;
        writeln!(
            text,
            "[processors.p{before}.outputs.on]\nto = \"processor:p{index}\"\n[processors.p{index}]\nplugin = \"p\""
        )
        .unwrap();
    }
    let config = config(&text);
    assert_whole(&config);
    let drawn = draw(&config, Form::Text);
    assert!(drawn.lines().all(|line| line.chars().count() < 80), "{drawn}");
    assert!(drawn.contains("processor p7, see below"), "{drawn}");
}

#[test]
fn what_a_drawing_would_obey_is_escaped() {
    let config = config(
        r##"
        application = "a"
        [processors.end_]
        stream = "in"
        plugin = "p"
        dead-letters = { folder = "a\"]|b\u001b[2J\n<script>`*_x_*` #quot; é" }
        filter = { patterns = ['{"data": {"\u202e<b>": [{"prefix": "|\"#"}]}}'] }
        "##,
    );
    for form in [Form::Text, Form::Ascii] {
        let drawn = draw(&config, form);
        assert!(drawn.chars().all(|character| character == '\n' || !text::is_hazardous(character)), "{drawn:?}");
    }
    assert!(draw(&config, Form::Ascii).is_ascii());
    let drawn = draw(&config, Form::Mermaid);
    assert_eq!(read_mermaid(&drawn).len(), 2, "{drawn}");
    assert_eq!(drawn.lines().count(), 6, "{drawn}");
    for sign in ["<script", "<b>", "`", "*", "#quot;", "_x_", "end_\"", "\u{1b}", "\u{202e}"] {
        assert!(!drawn.contains(sign), "{sign:?} in {drawn}");
    }
    assert!(drawn.contains('é'), "{drawn}");
}

/// What a generated processor says: streams that it reads, where outputs lead (a stream, or a processor from 6 on), and where
/// dead letters go.
type Sketch = (Vec<u8>, Vec<u8>, Option<u8>);

fn sketch() -> impl Strategy<Value = Vec<Sketch>> {
    let reads = prop_oneof![3 => prop::collection::btree_set(0..6_u8, 1..3), 2 => Just(BTreeSet::new())];
    let reads = reads.prop_map(|streams| streams.into_iter().collect());
    let outputs = prop::collection::vec(0..14_u8, 0..4);
    prop::collection::vec((reads, outputs, prop::option::weighted(0.4, 0..10_u8)), 1..9)
}

fn written(sketches: &[Sketch]) -> String {
    let count = u8::try_from(sketches.len()).expect("a few");
    let mut text = "application = \"app\"\n".to_owned();
    for (index, (reads, outputs, letters)) in sketches.iter().enumerate() {
        write!(text, "[processors._p{index}_]\nplugin = \"p.wasm\"\nparallelism = {}\n", index % 2 + 1).unwrap();
        if !reads.is_empty() {
            let streams: Vec<String> = reads.iter().map(|stream| format!("\"s_{stream}\"")).collect();
            writeln!(text, "streams = [{}]", streams.join(", ")).unwrap();
        }
        match letters {
            Some(folder @ 0..=3) => writeln!(text, "dead-letters = {{ folder = \"letters {folder}\" }}").unwrap(),
            Some(stream @ 4..=7) => writeln!(text, "dead-letters = {{ stream = \"s_{stream}\" }}").unwrap(),
            Some(output) => writeln!(text, "dead-letters = {{ output = \"o{}\" }}", output - 8).unwrap(),
            None => {}
        }
        for (output, to) in outputs.iter().enumerate() {
            writeln!(text, "[processors._p{index}_.outputs.o{output}]").unwrap();
            match to {
                0..=5 => writeln!(text, "stream = \"s_{to}\"").unwrap(),
                _ => writeln!(text, "to = \"processor:_p{}_\"", (to - 6) % count).unwrap(),
            }
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_a_configuration_is_drawn_with_all_that_is_in_it(sketches in sketch()) {
        let parsed = crate::config::parse("test.toml", &written(&sketches), Path::new(""));
        prop_assume!(parsed.is_ok());
        assert_whole(&parsed.unwrap());
    }
}

/// A record that comes back by a stream begins anew there.
#[test]
fn what_is_said_of_steps_is_about_ways_round_in_memory() {
    let drawn = |back: &str| {
        let config = config(&format!(
            "application = \"app\"\n[processors.p]\nstream = \"a\"\nplugin = \"p\"\noutputs.q = {{ to = \"processor:q\" }}\n\
             [processors.q]\nplugin = \"q\"\noutputs.back = {back}\n"
        ));
        draw(&config, Form::Text)
    };
    let (by_stream, in_memory) = (drawn("{ stream = \"a\" }"), drawn("{ to = \"processor:p\" }"));
    assert!(by_stream.contains("(cycle)") && in_memory.contains("(cycle)"));
    assert!(!by_stream.contains("a record takes at most"), "{by_stream}");
    assert!(in_memory.contains("a record takes at most"), "{in_memory}");
}
