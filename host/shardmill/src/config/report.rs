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

/// Where a key, such as `["processors", "flights", "batch", "records"]`, stands in a document; or the deepest
/// table on the way to it, if it is not there.
pub(super) fn span_of(source: &str, path: &[&str]) -> Range<usize> {
    let Ok(document) = toml::de::DeTable::parse(source) else { return 0..0 };
    let mut span = 0..0;
    let mut table = document.into_inner();
    for key in path {
        let Some((found, value)) = table.into_iter().find(|(name, _)| name.get_ref().as_ref() == *key) else { break };
        span = found.span();
        match value.into_inner() {
            toml::de::DeValue::Table(inner) => table = inner,
            _value => break,
        }
    }
    span
}
