use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::{
    FailedRecord, Failure, HookOutcome, InvalidOutcome, Outcome, Output, ProcessError, Secret, SkippedRecord, Trap,
};

/// What stands where a secret was.
const MASK: &str = "***";
/// Shorter values are no secrets: hiding them would tell them, by what is hidden.
pub(crate) const SHORTEST: usize = 4;

/// Hides secrets in what a guest says: each value as it is, each line of one that has several, and both as they are written
/// in a JSON text or in Rust's debug form. It is for accidents: a guest that wants to say a secret can write it backwards.
/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Mask(Option<Arc<Inner>>);

struct Inner {
    /// What is hidden.
    needles: Vec<String>,
    finder: AhoCorasick,
}

/// What can hold a guest's words.
pub(crate) trait Masked: Sized {
    /// The same without secrets.
    fn masked(self, mask: &Mask) -> Self;
}

// === impl Mask ===

impl Mask {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut needles: Vec<String> = secrets.into_iter().flat_map(|secret| forms(secret.text())).collect();
        needles.retain(|needle| needle.len() >= SHORTEST);
        needles.sort();
        needles.dedup();
        if needles.is_empty() {
            return Self(None);
        }
        // Overlapping ones are found with this kind alone.
        let finder = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&needles);
        // It fails for more than 2 GiB of needles, and an automaton that is not there would hide nothing.
        let finder = finder.expect("secrets are small");
        Self(Some(Arc::new(Inner { needles, finder })))
    }

    /// Whether there is nothing to hide.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a text holds a secret.
    pub(crate) fn finds(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.finder.is_match(text))
    }

    /// A text without secrets.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.hidden(text, text.len())
    }

    /// A text of which the end is missing: what it ends with may be the beginning of a secret, and is hidden too.
    pub(crate) fn beginning<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let begun = self.0.as_ref().map_or(text.len(), |inner| inner.begun(text));
        self.hidden(text, begun)
    }

    fn hidden<'a>(&self, text: &'a str, begun: usize) -> Cow<'a, str> {
        match &self.0 {
            Some(inner) if begun < text.len() || inner.finder.is_match(text) => inner.hide(text, begun).into(),
            _ => text.into(),
        }
    }

    /// The bytes of the longest needle. So many bytes behind a place where a text is cut tell whether a secret is cut.
    pub(crate) fn reach(&self) -> usize {
        self.0.as_ref().and_then(|inner| inner.needles.iter().map(String::len).max()).unwrap_or(0)
    }

    /// Hides secrets in a text where it stands.
    pub(crate) fn string(&self, text: &mut String) {
        if let Cow::Owned(hidden) = self.text(text) {
            *text = hidden;
        }
    }
}

/// A value and the other ways in which it is likely to be written.
fn forms(value: &str) -> Vec<String> {
    let lines = value.lines().map(str::trim);
    let written = [value].into_iter().chain(lines).flat_map(|text| {
        let json = serde_json::Value::from(text).to_string();
        [text.to_owned(), json[1..json.len() - 1].to_owned(), text.escape_debug().to_string()]
    });
    written.collect()
}

impl Inner {
    /// Whatever of a text belongs to a needle is replaced, and so is everything from `begun` on: one mask for parts that
    /// overlap or touch.
    fn hide(&self, text: &str, begun: usize) -> String {
        let found = self.finder.find_overlapping_iter(text).map(|found| (found.start(), found.end()));
        let begun = (begun < text.len()).then_some((begun, text.len()));
        let mut spans: Vec<(usize, usize)> = Vec::new();
        // They come in the order of their ends.
        for (mut from, to) in found.chain(begun) {
            while let Some((first, _)) = spans.pop_if(|(_, last)| from <= *last) {
                from = from.min(first);
            }
            spans.push((from, to));
        }
        let mut hidden = String::with_capacity(text.len());
        let mut end = 0;
        for (from, to) in spans {
            hidden.push_str(&text[end..from]);
            hidden.push_str(MASK);
            end = to;
        }
        hidden.push_str(&text[end..]);
        hidden
    }

