//! A mistake in a configuration, with the line that it is in.

use std::ops::Range;

use miette::{Diagnostic, NamedSource, SourceSpan};

/// One mistake, shown with its file, line and key.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct Mistake {
    message: String,
    #[source_code]
    source_code: NamedSource<String>,
    #[label("{label}")]
    span: SourceSpan,
    label: String,
    #[help]
    help: Option<String>,
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
        help: Option<String>,
    ) -> Self {
        Self {
            message,
            source_code: NamedSource::new(name, source.to_owned()),
            span: span.into(),
            label: label.to_owned(),
            help,
        }
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
        return Place { key: in_defaults.join("."), span };
    }
    Place { key: path.join("."), span }
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
    let Ok(document) = toml::de::DeTable::parse(source) else { return (0..0, 0) };
    let (mut span, mut depth) = (0..0, 0);
    let mut table = document.into_inner();
    for key in path {
        let Some((found, value)) = table.into_iter().find(|(name, _)| name.get_ref().as_ref() == *key) else { break };
        (span, depth) = (found.span(), depth + 1);
        match value.into_inner() {
            toml::de::DeValue::Table(inner) => table = inner,
            _value => break,
        }
    }
    (span, depth)
}
