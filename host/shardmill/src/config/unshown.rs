//! Which lines of a configuration nobody is shown: where a secret is to be named, somebody may have written it. Pure.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// What the keys have in common beneath which values are secrets, misspelt ones included.
const SECRET: &str = "secret";
/// Lines that are shown before a mistake, and behind it.
const CONTEXT: usize = 1;

/// Whether the lines of a mistake, with those around it, hold nothing that may be a secret's value.
pub(super) fn may_be_shown(source: &str, mistake: &Range<usize>) -> bool {
    let shown = with_context(source, mistake);
    let touches = |secret: &Range<usize>| secret.start < shown.end && shown.start < secret.end;
    !secrets(source).iter().any(touches)
}

/// The lines of a place, and those before and behind it.
fn with_context(source: &str, place: &Range<usize>) -> Range<usize> {
    let bytes = source.as_bytes();
    let (from, to) = (place.start.min(bytes.len()), place.end.min(bytes.len()));
    let breaks = |range: Range<usize>| range.filter(move |at| bytes[*at] == b'\n');
    let start = breaks(0..from).rev().nth(CONTEXT).map_or(0, |at| at + 1);
    let end = breaks(to..bytes.len()).nth(CONTEXT).unwrap_or(bytes.len());
    start..end
}

/// Where values of secrets may be.
fn secrets(source: &str) -> Vec<Range<usize>> {
    let Ok(document) = DeTable::parse(source) else { return sections(source) };
    let mut found = Vec::new();
    find(document.get_ref(), &mut found);
    found
}

/// Of a text that is no TOML: from a line that speaks of secrets to the next head of a table.
fn sections(source: &str) -> Vec<Range<usize>> {
    let (mut sections, mut start, mut at) = (Vec::new(), None, 0);
    for line in source.split_inclusive('\n') {
        let is_head = line.trim_start().starts_with('[');
        if is_head && let Some(start) = start.take() {
            sections.push(start..at);
        }
        if start.is_none() && line.to_ascii_lowercase().contains(SECRET) {
            start = Some(at);
        }
        at += line.len();
    }
    sections.extend(start.map(|start| start..at));
    sections
}

fn find(table: &DeTable<'_>, found: &mut Vec<Range<usize>>) {
    for (key, value) in table {
        let span = value.span();
        let is_secret = key.get_ref().to_ascii_lowercase().contains(SECRET);
        match value.get_ref() {
            DeValue::Table(secrets) if is_secret => {
                for (_name, secret) in secrets {
                    values(secret.get_ref(), secret.span(), found);
                }
            }
            value if is_secret => values(value, span, found),
            value => find_in(value, found),
        }
    }
}

fn find_in(value: &DeValue<'_>, found: &mut Vec<Range<usize>>) {
    match value {
        DeValue::Table(table) => find(table, found),
        DeValue::Array(list) => list.iter().for_each(|element| find_in(element.get_ref(), found)),
        _plain => {}
    }
}

/// All that stands in the place of a secret, but for what says where it is.
fn values(value: &DeValue<'_>, span: Range<usize>, found: &mut Vec<Range<usize>>) {
    let is_place = |table: &DeTable<'_>| {
        table.iter().all(|(key, place)| {
            matches!(key.get_ref().as_ref(), "env" | "file") && matches!(place.get_ref(), DeValue::String(_))
        })
    };
    match value {
        DeValue::Table(table) if is_place(table) => {}
        DeValue::Table(table) => {
            for (_name, value) in table {
                values(value.get_ref(), value.span(), found);
            }
        }
        DeValue::Boolean(_) => {}
        _value => found.push(span),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether what is shown of a mistake at this word has this in it.
    fn shows(source: &str, word: &str) -> bool {
        let start = source.find(word).unwrap();
        may_be_shown(source, &(start..start + word.len()))
    }

    #[test]
    fn a_value_in_the_place_of_a_secret_is_not_shown_nor_what_is_beside_it() {
        for secret in [
            "secrets = { KEY = \"hunter22\" }",
            "secrets = { KEY = 12345678 }",
            "secrets = { KEY = [\"hunter22\"] }",
            "secrets = { KEY = { env = \"A\", value = \"hunter22\" } }",
            "secrets.KEY = \"hunter22\"",
            "secrets = \"hunter22\"",
            "Secret = { KEY = \"hunter22\" }",
            "grants = { secrets = { KEY = \"\"\"hunter22\nmore\"\"\" } }",
            "list = [{ secret = \"hunter22\" }]",
        ] {
            let source = format!("[a]\none = 1\ntwo = 2\n{secret}\nthree = 3\nfour = 4\n");
            assert!(shows(&source, "one") && shows(&source, "four"), "{source}");
            assert!(!shows(&source, "two") && !shows(&source, "three"), "{source}");
            assert!(!shows(&source, &secret[..4]), "{source}");
        }
        let section =
            "one = 1\n[p.grants.secrets]\nKEY = \"hunter22\"\n[p.grants.secrets.OTHER]\nvalue = \"x\"\n\n[four]\n";
        assert!(shows(section, "one") && shows(section, "four"));
        assert!(!shows(section, "grants") && !shows(section, "KEY") && !shows(section, "OTHER"));
    }

    #[test]
    fn where_a_secret_is_may_be_shown() {
        for secret in ["{ env = \"KEY\" }", "{ file = \"key\" }", "{ env = \"A\", file = \"b\" }", "false", "{}"] {
            let source = format!("one = 1\nsecrets = {{ KEY = {secret} }}\n");
            assert!(shows(&source, "KEY"), "{source}");
        }
    }

    #[test]
    fn in_what_is_no_toml_nothing_is_shown_from_a_word_of_secrets_to_the_next_table() {
        let source =
            "[a]\none = 1\n\n[a.secrets]\nKEY = \"hunter22\n\nOTHER = x\n# two\n# three\n[b]\n# four\nfive = =\n";
        for hidden in ["KEY", "OTHER", "# three", "[b]", "secrets"] {
            assert!(!shows(source, hidden), "{hidden}");
        }
        for shown in ["one", "# four", "five"] {
            assert!(shows(source, shown), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn no_place_of_a_text_is_too_far(source in "[a-z=\\[\\]\" \n]{0,60}", start in 0usize..80, length in 0usize..80) {
            may_be_shown(&source, &(start..start + length));
        }
    }
}