    /// Where the beginning of a needle stands at a text's end; the text's length if none does.
    fn begun(&self, text: &str) -> usize {
        let begins = |needle: &String| {
            let longest = text.len().min(needle.len() - 1);
            let starts = (text.len() - longest..text.len()).filter(|start| text.is_char_boundary(*start));
            starts.into_iter().find(|start| needle.starts_with(&text[*start..]))
        };
        self.needles.iter().filter_map(begins).min().unwrap_or(text.len())
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.is_empty() { "Mask" } else { "Mask(…)" })
    }
}

// === impl Masked ===

impl Masked for () {
    fn masked(self, _: &Mask) -> Self {}
}

impl Masked for Outcome {
    fn masked(mut self, mask: &Mask) -> Self {
        if mask.is_empty() {
            return self;
        }
        for FailedRecord { reason, .. } in &mut self.failed {
            mask.string(reason);
        }
        for SkippedRecord { reason, .. } in &mut self.skipped {
            mask.string(reason);
        }
        mask_names(&mut self.outputs, mask);
        self
    }
}

impl Masked for HookOutcome {
    fn masked(mut self, mask: &Mask) -> Self {
        if !mask.is_empty() {
            mask_names(&mut self.outputs, mask);
        }
        self
    }
}

/// A name that the configuration does not have is told. What outputs hold is data and stays.
fn mask_names(outputs: &mut [Output], mask: &Mask) {
    // Outputs of one name share its text.
    let mut clean: Option<Arc<str>> = None;
    for output in outputs {
        if clean.as_ref().is_some_and(|clean| Arc::ptr_eq(clean, &output.name)) {
            continue;
        }
        if let Cow::Owned(hidden) = mask.text(&output.name) {
            output.name = hidden.into();
        }
        clean = Some(Arc::clone(&output.name));
    }
}

