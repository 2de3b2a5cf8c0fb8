//! A mistake in a configuration, with the line that it is in.

use std::ops::Range;

use miette::{Diagnostic, NamedSource, SourceSpan};
use shardmill_cause::{Code, Coded};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::unshown::may_be_shown;

/// Said where no line is shown.
const NOT_SHOWN: &str = "the lines are not shown here, because there may be a secret in them";

/// One mistake, shown with its file, line and key.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{}{message}", self.prefix())]
pub struct Mistake {
    message: String,
    /// The file, as messages name it.
    file: String,
    line: usize,
    /// None where the lines may hold a secret: an error goes to logs and bug reports.
    #[source_code]
    source_code: Option<NamedSource<String>>,
    #[label("{label}")]
    span: SourceSpan,
    label: String,
    #[help]
    help: Option<String>,
    code: Code,
}

/// Where a key stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The key as it is written; [`defaults`](super) may hold it for many.
    pub(super) key: String,
    pub(super) span: Range<usize>,
}

// === impl Mistake ===

impl Mistake {
    pub(super) fn at(
        name: &str,
        source: &str,
        span: Range<usize>,
        message: String,
        label: &str,
        (code, help): (Code, Option<String>),
    ) -> Self {
        let is_shown = may_be_shown(source, &span);
        Self {
            message,
            file: name.to_owned(),
            line: line_of(source, &span),
            source_code: is_shown.then(|| NamedSource::new(name, source.to_owned())),
            span: span.into(),
            label: label.to_owned(),
            help: help.or_else(|| (!is_shown).then(|| NOT_SHOWN.to_owned())),
            code,
        }
    }

    /// Where it is, if that is not shown besides.
    fn prefix(&self) -> String {
        if self.source_code.is_some() { String::new() } else { format!("{}:{}: ", self.file, self.line) }
    }

    /// The same in one line.
    pub(super) fn sentence(&self) -> String {
        let help = self.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        let message = self.message.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{}:{}: {message}{help}", self.file, self.line)
    }
}

impl Coded for Mistake {
    fn code(&self) -> Code {
        self.code
    }
}

/// Where a key such as `["processors", "flights", "batch", "records"]` gets its value: in its own section, else in that of
/// `defaults`. If it is in neither, the deepest table on the way to it.
pub(super) fn place_of(source: &str, path: &[String]) -> Place {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let (span, depth) = span_of(source, &path);
    if depth < path.len()
        && let Some(in_defaults) = in_defaults(&path)
        && let (span, depth) = span_of(source, &in_defaults)
        && depth == in_defaults.len()
    {
        return Place { key: shown(&in_defaults), span };
    }
    Place { key: shown(&path), span }
}

fn shown(path: &[&str]) -> String {
    path.iter().copied().filter(|key| !is_index(key)).collect::<Vec<_>>().join(".")
}

/// The line of a place in a text, from 1.
pub(super) fn line_of(source: &str, span: &Range<usize>) -> usize {
    1 + source.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
}

/// Where the value of a key comes from if the section that is named does not set it.
fn in_defaults<'a>(path: &[&'a str]) -> Option<Vec<&'a str>> {
    let (section, rest) = match path {
        ["processors", _processor, "outputs", _output, rest @ ..] => ("output", rest),
        ["processors", _processor, rest @ ..] => ("processor", rest),
        ["streams", _stream, rest @ ..] => ("stream", rest),
        _other => return None,
    };
    (!rest.is_empty()).then(|| ["defaults", section].into_iter().chain(rest.iter().copied()).collect())
}

/// The place of the key, or of the deepest table on the way to it, and how much of the way was found.
fn span_of(source: &str, path: &[&str]) -> (Range<usize>, usize) {
    let Ok(document) = DeTable::parse(source) else { return (0..0, 0) };
    let (mut span, mut depth) = (0..0, 0);
    let mut value = DeValue::Table(document.into_inner());
    for key in path {
        let Some((found, inner)) = child(value, key) else { break };
        (span, depth) = (found, depth + 1);
        value = inner;
    }
    (span, depth)
}

/// What stands under a key of a table; of a list, what has this `name`, or this index, such as `[2]`.
fn child<'a>(value: DeValue<'a>, key: &str) -> Option<(Range<usize>, DeValue<'a>)> {
    match value {
        DeValue::Table(table) => {
            let (name, value) = table.into_iter().find(|(name, _)| name.get_ref().as_ref() == key)?;
            Some((name.span(), value.into_inner()))
        }
        DeValue::Array(list) => {
            let is_meant = |(index, element): &(usize, &Spanned<DeValue<'_>>)| match element.get_ref() {
                DeValue::Table(table) if table.get("name").and_then(|name| name.get_ref().as_str()) == Some(key) => {
                    true
                }
                _ => is_index(key) && key[1..key.len() - 1].parse() == Ok(*index),
            };
            let (_, element) = list.iter().enumerate().find(is_meant)?;
            Some((element.span(), element.get_ref().clone()))
        }
        _ => None,
    }
}

/// Whether a key of a path is the index of an element of a list, which is not shown.
fn is_index(key: &str) -> bool {
    key.starts_with('[') && key.ends_with(']')
}
