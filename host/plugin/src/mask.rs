use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::Secret;
use crate::text::{self, REASON_BYTES, clean};

/// What stands where a secret was.
const MASK: &str = "***";
/// Shorter values are no secrets: hiding them would tell them, by what is hidden.
pub(crate) const SHORTEST: usize = 4;

/// Hides secrets in what a guest says: each value as it is, each line of one that has several, and both as they are written
/// in a JSON text or in Rust's debug form. It is for accidents: a guest that wants to say a secret can write it backwards.
/// Cheap to clone.
///
/// A text is hidden before any of it is cut off: a part of a secret passes for something else.
#[derive(Clone, Default)]
pub struct Mask(Option<Arc<Inner>>);

/// How a program writes a text in JSON.
struct Json {
    /// The characters that are written as their numbers, besides those that have to be.
    escapes: fn(char) -> bool,
    /// Whether the digits of numbers are capital letters.
    is_capital: bool,
}

/// As most programs write it; as Go does, for HTML; and in ASCII alone, as Python, Java and .NET do.
const JSON: [Json; 5] = [
    Json { escapes: |_| false, is_capital: false },
    Json { escapes: |character| matches!(character, '&' | '<' | '>' | '\u{2028}' | '\u{2029}'), is_capital: false },
    Json { escapes: is_beyond_ascii, is_capital: false },
    Json { escapes: is_beyond_ascii, is_capital: true },
    Json {
        escapes: |character| {
            is_beyond_ascii(character) || matches!(character, '"' | '&' | '\'' | '+' | '<' | '>' | '`')
        },
        is_capital: true,
    },
];

struct Inner {
    /// What is hidden.
    needles: Vec<String>,
    /// Bytes of the longest of them.
    longest: usize,
    finder: AhoCorasick,
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
        let longest = needles.iter().map(String::len).max().unwrap_or_default();
        Self(Some(Arc::new(Inner { needles, longest, finder })))
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

    /// A text without secrets, as far as so many bytes of it can be shown. Whoever shows it cuts it there.
    pub(crate) fn within<'a>(&self, text: &'a str, bytes: usize) -> Cow<'a, str> {
        let Some(inner) = &self.0 else { return text.into() };
        // A secret that begins before the cut is looked at whole. What comes after it has no room.
        let end = text.floor_char_boundary(bytes.saturating_add(inner.longest));
        if end == text.len() { self.text(text) } else { format!("{}…", self.beginning(&text[..end])).into() }
    }

    /// What people are shown of a text: no secrets, on one line, and at most so many bytes.
    pub(crate) fn shown(&self, text: &str, bytes: usize) -> String {
        clean(&self.within(text, bytes), bytes)
    }

    /// What people are shown of what a guest gives as the reason of something.
    pub(crate) fn reason(&self, text: String) -> String {
        let hidden = match self.within(&text, REASON_BYTES) {
            Cow::Borrowed(_) => None,
            Cow::Owned(hidden) => Some(hidden),
        };
        text::reason(hidden.unwrap_or(text))
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
    [value]
        .into_iter()
        .chain(lines)
        .flat_map(|text| {
            let debug = format!("{text:?}");
            let debug = debug[1..debug.len() - 1].to_owned();
            [text.to_owned(), debug].into_iter().chain(JSON.map(|style| style.write(text)))
        })
        .collect()
}

fn is_beyond_ascii(character: char) -> bool {
    !(' '..='~').contains(&character)
}

// === impl Json ===

impl Json {
    /// A text as it stands between its quotes.
    fn write(&self, text: &str) -> String {
        let mut written = String::with_capacity(text.len());
        for character in text.chars() {
            match character {
                '\n' => written.push_str("\\n"),
                '\r' => written.push_str("\\r"),
                '\t' => written.push_str("\\t"),
                '\u{8}' => written.push_str("\\b"),
                '\u{c}' => written.push_str("\\f"),
                '\\' => written.push_str("\\\\"),
                _ if character < ' ' || (self.escapes)(character) => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        let capital = self.is_capital;
                        written.push_str(&if capital { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
                    }
                }
                '"' => written.push_str("\\\""),
                _ => written.push(character),
            }
        }
        written
    }
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

/// Whether they hide the same.
impl PartialEq for Mask {
    fn eq(&self, other: &Self) -> bool {
        let needles = |mask: &Self| mask.0.as_ref().map(|inner| inner.needles.clone());
        match (&self.0, &other.0) {
            (Some(one), Some(other)) if Arc::ptr_eq(one, other) => true,
            _ => needles(self) == needles(other),
        }
    }
}

impl Eq for Mask {}

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
    fn a_value_is_hidden_as_programs_in_other_languages_write_it() {
        let secret = "café's <k3y> & \"🔑\"\u{1b}";
        let mask = mask(&[secret]);
        for text in [
            format!("{secret:?}"),
            serde_json::Value::from(secret).to_string(),
            // Python.
            r#""caf\u00e9's <k3y> & \"\ud83d\udd11\"\u001b""#.to_owned(),
            // Java.
            r#""caf\u00E9's <k3y> & \"\uD83D\uDD11\"\u001B""#.to_owned(),
            // Go.
            r#""café's \u003ck3y\u003e \u0026 \"🔑\"\u001b""#.to_owned(),
            // .NET.
            r#""caf\u00E9\u0027s \u003Ck3y\u003E \u0026 \u0022\uD83D\uDD11\u0022\u001B""#.to_owned(),
        ] {
            assert_eq!(mask.text(&text), "\"***\"", "{text}");
        }
    }

    #[test]
    fn a_secret_across_the_cut_of_a_text_is_not_told_in_part() {
        let mask = mask(&["SECRETS"]);
        for before in 0..40 {
            let text = format!("{}SECRETS and more", "é".repeat(before));
            for bytes in 0..60 {
                let shown = mask.shown(&text, bytes);
                assert!(!shown.contains(['S', 'E', 'C']), "{bytes} of {text}: {shown}");
                assert!(shown.len() <= bytes + '…'.len_utf8(), "{bytes} of {text}: {shown}");
            }
        }
        for before in 1985..2005 {
            let reason = mask.reason(format!("{}SECRETS{}", "x".repeat(before), "y".repeat(3000)));
            assert!(!reason.contains('S') && reason.ends_with('…'), "{before}: {}", &reason[1980..]);
        }
        assert_eq!(mask.reason("two\nSECRETS".to_owned()), "two\\n***");
        assert_eq!(Mask::default().reason("two\nSECRETS".to_owned()), "two\\nSECRETS");
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