impl Masked for Failure {
    fn masked(self, mask: &Mask) -> Self {
        if mask.is_empty() {
            return self;
        }
        let text = |text: String| mask.text(&text).into_owned();
        match self {
            Self::Guest(ProcessError::Retry { after, message }) => {
                Self::Guest(ProcessError::Retry { after, message: text(message) })
            }
            Self::Guest(ProcessError::Reject { message }) => {
                Self::Guest(ProcessError::Reject { message: text(message) })
            }
            Self::Guest(ProcessError::StopShard { message }) => {
                Self::Guest(ProcessError::StopShard { message: text(message) })
            }
            Self::Refused(message) => Self::Refused(text(message)),
            Self::Trap(Trap { message, backtrace, stderr }) => {
                Self::Trap(Trap { message: text(message), backtrace: text(backtrace), stderr: text(stderr) })
            }
            Self::InvalidOutcome(invalid) => {
                let said = invalid.to_string();
                let hidden = mask.finds(&said);
                // Which of its texts holds it does not matter: whoever reads on gets all of it as one.
                Self::InvalidOutcome(if hidden { InvalidOutcome::Malformed(text(said)) } else { invalid })
            }
            Self::Host(reason) => Self::Host(text(reason)),
            other @ (Self::Timeout(_) | Self::Memory { .. }) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(secrets: &[&str]) -> Mask {
        let secrets: Vec<Secret> = secrets.iter().map(|secret| Secret::new(*secret)).collect();
        Mask::new(&secrets)
    }

    #[test]
    fn a_value_is_hidden_in_each_form_that_is_likely() {
        let secret = "pa\"ss\nword\\1";
        let mask = mask(&[secret]);
        for text in [secret.to_owned(), format!("{secret:?}"), serde_json::json!({ "key": secret }).to_string()] {
            let hidden = mask.text(&format!("before {text} after")).into_owned();
            assert!(hidden.starts_with("before ") && hidden.ends_with(" after") && hidden.contains("***"), "{hidden}");
            assert!(!hidden.contains("word") && !hidden.contains("pa"), "{hidden}");
        }
        // Printed, it is two lines of the log.
        assert_eq!(mask.text("the first is pa\"ss"), "the first is ***");
    }

    #[test]
    fn values_that_overlap_are_hidden_together_and_short_ones_not_at_all() {
        let mask = mask(&["abcdef", "defghi", "xyz", ""]);
        assert_eq!(mask.text("-abcdefghi-xyz-abcdefabcdef-"), "-***-xyz-***-");
        assert_eq!(mask.text("abcde"), "abcde");
        assert!(Mask::new(&[Secret::new("xyz")]).is_empty());
    }

    #[test]
    fn what_was_cut_ends_before_a_secret_that_may_begin_there() {
        let mask = mask(&["secret"]);
        assert_eq!(mask.beginning("a secr"), "a ***");
        assert_eq!(mask.beginning("a secret"), "a ***");
        assert_eq!(mask.beginning("a secret b"), "a *** b");
        assert_eq!(mask.beginning("whose"), "who***");
        // The whole one and the beginning of another share letters.
        assert_eq!(self::mask(&["abab"]).beginning("xabab"), "x***");
        assert_eq!(Mask::default().beginning("whose"), "whose");
    }

    #[test]
    fn failures_and_outcomes_are_told_without_secrets() {
        let mask = mask(&["hunter22"]);
        let said = "it was hunter22".to_owned();
        let failures = [
            Failure::Guest(ProcessError::Retry { after: std::time::Duration::ZERO, message: said.clone() }),
            Failure::Guest(ProcessError::Reject { message: said.clone() }),
            Failure::Guest(ProcessError::StopShard { message: said.clone() }),
            Failure::Refused(said.clone()),
            Failure::Trap(Trap { message: said.clone(), backtrace: said.clone(), stderr: said.clone() }),
            Failure::InvalidOutcome(InvalidOutcome::UnknownOutput { output: 1, name: said.clone() }),
            Failure::InvalidOutcome(InvalidOutcome::HashKey {
                output: 1,
                source: "hunter22".parse::<shardmill_record::HashKey>().unwrap_err(),
            }),
            Failure::Host(said.clone()),
        ];
        for failure in failures {
            let told = format!("{:?}", failure.clone().masked(&mask));
            assert!(told.contains("***") && !told.contains("hunter22"), "{failure:?} became {told}");
        }
        let record = shardmill_record::UserRecord {
            partition_key: "hunter22".into(),
            explicit_hash_key: None,
            data: bytes::Bytes::from_static(b"hunter22"),
        };
        let named = |name: &str| Output { name: name.into(), record: record.clone(), cause: crate::Cause::Batch };
        let outcome = Outcome {
            failed: vec![FailedRecord { index: 0, reason: said.clone(), retry: true }],
            skipped: vec![SkippedRecord { index: 1, reason: said }],
            outputs: vec![named("out"), named("hunter22")],
            ..Outcome::default()
        };
        let told = outcome.masked(&mask);
        assert_eq!((told.failed[0].reason.as_str(), told.skipped[0].reason.as_str()), ("it was ***", "it was ***"));
        assert_eq!((&*told.outputs[0].name, &*told.outputs[1].name), ("out", "***"));
        assert_eq!(told.outputs[0].record, record, "data is data");
    }

    fn pieces() -> impl Strategy<Value = String> {
        prop::collection::vec("[ab é]|abba|bab", 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn nothing_is_left_of_a_secret_and_the_rest_stays(
            secrets in prop::collection::vec("[ab]{4,6}", 1..4),
            text in pieces(),
        ) {
            let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
            let mask = mask(&secrets);
            // Written down letter by letter: those that belong to a secret are hidden, in one piece each.
            let mut is_hidden = vec![false; text.len()];
            for secret in &secrets {
                for (start, _) in text.char_indices() {
                    if text[start..].starts_with(secret) {
                        is_hidden[start..start + secret.len()].fill(true);
                    }
                }
            }
            let mut expected = String::new();
            for (place, character) in text.char_indices() {
                if !is_hidden[place] {
                    expected.push(character);
                } else if place == 0 || !is_hidden[place - 1] {
                    expected.push_str(MASK);
                }
            }
            prop_assert_eq!(mask.text(&text), expected);
        }

        #[test]
        fn a_text_that_is_cut_anywhere_tells_nothing_of_a_secret(before in pieces(), cut in 0usize..40) {
            let text = format!("{before}SECRETS and more");
            let cut = (0..=cut.min(text.len())).rev().find(|cut| text.is_char_boundary(*cut)).unwrap_or(0);
            let mask = mask(&["SECRETS"]);
            let shown = mask.beginning(&text[..cut]).into_owned();
            prop_assert!(!shown.contains(|letter: char| letter.is_ascii_uppercase()), "{}", shown);
            let whole = before.len().min(cut);
            prop_assert!(shown.starts_with(&before[..whole]), "{}", shown);
        }
    }
}
