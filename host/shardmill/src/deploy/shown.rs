//! What is told of a processor's plugin.

use serde::Serialize;

/// What `/status` tells of a processor's plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Shown {
    /// Of what runs.
    pub(crate) digest: String,
    /// Where it came from.
    pub(crate) from: String,
    /// Since when it runs, such as `2026-01-01T00:00:00Z`.
    pub(crate) since: String,
    /// What was to be in its place, until something is that is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<Refused>,
    /// What is wrong with the processor's file, which what runs does not need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}

/// A version that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Refused {
    pub(crate) digest: String,
    pub(crate) from: String,
    pub(crate) since: String,
    pub(crate) reason: String,
}

// === impl Shown ===

impl Shown {
    /// What should be known, a sentence for each.
    pub(crate) fn notes(&self, processor: &str) -> Vec<String> {
        let refused = self.refused.iter().map(|Refused { digest, from, reason, .. }| {
            format!(
                "processor {processor}: the plugin {from} ({}…) is refused, and {}… goes on: {reason}",
                short(digest),
                short(&self.digest)
            )
        });
        let file = self.file.iter().map(|trouble| format!("processor {processor}: {trouble}"));
        refused.chain(file).collect()
    }
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
